/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Definitions: create, drop, rename, truncate; CHECK and OPTIMIZE.

  The engine's table is named as the server's path is, without "./": `db/table` in the server's file name encoding. Its
  properties are for this file alone:
    1 byte   version (2; of version 1 the rest is the definition version)
    1 byte   1: a temporary table; one that a former version left is dropped at the start
    u16      length of the server's definition version (of the .frm), by which check_version tells after a crash which
             definition the engine's table has, and the definition version
    rest     the layouts of its rows (row_layouts.h)
*/
#include "ha_terrace.h"
#include "alter.h"
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "kept_statistics.h"
#include "table_options.h"
#include "sql_table.h"
#include "table_options.h"
#include <set>

namespace terrace {

static const char PROPERTIES_VERSION= 2, TEMPORARY= 1;

/* A table's properties, read. What isn't there is empty. */
struct Properties
{
  bool temporary= false;
  terrace_bytes version= {}, layouts= {};

  explicit Properties(const terrace_bytes &bytes)
  {
    if (bytes.len < 2)
      return;
    temporary= bytes.data[1] & TEMPORARY;
    const uchar *at= bytes.data + 2, *end= bytes.data + bytes.len;
    if (bytes.data[0] == 1)
      version= bytes_of(at, end - at);
    if (bytes.data[0] != PROPERTIES_VERSION || end - at < 2 || end - at - 2 < uint2korr(at))
      return;
    version= bytes_of(at + 2, uint2korr(at));
    at+= 2 + version.len;
    layouts= bytes_of(at, end - at);
  }
};

std::string table_name(const char *path)
{
  return path[0] == FN_CURLIB && path[1] == FN_LIBCHAR ? path + 2 : path;
}

static std::string make_properties(bool temporary, const uchar *version, size_t length, const std::string &layouts)
{
  std::string properties(1, PROPERTIES_VERSION);
  properties+= temporary ? TEMPORARY : 0;
  properties+= (char) length;
  properties+= (char) (length >> 8);
  return properties.append(reinterpret_cast<const char *>(version), length) + layouts;
}

std::string make_properties(bool temporary, const TABLE *table, const std::string &layouts)
{
  const LEX_CUSTRING &version= table->s->tabledef_version;
  return make_properties(temporary, version.str, version.length, layouts);
}

std::string plain_properties()
{
  return make_properties(false, nullptr, 0, "");
}

std::string version_of(const terrace_bytes &bytes)
{
  const Properties properties(bytes);
  return std::string(reinterpret_cast<const char *>(properties.version.data), properties.version.len);
}

bool read_layouts(const terrace_table *table, RowLayouts *layouts)
{
  const Properties properties(terrace_table_properties(table));
  return layouts->parse(properties.layouts.data, properties.layouts.len);
}

static std::string statistics_of(const terrace_bytes &bytes, const std::string &name)
{
  const Properties properties(bytes);
  if (!properties.version.len || properties.temporary)
    return "";
  return statistics_key(properties.version.data, properties.version.len, name);
}

std::string statistics_of(const terrace_table *table, const std::string &name)
{
  return statistics_of(terrace_table_properties(table), name);
}

static std::string statistics_of(const std::string &name)
{
  terrace_table *table= nullptr;
  if (terrace_table_open(engine, bytes_of(name), &table))
    return "";
  const std::string key= statistics_of(table, name);
  terrace_table_close(table);
  return key;
}

static int drop(THD *thd, const char *path)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  const std::string name= table_name(path);
  const std::string kept= statistics_of(name);
  const int32_t code= terrace_table_drop(engine, bytes_of(name));
  if (!code && !kept.empty())
    forget_statistics(kept);
  return map_error(thd, code);
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
  const bool temporary= Properties(properties).temporary;
  if (listed->temporary ? temporary : text.compare(0, listed->start.size(), listed->start) == 0)
    listed->names.push_back(text);
}

static void drop_listed(Listed *listed)
{
  terrace_table_list(engine, list_one, listed);
  for (const std::string &name : listed->names)
    if (terrace_table_drop(engine, bytes_of(name)))
      sql_print_warning("Terrace: can't drop %s: %s", name.c_str(), last_message().c_str());
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
  static_cast<std::set<std::string> *>(context)->insert(statistics_of(properties, text));
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
  terrace_table *table= nullptr;
  if (int32_t code= terrace_table_open(engine, bytes_of(name), &table))
  {
    Listed listed= {name + "#P#", false, {}};
    terrace_table_list(engine, list_one, &listed);
    if (code != TERRACE_ABSENT || listed.names.empty() ||
        terrace_table_open(engine, bytes_of(listed.names[0]), &table))
      return 2;
  }
  const terrace_bytes has= Properties(terrace_table_properties(table)).version;
  const bool same= has.len == version->length && !memcmp(has.data, version->str, version->length);
  terrace_table_close(table);
  return same ? 0 : 1;
}

void fill_definition_calls(handlerton *into)
{
  into->drop_table= drop_table;
  into->drop_database= drop_database;
  into->check_version= check_version;
  fill_partition_calls(into);
}

