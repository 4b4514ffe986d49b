/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Which connection still has the transaction that it prepared by XA: until the connection ends, a session names the transaction, or the
  server decides it.
*/
#include "session.h"
#include "globals.h"
#include <map>
#include <mutex>

namespace terrace {

/* Connections by the names of the transactions that they have prepared by XA. */
static std::mutex xa_guard;
static std::map<std::string, Session *> xa_prepared;

void Session::note_xa_prepared(const std::string &name)
{
  std::lock_guard<std::mutex> lock(xa_guard);
  xa= true;
  xa_name= name;
  if (!name.empty())
    xa_prepared[name]= this;
}

/** The caller holds the guard. */
void Session::forget_xa()
{
  auto at= xa_prepared.find(xa_name);
  // Another connection may have reused the name by now, after a session decided this transaction.
  if (at != xa_prepared.end() && at->second == this)
    xa_prepared.erase(at);
  xa= false;
  xa_name.clear();
}

void Session::take_xa()
{
  std::lock_guard<std::mutex> lock(xa_guard);
  forget_xa();
}

void Session::leave_xa()
{
  if (txn && xa_name.empty())
    terrace_txn_rollback(txn);
  {
    // A session that names the transaction finds it either with this connection or waiting in the engine.
    std::lock_guard<std::mutex> lock(xa_guard);
    forget_xa();
    let_go();
  }
  ended();
}

int32_t tables_of_prepared(terrace_xid_fn each, void *context)
{
  std::lock_guard<std::mutex> lock(xa_guard);
  for (const auto &one : xa_prepared)
    if (one.second->transaction())
      if (int32_t code= terrace_txn_tables(engine, one.second->transaction(), each, context))
        return code;
  return TERRACE_OK;
}

void let_go_of_prepared(const std::string &name)
{
  std::lock_guard<std::mutex> lock(xa_guard);
  auto at= xa_prepared.find(name);
  if (at == xa_prepared.end())
    return;
  Session *session= at->second;
  xa_prepared.erase(at);
  session->let_go();
}

} // namespace terrace
