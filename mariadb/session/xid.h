/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Two-phase commit by name: a prepared transaction's name is its XID's bytes. Here are the calls by which the server, after a crash or from
  another session, lists prepared transactions and decides them.
*/
#ifndef TERRACE_XID_H
#define TERRACE_XID_H

#include "server.h"
#include <string>

namespace terrace {

std::string name_of(const XID *xid);
/**
  Waits, as for a row lock, while a prepared transaction that no metadata lock protects any more has changes or locks in the table or one of
  its partitions: statements that drop, empty or replace the table must wait for the decision, as in InnoDB. Returns a handler error.
*/
int wait_for_prepared(THD *thd, const std::string &name);
void fill_recovery_calls(handlerton *into);

} // namespace terrace
#endif
