/* SPDX-License-Identifier: GPL-2.0-only */
#include "own_table.h"
#include "ddl.h"
#include "globals.h"

namespace terrace {

OwnTable::OwnTable(const char *text, bool make)
{
  const terrace_bytes name= bytes_of(text, strlen(text));
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

OwnTable::~OwnTable()
{
  heard.reset();
  if (txn && !ended)
    terrace_txn_rollback(txn);
  terrace_txn_close(txn);
  terrace_table_close(table);
}

int32_t OwnTable::open(terrace_bytes name)
{
  Heard while_opened;
  return terrace_table_open(engine, name, &table);
}

int32_t OwnTable::put(const std::string &key, const std::string &row)
{
  const int32_t code= terrace_row_insert(txn, table, bytes_of(key), bytes_of(row), nullptr, 0, nullptr, 0);
  if (code != TERRACE_DUPLICATE)
    return code;
  return terrace_row_update(txn, table, bytes_of(key), bytes_of(row), nullptr, 0, nullptr, 0, nullptr, 0);
}

int32_t OwnTable::remove(const std::string &key)
{
  return terrace_row_delete(txn, table, bytes_of(key), nullptr, 0);
}

int32_t OwnTable::commit(bool durable)
{
  terrace_ticket *ticket= nullptr;
  if (const int32_t code= terrace_txn_commit(txn, durable ? &ticket : nullptr))
    return code;
  ended= true;
  return ticket ? terrace_ticket_wait(ticket) : TERRACE_OK;
}

} // namespace terrace
