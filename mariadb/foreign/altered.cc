/* SPDX-License-Identifier: GPL-2.0-only */
/* Foreign keys that an ALTER in place keeps, drops, adds or breaks, and those of other tables that refer to a column which gets another name. */
#include "declared.h"
#include "definitions.h"
#include "errors.h"
#include "globals.h"
#include "ha_terrace.h"
#include "in_doubt.h"
#include "latest_error.h"
#include "link.h"

namespace terrace {

/** Whether the statement gives the column another type. InnoDB refuses it in place for a foreign key's columns, also if the types stay comparable. */
static bool changes_type(const Alter_inplace_info *info, const std::string &column)
{
  List_iterator_fast<Create_field> each(info->alter_info->create_list);
  while (const Create_field *one= each++)
    if (info->handler_flags & (ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE | ALTER_STORED_COLUMN_TYPE) && one->field &&
        same_name(one->field->field_name.str, column))
      return !one->field->is_equal(*one);
  return false;
}

/** Keeps those that there are, except for those that the statement drops. */
static bool keep_known_keys(THD *thd, const std::string &name, const TABLE *table, const TABLE *altered, Alter_inplace_info *info, const Relations &relations,
                            std::vector<std::string> *made, Redefinitions *others)
{
  Alter_info *alter= info->alter_info;
  const auto is_dropped= [&](const ForeignKey &key) {
    List_iterator<Alter_drop> each(alter->drop_list);
    while (Alter_drop *drop= each++)
      if (drop->type == Alter_drop::FOREIGN_KEY && key.is_named(drop->name))
        return true;
    return false;
  };
  /* A column's name after the statement; empty: it is dropped. */
  const auto name_after= [&](const std::string &column) {
    List_iterator_fast<Create_field> each(alter->create_list);
    while (const Create_field *one= each++)
      if (one->field && same_name(one->field->field_name.str, column))
        return std::string(one->field_name.str);
    return std::string();
  };
  const bool unchecked= thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  /* Whether a foreign key needs the index that the table had over these columns; foreign_key_checks=0 lets it be dropped. */
  const auto index_lost= [&](const std::vector<std::string> &before) {
    const uint was= index_over(table->key_info, table->s->keys, before);
    if (was == MAX_KEY || unchecked)
      return false;
    my_error(ER_DROP_INDEX_FK, MYF(0), table->key_info[was].name.str);
    return true;
  };
  /* A constraint's name in InnoDB's errors of ALTERs in place. */
  const auto identity= [](const std::string &child, const ForeignKey &key) { return TableName(child).database + "/" + key.name; };
  /* Before the statement. */
  const auto may_be_null= [&](const std::string &column) {
    for (Field **field= table->field; *field; field++)
      if (same_name((*field)->field_name.str, column))
        return (*field)->real_maybe_null();
    return false;
  };
  for (ForeignKey key : relations.own)
  {
    if (is_dropped(key))
      continue;
    const std::vector<std::string> before= key.columns;
    const bool itself= key.parent() == name;
    for (std::string &column : key.columns)
    {
      const std::string after= name_after(column);
      if (after.empty())
      {
        if (!index_lost(before))
          my_error(ER_FK_COLUMN_CANNOT_DROP, MYF(0), column.c_str(), identity(name, key).c_str());
        return true;
      }
      column= after;
    }
    for (std::string &column : key.parent_columns)
      if (itself && !name_after(column).empty())
        column= name_after(column);
    const uint own= index_over(altered->key_info, altered->s->keys, key.columns);
    if (own == MAX_KEY)
    {
      if (index_lost(before))
        return true;
      made->push_back(key.bytes());
      continue;
    }
    const uint was= index_over(table->key_info, table->s->keys, before);
    for (const std::string &column : before)
      if (was != MAX_KEY && changes_type(info, column))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), column.c_str(), identity(name, key).c_str());
        return true;
      }
    for (size_t part= 0; key.modifies() && part < key.columns.size(); part++)
    {
      const Field *column= altered->key_info[own].key_part[part].field;
      if (!column->real_maybe_null() && (key.on_delete == FK_OPTION_SET_NULL || key.on_update == FK_OPTION_SET_NULL))
      {
        my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), before[part].c_str(), key.name.c_str());
        return true;
      }
    }
    std::unique_ptr<Definition> parent(itself ? nullptr : new Definition(thd, key.parent()));
    if (parent && parent->error)
      return true;
    const TABLE_SHARE *share= parent ? parent->share : altered->s;
    const KEY *keys= !share ? nullptr : parent ? share->key_info : altered->key_info;
    const uint index= share ? index_over(keys, share->keys, key.parent_columns) : MAX_KEY;
    for (size_t part= 0; index != MAX_KEY && part < key.columns.size(); part++)
      if (may_be_null(before[part]) && copies_null(thd, key, altered->key_info[own].key_part[part].field, keys[index].key_part[part].field))
      {
        my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), before[part].c_str(), key.name.c_str());
        return true;
      }
    // foreign_key_checks=0 lets columns of any types be there.
    if (index != MAX_KEY && was != MAX_KEY && (itself || !unequal(table->key_info + was, keys + index, key.columns.size())))
      if (const char *column= unequal(altered->key_info + own, keys + index, key.columns.size()))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), column, key.name.c_str());
        return true;
      }
    made->push_back(key.bytes());
  }
  bool renames= false;
  for (const Relations::Child &child : relations.children)
  {
    const bool itself= child.table == name;
    if (itself && is_dropped(child.key))
      continue;
    const TableName named(child.table);
    const std::string shown= named.database + "." + named.table;
    std::vector<std::string> after;
    for (const std::string &column : child.key.parent_columns)
    {
      after.push_back(name_after(column));
      if (after.back().empty())
      {
        if (!index_lost(child.key.parent_columns))
          my_error(ER_FK_COLUMN_CANNOT_DROP_CHILD, MYF(0), column.c_str(), identity(child.table, child.key).c_str(), quoted(thd, named).c_str());
        return true;
      }
      renames|= !itself && after.back() != column;
    }
    const uint own= index_over(altered->key_info, altered->s->keys, after);
    if (own == MAX_KEY && index_lost(child.key.parent_columns))
      return true;
    if (itself || own == MAX_KEY)
      continue;                         // compared above
    const uint was= index_over(table->key_info, table->s->keys, child.key.parent_columns);
    for (const std::string &column : child.key.parent_columns)
      if (was != MAX_KEY && changes_type(info, column))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), column.c_str(), identity(child.table, child.key).c_str(), child.table.c_str());
        return true;
      }
    const Definition other(thd, child.table);
    if (other.error)
      return true;
    const uint index= other.share ? index_over(other.share->key_info, other.share->keys, child.key.columns) : MAX_KEY;
    for (size_t part= 0; index != MAX_KEY && part < after.size(); part++)
      if (!may_be_null(child.key.parent_columns[part]) && copies_null(thd, child.key, other.share->key_info[index].key_part[part].field, altered->key_info[own].key_part[part].field))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), child.key.parent_columns[part].c_str(), child.key.name.c_str(), shown.c_str());
        return true;
      }
    if (index != MAX_KEY && (was == MAX_KEY || !unequal(table->key_info + was, other.share->key_info + index, after.size())))
      if (const char *column= unequal(altered->key_info + own, other.share->key_info + index, after.size()))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), column, child.key.name.c_str(), shown.c_str());
        return true;
      }
  }
  if (!renames)
    return false;
  if (lock_referring(thd, name))
    return true;
  const auto edit= [&](ForeignKey *key) {
    for (std::string &column : key->parent_columns)
      column= name_after(column);
  };
  if (const int32_t code= edit_referring(name, edit, others))
  {
    report_error(code, "the foreign keys that refer to the table can't be read");
    return true;
  }
  return false;
}

