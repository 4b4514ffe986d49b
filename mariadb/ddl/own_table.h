/* SPDX-License-Identifier: GPL-2.0-only */
/*
  A table of the engine that the server doesn't know: its name has no slash. It has one index, its keys and rows are bytes.
*/
#ifndef TERRACE_OWN_TABLE_H
#define TERRACE_OWN_TABLE_H

#include "kill_scope.h"
#include "server.h"
#include <optional>

namespace terrace {

/** The table in a transaction of its own, which waits for nobody's locks; a KILL ends its other waits. */
class OwnTable
{
public:
  /** @param make  creates it if there is none */
  OwnTable(const char *name, bool make);
  ~OwnTable();
  OwnTable(const OwnTable &)= delete;
  OwnTable &operator=(const OwnTable &)= delete;
  bool is_open() const { return txn; }
  /** These return an engine code. */
  int32_t put(const std::string &key, const std::string &row);
  int32_t remove(const std::string &key);
  /** Ends the transaction. `durable`: returns when it is. */
  int32_t commit(bool durable);

  terrace_table *table= nullptr;
  terrace_txn *txn= nullptr;

private:
  int32_t open(terrace_bytes name);
  std::optional<Heard> heard;
  bool ended= false;
};

} // namespace terrace
#endif
