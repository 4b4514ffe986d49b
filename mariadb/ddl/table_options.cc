/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Options of a table and its indexes. The server stores them with the definition and shows them. The engine stores those that it needs in its
  catalog, because it may evict a table's pages before any session opens the table.

    COMPRESSION                  how the table's pages are compressed in objects: zstd, lz4, none; default is
                                 terrace_compression's. Stored blocks keep their compression until they are rewritten
    PLACEMENT                    KEEP: pages are kept on flash in preference to others; NONE: pages are never stored on flash. An
                                 option of a table or an index; an index without one has its table's
    WRITE_POLICY                 what a flush does to a page's copy on flash: CLEAN invalidates it, 'DUAL' (a reserved word) rewrites
                                 it, AUTO is dual for a checkpoint and clean otherwise; default is terrace_write_policy's
    FLASH_MIN, FLASH_MAX         bytes of flash that are reserved for the table whatever others read, and the most that it may have
    BUFFER_MIN, BUFFER_MAX       the same for the object buffer
    FLASH_IOPS, VOLUME_IOPS, OBJECT_IOPS                 limits of reads per second from each tier
    FLASH_BANDWIDTH, VOLUME_BANDWIDTH, OBJECT_BANDWIDTH  limits of bytes read per second from each tier
    FLASH_WRITE_IOPS, FLASH_WRITE_BANDWIDTH, VOLUME_WRITE_…, OBJECT_WRITE_…  the same limits for writes to each tier

  Numbers may end in K, M, G, T, P or E, as the server's sizes do. 0 means not set. In a partitioned table they apply to each partition.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"
#include "table_options.h"
#include "create_options.h"
#include <mutex>
#include <set>

namespace terrace {

static const char *const compressions[]= {"", "none", "lz4", "zstd"};
/* Positions in the options' lists of values. */
static const uint8_t PLACEMENT_KEEP= 1, WRITE_POLICY_DUAL= 3;

static ha_create_table_option table_options[]= {
  HA_TOPTION_ENUM("COMPRESSION", compression, "default,none,lz4,zstd", 0),
  HA_TOPTION_ENUM("PLACEMENT", placement, "DEFAULT,KEEP,NONE", 0),
  HA_TOPTION_ENUM("WRITE_POLICY", write_policy, "DEFAULT,AUTO,CLEAN,DUAL", 0),
#define TERRACE_TEXT(name, field) HA_TOPTION_STRING(name, field),
  TERRACE_NUMBER_OPTIONS(TERRACE_TEXT)
#undef TERRACE_TEXT
  HA_TOPTION_END};

/* TABLE: the same as the table's. The other values are those of the table's list, in the same order. */
static ha_create_table_option index_options[]= {
  HA_IOPTION_ENUM("PLACEMENT", placement, "TABLE,DEFAULT,KEEP,NONE", 0),
  HA_IOPTION_END};

void fill_table_options(handlerton *into)
{
  into->table_options= table_options;
  into->index_options= index_options;
}

static const struct Number
{
  const char *name;
  char *ha_table_option_struct::*text;
  uint64_t terrace_rules::*value;
} numbers[]= {
#define TERRACE_NUMBER(name, field) {name, &ha_table_option_struct::field, &terrace_rules::field},
  TERRACE_NUMBER_OPTIONS(TERRACE_NUMBER)
#undef TERRACE_NUMBER
};

/** Returns false if the text isn't a number, or the number is too large. */
static bool number_of(const char *text, uint64_t *into)
{
  static const char SUFFIXES[]= "kmgtpe";
  *into= 0;
  if (!text)
    return true;
  const char *at= text;
  uint64_t number= 0;
  for (; *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number))
      return false;
  if (at == text)
    return false;
  if (*at)
  {
    const char *suffix= strchr(SUFFIXES, *at | 0x20);
    if (!suffix || at[1] || __builtin_mul_overflow(number, 1ULL << (10 * (suffix - SUFFIXES + 1)), &number))
      return false;
  }
  *into= number;
  return true;
}

/** The options of a definition of this engine; null if it has none, or belongs to another engine. */
static const ha_table_option_struct *given_by(const TABLE *definition)
{
  return definition && definition->file && definition->file->partition_ht() == hton ? definition->s->option_struct : nullptr;
}

