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
void fill_recovery_calls(handlerton *into);

} // namespace terrace
#endif