/** Checks a foreign key that the statement adds, and completes it. The errors are InnoDB's, of which these have no warning. */
static bool check_added(THD *thd, const std::string &name, const TABLE *altered, Foreign_key *from, ForeignKey *key)
{
  const char *said= from->name.str ? from->name.str : "";
  const uint own= index_over(altered->key_info, altered->s->keys, key->columns);
  const auto failed= [&](const char *why) {
    keep_foreign_error(thd, "Alter  table " + quoted(thd, TableName(name)) + " with foreign key " + quoted(thd, key->name) + " constraint failed. " + why);
    return true;
  };
  if (own == MAX_KEY)
  {
    my_error(ER_FK_NO_INDEX_CHILD, MYF(0), said, altered->s->table_name.str);
    return failed("There is no index in the table where the columns appear as the first columns.");
  }
  const auto spell= [](Field *const *fields, std::vector<std::string> *columns) {
    for (std::string &column : *columns)
      for (Field *const *field= fields; *field; field++)
        if (same_name((*field)->field_name.str, column))
          column= (*field)->field_name.str;
  };
  spell(altered->field, &key->columns);
  const bool itself= key->parent() == name;
  std::unique_ptr<Definition> parent(itself ? nullptr : new Definition(thd, key->parent()));
  if (parent && parent->error)
    return true;
  const TABLE_SHARE *share= parent ? parent->share : altered->s;
  if (share)
  {
    const KEY *keys= parent ? share->key_info : altered->key_info;
    const uint index= index_over(keys, share->keys, key->parent_columns);
    if (index == MAX_KEY || unequal(altered->key_info + own, keys + index, key->columns.size()))
    {
      my_error(ER_FK_NO_INDEX_PARENT, MYF(0), said, from->ref_table.str);
      return failed("There is no index of comparable columns in the referenced table where the referenced columns appear as the first columns.");
    }
    spell(parent ? share->field : altered->field, &key->parent_columns);
    key->parent_index= keys[index].name.str;
  }
  for (size_t part= 0; part < key->columns.size(); part++)
    if (!altered->key_info[own].key_part[part].field->real_maybe_null() && (key->on_delete == FK_OPTION_SET_NULL || key->on_update == FK_OPTION_SET_NULL))
    {
      my_error(ER_FK_INCORRECT_OPTION, MYF(0), altered->s->table_name.str, (TableName(name).database + "/" + key->name).c_str());
      return failed("A SET NULL condition is defined on a column that is defined as NOT NULL.");
    }
  return false;
}

