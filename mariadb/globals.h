/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What the plugin has one of: the handlerton, the engine, the settings that code beside plugin.cc reads.
*/
#ifndef TERRACE_GLOBALS_H
#define TERRACE_GLOBALS_H

#include "server.h"

namespace terrace {

extern handlerton *hton;
/** Null while the engine could not be started. */
extern terrace_engine *engine;

/** How far a commit waits for the log: not, until it is durable, until the operating system has it. */
enum Flush : ulong { FLUSH_NEVER_WAIT= 0, FLUSH_AT_COMMIT= 1, FLUSH_WRITTEN= 2 };
Flush flush_at_commit();
/** Whether the engine was given one. */
bool has_flash();
bool has_store();
/** Whether temporary tables are made apart from others: unlogged, and on no tier that lasts. */
bool temporary_tables_are_unlogged();
/** How long a session waits for a row lock. */
ulonglong lock_wait_ms(THD *thd);
/** The session's innodb_lock_wait_timeout; ULONGLONG_MAX if there is no such variable. */
ulonglong innodb_lock_wait_ms(THD *thd);
/** innodb_strict_mode, which is on where there is none. */
bool innodb_is_strict(THD *thd);
/** terrace_snapshot_isolation of the session. */
bool snapshot_isolation(THD *thd);
/** terrace_foreign_keys of the session. */
enum Foreign_keys { FOREIGN_KEYS_REFUSED, FOREIGN_KEYS_WARNED };
ulong foreign_keys(THD *thd);
/** terrace_backup_stage of the session. */
enum Backup_stage { BACKUP_STAGE_REFUSED, BACKUP_STAGE_ALLOWED, BACKUP_STAGE_COPIED };
ulong backup_stage(THD *thd);
/** terrace_backup_copy_dir; empty if it isn't set. */
std::string backup_copy_directory();

/* What the server's functions for plugins say, without a call. */
inline int command_of(const THD *thd) { return thd->lex->sql_command; }
inline uint isolation_of(const THD *thd) { return thd->tx_isolation; }
/** Whether a statement doesn't end the transaction that it is in. */
inline bool goes_on(const THD *thd) { return thd->variables.option_bits & (OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN); }

inline terrace_bytes bytes_of(const void *data, size_t length)
{
  return {static_cast<const uint8_t *>(data), length};
}
inline terrace_bytes bytes_of(const std::string &text) { return bytes_of(text.data(), text.size()); }

} // namespace terrace
#endif
