/* SPDX-License-Identifier: GPL-2.0-only */
/*
  KILL and max_statement_time in calls of the engine that belong to no transaction, or to another one than the session's: opening a table,
  statistics, CHECK, the optimizer's estimates. These calls, too, may wait long for a page from a lower tier.
*/
#ifndef TERRACE_KILL_SCOPE_H
#define TERRACE_KILL_SCOPE_H

#include "session.h"

namespace terrace {

/** While this object lives, a KILL cancels the wait of this thread, or of the given transaction, with TERRACE_CANCELLED. A statement that has
    already been killed doesn't wait. Does nothing in a thread that belongs to no connection. */
class Heard
{
public:
  /** For calls that belong to no transaction. */
  Heard();
  /** For calls that belong to this transaction, whose statement has begun. */
  explicit Heard(terrace_txn *txn);
  ~Heard();
  Heard(const Heard &)= delete;
  Heard &operator=(const Heard &)= delete;

private:
  terrace_scope *scope= nullptr;
  Session *session= nullptr;            // passes a KILL on to the transaction
  terrace_cancel *own= nullptr;         // the transaction's cancel handle
};

} // namespace terrace
#endif
