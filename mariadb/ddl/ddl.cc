/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Definitions: create, drop, rename, truncate; CHECK and OPTIMIZE.

  The engine's table is named as the server's path is, without "./": `db/table` in the server's file name encoding. Its
  properties are for this directory alone (properties.h); what a crash leaves of a statement is in in_doubt.h.
*/
#include "ha_terrace.h"
#include "alter.h"
#include "convert.h"
#include "declared.h"
#include "ddl.h"
#include "definition_files.h"
#include "errors.h"
#include "globals.h"
#include "kill_scope.h"
#include "in_doubt.h"
#include "kept_statistics.h"
#include "table_options.h"
#include "sql_table.h"
#include "xid.h"
#include <set>

namespace terrace {

std::string table_name(const char *path)
{
  return path[0] == FN_CURLIB && path[1] == FN_LIBCHAR ? path + 2 : path;
}

std::string make_properties(uchar flags, const TABLE *table, const std::string &layouts, const std::vector<std::string> &foreign)
{
  const LEX_CUSTRING &version= table->s->tabledef_version;
  Properties properties;
  properties.flags= flags;
  properties.version.assign(reinterpret_cast<const char *>(version.str), version.length);
  properties.layouts= layouts;
  properties.foreign= foreign;
  return properties.bytes();
}

std::string plain_properties()
{
  return Properties().bytes();
}

bool read_layouts(const terrace_table *table, RowLayouts *layouts)
{
  const Properties properties(terrace_table_properties(table));
  return layouts->parse(reinterpret_cast<const uchar *>(properties.layouts.data()), properties.layouts.size());
}

static std::string statistics_of(const Properties &properties, const std::string &name)
{
  if (properties.version.empty() || properties.has(Properties::TEMPORARY))
    return "";
  return statistics_key(reinterpret_cast<const uchar *>(properties.version.data()), properties.version.size(), name);
}

std::string statistics_of(const terrace_table *table, const std::string &name)
{
  return statistics_of(Properties(terrace_table_properties(table)), name);
}

static int drop(THD *thd, const char *path)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  const std::string name= table_name(path);
  if (int error= refuse_drop(thd, name))
    return error;
  // A table is dropped as if its prepared transactions had ended before. Only one without partitions is refused, as by InnoDB: of
  // others the server has removed the list by now.
  if (thd && !server_recovers() && !is_passing_name(name) && !is_partition(name))
    if (int error= wait_for_prepared(thd, name))
      return error;
  const int32_t code= drop_in_doubt(thd, name);
  if (!code)
    Writers::dropped(name);
  const int error= map_error(thd, code);
  // The server would name a partition by its number alone.
  if (is_own_error(error) && is_partition(name) && thd && is_drop(thd) && !thd->is_error())
    my_error(error == OWN_ERROR + TERRACE_UNAVAILABLE ? ER_GET_TEMPORARY_ERRMSG : ER_GET_ERRMSG, MYF(0), error, shortened(last_message(), HANDLER_TEXT_MAX).c_str(), "Terrace");
  return error;
}

/** Also of a table that the server doesn't know: its partitions may be left. */
static int drop_table(handlerton *, const char *path)
{
  const int error= drop(current_thd, path);
  if (error != HA_ERR_NO_SUCH_TABLE)
    return error;
  const std::vector<std::string> left= left_partitions(table_name(path));
  int failed= 0;
  for (const std::string &name : left)
    if (int again= drop(current_thd, name.c_str()))
      failed= again;
  return left.empty() ? error : failed;
}

struct Listed
{
  std::string start;
  bool temporary;
  std::vector<std::string> names;
};

static void list_one(void *context, terrace_bytes name, terrace_bytes properties)
{
  Listed *listed= static_cast<Listed *>(context);
  std::string text(reinterpret_cast<const char *>(name.data), name.len);
  const bool temporary= Properties(properties).has(Properties::TEMPORARY);
  if (listed->temporary ? temporary : text.compare(0, listed->start.size(), listed->start) == 0)
    listed->names.push_back(text);
}

static void drop_listed(Listed *listed)
{
  terrace_table_list(engine, list_one, listed);
  for (const std::string &name : listed->names)
    if (terrace_table_drop(engine, bytes_of(name)))
      sql_print_warning("Terrace: can't drop %s: %s", name.c_str(), last_message().c_str());
  note_relations(listed->names);
}

/** What is left of a database after the server dropped the tables it knows. `path` is "./db/". */
static void drop_database(handlerton *, char *path)
{
  if (!engine)
    return;
  Listed listed= {table_name(path), false, {}};
  if (listed.start.empty() || listed.start.back() != FN_LIBCHAR)
    listed.start+= FN_LIBCHAR;
  drop_listed(&listed);
}

