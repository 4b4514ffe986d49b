/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Transactions, their waits and the last deadlock in lines to read, for SHOW ENGINE STATUS and the error log. They are made of the rows that the
  engine has for the tables of locks_seen.h.
*/
#ifndef TERRACE_LOCK_WORDS_H
#define TERRACE_LOCK_WORDS_H

#include "server.h"
#include <string>

class Time_zone;

namespace terrace {

/** Those that run, oldest first, with what they wait for and whom. */
std::string transactions_in_words();
/** Empty if there was none. */
std::string last_deadlock(Time_zone *zone);
/** Whether each deadlock is written to the error log, as it is shown as the last one. */
void print_deadlocks(bool on);

} // namespace terrace
#endif
