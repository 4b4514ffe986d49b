/* SPDX-License-Identifier: GPL-2.0-only */
#include "copy.h"
#include "errors.h"
#include "globals.h"
#include "kept_definitions.h"
#include "session.h"

namespace terrace {

bool tell_copied(void *thd, uint64_t done, uint64_t all)
{
  thd_progress_report(static_cast<THD *>(thd), done, all);
  return !is_killed(static_cast<THD *>(thd));
}

/* As in a resize, the server's lock of the global variables is released meanwhile. */
void copy_to(THD *thd, struct st_mysql_sys_var *, void *, const void *to)
{
  const char *path= *static_cast<const char *const *>(to);
  if (!engine || !path || !*path)
    return;
  const std::string directory= path;
  mysql_mutex_unlock(&LOCK_global_system_variables);
  keep_definitions();
  thd_progress_init(thd, 1);
  const terrace_bytes named= {reinterpret_cast<const uint8_t *>(directory.data()), directory.size()};
  const int32_t code= terrace_engine_copy(engine, named, tell_copied, thd);
  thd_progress_end(thd);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (code == TERRACE_OK)
  {
    if (!thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                          "Terrace: of transactions with the binary log or another engine, some may be prepared in the copy in %s: a server starts with it only "
                          "where it can decide them (--tc-heuristic-recover). Within BACKUP STAGE BLOCK_COMMIT there are none", directory.c_str());
    return;
  }
  if (is_killed(thd))
    thd->send_kill_message();
  else
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "Terrace: %s", MYF(0), last_message().c_str());
}

} // namespace terrace
