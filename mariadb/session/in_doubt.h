/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Definitions in doubt: from the durable change that the engine has made for a DDL statement until the end of that statement.

  The server's definitions (.frm, .par) and its DDL log are in its data directory, the engine's catalog is on its volume. A power loss, or the
  loss of the volume alone, leaves each of them at a different point. So the engine records the changes of statements that have not ended:

    created   the table has the flag CREATED
    dropped   the table still exists, with the flag DROPPED, under a name that hides it
    renamed   the table records the version of its definition, wherever that is, the statement, and its previous name

  The server syncs neither directories nor lists of partitions. So before each next step for a statement, the engine syncs the renames,
  creations and removals that the server has done so far; then only the server's last step may be lost. A new list is synced at once
  (partitions.cc), and the server's DDL log is synced before a list is removed: any other fsync may make a name or its removal durable,
  but not the contents of files.

  When the statement ends (the server calls the engine to commit or roll back the statement before it answers the client), the directories of
  the definitions are synced, and the definitions decide: a table that has a definition loses its flag, or is restored; a dropped table without
  a definition is removed. The removal doesn't wait for the log, as a crash would leave the table hidden. After a crash the definitions decide
  in the same way, once the server's own recovery is done. A table without a flag is never dropped because its definition is missing: the data
  directory may be lost or be another one, and the rows must not be lost with it.
*/
#ifndef TERRACE_IN_DOUBT_H
#define TERRACE_IN_DOUBT_H

#include "properties.h"
#include <map>
#include <set>
#include <string>

namespace terrace {

/** The changes of a session's DDL statement. Names are the engine's. */
struct InDoubt
{
  std::set<std::string> created, dropped, databases;
  /** Tables whose partitions the statement has created, renamed or dropped: their lists may have changed. */
  std::set<std::string> lists;
  /** Tables whose definition and list are kept while one of their partitions is converted (convert.h). */
  std::set<std::string> converted;
  /** Identifies the statement uniquely for all time, and stays the same when a statement commits before its end, as a copying ALTER does. */
  std::string statement;
  /** The server's number of the statement. */
  ulonglong query= 0;
  /** The number of tables it had dropped when the server's DDL log was last synced for the next drop. */
  size_t logged= SIZE_MAX;
  bool empty() const { return databases.empty(); }
  /** Attributes the changes that follow to the current statement. */
  void follow(const THD *thd);
  /** Records that the statement changes this table. */
  void note(const std::string &name);
};

typedef std::map<std::string, Properties> Tables;
/** Lists the engine's tables. Returns false if that failed. */
bool list_tables(Tables *tables);
/** Lists the tables that are not dropped. Returns false if that failed. */
bool list_shown(Tables *tables);
/** The name that a table had before it was dropped. */
std::string shown(const std::string &hidden);
/** Returns an engine code, as do the next two functions. */
int32_t properties_of(const std::string &name, Properties *properties);
int32_t redefine(const std::string &from, const std::string &to, const Properties &properties);
/** Drops the table and its statistics sample. `original`: the table's name before it was hidden. */
int32_t drop_now(const std::string &name, const std::string &original, const Properties &properties);

/** Whether the name is a temporary name that the server gives to tables during an ALTER. */
bool is_passing_name(const std::string &name);
/** Whether the server has a definition of this version of the table, or of the table that this is a partition of. */
bool is_defined(const std::string &name, const std::string &version);
/** The version in the server's definition of the table, or of the table that this is a partition of; empty if there is none. */
std::string defined_version(const std::string &name);

/** The note_ functions record a change of the statement, which is in doubt until the statement ends. `thd` may be null. */
void note_changed(THD *thd, const std::string &name);
/** Makes durable what the server has done to the statement's files so far. */
void sync_definitions(THD *thd, const std::string &name);
/** Whether the statement drops whole tables. */
bool is_drop(THD *thd);
/**
  If the statement drops tables: makes the server's DDL log record of the next drop durable. The server links that record to the earlier ones
  without syncing it, and then removes the list of partitions, without which it can't drop them.
*/
void sync_ddl_log_before_drop(THD *thd);
/** The statement's identifier; empty while the server recovers. */
std::string statement_of(THD *thd, const std::string &name);
void note_created(THD *thd, const std::string &name);
void note_renamed(THD *thd, const std::string &from, const std::string &to);
/** Drops the table as soon as the statement has ended. Returns an engine code. */
int32_t drop_in_doubt(THD *thd, const std::string &name);

/** Called when the statement ends. */
void settle(InDoubt *doubts);
/** Does the same after a crash. */
void settle_all();
/** After an in-place ALTER that failed but may still be committed in the engine: keeps the server's new definition for the next start. */
void keep_definition(const std::string &name, const std::string &version);

} // namespace terrace
#endif
