/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The server's definition files (of tables, partitions, views, triggers, databases) in the engine, so that a copy, a backup and the archive of the log
  have them with the rows: one table of the engine that the server doesn't know, `#definitions`. `terrace restore --definitions` writes them back.

    key   the file's path from the data directory, a zero, the number of the part (u32, the highest byte first)
    row   part 0: 1 byte, the version (1); u32 the file's length; u32 its CRC-32C; its first bytes. Other parts: the bytes that follow

  Kept are the databases' .frm (of this engine's tables, and of views), .par, .opt, .TRG and .TRN; not those of `mysql`, `sys` and
  `performance_schema`, which each server has itself.

  When they are kept: in a thread, about once a second, while the log is archived; at the beginning of a copy, and at the end of one that BACKUP STAGE
  makes, when no definition changes; at the shutdown of a server with an object store. Each is one look at the directories: those that have not
  changed since the last look are not read again. A definition that changes between two looks is in the archive a moment later than its rows; the
  restore says so of each table that this hits.

  A file that is gone is forgotten, except while the engine has the table: then the directory is lost or another one.
*/
#ifndef TERRACE_KEPT_DEFINITIONS_H
#define TERRACE_KEPT_DEFINITIONS_H

#include "server.h"

namespace terrace {

/** Looks once, and keeps what has changed; durable when it returns. A failure is in the error log. */
void keep_definitions();
/** Unix time in milliseconds at which the last complete look began; 0: there was none. */
ulonglong definitions_kept_ms();
/** Looks about once a second, in a thread. */
void start_keeping_definitions();
/** Ends the thread. */
void stop_keeping_definitions();

} // namespace terrace
#endif
