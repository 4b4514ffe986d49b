/* SPDX-License-Identifier: GPL-2.0-only */
/* SET GLOBAL terrace_copy_to: a copy of the running engine's volume; it is whole when the statement ends. */
#ifndef TERRACE_COPY_H
#define TERRACE_COPY_H

#include "server.h"

namespace terrace {

/** Update function of the variable, which stays empty. */
void copy_to(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);

} // namespace terrace

#endif