void drop_left_temporary_tables()
{
  Listed listed= {"", true, {}};
  drop_listed(&listed);
}

static void list_statistics(void *context, terrace_bytes name, terrace_bytes properties)
{
  const std::string text(reinterpret_cast<const char *>(name.data), name.len);
  static_cast<std::set<std::string> *>(context)->insert(statistics_of(Properties(properties), text));
}

void drop_left_statistics()
{
  std::set<std::string> wanted;
  if (!terrace_table_list(engine, list_statistics, &wanted))
    keep_statistics_of(wanted);
}

/** 0: the engine's table has this version. Of a partitioned table all partitions have the same. */
static int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  if (!engine)
    return 2;
  std::string name= table_name(path);
  Properties properties;
  if (int32_t code= properties_of(name, &properties))
  {
    Listed listed= {name + "#P#", false, {}};
    terrace_table_list(engine, list_one, &listed);
    if (code != TERRACE_ABSENT || listed.names.empty() || properties_of(listed.names[0], &properties))
      return 2;
  }
  const std::string &has= properties.version;
  return has.size() == version->length && !memcmp(has.data(), version->str, version->length) ? 0 : 1;
}

void fill_definition_calls(handlerton *into)
{
  into->drop_table= drop_table;
  into->drop_database= drop_database;
  into->check_version= check_version;
  fill_partition_calls(into);
}

/** Other statements, which make a table as well (a partition by system time comes with an UPDATE), say nothing of it themselves. */
static bool declares_tables(THD *thd)
{
  const int command= thd_sql_command(thd);
  return command == SQLCOM_CREATE_TABLE || command == SQLCOM_ALTER_TABLE;
}

bool refuse_row_format(THD *thd, const HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_ROW_FORMAT) || (info->row_type != ROW_TYPE_FIXED && info->row_type != ROW_TYPE_PAGE))
    return false;
  const bool refused= innodb_is_strict(thd) && !thd->slave_thread;
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
               refused ? "Terrace: invalid ROW_FORMAT specifier." : "Terrace: assuming ROW_FORMAT=DYNAMIC.");
  return refused;
}

/** The table, or partition, whose place one that is made by ALTER takes at the end; empty: there is none. */
static std::string replaced_by(THD *thd, const std::string &name, const HA_CREATE_INFO *info)
{
  static const char NEW[]= "#TMP#";
  const size_t mark= name.find(MARK), made= name.size() - MY_MIN(name.size(), sizeof NEW - 1);
  if (mark != std::string::npos && !name.compare(made, std::string::npos, NEW))
    return name.substr(0, made);
  const TABLE_LIST *source= thd->lex->query_tables;
  if (!(info->options & HA_CREATE_TMP_ALTER) || !source || !source->table)
    return "";
  return table_name(source->table->s->normalized_path.str) + (mark == std::string::npos ? "" : name.substr(mark));
}

/** What the server lets through and the engine doesn't do. */
static int refuse(THD *thd, const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  const TABLE_LIST *source= thd->lex->query_tables;
  const bool declares= declares_tables(thd);
  if (declares && refuse_options(thd, form, info->options & HA_CREATE_TMP_ALTER && source ? source->table : nullptr))
    return HA_WRONG_CREATE_OPTION;
  if (declares && refuse_foreign_keys(thd))
    return HA_ERR_UNSUPPORTED;
  if (declares && refuse_block_size(thd, form, thd_sql_command(thd) == SQLCOM_ALTER_TABLE && source ? source->table : nullptr))
    return HA_WRONG_CREATE_OPTION;
  if (declares && refuse_row_format(thd, info))
    return HA_WRONG_CREATE_OPTION;
  // As InnoDB. A partition's is ignored, as its DATA DIRECTORY.
  const bool partition= strstr(name, "#P#");
  if (info->index_file_name && !partition && innodb_is_strict(thd) && !thd->slave_thread)
  {
    push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "Terrace: INDEX DIRECTORY is not supported");
    return HA_WRONG_CREATE_OPTION;
  }
  if (info->data_file_name || info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        info->data_file_name ? "DATA DIRECTORY" : "INDEX DIRECTORY");
  return 0;
}

} // namespace terrace

using namespace terrace;

/**
  A drop that fails, because the store is dead, has removed the table's list of partitions before. By the next one the server drops what has no
  list: the definition alone. What takes the table's place then finds partitions in its way, which go if it is meant to replace the table.
*/
static bool make_way(THD *thd, const std::string &name, const TABLE *form)
{
  if (!is_partition(name) || thd->lex->sql_command != SQLCOM_CREATE_TABLE)
    return false;
  if (!thd->lex->create_info.or_replace())
  {
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "Terrace: a partition is left of a table of this name; DROP TABLE of that name removes it");
    return false;
  }
  const LEX_CUSTRING &version= form->s->tabledef_version;
  bool made= false;
  for (const std::string &other :
       partitions_of_others(name, std::string(reinterpret_cast<const char *>(version.str), version.length)))
    made|= !drop(thd, other.c_str());
  return made;
}

