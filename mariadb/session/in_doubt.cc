/* SPDX-License-Identifier: GPL-2.0-only */
#include "in_doubt.h"
#include "convert.h"
#include "declared.h"
#include "ddl.h"
#include "definition_files.h"
#include "errors.h"
#include "failed_drops.h"
#include "globals.h"
#include "kept_statistics.h"
#include "put_aside.h"
#include "relations.h"
#include "session.h"
#include <atomic>

namespace terrace {

/* A dropped table is hidden under this prefix, a number, a slash, and its previous name. No database has such a name. */
static const char HIDDEN[]= "#dropped/";

static void list_one(void *context, terrace_bytes name, terrace_bytes properties)
{
  static_cast<Tables *>(context)->emplace(std::string(reinterpret_cast<const char *>(name.data), name.len),
                                          Properties(properties));
}

bool list_tables(Tables *tables)
{
  return !terrace_table_list(engine, list_one, tables);
}

static void take_properties(void *context, terrace_bytes, terrace_bytes properties)
{
  *static_cast<Properties *>(context)= Properties(properties);
}

int32_t properties_of(const std::string &name, Properties *properties)
{
  return terrace_table_defined(engine, bytes_of(name), take_properties, properties);
}

static std::string database_of(const std::string &name)
{
  return name.substr(0, name.find(FN_LIBCHAR));
}

std::string shown(const std::string &hidden)
{
  const size_t slash= hidden.find(FN_LIBCHAR, sizeof HIDDEN - 1);
  return slash == std::string::npos ? "" : hidden.substr(slash + 1);
}

bool is_passing_name(const std::string &name)
{
  static const char PASSING[]= "#sql";
  const size_t slash= name.find(FN_LIBCHAR);
  return slash != std::string::npos && !name.compare(slash + 1, sizeof PASSING - 1, PASSING);
}

int32_t redefine(const std::string &from, const std::string &to, const Properties &properties)
{
  const std::string bytes= properties.bytes();
  const int32_t code= terrace_table_redefine(engine, bytes_of(from), bytes_of(to), bytes_of(bytes));
  if (!code)
    note_relations({from, to});
  return code;
}

static void warn(const char *what, const std::string &name)
{
  sql_print_warning("Terrace: can't %s %s: %s", what, name.c_str(), last_message().c_str());
}

/** The doubts of the current statement; null if they will be settled only at the next start. */
static InDoubt *doubts_of(THD *thd, const std::string &name)
{
  if (!thd || server_recovers())
    return nullptr;
  InDoubt *doubts= &Session::of(thd)->doubts;
  doubts->follow(thd);
  doubts->note(name);
  // Registers the engine, so that the server calls it at the statement's end.
  trans_register_ha(thd, false, hton, 0);
  return doubts;
}

void InDoubt::follow(const THD *thd)
{
  if (query == (ulonglong) thd->query_id)
    return;
  query= thd->query_id;
  statement= std::to_string(my_hrtime().val) + "-" + std::to_string(thd->thread_id);
  logged= SIZE_MAX;
}

void InDoubt::note(const std::string &name)
{
  databases.insert(database_of(name));
  if (is_partition(name))
    lists.insert(table_of(name));
}

/**
  Syncs the server's DDL log first: in DROP the server doesn't sync the record that links to the table's record, and a removed list of
  partitions needs it. Lists are synced before the directory that names them.
*/
static void sync_all(const InDoubt &doubts)
{
  if (!doubts.databases.empty())
    sync_ddl_log();
  for (const std::string &table : doubts.lists)
    sync_lists(table);
  for (const std::string &database : doubts.databases)
    sync_directory(database);
}

void note_changed(THD *thd, const std::string &name)
{
  doubts_of(thd, name);
}

void sync_definitions(THD *thd, const std::string &name)
{
  if (!server_recovers() && !thd)
    return;
  InDoubt now;
  if (!server_recovers())
    now= Session::of(thd)->doubts;
  // The server writes the new list before the statement changes its first partition.
  if (server_recovers() || is_partition(name))
    now.note(name);
  sync_all(now);
}

bool is_drop(THD *thd)
{
  const int command= thd_sql_command(thd);
  return command == SQLCOM_DROP_TABLE || command == SQLCOM_DROP_DB ||
         (command == SQLCOM_CREATE_TABLE && thd->lex->create_info.or_replace());
}

void sync_ddl_log_before_drop(THD *thd)
{
  if (!thd || server_recovers() || !is_drop(thd))
    return;
  // Called once for each partition; only the first call after a drop syncs.
  InDoubt *doubts= &Session::of(thd)->doubts;
  doubts->follow(thd);
  if (doubts->logged == doubts->dropped.size())
    return;
  sync_ddl_log();
  doubts->logged= doubts->dropped.size();
}

std::string statement_of(THD *thd, const std::string &name)
{
  const InDoubt *doubts= doubts_of(thd, name);
  return doubts ? doubts->statement : "";
}

void note_created(THD *thd, const std::string &name)
{
  if (is_partition(name))
    sync_definitions(thd, name);
  if (InDoubt *doubts= doubts_of(thd, name))
    doubts->created.insert(name);
}

void note_renamed(THD *thd, const std::string &from, const std::string &to)
{
  note_changed(thd, from);
  InDoubt *doubts= doubts_of(thd, to);
  if (doubts && doubts->created.erase(from))
    doubts->created.insert(to);
}

int32_t drop_now(const std::string &name, const std::string &original, const Properties &properties)
{
  // A hidden table would be dropped again after a crash, as hiding it has already waited for the log.
  const int32_t code= properties.has(Properties::DROPPED) ? terrace_table_drop_unwaited(engine, bytes_of(name))
                                                          : terrace_table_drop(engine, bytes_of(name));
  if (!code && !properties.foreign.empty())
    note_relations({name});
  if (!code && !properties.version.empty() && !properties.has(Properties::TEMPORARY))
    forget_statistics(statistics_key(reinterpret_cast<const uchar *>(properties.version.data()), properties.version.size(), original));
  return code;
}

/** Hides the table until the statement ends. */
static int32_t hide(THD *thd, const std::string &name, Properties properties)
{
  sync_definitions(thd, name);
  properties.flags|= Properties::DROPPED;
  static std::atomic<ulonglong> serial;
  std::string hidden;
  int32_t code;
  do
  {
    hidden= HIDDEN + std::to_string(++serial) + FN_LIBCHAR + name;
    code= redefine(name, hidden, properties);
  } while (code == TERRACE_EXISTS);
  if (!code)
    if (InDoubt *doubts= doubts_of(thd, name))
    {
      doubts->created.erase(name);
      doubts->dropped.insert(hidden);
    }
  return code;
}

int32_t drop_in_doubt(THD *thd, const std::string &name)
{
  Properties properties;
  if (int32_t code= properties_of(name, &properties))
    return code;
  // No client has been told that the table exists.
  const bool nobodys= properties.has(Properties::CREATED) && is_passing_name(name);
  if (properties.has(Properties::TEMPORARY) || nobodys || (!thd && !server_recovers()))
    return drop_now(name, name, properties);
  const int32_t code= hide(thd, name, properties);
  if (code)
    note_failed_drop(name, properties.version);
  return code;
}

/**
  Restores a dropped table that has its definition, if no other table has its name; removes other dropped tables. Returns false if this can't
  be decided yet.
*/
static bool settle_dropped(const std::string &hidden, const Properties &properties, bool last)
{
  const std::string original= shown(hidden);
  Properties other;
  if (!is_defined(original, properties.version) || !properties_of(original, &other))
  {
    if (drop_now(hidden, original, properties))
      warn("drop", original);
    return true;
  }
  // A table's list of partitions may change after its partitions.
  if (!last && is_partition(original))
    return false;
  Properties back= properties;
  back.flags&= ~Properties::DROPPED;
  if (redefine(hidden, original, back))
    warn("bring back", original);
  else
    sql_print_information("Terrace: the drop of %s was interrupted: it is there", original.c_str());
  return true;
}

/** Clears the flags of a table that was created and has its definition. */
static void settle_created(const std::string &name, Properties properties)
{
  properties.flags&= ~(Properties::CREATED | Properties::REPLACED);
  if (redefine(name, name, properties))
    warn("note as made", name);
}

void settle(InDoubt *doubts)
{
  InDoubt now;
  std::swap(now, *doubts);
  doubts->statement= now.statement;
  doubts->query= now.query;
  if (!engine)
    return;
  for (const std::string &table : now.converted)
    settle_converted(table);
  sync_all(now);
  Properties properties;
  for (const std::string &name : now.created)
    if (!properties_of(name, &properties) && properties.has(Properties::CREATED))
    {
      if (is_defined(name, properties.version) && !is_passing_name(name))
        settle_created(name, properties);
      else
      {
        doubts->created.insert(name);
        doubts->note(name);
      }
    }
  for (const std::string &hidden : now.dropped)
    if (!properties_of(hidden, &properties) && !settle_dropped(hidden, properties, false))
    {
      doubts->dropped.insert(hidden);
      doubts->note(shown(hidden));
    }
}

/** A table whose definition has another name. */
struct Parted
{
  std::string table, definition, origin, statement;
};

/**
  Finds statements that renamed several tables and lost their last rename of a definition: a definition has neither the table's previous
  nor its present name, or other definitions of the same statement have their table's present name. The definitions of such statements are
  renamed to match the tables; otherwise tables are renamed to match their definitions.
*/
static std::set<std::string> half_renamed(const std::vector<Parted> &parted, const Tables &tables)
{
  std::set<std::string> half;
  for (const Parted &one : parted)
    if (!one.statement.empty())
    {
      if (one.definition != one.origin)
        half.insert(one.statement);
      for (const auto &other : tables)
        if (other.second.statement == one.statement && other.first != other.second.origin &&
            defined_version(other.first) == other.second.version)
          half.insert(one.statement);
    }
  return half;
}

/** Matches tables and definitions that have the same version under different names, if no other table or definition has that version. */
static void match_versions(Tables *tables)
{
  std::map<std::string, std::set<std::string>> with, defined;
  for (const auto &one : *tables)
    if (!one.second.version.empty() && !one.second.has(Properties::TEMPORARY | Properties::DROPPED))
      with[one.second.version].insert(table_of(one.first));
  for_each_definition([&](const std::string &table, const std::string &version) { defined[version].insert(table); });
  std::vector<Parted> parted;
  for (const auto &one : with)
  {
    const auto found= defined.find(one.first);
    if (one.second.size() != 1 || found == defined.end() || found->second.count(*one.second.begin()) || found->second.size() != 1)
      continue;
    const std::string &table= *one.second.begin(), &definition= *found->second.begin();
    if (is_passing_name(definition) && !is_passing_name(table))
    {
      // CONVERT moved this definition aside, and its removal was lost: partitions keep their version, and the table has its own definition.
      if (named_in(definition, "#sql-backup-") == table && has_file(table, ".frm") && has_file(table, ".par"))
        continue;
      // Another table's definition has overwritten this table's: move it to the table that it belongs to.
      const auto other= with.find(defined_version(table));
      if (other != with.end() && other->second.size() == 1 && !has_file(*other->second.begin(), ".frm"))
        install_definition(table, *other->second.begin());
      // ALTER is committed in the engine; the definition under the table's name belongs to no existing table.
      if (!with.count(defined_version(table)))
        install_definition(definition, table);
    }
    else if (tables->count(table))
      parted.push_back({table, definition, (*tables)[table].origin, (*tables)[table].statement});
  }
  const std::set<std::string> half= half_renamed(parted, *tables);
  std::map<std::string, std::string> moves;
  for (const Parted &one : parted)
    if (half.count(one.statement) && !has_file(one.table, ".frm"))
      install_definition(one.definition, one.table);
    else
      moves[one.table]= one.definition;
  // Each table gets a temporary name first, as two tables may exchange their names.
  std::map<std::string, std::string> aside;
  for (const auto &move : moves)
  {
    const auto other= tables->find(move.second);
    if (other != tables->end() && !moves.count(move.second))
      continue;
    const std::string passing= database_of(move.first) + FN_LIBCHAR + "#sql-terrace-" + std::to_string(aside.size());
    if (rename_with_keys(move.first, passing, passing))
      warn("rename", move.first);
    else
      aside[passing]= move.first;
  }
  for (const auto &one : aside)
  {
    const std::string &to= moves[one.second];
    // A table that stays aside counts under its name.
    if (rename_with_keys(one.first, to, is_passing_name(to) ? one.second : to))
      warn("rename", one.second);
    else
      sql_print_information("Terrace: a rename was interrupted: %s is %s", one.second.c_str(), to.c_str());
  }
  tables->clear();
  list_tables(tables);
}

/**
  Removes this engine's definitions under temporary names that belong to none of its tables: their tables are gone, as is the server's DDL log.
  If the engine has no table at all they stay, as the volume may be another one. Partitions that a list names need no definition other than
  their table's.
*/
static void remove_left_definitions()
{
  Tables tables;
  if (!list_tables(&tables) || tables.empty())
    return;
  std::set<std::string> versions, left;
  for (const auto &one : tables)
    if (!is_partition(one.first) || !is_defined(one.first, one.second.version))
      versions.insert(one.second.version);
  for_each_definition([&](const std::string &table, const std::string &version) {
    const auto part= tables.lower_bound(table + MARK);
    const bool has_name= tables.count(table) || (part != tables.end() && table_of(part->first) == table);
    if (is_passing_name(table) && !has_name && !versions.count(version) && engine_in(file_of(table, ".frm")) == "Terrace")
      left.insert(table);
  });
  for (const std::string &table : left)
    remove_definition(table);
}

void settle_all()
{
  Tables tables;
  finish_drops();
  if (!list_tables(&tables))
    return;
  for (const auto &one : tables)
    if (one.second.has(Properties::DROPPED))
      settle_dropped(one.first, one.second, true);
  undo_exchanges();
  do_failed_drops();
  tables.clear();
  list_tables(&tables);
  match_versions(&tables);
  for (const auto &one : tables)
  {
    const std::string &name= one.first;
    const bool defined= is_defined(name, one.second.version);
    if (one.second.has(Properties::CREATED) && defined && !is_passing_name(name))
      settle_created(name, one.second);
    else if ((one.second.has(Properties::CREATED) && !defined) ||
             (one.second.has(Properties::REPLACED) && is_passing_name(name) && is_replaced(name, one.second, tables)))
    {
      if (drop_now(name, name, one.second))
        warn("drop", name);
      else
        sql_print_information("Terrace: %s was left by an interrupted statement and is dropped", name.c_str());
    }
  }
  bring_back_put_aside();
  forget_definitions();
  remove_converted_definitions();
  remove_left_definitions();
  name_undefined();
}

void keep_definition(const std::string &name, const std::string &version)
{
  for_each_definition([&](const std::string &table, const std::string &other) {
    if (other == version && is_passing_name(table) && database_of(table) == database_of(name))
      keep_definition_file(table);
  });
}

} // namespace terrace
