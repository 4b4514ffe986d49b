/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Tables that get another name. A foreign key names its parent, so those that refer to the table change with it: the engine's catalog changes all of these
  tables in one change, which a crash leaves or not. Meanwhile no DDL statement changes them, because their metadata is locked as an ALTER locks it.

  A table that an ALTER or a statement on partitions puts aside counts under its name: foreign keys stay.
*/
#include "ddl.h"
#include "declared.h"
#include "definitions.h"
#include "errors.h"
#include "globals.h"
#include "in_doubt.h"
#include "link.h"
#include "sql_base.h"
#include "table_cache.h"

namespace terrace {

/** Whether foreign keys that wait for a table of the new name could refer to this one. As InnoDB, whatever foreign_key_checks says. Handler error. */
static int check_awaited(THD *thd, const std::string &before, const std::string &after)
{
  const auto waiting= relations_of(after);
  if (!waiting || waiting->children.empty())
    return 0;
  int error= 0;
  {
    const Definition now(thd, before);
    if (now.error)
      return now.error;
    for (const Relations::Child &child : waiting->children)
    {
      const uint index= now.share ? index_over(now.share->key_info, now.share->keys, child.key.parent_columns) : MAX_KEY;
      const Definition other(thd, child.table);
      if (other.error)
        return other.error;
      const uint theirs= other.share ? index_over(other.share->key_info, other.share->keys, child.key.columns) : MAX_KEY;
      if (index == MAX_KEY || (theirs != MAX_KEY && unequal(other.share->key_info + theirs, now.share->key_info + index, child.key.columns.size())))
        error= HA_ERR_CANNOT_ADD_FOREIGN;
    }
  }
  // The server has let the old name's definition go before it called.
  const TableName names(before);
  tdc_remove_table(thd, names.database.c_str(), names.table.c_str());
  return error;
}

static void name_parent(ForeignKey *key, const TableName &name)
{
  key->parent_database= name.database;
  key->parent_table= name.table;
}

int rename_foreign_keys(THD *thd, const std::string &before, const std::string &after, std::vector<std::string> *keys, Redefinitions *others)
{
  if (is_passing_name(before))
    return 0;
  const bool recovers= server_recovers();
  const auto relations= relations_of(before);
  if (is_passing_name(after))
  {
    static const char EXCHANGED[]= "/#sql-exchange-";
    return !recovers && relations && after.find(EXCHANGED) != std::string::npos ? HA_ERR_ROW_IS_REFERENCED : 0;
  }
  if (!recovers)
  {
    if (relations && after.find("#P#") != std::string::npos)
      return refuse_by_name("FOREIGN KEY constraints of partitioned Terrace tables");
    if (int error= check_awaited(thd, before, after))
      return error;
    if (int error= lock_referring(thd, before))
      return error;
  }
  const TableName was(before), is(after);
  for (std::string &bytes : *keys)
  {
    ForeignKey key;
    if (!key.parse(bytes))
      continue;
    if (key.parent() == before)
      name_parent(&key, is);
    if (const ulong number= generated_number(was.table, key.name))
      key.name= generated_name(is.table, number);
    bytes= key.bytes();
  }
  return map_error(thd, edit_referring(before, [&](ForeignKey *key) { name_parent(key, is); }, others));
}

int32_t redefine_together(const std::string &before, const std::string &after, const std::string &properties, const Redefinitions &others)
{
  std::vector<terrace_redefined> all= {{bytes_of(before), bytes_of(after), bytes_of(properties)}};
  std::vector<std::string> names= {before, after};
  for (const auto &one : others)
  {
    all.push_back({bytes_of(one.first), bytes_of(one.first), bytes_of(one.second)});
    names.push_back(one.first);
  }
  const int32_t code= terrace_tables_redefine(engine, all.data(), all.size());
  if (!code)
    note_relations(names);
  return code;
}

int32_t rename_with_keys(const std::string &before, const std::string &after, const std::string &shown)
{
  Properties properties;
  if (const int32_t code= properties_of(before, &properties))
    return code;
  const TableName name(shown);
  for (std::string &bytes : properties.foreign)
  {
    ForeignKey key;
    if (!key.parse(bytes) || key.parent() != before)
      continue;
    name_parent(&key, name);
    bytes= key.bytes();
  }
  Redefinitions others;
  if (const int32_t code= edit_referring(before, [&](ForeignKey *key) { name_parent(key, name); }, &others))
    return code;
  return redefine_together(before, after, properties.bytes(), others);
}

} // namespace terrace
