/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The plugin's globals: the handlerton, the engine, and the settings that are read outside plugin.cc.
*/
#ifndef TERRACE_GLOBALS_H
#define TERRACE_GLOBALS_H

#include "server.h"

namespace terrace {

extern handlerton *hton;
/** Null if the engine could not be started. */
extern terrace_engine *engine;

/** What a commit waits for: nothing, until its log records are durable, or until they are written to the operating system. */
enum Flush : ulong { FLUSH_NEVER_WAIT= 0, FLUSH_AT_COMMIT= 1, FLUSH_WRITTEN= 2 };
Flush flush_at_commit();
/** Whether the engine is configured with a flash cache, and with an object store. */
bool has_flash();
bool has_store();
/** Whether temporary tables are created unlogged, and on no durable tier. */
bool temporary_tables_are_unlogged();
/** The session's timeout for row locks. */
ulonglong lock_wait_ms(THD *thd);
/** The session's innodb_lock_wait_timeout; ULONGLONG_MAX if there is no such variable. */
ulonglong innodb_lock_wait_ms(THD *thd);
/** innodb_strict_mode; true if there is no such variable. */
bool innodb_is_strict(THD *thd);
/** The session's terrace_snapshot_isolation. */
bool snapshot_isolation(THD *thd);
/** The session's terrace_foreign_keys. */
enum Foreign_keys { FOREIGN_KEYS_REFUSED, FOREIGN_KEYS_WARNED, FOREIGN_KEYS_ENFORCED };
ulong foreign_keys(THD *thd);
/** The session's terrace_backup_stage. */
enum Backup_stage { BACKUP_STAGE_REFUSED, BACKUP_STAGE_ALLOWED, BACKUP_STAGE_COPIED };
ulong backup_stage(THD *thd);
/** terrace_backup_copy_dir; empty if it isn't set. */
std::string backup_copy_directory();

/* The same as the server's functions for plugins, but inline. */
inline int command_of(const THD *thd) { return thd->lex->sql_command; }
inline uint isolation_of(const THD *thd) { return thd->tx_isolation; }
/** Whether the transaction continues after the statement. */
inline bool goes_on(const THD *thd) { return thd->variables.option_bits & (OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN); }

inline terrace_bytes bytes_of(const void *data, size_t length)
{
  return {static_cast<const uint8_t *>(data), length};
}
inline terrace_bytes bytes_of(const std::string &text) { return bytes_of(text.data(), text.size()); }

} // namespace terrace
#endif
