/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Who holds and waits for which lock: information_schema.TERRACE_TRX, TERRACE_LOCKS, TERRACE_LOCK_WAITS and
  TERRACE_LAST_DEADLOCK, whose rows the engine makes; and the last deadlock in words, for SHOW ENGINE STATUS.
*/
#ifndef TERRACE_LOCKS_SEEN_H
#define TERRACE_LOCKS_SEEN_H

#include "server.h"
#include <string>

namespace terrace {

int start_trx(void *place);
int start_locks(void *place);
int start_lock_waits(void *place);
int start_last_deadlock(void *place);

/** From now on the engine knows which statement a connection runs. */
void tell_statements();
/** The last deadlock in lines to read; empty if there was none. */
std::string last_deadlock(THD *thd);

} // namespace terrace
#endif
