/* SPDX-License-Identifier: GPL-2.0-only */
/* SET GLOBAL of a size: the engine has it when the statement ends, or the statement fails and nothing has changed. */
#ifndef TERRACE_RESIZE_H
#define TERRACE_RESIZE_H

#include "server.h"

namespace terrace {

/** Update functions of the variables. */
void resize_memory(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);
void resize_object_buffer(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);
void resize_flash(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);

} // namespace terrace

#endif
