/* SPDX-License-Identifier: GPL-2.0-only */
#include "failed_drops.h"
#include "definition_files.h"
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace terrace {

namespace fs= std::filesystem;

static fs::path file() { return fs::path(mysql_real_data_home) / "terrace-failed-drops"; }

static void put(std::string *bytes, const std::string &text)
{
  *bytes+= (char) text.size();
  *bytes+= (char) (text.size() >> 8);
  *bytes+= text;
}

/** Returns false if the remaining bytes hold no complete text. */
static bool take(const std::string &bytes, size_t *at, std::string *text)
{
  if (bytes.size() - *at < 2)
    return false;
  const size_t length= uint2korr(reinterpret_cast<const uchar *>(bytes.data()) + *at);
  if (bytes.size() - *at - 2 < length)
    return false;
  *text= bytes.substr(*at + 2, length);
  *at+= 2 + length;
  return true;
}

void note_failed_drop(const std::string &name, const std::string &version)
{
  std::string bytes;
  put(&bytes, name);
  put(&bytes, version);
  const int to= open(file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0660);
  const bool noted= to >= 0 && write(to, bytes.data(), bytes.size()) == (ssize_t) bytes.size() && !fsync(to);
  if (!noted)
    sql_print_warning("Terrace: can't note that the drop of %s failed: error %d", name.c_str(), errno);
  if (to >= 0)
    close(to);
  sync_directory("");
}

std::vector<std::pair<std::string, std::string>> failed_drops()
{
  std::ifstream in(file(), std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string bytes= text.str();
  std::vector<std::pair<std::string, std::string>> drops;
  std::string name, version;
  for (size_t at= 0; take(bytes, &at, &name) && take(bytes, &at, &version);)
    if (!name.empty() && !version.empty())
      drops.emplace_back(name, version);
  return drops;
}

void forget_failed_drops()
{
  std::error_code error;
  if (fs::remove(file(), error))
    sync_directory("");
}

} // namespace terrace