/** What the server lets through and the engine doesn't do. */
static int refuse(THD *thd, const char *name, TABLE *form, HA_CREATE_INFO *info)
{
  // Other statements, which make a table as well (a partition by system time comes with an UPDATE), leave the list unset.
  const int command= thd_sql_command(thd);
  const bool declares= command == SQLCOM_CREATE_TABLE || command == SQLCOM_ALTER_TABLE;
  List<Key> none;
  List_iterator<Key> keys(declares ? thd->lex->alter_info.key_list : none);
  while (Key *key= keys++)
    if (key->type == Key::FOREIGN_KEY)
    {
      static const char what[]= "FOREIGN KEY constraints in Terrace tables";
      if (foreign_keys(thd) == FOREIGN_KEYS_REFUSED)
      {
        my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), what);
        return HA_ERR_UNSUPPORTED;
      }
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_CHECK_NOT_IMPLEMENTED,
                          ER_THD(thd, ER_CHECK_NOT_IMPLEMENTED), what);
    }
  if (info->used_fields & HA_CREATE_USED_ROW_FORMAT &&
      (info->row_type == ROW_TYPE_FIXED || info->row_type == ROW_TYPE_PAGE))
  {
    // As InnoDB: this error of ALTER, a warning beside the server's own error of CREATE.
    if (thd_sql_command(thd) == SQLCOM_ALTER_TABLE)
      my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "Terrace", "ROW_TYPE");
    else
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                          ER_THD(thd, ER_ILLEGAL_HA_CREATE_OPTION), "Terrace", "ROW_TYPE");
    return HA_WRONG_CREATE_OPTION;
  }
  if (info->data_file_name || info->index_file_name)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, WARN_OPTION_IGNORED, ER_THD(thd, WARN_OPTION_IGNORED),
                        info->data_file_name ? "DATA DIRECTORY" : "INDEX DIRECTORY");
  return 0;
}

} // namespace terrace

using namespace terrace;

int ha_terrace::create(const char *name, TABLE *form, HA_CREATE_INFO *info)
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
    indexes.push_back({sizeof(terrace_index_definition), bytes_of("(rows)", 6), true});
  for (uint at= 0; at < form->s->keys; at++)
  {
    const KEY *key= form->key_info + at;
    const bool unique= key->flags & HA_NOSAME && key->algorithm != HA_KEY_ALG_LONG_HASH;
    indexes.push_back({sizeof(terrace_index_definition), bytes_of(key->name.str, key->name.length), unique});
  }
  const bool temporary= info->options & HA_LEX_CREATE_TMP_TABLE;
  const std::string properties= make_properties(temporary, form, "");
  const std::string engine_name= table_name(name);
  terrace_table_definition definition= {};
  definition.size= sizeof definition;
  definition.name= bytes_of(engine_name);
  definition.indexes= indexes.data();
  definition.index_count= indexes.size();
  definition.properties= bytes_of(properties);
  definition.temporary= temporary;
  terrace_table *table= nullptr;
  int32_t code= terrace_table_create(engine, &definition, &table);
  if (!code && apply_table_options(engine_name, form))
  {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Terrace: %s", MYF(0), last_message().c_str());
    terrace_table_close(table);
    terrace_table_drop(engine, bytes_of(engine_name));
    return HA_WRONG_CREATE_OPTION;
  }
  if (!code && info->auto_increment_value > 1)
    code= terrace_table_auto_increment_raise(table, info->auto_increment_value);
  terrace_table_close(table);
  return map_error(thd, code);
}

int ha_terrace::delete_table(const char *name)
{
  return drop(ha_thd(), name);
}

int ha_terrace::rename_table(const char *from, const char *to)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  // A partition's sample has its name in its key.
  const std::string before= table_name(from), after= table_name(to);
  const std::string kept= statistics_suffix(before) != statistics_suffix(after) ? statistics_of(before) : "";
  int32_t code= terrace_table_rename(engine, bytes_of(before), bytes_of(after));
  // The server renames all partitions again, also those that were renamed before the crash.
  terrace_table *renamed= nullptr;
  if (code == TERRACE_ABSENT && server_recovers() && !terrace_table_open(engine, bytes_of(after), &renamed))
    code= TERRACE_OK;
  terrace_table_close(renamed);
  if (!code && !kept.empty())
    forget_statistics(kept);
  return map_error(ha_thd(), code);
}

int ha_terrace::truncate()
{
  close_cursor();
  free_retired();
  const std::string kept= statistics_key();
  terrace_table_close(m_table);
  m_table= nullptr;
  int error= map(terrace_table_truncate(engine, bytes_of(m_name)));
  if (!error && !kept.empty())
    forget_statistics(kept);
  int opened= reopen();
  return error ? error : opened;
}

int ha_terrace::optimize(THD *, HA_CHECK_OPT *)
{
  return HA_ADMIN_TRY_ALTER;            // rebuild by copy, then analyze
}

/* Asked by EXCHANGE PARTITION, of tables that the server has compared. */
bool ha_terrace::check_if_incompatible_data(HA_CREATE_INFO *, uint changes)
{
  return changes == IS_EQUAL_YES ? COMPATIBLE_DATA_YES : COMPATIBLE_DATA_NO;
}
