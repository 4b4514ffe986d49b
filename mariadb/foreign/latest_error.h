/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_LATEST_ERROR_H
#define TERRACE_LATEST_ERROR_H

#include "server.h"
#include <string>

namespace terrace {

/** Keeps what went wrong with a foreign key, for SHOW ENGINE STATUS: of all sessions' errors the last. */
void keep_foreign_error(THD *thd, const std::string &what);
/** When that was, in this time zone, in which connection, what, and in which statement; empty if nothing was since the start. */
std::string latest_foreign_error(Time_zone *zone);

} // namespace terrace
#endif
