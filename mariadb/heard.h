/* SPDX-License-Identifier: GPL-2.0-only */
/*
  KILL and max_statement_time where the engine is asked for no transaction, or for another than the session's: opening a table,
  statistics, CHECK, what the optimizer asks. A page that is far may be long in coming there, too.
*/
#ifndef TERRACE_HEARD_H
#define TERRACE_HEARD_H

#include "session.h"

namespace terrace {

/** While it lives, a KILL ends the wait that this thread is in, or a transaction of its own, with TERRACE_CANCELLED. A statement that
    is killed already waits for nothing. Nothing for a thread that is no connection's. */
class Heard
{
public:
  /** What the thread asks for no transaction. */
  Heard();
  /** What it asks for this transaction, whose statement has begun. */
  explicit Heard(terrace_txn *txn);
  ~Heard();
  Heard(const Heard &)= delete;
  Heard &operator=(const Heard &)= delete;

private:
  terrace_scope *scope= nullptr;
  Session *session= nullptr;            // that hears for the transaction
  terrace_cancel *own= nullptr;         // of it
};

} // namespace terrace
#endif
