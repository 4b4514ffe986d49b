/* SPDX-License-Identifier: GPL-2.0-only */
/* SET GLOBAL terrace_copy_to: a copy of the running engine's volume; it is whole when the statement ends. */
#ifndef TERRACE_COPY_H
#define TERRACE_COPY_H

#include "server.h"

namespace terrace {

/** For a copy that the statement of `thd` waits for: SHOW PROCESSLIST tells how far it is, KILL ends it. */
bool tell_copied(void *thd, uint64_t done, uint64_t all);

/** Update function of the variable, which stays empty. */
void copy_to(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);

} // namespace terrace

#endif
