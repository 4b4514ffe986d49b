/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Transactions, their waits and the last deadlock as readable text, for SHOW ENGINE STATUS and the error log. The text is made from the rows that
  the engine returns for the tables of lock_tables.h.
*/
#ifndef TERRACE_LOCK_REPORT_H
#define TERRACE_LOCK_REPORT_H

#include "server.h"
#include <string>

class Time_zone;

namespace terrace {

/** The running transactions, oldest first, with the lock and the transactions that each waits for. */
std::string transactions_in_words();
/** The last deadlock; empty if there was none. */
std::string last_deadlock(Time_zone *zone);
/** Sets whether each deadlock is written to the error log, in the form of last_deadlock. */
void print_deadlocks(bool on);

} // namespace terrace
#endif
