/* SPDX-License-Identifier: GPL-2.0-only */
#include "kept_statistics.h"
#include "ddl.h"
#include "globals.h"
#include "kill_scope.h"
#include "walk.h"
#include <optional>

namespace terrace {

static const char TABLE_NAME[]= "#statistics";        // no table of the server is named so: those have a slash

namespace {

/** The table of samples in a transaction of its own, which waits for nobody's locks; a KILL ends its other waits. */
class Kept
{
public:
  explicit Kept(bool make)
  {
    const terrace_bytes name= bytes_of(TABLE_NAME, sizeof TABLE_NAME - 1);
    int32_t code= open(name);
    if (code == TERRACE_ABSENT && make)
    {
      const terrace_index_definition index= {sizeof index, bytes_of("(rows)", 6), true};
      const std::string properties= plain_properties();
      terrace_table_definition definition= {};
      definition.size= sizeof definition;
      definition.name= name;
      definition.indexes= &index;
      definition.index_count= 1;
      definition.properties= bytes_of(properties);
      code= terrace_table_create(engine, &definition, &table);
      if (code == TERRACE_EXISTS)
        code= open(name);
    }
    if (code)
      table= nullptr;
    else if (terrace_txn_begin(engine, TERRACE_ISOLATION_READ_COMMITTED, &txn))
      txn= nullptr;
    else
    {
      terrace_txn_set_lock_wait(txn, 0);
      terrace_txn_statement_begin(txn);
      heard.emplace(txn);
    }
  }
  ~Kept()
  {
    heard.reset();
    if (txn && !ended)
      terrace_txn_rollback(txn);
    terrace_txn_close(txn);
    terrace_table_close(table);
  }
  bool is_open() const { return txn; }
  void commit(bool durable)
  {
    terrace_ticket *ticket= nullptr;
    if (terrace_txn_commit(txn, durable ? &ticket : nullptr))
      return;
    ended= true;
    terrace_ticket_wait(ticket);
  }

  terrace_table *table= nullptr;
  terrace_txn *txn= nullptr;

private:
  int32_t open(terrace_bytes name)
  {
    Heard while_opened;
    return terrace_table_open(engine, name, &table);
  }

  std::optional<Heard> heard;
  bool ended= false;
};

} // namespace

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
  Kept kept(false);
  terrace_bytes found;
  if (!kept.is_open() || terrace_row_get(kept.txn, kept.table, bytes_of(key), TERRACE_LOCK_NONE, &found))
    return false;
  row->assign(reinterpret_cast<const char *>(found.data), found.len);
  return true;
}

void keep_statistics(const std::string &key, const std::string &row, bool durable)
{
  Kept kept(true);
  if (!kept.is_open())
    return;
  int32_t code= terrace_row_insert(kept.txn, kept.table, bytes_of(key), bytes_of(row), nullptr, 0, nullptr, 0);
  if (code == TERRACE_DUPLICATE)
    code= terrace_row_update(kept.txn, kept.table, bytes_of(key), bytes_of(row), nullptr, 0, nullptr, 0, nullptr, 0);
  if (!code)
    kept.commit(durable);
}

void forget_statistics(const std::string &key)
{
  Kept kept(false);
  if (kept.is_open() && !terrace_row_delete(kept.txn, kept.table, bytes_of(key), nullptr, 0))
    kept.commit(false);
}

void keep_statistics_of(const std::set<std::string> &wanted)
{
  Kept kept(false);
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
    changed|= !terrace_row_delete(kept.txn, kept.table, bytes_of(key), nullptr, 0);
  if (changed)
    kept.commit(false);
}

} // namespace terrace