/** Adds those that the statement declares. Rows are not checked: foreign_key_checks is off. */
static bool add_keys(THD *thd, const std::string &name, const TABLE *table, const TABLE *altered, Alter_inplace_info *info, const Relations *relations,
                     std::vector<std::string> *made)
{
  if (!(info->handler_flags & ALTER_ADD_FOREIGN_KEY) || foreign_keys(thd) != FOREIGN_KEYS_ENFORCED)
    return false;
  const TableName names(name);
  ulong number= generated_number(names.table, relations);
  List_iterator<Key> each(info->alter_info->key_list);
  while (Key *one= each++)
  {
    if (one->type != Key::FOREIGN_KEY || one->old)
      continue;
    Foreign_key *from= static_cast<Foreign_key *>(one);
    ForeignKey key= read_declared(name, from);
    if (key.name.empty())
      key.name= generated_name(names.table, ++number);
    for (const std::string &column : key.columns)
      if (changes_type(info, column) && index_over(table->key_info, table->s->keys, key.columns) != MAX_KEY)
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), column.c_str(), (names.database + "/" + (from->constraint_name.str ? key.name : generated_name(names.table, 0))).c_str());
        return true;
      }
    if (check_added(thd, name, altered, from, &key))
      return true;
    bool twice= has_constraint_beside(name, key.name);
    for (const std::string &bytes : *made)
    {
      ForeignKey other;
      twice|= other.parse(bytes) && same_name(other.name, key.name);
    }
    if (twice)
    {
      my_error(ER_DUP_CONSTRAINT_NAME, MYF(0), "FOREIGN KEY", (names.database + "/" + key.name).c_str());
      return true;
    }
    made->push_back(key.bytes());
  }
  return false;
}

bool keep_foreign_keys(THD *thd, const std::string &name, const TABLE *table, const TABLE *altered, Alter_inplace_info *info,
                       std::vector<std::string> *made, Redefinitions *others)
{
  const auto relations= relations_of(name);
  if (relations && keep_known_keys(thd, name, table, altered, info, *relations, made, others))
    return true;
  return add_keys(thd, name, table, altered, info, relations.get(), made);
}


} // namespace terrace
