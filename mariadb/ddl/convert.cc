/* SPDX-License-Identifier: GPL-2.0-only */
#include "convert.h"
#include "ddl.h"
#include "definition_files.h"
#include "in_doubt.h"
#include "session.h"
#include <algorithm>
#include <set>

namespace terrace {

namespace fs= std::filesystem;

/* The prefix of the second names (see convert.h), in the database of the table. */
static const char KEPT[]= "#sql-terrace-converted-";

static const char *const FILES[]= {".frm", ".par"};

static std::string kept_name(const std::string &table)
{
  return std::string(table).insert(table.find(FN_LIBCHAR) + 1, KEPT);
}

static void forget(const std::string &kept)
{
  std::error_code error;
  for (const char *file : FILES)
    fs::remove(file_of(kept, file), error);
}

bool refuse_converted_to_itself(THD *thd, const TABLE_SHARE *table)
{
  const LEX *lex= thd->lex;
  const LEX_CSTRING db= lex->first_select_lex()->db;
  if (!(lex->alter_info.partition_flags & ALTER_PARTITION_CONVERT_OUT) || !lex->name.str || !db.str ||
      my_strcasecmp(table_alias_charset, lex->name.str, table->table_name.str) || my_strcasecmp(table_alias_charset, db.str, table->db.str))
    return false;
  my_error(ER_TABLE_EXISTS_ERROR, MYF(0), lex->name.str);
  return true;
}

void keep_converted(THD *thd, const std::string &before, const std::string &after)
{
  if (!thd || server_recovers() || is_partition(before) == is_partition(after) ||
      !(thd->lex->alter_info.partition_flags & (ALTER_PARTITION_CONVERT_IN | ALTER_PARTITION_CONVERT_OUT)))
    return;
  // The server writes or removes the other table's definition, which may be in another database.
  note_changed(thd, before);
  note_changed(thd, after);
  const std::string table= table_of(is_partition(before) ? before : after), kept= kept_name(table);
  // The server renames the partition a second time when it rolls the statement back.
  if (!Session::of(thd)->doubts.converted.insert(table).second)
    return;
  forget(kept);
  for (const char *file : FILES)
  {
    std::error_code error;
    fs::create_hard_link(file_of(table, file), file_of(kept, file), error);
    if (error)
      sql_print_warning("Terrace: can't keep %s%s, which a crash may lose: %s", table.c_str(), file, error.message().c_str());
  }
}

bool is_converted(const std::string &table)
{
  return has_file(kept_name(table), ".par");
}

void settle_converted(const std::string &table)
{
  const std::string kept= kept_name(table);
  const std::vector<std::string> names= names_in(file_of(kept, ".par"), true);
  Properties properties;
  const bool is_there= !names.empty() && std::all_of(names.begin(), names.end(), [&](const std::string &name) {
    return !properties_of(table + MARK + name, &properties);
  });
  const bool has_definition= has_file(table, ".frm"), has_list= has_file(table, ".par");
  const std::string version= version_in(file_of(kept, ".frm"));
  const bool is_lost= !has_definition || (!has_list && defined_version(table) == version);
  if (is_there && is_lost && !version.empty())
  {
    std::error_code error;
    if (!has_list)
      fs::rename(file_of(kept, ".par"), file_of(table, ".par"), error);
    if (error)
    {
      sql_print_error("Terrace: can't make %s.par the list of %s: %s", kept.c_str(), table.c_str(), error.message().c_str());
      return;
    }
    if (!has_definition)
      install_definition(kept, table);
    sync_directory(table.substr(0, table.find(FN_LIBCHAR)));
  }
  forget(kept);
}

void settle_all_converted()
{
  std::set<std::string> tables;
  for (const char *file : FILES)
    for_each_file(file, [&](const fs::path &, const std::string &kept) {
      const size_t name= kept.find(FN_LIBCHAR) + 1;
      if (!kept.compare(name, sizeof KEPT - 1, KEPT))
        tables.insert(kept.substr(0, name) + kept.substr(name + sizeof KEPT - 1));
    });
  for (const std::string &table : tables)
    settle_converted(table);
}

void remove_converted_definitions()
{
  Tables tables;
  if (!list_tables(&tables))
    return;
  for (const auto &one : tables)
  {
    const std::string &name= one.first, &table= one.second.origin;
    const bool was_table= one.second.has(Properties::RENAMED) && !table.empty() && !is_partition(table) && is_partition(name);
    if (was_table && is_defined(name, one.second.version) && !tables.count(table) && has_file(table, ".frm") && !has_file(table, ".par") &&
        engine_in(file_of(table, ".frm")) == "Terrace")
      remove_definition(table);
  }
}

} // namespace terrace
