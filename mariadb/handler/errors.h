/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Engine errors → the server's. One table, so that a user meets the code that a user of InnoDB would.
*/
#ifndef TERRACE_ERRORS_H
#define TERRACE_ERRORS_H

#include "server.h"
#include <string>

namespace terrace {

/** Handler errors of our own: this plus the engine's code. Their text comes from last_message(). */
static const int OWN_ERROR= 13000;

inline bool is_own_error(int error) { return error > OWN_ERROR && error < OWN_ERROR + 100; }

/** The text of this thread's last engine error. */
std::string last_message();

/** Bytes of a handler's own text that the server puts into its errors 1296 and 1297. */
static const size_t HANDLER_TEXT_MAX= 200;

/** The text in UTF-8, cut if it has more than `max` bytes: behind a word, unless that is a long one. */
std::string shortened(const std::string &text, size_t max);

/**
  The handler error for an engine's code. Marks the transaction for rollback where InnoDB rolls it back, and leaves the
  engine's text as a warning (and in the error log where an operator must know) when the code alone doesn't say it.
*/
int map_error(THD *thd, int32_t code);

/** To the error log as [ERROR], unless the same text is there since the server's start. */
void log_error_once(const std::string &text);

/** Reports an engine's error to the client, for calls whose error the server doesn't print. */
void report_error(int32_t code, const char *what);

} // namespace terrace
#endif
