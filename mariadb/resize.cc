/* SPDX-License-Identifier: GPL-2.0-only */
#include "resize.h"
#include "errors.h"
#include "globals.h"
#include "session.h"

namespace terrace {

static bool ends(void *thd) { return is_killed(static_cast<THD *>(thd)); }

/**
  Waits until the engine has the size. The server calls with its lock of all variables in hand, which others need meanwhile:
  it is let go of, as other engines do.
*/
static void resize(THD *thd, const char *name, void *value, const void *to)
{
  const ulonglong bytes= *static_cast<const ulonglong *>(to);
  if (!engine)
    return;
  terrace_bytes named= {reinterpret_cast<const uint8_t *>(name), strlen(name)};
  mysql_mutex_unlock(&LOCK_global_system_variables);
  const int32_t code= terrace_engine_resize(engine, named, bytes, ends, thd);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (code == TERRACE_OK)
    *static_cast<ulonglong *>(value)= bytes;
  else if (is_killed(thd))
    thd->send_kill_message();
  else
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Terrace: %s", MYF(0), last_message().c_str());
}

void resize_memory(THD *thd, struct st_mysql_sys_var *, void *value, const void *to)
{
  resize(thd, "memory", value, to);
}

void resize_object_buffer(THD *thd, struct st_mysql_sys_var *, void *value, const void *to)
{
  resize(thd, "object_buffer", value, to);
}

void resize_flash(THD *thd, struct st_mysql_sys_var *, void *value, const void *to)
{
  resize(thd, "flash", value, to);
}

} // namespace terrace
