/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Definitions in doubt: between what the engine has done for a DDL statement, durably, and the end of that statement.

  The server's definitions (.frm, .par) and its log of DDL stand in its data directory, the engine's catalog on its volume: a loss
  of power, or of the volume alone, leaves each as far as it came. So the engine notes what it did and was not seen to end:

    created   the table has the flag CREATED
    dropped   the table is there still, with the flag DROPPED, under a name that hides it
    renamed   the table has the version of its definition, wherever that stands, and notes the statement and its name before

  The server syncs no directory, and no list of partitions: before the engine does the next thing for a statement, it syncs what the
  server has renamed, created and removed so far. Only the last step of the server may be lost, then. A new list is synced at once
  (partitions.cc), and the server's log of DDL before a list goes: anybody's fsync may make a name durable, or its removal, and not
  what stands in files.

  When the statement ends (the server's call for the statement's commit or rollback comes before its answer) the directories of the
  definitions are synced, and the definitions decide: what is defined loses its flag, or is back; what is dropped and not defined
  goes, which waits for no log: a crash would leave it hidden. After a crash, when the server's own recovery is done, they decide in
  the same way. A table without a flag is never dropped because its definition is missing: a data directory may be lost, or be another
  one, and the rows not with it.
*/
#ifndef TERRACE_IN_DOUBT_H
#define TERRACE_IN_DOUBT_H

#include "properties.h"
#include <map>
#include <set>
#include <string>

namespace terrace {

/** What a session's DDL statement has done. Names are the engine's. */
struct InDoubt
{
  std::set<std::string> created, dropped, databases;
  /** Tables whose partitions it has made, renamed or dropped: their lists may have changed. */
  std::set<std::string> lists;
  /** Tables whose definition and list are kept while one of their partitions is converted (convert.h). */
  std::set<std::string> converted;
  /** Differs from that of every other statement there ever was, and stays through commits in mid-statement: a copy's. */
  std::string statement;
  /** The server's number of the statement. */
  ulonglong query= 0;
  /** How many it had dropped when the server's log of DDL was synced for what it drops next. */
  size_t logged= SIZE_MAX;
  bool empty() const { return databases.empty(); }
  /** What comes now is done by the statement at hand. */
  void follow(const THD *thd);
  /** The statement does something to it. */
  void note(const std::string &name);
};

typedef std::map<std::string, Properties> Tables;
/** The engine's tables. False: that failed. */
bool list_tables(Tables *tables);
/** Those that are not dropped. False: that failed. */
bool list_shown(Tables *tables);
/** The name that a table had before it was dropped. */
std::string shown(const std::string &hidden);
/** An engine's code, as of the two below. */
int32_t properties_of(const std::string &name, Properties *properties);
int32_t redefine(const std::string &from, const std::string &to, const Properties &properties);
/** With the table's sample. `original`: the name that it had before it was hidden. */
int32_t drop_now(const std::string &name, const std::string &original, const Properties &properties);

/** Whether the name is one that the server gives to tables while it alters others. */
bool is_passing_name(const std::string &name);
/** Whether the server has a definition of this version of the table, or of the table that this is a partition of. */
bool is_defined(const std::string &name, const std::string &version);
/** The version in the server's definition of the table, or of the table that this is a partition of. Empty: there is none. */
std::string defined_version(const std::string &name);

/** Each of them: the statement does this; it is in doubt until it ends. `thd` may be null. */
void note_changed(THD *thd, const std::string &name);
/** What the server has done to the statement's files so far is durable when it returns. */
void sync_definitions(THD *thd, const std::string &name);
/** Whether the statement drops whole tables. */
bool is_drop(THD *thd);
/**
  If the statement drops tables: what the server has noted of the next one is durable when it returns. The server links its note to those before
  without syncing it, and removes the list of partitions, by which alone it drops them.
*/
void sync_ddl_log_before_drop(THD *thd);
/** The number of the statement. Empty: the server recovers. */
std::string statement_of(THD *thd, const std::string &name);
void note_created(THD *thd, const std::string &name);
void note_renamed(THD *thd, const std::string &from, const std::string &to);
/** Drops the table as soon as the statement has ended. An engine's code. */
int32_t drop_in_doubt(THD *thd, const std::string &name);

/** The statement ends. */
void settle(InDoubt *doubts);
/** The same after a crash. */
void settle_all();
/** An ALTER in place failed, and may be in the engine all the same: keeps the server's new definition for the next start. */
void keep_definition(const std::string &name, const std::string &version);

} // namespace terrace
#endif
