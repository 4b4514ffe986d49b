/* SPDX-License-Identifier: GPL-2.0-only */
/* SET GLOBAL terrace_copy_to: copies the running engine's volume; the copy is complete when the statement ends. */
#ifndef TERRACE_COPY_H
#define TERRACE_COPY_H

#include "server.h"

namespace terrace {

/** Progress callback of a copy that the statement of `thd` waits for: SHOW PROCESSLIST shows the progress, KILL cancels the copy. */
bool tell_copied(void *thd, uint64_t done, uint64_t all);

/** Update function of the variable; the variable's value stays empty. */
void copy_to(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);

} // namespace terrace

#endif