int ha_terrace::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  const int error= make(name, form, info);
  put_back_options(form);
  return error;
}

int ha_terrace::make(const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  THD *thd= ha_thd();
  if (!engine)
  {
    my_printf_error(ER_UNKNOWN_ERROR, "Terrace isn't running: see the server's error log", MYF(0));
    return HA_ERR_NO_CONNECTION;
  }
  if (int error= refuse(thd, name, form, info))
    return error;
  const bool hidden= form->s->primary_key == MAX_KEY;
  std::vector<terrace_index_definition> indexes;
  if (hidden)
    indexes.push_back({sizeof(terrace_index_definition), bytes_of(ROWS_INDEX, strlen(ROWS_INDEX)), true});
  for (uint at= 0; at < form->s->keys; at++)
  {
    const KEY *key= form->key_info + at;
    const bool unique= key->flags & HA_NOSAME && key->algorithm != HA_KEY_ALG_LONG_HASH;
    indexes.push_back({sizeof(terrace_index_definition), bytes_of(key->name.str, key->name.length), unique});
  }
  // The copy of a table that ALTER makes: at its end the table would be found to be touched.
  const TABLE_LIST *source= thd->lex->query_tables;
  if (info->options & HA_CREATE_TMP_ALTER && source && source->table)
    if (int error= wait_for_prepared(thd, table_name(source->table->s->normalized_path.str)))
    {
      // The server would say only that the table can't be made.
      my_error(error == HA_ERR_LOCK_WAIT_TIMEOUT ? ER_LOCK_WAIT_TIMEOUT : ER_QUERY_INTERRUPTED, MYF(0));
      return error;
    }
  const bool temporary= info->options & HA_LEX_CREATE_TMP_TABLE;
  const std::string engine_name= table_name(name);
  std::vector<std::string> foreign;
  if (int error= declare_foreign_keys(thd, form, info, engine_name, replaced_by(thd, engine_name, info), &foreign))
    return error;
  const std::string properties= make_properties((temporary ? Properties::TEMPORARY : Properties::CREATED) | Properties::CUTS, form, "", foreign);
  terrace_table_definition definition= {};
  definition.size= sizeof definition;
  definition.name= bytes_of(engine_name);
  definition.indexes= indexes.data();
  definition.index_count= indexes.size();
  definition.properties= bytes_of(properties);
  definition.temporary= temporary && temporary_tables_are_unlogged();
  terrace_table *table= nullptr;
  auto make= [&] {
    Heard heard;
    return terrace_table_create(engine, &definition, &table);
  };
  int32_t code= make();
  if (!code)
    note_relations({engine_name});
  if (code == TERRACE_EXISTS && make_way(thd, engine_name, form))
    code= make();
  if (code == TERRACE_CANCELLED)
    thd->send_kill_message();           // else the server says that the table can't be created
  // The server knows no such table: its definition has gone.
  if (code == TERRACE_EXISTS)
    my_printf_error(ER_TABLE_EXISTS_ERROR, "Table '`%s`.`%s`' already exists", MYF(0), form->s->db.str, form->s->table_name.str);
  const bool without_rules= !code && TableOptions(form).apply(engine_name, replaced_by(thd, engine_name, info));
  if (without_rules && !says_options(thd))
    warn_without_rules(thd, engine_name);
  else if (without_rules)
  {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Terrace: %s", MYF(0), last_message().c_str());
    terrace_table_close(table);
    terrace_table_drop(engine, bytes_of(engine_name));
    note_relations({engine_name});
    return HA_WRONG_CREATE_OPTION;
  }
  if (!code && definition.temporary)
    warn_of_rules(thd, form);
  else if (!code && !(info->options & HA_LEX_CREATE_TMP_TABLE))
    note_absent_tiers(thd, form);
  if (!code && info->auto_increment_value > 1)
    code= terrace_table_auto_increment_raise(table, info->auto_increment_value);
  // As InnoDB: a session with an older snapshot gets an error, rather than an empty table. A temporary table is its session's alone.
  if (!code && !(info->options & HA_LEX_CREATE_TMP_TABLE))
    code= terrace_table_outdate_views(engine, table);
  terrace_table_close(table);
  if (!code && !temporary)
    note_created(thd, engine_name);
  return map_error(thd, code);
}

/* The server, which has the error, would make a warning of it that says something else. */
void ha_terrace::print_error(int error, myf flags)
{
  if (error == HA_ERR_UNSUPPORTED && flags & ME_WARNING && ha_thd()->is_error())
    return;
  handler::print_error(error, flags);
}

