/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Which transactions hold and wait for which locks: information_schema.TERRACE_TRX, TERRACE_LOCKS, TERRACE_LOCK_WAITS and
  TERRACE_LAST_DEADLOCK, whose rows the engine returns. lock_report.h has them as text.
*/
#ifndef TERRACE_LOCK_TABLES_H
#define TERRACE_LOCK_TABLES_H

#include "server.h"

namespace terrace {

int start_trx(void *place);
int start_locks(void *place);
int start_lock_waits(void *place);
int start_last_deadlock(void *place);

/** Lets the engine know, from now on, which statement a connection runs. */
void tell_statements();

} // namespace terrace
#endif