/** Whether the definition brings along another engine's option ENCRYPTED. The options that the server parsed for that engine don't contain it. */
static bool says_encrypted(const TABLE *definition)
{
  for (const engine_option_value *one= definition->s->option_list; one; one= one->next)
    if (!my_strcasecmp(system_charset_info, one->name.str, "ENCRYPTED") && one->value.str)
      return !my_strcasecmp(system_charset_info, one->value.str, "YES") || !strcmp(one->value.str, "1");
  return false;
}

bool refuse_options(THD *thd, const TABLE *definition, const TABLE *before)
{
  const ha_table_option_struct *given= definition->s->option_struct, *said= given_by(before);
  if (says_encrypted(definition) && !said)
  {
    if (!(thd->variables.sql_mode & MODE_IGNORE_BAD_TABLE_OPTIONS) && !thd->slave_thread)
    {
      my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION,
                      "Terrace: the table has ENCRYPTED=YES, and Terrace does not encrypt; with IGNORE_BAD_TABLE_OPTIONS in sql_mode it is stored in the clear",
                      MYF(0));
      return true;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, ER_THD(thd, ER_ILLEGAL_HA_CREATE_OPTION), "Terrace",
                        "ENCRYPTED=YES");
  }
  uint64_t value;
  for (const Number &one : numbers)
  {
    const char *text= given ? given->*one.text : nullptr;
    if (number_of(text, &value) || (said && said->*one.text && !strcmp(text, said->*one.text)))
      continue;
    if (!(thd->variables.sql_mode & MODE_IGNORE_BAD_TABLE_OPTIONS) && !thd->slave_thread && says_options(thd))
    {
      my_error(ER_BAD_OPTION_VALUE, MYF(0), text, one.name);
      return true;
    }
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_BAD_OPTION_VALUE, ER_THD(thd, ER_BAD_OPTION_VALUE), text, one.name);
  }
  return false;
}

bool refuse_block_size(THD *thd, const TABLE *definition, const TABLE *before)
{
  const uint size= definition->s->key_block_size;
  const enum row_type format= definition->s->row_type;
  const bool is_ours= before && before->file && before->file->partition_ht() == hton;
  if (!size || (is_ours && before->s->key_block_size == size && before->s->row_type == format))
    return false;
  const bool is_size= size <= 16 && !(size & (size - 1));
  const char *beside= format == ROW_TYPE_DYNAMIC ? "DYNAMIC" : format == ROW_TYPE_COMPACT ? "COMPACT" : format == ROW_TYPE_REDUNDANT ? "REDUNDANT" : nullptr;
  if (is_size && !beside)
    return false;
  const bool refused= innodb_is_strict(thd) && !thd->slave_thread;
  char text[MYSQL_ERRMSG_SIZE];
  if (refused && !is_size)
    my_snprintf(text, sizeof text, "Terrace: invalid KEY_BLOCK_SIZE = %u. Valid values are [1, 2, 4, 8, 16]", size);
  else if (refused)
    my_snprintf(text, sizeof text, "Terrace: cannot specify ROW_FORMAT = %s with KEY_BLOCK_SIZE.", beside);
  else
    my_snprintf(text, sizeof text, "Terrace: ignoring KEY_BLOCK_SIZE=%u%s.", size, is_size ? " unless ROW_FORMAT=COMPRESSED" : "");
  push_warning(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, text);
  return refused;
}

bool says_options(THD *thd)
{
  LEX *lex= thd->lex;
  if (lex->sql_command == SQLCOM_CREATE_TABLE)
    return !lex->create_info.like();
  if (lex->sql_command != SQLCOM_ALTER_TABLE && lex->sql_command != SQLCOM_CREATE_INDEX)
    return false;
  List_iterator<Key> keys(lex->alter_info.key_list);
  while (Key *key= keys++)
    if (key->option_list)
      return true;
  return lex->create_info.option_list || lex->part_info;
}

void warn_without_rules(THD *thd, const std::string &name)
{
  const std::string text= name + " goes without the rules that its definition has: " + last_message();
  sql_print_warning("Terrace: %s", text.c_str());
  Abort_on_warning_instant_set only_warns(thd, false);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION, "Terrace: %s", text.c_str());
}

