/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Two-phase commit by name: a prepared transaction's name is its XID's bytes, and the calls by which the server, after a
  crash or from another session, asks for prepared transactions and decides on them.
*/
#ifndef TERRACE_XID_H
#define TERRACE_XID_H

#include "server.h"
#include <string>

namespace terrace {

std::string name_of(const XID *xid);
/**
  Waits as for a row lock while a prepared transaction, which no metadata lock guards any more, has changes or locks in the table or
  one of its partitions: what would drop, empty or replace it comes after the decision, as with InnoDB. Handler error.
*/
int wait_for_prepared(THD *thd, const std::string &name);
void fill_recovery_calls(handlerton *into);

} // namespace terrace
#endif
