/* SPDX-License-Identifier: GPL-2.0-only */
/* SET GLOBAL of a size: the engine has the new size when the statement ends, or the statement fails and nothing has changed. */
#ifndef TERRACE_RESIZE_H
#define TERRACE_RESIZE_H

#include "server.h"

namespace terrace {

/** Check functions of the variables: a size is a number, 0 means the default. */
int check_memory(THD *thd, struct st_mysql_sys_var *variable, void *save, struct st_mysql_value *value);
int check_object_buffer(THD *thd, struct st_mysql_sys_var *variable, void *save, struct st_mysql_value *value);
int check_flash(THD *thd, struct st_mysql_sys_var *variable, void *save, struct st_mysql_value *value);

/** Update functions of the variables. */
void resize_memory(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);
void resize_object_buffer(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);
void resize_flash(THD *thd, struct st_mysql_sys_var *variable, void *value, const void *to);

} // namespace terrace

#endif