void log_options(const TABLE *definition)
{
  static std::mutex lock;
  static std::set<std::string> told;
  const bool temporary= definition->s->tmp_table != NO_TMP_TABLE;        // or the copy of an ALTER
  const ha_table_option_struct *given= temporary ? nullptr : definition->s->option_struct;
  uint64_t value;
  for (const Number &one : numbers)
  {
    const char *text= given ? given->*one.text : nullptr;
    if (number_of(text, &value))
      continue;
    const std::string what= std::string(definition->s->db.str) + "." + definition->s->table_name.str + " has " + one.name + "='" + text + "'";
    std::lock_guard<std::mutex> guard(lock);
    if (told.insert(what).second)
      sql_print_warning("Terrace: %s, which is no number and counts as not given", what.c_str());
  }
}

void warn_of_rules(THD *thd, const TABLE *definition)
{
  if (thd_sql_command(thd) == SQLCOM_ALTER_TABLE && !thd->lex->create_info.option_list)
    return;
  const TableOptions options(definition);
  const terrace_rules &rules= options.get()->rules;
  std::string names;
  auto add= [&names](const char *name) { names+= (names.empty() ? "" : ", ") + std::string(name); };
  if (rules.placement || rules.index_count)
    add("PLACEMENT");
  if (rules.write_policy)
    add("WRITE_POLICY");
  for (const Number &one : numbers)
    if (rules.*one.value)
      add(one.name);
  if (names.empty())
    return;
  Abort_on_warning_instant_set only_warns(thd, false);
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_ILLEGAL_HA_CREATE_OPTION,
                      "Terrace: a temporary table has no rules of its own: ignored %s", names.c_str());
}

void note_absent_tiers(THD *thd, const TABLE *definition)
{
  static thread_local query_id_t told;                                   // a partitioned table calls this once for each partition
  if (!says_options(thd) || told == thd->query_id)
    return;
  const TableOptions options(definition);
  const terrace_rules &rules= options.get()->rules;
  std::string of_flash, of_store;
  auto add= [](std::string *names, const char *name) { *names+= (names->empty() ? "" : ", ") + std::string(name); };
  bool keeps= rules.placement == PLACEMENT_KEEP;
  for (size_t at= 0; at < rules.index_count; at++)
    keeps|= rules.indexes[at].placement == PLACEMENT_KEEP;
  if (keeps)
    add(&of_flash, "PLACEMENT=KEEP");
  if (rules.write_policy == WRITE_POLICY_DUAL)
    add(&of_flash, "WRITE_POLICY=DUAL");
  for (const Number &one : numbers)
    if (rules.*one.value && strncmp(one.name, "VOLUME", 6))
      add(!strncmp(one.name, "FLASH", 5) ? &of_flash : &of_store, one.name);
  const struct { bool is_there; const char *tier; const std::string *names; } tiers[]= {
    {has_flash(), "flash", &of_flash}, {has_store(), "object store", &of_store}};
  for (const auto &one : tiers)
    if (!one.is_there && !one.names->empty())
    {
      told= thd->query_id;
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_ILLEGAL_HA_CREATE_OPTION,
                          "Terrace: there is no %s, so %s does nothing until there is", one.tier, one.names->c_str());
    }
}

TableOptions::TableOptions(const TABLE *definition)
{
  const ha_table_option_struct *given= definition->s->option_struct;
  const char *compression= compressions[given ? given->compression : 0];
  all.size= sizeof all;
  all.compression= bytes_of(compression, strlen(compression));
  terrace_rules &rules= all.rules;
  rules.size= sizeof rules;
  if (given)
  {
    rules.placement= static_cast<uint8_t>(given->placement);
    rules.write_policy= static_cast<uint8_t>(given->write_policy);
    for (const Number &one : numbers)
      if (!number_of(given->*one.text, &(rules.*one.value)))
        rules.*one.value= 0;
  }
  for (uint at= 0; at < definition->s->keys; at++)
  {
    const KEY *key= definition->key_info + at;
    if (key->option_struct && key->option_struct->placement > 0)
      indexes.push_back({sizeof(terrace_placement), bytes_of(key->name.str, key->name.length),
                         static_cast<uint8_t>(key->option_struct->placement - 1)});
  }
  rules.indexes= indexes.data();
  rules.index_count= indexes.size();
}

int32_t TableOptions::apply(const std::string &name, const std::string &instead_of) const
{
  if (int32_t code= terrace_table_set_compression(engine, bytes_of(name), all.compression))
    return code;
  return terrace_table_set_rules(engine, bytes_of(name), &all.rules, bytes_of(instead_of));
}

} // namespace terrace
