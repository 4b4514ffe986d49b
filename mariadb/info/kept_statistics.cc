/* SPDX-License-Identifier: GPL-2.0-only */
#include "kept_statistics.h"
#include "globals.h"
#include "own_table.h"
#include "walk.h"

namespace terrace {

static const char TABLE_NAME[]= "#statistics";        // no table of the server is named so: those have a slash

std::string statistics_suffix(const std::string &name)
{
  const size_t partition= name.find("#P#");
  return partition == std::string::npos ? "" : name.substr(partition);
}

std::string statistics_key(const uchar *version, size_t length, const std::string &name)
{
  return std::string(reinterpret_cast<const char *>(version), length) + statistics_suffix(name);
}

bool read_statistics(const std::string &key, std::string *row)
{
  OwnTable kept(TABLE_NAME, false);
  terrace_bytes found;
  if (!kept.is_open() || terrace_row_get(kept.txn, kept.table, bytes_of(key), TERRACE_LOCK_NONE, &found))
    return false;
  row->assign(reinterpret_cast<const char *>(found.data), found.len);
  return true;
}

void keep_statistics(const std::string &key, const std::string &row, bool durable)
{
  OwnTable kept(TABLE_NAME, true);
  if (!kept.is_open())
    return;
  if (!kept.put(key, row))
    kept.commit(durable);
}

void forget_statistics(const std::string &key)
{
  OwnTable kept(TABLE_NAME, false);
  if (kept.is_open() && !kept.remove(key))
    kept.commit(false);
}

void keep_statistics_of(const std::set<std::string> &wanted)
{
  OwnTable kept(TABLE_NAME, false);
  if (!kept.is_open())
    return;
  bool changed= false;
  std::vector<std::string> unwanted;
  walk(kept.txn, kept.table, 0, current_thd, [&](const uchar *key, size_t length, const uchar *, size_t) {
    std::string name(reinterpret_cast<const char *>(key), length);
    if (!wanted.count(name))
      unwanted.push_back(std::move(name));
    return true;
  });
  for (const std::string &key : unwanted)
    changed|= !kept.remove(key);
  if (changed)
    kept.commit(false);
}

} // namespace terrace
