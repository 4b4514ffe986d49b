/* SPDX-License-Identifier: GPL-2.0-only */
/*
  BACKUP STAGE, by which mariabackup and snapshot scripts announce a copy of the running server's files.

  mariabackup copies the files of the engines that it knows; of this engine it copies only the table definitions. The rows would be missing
  without any message. The engine can't see whether the backup tool copies the volume as well. So terrace_backup_stage says what the first
  stage does:

  refuse: fails while there are tables.
  allow: does nothing. For point-in-time snapshots of everything, which the engine recovers from as from a crash.
  copy: the engine copies its volume itself. The copy begins in the first stage, follows later changes in the background, and ends in
  BACKUP STAGE END. The server calls engines at that point before it releases its lock, so if BLOCK_COMMIT was reached, no transaction has
  committed since. The copy is therefore consistent with the binary log's position and InnoDB's log in mariabackup's copy. Stages that end
  otherwise (without BLOCK_COMMIT, or with the connection) leave no copy.

  The server takes no return value from the engine here. The statement fails with the error, but after the first stage fails the session stays
  in it until BACKUP STAGE END or the session's end, as after a failure of a later stage. mariabackup exits on either failure.
*/
#include "backup.h"
#include "copy.h"
#include "errors.h"
#include "globals.h"
#include "in_doubt.h"
#include "kept_definitions.h"
#include "session.h"
#include <utility>

namespace terrace {

/** The copy of the running backup stages; null if there is none. The server lets one session at a time be in the stages. */
static terrace_copy *under_way;
static std::string directory;

static void begin_copy()
{
  keep_definitions();
  directory= backup_copy_directory();
  if (directory.empty())
  {
    my_printf_error(ER_WRONG_ARGUMENTS, "Terrace: terrace_backup_stage=copy needs terrace_backup_copy_dir, the directory of the copy. BACKUP "
                    "STAGE END ends this one", MYF(0));
    return;
  }
  if (terrace_copy_begin(engine, bytes_of(directory), &under_way) != TERRACE_OK)
  {
    under_way= nullptr;
    my_printf_error(ER_WRONG_ARGUMENTS, "Terrace: the copy in terrace_backup_copy_dir: %s. BACKUP STAGE END ends this one", MYF(0),
                    last_message().c_str());
  }
}

static void refuse()
{
  Tables tables;
  const bool known= list_shown(&tables);
  size_t count= 0;
  for (const auto &one : tables)
    count+= !one.second.has(Properties::TEMPORARY) && one.first.find(FN_LIBCHAR) != std::string::npos; // the engine's own tables have no database
  if (!known || count)
    my_printf_error(ER_CHECK_NOT_IMPLEMENTED,
                    "Terrace: %zu of its tables and partitions would be in the copy without their rows (mariabackup doesn't know them). SET GLOBAL "
                    "terrace_backup_stage=copy and terrace_backup_copy_dir, and the engine copies them meanwhile; or copy with mariadb-dump, or SET "
                    "terrace_backup_stage=allow and copy the volume, too. BACKUP STAGE END ends this one", MYF(0), count);
}

static void prepare_for_backup()
{
  THD *thd= current_thd;
  if (!engine || !thd)
    return;
  switch (backup_stage(thd)) {
  case BACKUP_STAGE_COPIED: return begin_copy();
  case BACKUP_STAGE_REFUSED: return refuse();
  }
}

/** Whether BACKUP STAGE END ends the stages: it has set its own stage by now. If the connection ends, the stage is the last one reached. */
static bool is_asked(THD *thd) { return thd && thd->current_backup_stage == BACKUP_END; }

/** Why the copy must be discarded; null if it is valid. */
static const char *why_discarded(THD *thd)
{
  if (!is_asked(thd))
    return "the connection ended before BACKUP STAGE END";
  if (!thd->mdl_context.is_lock_owner(MDL_key::BACKUP, "", "", MDL_BACKUP_WAIT_COMMIT))
    return "BACKUP STAGE END came before BLOCK_COMMIT";
  return nullptr;
}

static void end_backup()
{
  terrace_copy *const copy= std::exchange(under_way, nullptr);
  THD *thd= current_thd;
  if (!copy)
    return;
  if (const char *why= why_discarded(thd))
  {
    terrace_copy_discard(copy);
    sql_print_warning("Terrace: the copy in %s was discarded: %s", directory.c_str(), why);
    if (is_asked(thd))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR, "Terrace: the copy in %s was discarded: %s", directory.c_str(), why);
    return;
  }
  // No definition changes here: what is kept now is that of the copy's moment.
  keep_definitions();
  thd_progress_init(thd, 1);
  const int32_t code= terrace_copy_finish(copy, tell_copied, thd);
  thd_progress_end(thd);
  if (code == TERRACE_OK)
    sql_print_information("Terrace: the copy in %s is complete", directory.c_str());
  else if (is_killed(thd))
    thd->send_kill_message();
  else
    my_printf_error(ER_WRONG_ARGUMENTS, "Terrace: there is no copy in %s: %s", MYF(0), directory.c_str(), last_message().c_str());
}

void end_copy()
{
  if (terrace_copy *const copy= std::exchange(under_way, nullptr))
  {
    terrace_copy_discard(copy);
    sql_print_warning("Terrace: the copy in %s was discarded: the engine ends", directory.c_str());
  }
}

void fill_backup_calls(handlerton *into)
{
  into->prepare_for_backup= prepare_for_backup;
  into->end_backup= end_backup;
}

} // namespace terrace
