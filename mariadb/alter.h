/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_ALTER_H
#define TERRACE_ALTER_H

#include "server.h"
#include <string>

namespace terrace {

/** What the engine keeps of a table for the server (see ddl.cc). */
std::string make_properties(bool temporary, const TABLE *table);

} // namespace terrace
#endif
