/* SPDX-License-Identifier: GPL-2.0-only */
#include "resize.h"
#include "errors.h"
#include "globals.h"
#include "session.h"

namespace terrace {

static bool ends(void *thd) { return is_killed(static_cast<THD *>(thd)); }

struct Size
{
  terrace_bytes name;
  ulonglong bytes;
};

static void take_size(void *context, terrace_bytes name, uint64_t value)
{
  Size *size= static_cast<Size *>(context);
  if (name.len == size->name.len && !memcmp(name.data, size->name.data, name.len))
    size->bytes= value;
}

/**
  Waits until the engine has the new size. The server calls this with its lock of the global variables held, which other sessions need
  meanwhile: it is released, as other engines do.
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
  {
    // Not always the requested size: 0 means the default, and the object buffer has whole pages.
    Size size= {named, bytes};
    terrace_engine_settings(engine, take_size, &size);
    *static_cast<ulonglong *>(value)= size.bytes;
  }
  else if (is_killed(thd))
    thd->send_kill_message();
  else
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Terrace: %s", MYF(0), last_message().c_str());
}

/** Refuses a negative number, which the server would turn into 0. */
static int check_size(const char *name, void *save, struct st_mysql_value *value)
{
  longlong number= 0;
  const bool none= value->val_int(value, &number);
  if (none || (number < 0 && !value->is_unsigned(value)))
  {
    my_error(ER_WRONG_VALUE_FOR_VAR, MYF(0), name, none ? "NULL" : std::to_string(number).c_str());
    return 1;
  }
  *static_cast<ulonglong *>(save)= number;
  return 0;
}

int check_memory(THD *, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value)
{
  return check_size("terrace_memory", save, value);
}

int check_object_buffer(THD *, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value)
{
  return check_size("terrace_object_buffer", save, value);
}

int check_flash(THD *, struct st_mysql_sys_var *, void *save, struct st_mysql_value *value)
{
  return check_size("terrace_flash", save, value);
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