int ha_terrace::delete_table(const char *name)
{
  return drop(ha_thd(), name);
}

/**
  What a table is under another name. EXCHANGE PARTITION renames a table to a partition and back: each then has the version of the
  definition that it comes under.
*/
static void become(Properties *properties, const std::string &before, const std::string &after, const std::string &statement)
{
  const bool passing= is_passing_name(after);
  const bool goes_on= properties->has(Properties::RENAMED) && properties->statement == statement;
  if (!goes_on)
    properties->origin= before;
  properties->statement= statement;
  properties->flags= statement.empty() ? properties->flags & ~Properties::RENAMED : properties->flags | Properties::RENAMED;
  if (passing && !is_passing_name(before))
  {
    properties->flags|= Properties::REPLACED;
    properties->origin= before;
  }
  if (!passing)
  {
    properties->flags&= ~Properties::REPLACED;
    const std::string version= defined_version(after);
    static const char EXCHANGED[]= "/#sql-exchange-";
    const bool exchanged= is_partition(before) != is_partition(after) || before.find(EXCHANGED) != std::string::npos;
    if (exchanged && !version.empty())
      properties->version= version;
  }
}

/**
  The server's recovery takes a rename back, of the table and then of the definition, also where the crash came before it: if the
  definition under the first name is another table's, because the rename of that one was lost, it comes over this table's.
*/
static void keep_overwritten(const std::string &before, const std::string &after, const std::string &version)
{
  const std::string other= defined_version(before);
  if (!is_partition(after) && !version.empty() && defined_version(after) == version && !other.empty() && other != version)
    keep_definition_file(after);
}

int ha_terrace::rename_table(const char *from, const char *to)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  // A partition's sample has its name in its key.
  const std::string before= table_name(from), after= table_name(to);
  // ALTER, which takes the table's place.
  if (is_passing_name(after) && !is_passing_name(before) && !server_recovers())
    if (int error= wait_for_prepared(ha_thd(), before))
      return error;
  Properties properties;
  Redefinitions others;
  std::string kept;
  int32_t code= properties_of(before, &properties);
  if (!code)
  {
    if (statistics_suffix(before) != statistics_suffix(after))
      kept= statistics_of(properties, before);
    if (int error= rename_foreign_keys(ha_thd(), before, after, &properties.foreign, &others))
      return error;
    keep_converted(ha_thd(), before, after);
    sync_definitions(ha_thd(), before);
    become(&properties, before, after, properties.has(Properties::TEMPORARY) ? "" : statement_of(ha_thd(), before));
    code= redefine_together(before, after, properties.bytes(), others);
  }
  else if (code == TERRACE_ABSENT && server_recovers() && !properties_of(after, &properties))
  {
    // The server renames all partitions again, also those that were renamed before the crash.
    keep_overwritten(before, after, properties.version);
    code= TERRACE_OK;
  }
  if (!code && !kept.empty())
    forget_statistics(kept);
  if (!code)
    Writers::renamed(before, after);
  if (!code && !properties.has(Properties::TEMPORARY))
    note_renamed(ha_thd(), before, after);
  return map_error(ha_thd(), code);
}

int ha_terrace::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;            // rebuild, then analyze
}

/** The server compares types; a row has no bytes of a column that is virtual. */
static bool same_columns_are_stored(const TABLE *one, const TABLE *other)
{
  if (one->s->fields != other->s->fields)
    return false;
  for (uint at= 0; at < one->s->fields; at++)
    if (one->field[at]->stored_in_db() != other->field[at]->stored_in_db())
      return false;
  return true;
}

/** The engine's trees are known by their places; the server compares keys by their names, wherever they are. */
static bool keys_in_the_same_order(const TABLE *one, const TABLE *other)
{
  if (one->s->keys != other->s->keys)
    return false;
  for (uint at= 0; at < one->s->keys; at++)
    if (my_strcasecmp(system_charset_info, one->key_info[at].name.str, other->key_info[at].name.str))
      return false;
  return true;
}

/* Asked by EXCHANGE PARTITION and CONVERT TABLE, of tables that the server has compared; the statement's first is the partitioned one. */
bool ha_terrace::check_if_incompatible_data(HA_CREATE_INFO *, uint changes)
{
  if (changes != IS_EQUAL_YES)
    return COMPATIBLE_DATA_NO;
  const LEX *lex= ha_thd()->lex;
  const TABLE *other= lex->query_tables ? lex->query_tables->table : nullptr;
  const bool becomes= lex->alter_info.partition_flags & (ALTER_PARTITION_EXCHANGE | ALTER_PARTITION_CONVERT_IN);
  return becomes && other && !(keys_in_the_same_order(table, other) && same_columns_are_stored(table, other)) ? COMPATIBLE_DATA_NO : COMPATIBLE_DATA_YES;
}
