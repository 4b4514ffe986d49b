/* SPDX-License-Identifier: GPL-2.0-only */
/*
  BACKUP STAGE, by which mariabackup and scripts that take snapshots announce a copy of the running server's files.

  mariabackup copies the files of engines that it knows, and of this one the definitions alone: the rows would be missing, and nothing
  would say so. Whether the other side copies the volume as well, the engine can't see. So the first stage is refused while there are tables,
  unless the session says that they are taken care of (terrace_backup_stage=allow): that is for snapshots of everything at one moment, which the
  engine recovers from as from a crash.

  The server takes no answer from the engine here: the statement ends in the error, and the session is in the stage until BACKUP STAGE END or
  its end, as when a later stage fails. mariabackup ends.
*/
#include "backup.h"
#include "globals.h"
#include "in_doubt.h"

namespace terrace {

static void prepare_for_backup()
{
  THD *thd= current_thd;
  if (!engine || !thd || backup_stage(thd) == BACKUP_STAGE_ALLOWED)
    return;
  Tables tables;
  const bool known= list_shown(&tables);
  size_t count= 0;
  for (const auto &one : tables)
    count+= !one.second.has(Properties::TEMPORARY);
  if (!known || count)
    my_printf_error(ER_CHECK_NOT_IMPLEMENTED,
                    "Terrace: %zu of its tables and partitions would be in the copy without their rows (mariabackup doesn't know them). Copy "
                    "with mariadb-dump, or SET terrace_backup_stage=allow and copy the volume, too: SET GLOBAL terrace_copy_to, or a "
                    "snapshot. BACKUP STAGE END ends this one", MYF(0), count);
}

void fill_backup_calls(handlerton *into)
{
  into->prepare_for_backup= prepare_for_backup;
}

} // namespace terrace
