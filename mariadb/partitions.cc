/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Partitions that a crash parted from their table. The server renames, creates and drops a table's partitions one by one, and the list
  of them (.par) before or after them; its own recovery looks at the list, and so leaves what lies between, with any engine.

  After the server's recovery, partitions whose table has no list are looked at: where another table's list names a partition that the
  engine lacks, a rename was interrupted, and it is brought back. What an ALTER made for its own time is dropped. What belongs to nobody is named in the error log and stays until
  DROP TABLE or DROP DATABASE is told of it: a data directory may be lost for other reasons, and the rows not with it.
*/
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "mysqld.h"
#include "handler.h"
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <vector>

namespace terrace {

static const char MARK[]= "#P#";
/* A list: words of 4 bytes. Its length in words, a checksum, the number of partitions; a byte for each, its engine; the length of
   the names, the names, each ended by a zero. */
static const size_t WORD= 4, COUNT_AT= 8, ENGINES_AT= 12;

namespace fs= std::filesystem;

bool has_partition_list(const std::string &table)
{
  std::error_code error;
  return fs::exists(fs::path(mysql_real_data_home) / (table + ".par"), error) || error;
}

static size_t words(size_t bytes) { return (bytes + WORD - 1) / WORD * WORD; }

/** The names that a list has, if its partitions are this engine's. */
static std::vector<std::string> names_in(const fs::path &file)
{
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string list= text.str();
  const uchar *bytes= reinterpret_cast<const uchar *>(list.data());
  std::vector<std::string> names;
  if (!in || list.size() < ENGINES_AT + WORD)
    return names;
  const size_t count= uint4korr(bytes + COUNT_AT), names_at= ENGINES_AT + words(count) + WORD;
  if (count == 0 || count > list.size() || names_at > list.size() || bytes[ENGINES_AT] != (uchar) hton->db_type)
    return names;
  size_t at= names_at;
  for (size_t one= 0; one < count && at < list.size(); one++)
  {
    names.emplace_back(list.c_str() + at);
    at+= names.back().size() + 1;
  }
  return names;
}

static void list_name(void *context, terrace_bytes name, terrace_bytes)
{
  static_cast<std::set<std::string> *>(context)->emplace(reinterpret_cast<const char *>(name.data), name.len);
}

/** Partitions without a list, by what follows the table's name. */
static std::multimap<std::string, std::string> strays(const std::set<std::string> &tables)
{
  std::multimap<std::string, std::string> found;
  for (const std::string &name : tables)
  {
    const size_t mark= name.find(MARK);
    if (mark != std::string::npos && !has_partition_list(name.substr(0, mark)))
      found.emplace(name.substr(mark), name);
  }
  return found;
}

/** Whether a partition is of a table that the server makes for the time of an ALTER; its database is there. */
static bool is_passing(const std::string &name)
{
  const size_t slash= name.find('/');
  std::error_code error;
  return slash != std::string::npos && !name.compare(slash + 1, 5, "#sql-") &&
         fs::is_directory(fs::path(mysql_real_data_home) / name.substr(0, slash), error);
}

static void drop_passing(const std::string &name)
{
  if (terrace_table_drop(engine, bytes_of(name)))
    sql_print_warning("Terrace: can't drop %s: %s", name.c_str(), last_message().c_str());
}

static int bring_back_partitions(handlerton *)
{
  std::set<std::string> tables;
  if (!engine || terrace_table_list(engine, list_name, &tables))
    return 0;
  std::multimap<std::string, std::string> stray= strays(tables);
  if (stray.empty())
    return 0;
  std::error_code error;
  for (const fs::directory_entry &database : fs::directory_iterator(mysql_real_data_home, error))
  {
    if (!database.is_directory(error))
      continue;
    for (const fs::directory_entry &file : fs::directory_iterator(database.path(), error))
    {
      if (file.path().extension() != ".par")
        continue;
      const std::string table= database.path().filename().string() + "/" + file.path().stem().string();
      for (const std::string &partition : names_in(file.path()))
      {
        const std::string suffix= MARK + partition, name= table + suffix;
        // Which of several it would be is not known.
        if (tables.count(name) || stray.count(suffix) != 1)
          continue;
        const std::string from= stray.find(suffix)->second;
        if (terrace_table_rename(engine, bytes_of(from), bytes_of(name)))
          sql_print_warning("Terrace: can't rename %s back to %s: %s", from.c_str(), name.c_str(), last_message().c_str());
        else
          sql_print_information("Terrace: a rename was interrupted: %s is %s again", from.c_str(), name.c_str());
        stray.erase(suffix);
      }
    }
  }
  for (const auto &one : stray)
    if (is_passing(one.second))
      drop_passing(one.second);
    else
      sql_print_warning("Terrace: %s is a partition of no table of the server; DROP TABLE of its table removes it", one.second.c_str());
  return 0;
}

std::vector<std::string> left_partitions(const std::string &table)
{
  std::set<std::string> tables;
  std::vector<std::string> left;
  if (has_partition_list(table) || terrace_table_list(engine, list_name, &tables))
    return left;
  for (auto at= tables.lower_bound(table + MARK); at != tables.end() && !at->compare(0, table.size() + sizeof MARK - 1, table + MARK); ++at)
    left.push_back(*at);
  return left;
}

void fill_partition_calls(handlerton *into)
{
  into->signal_ddl_recovery_done= bring_back_partitions;
}

} // namespace terrace
