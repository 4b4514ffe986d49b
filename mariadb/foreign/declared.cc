/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The foreign keys that a statement declares, or that an ALTER leaves or breaks.

  terrace_foreign_keys says what becomes of a declaration: it is enforced, an error, or left out with a warning that names it. What is declared stays
  enforced, whatever the setting is later.
*/
#include "declared.h"
#include "definitions.h"
#include "ddl.h"
#include "globals.h"
#include "ha_terrace.h"
#include "in_doubt.h"
#include "latest_error.h"
#include "link.h"
#include "relations.h"
#include "xid.h"

namespace terrace {

namespace {

/** Appends the column names, quoted, separated by commas, in parentheses. */
void append_names(THD *thd, String *to, List<Key_part_spec> &parts)
{
  const char *before= " (";
  List_iterator<Key_part_spec> each(parts);
  while (Key_part_spec *part= each++)
  {
    to->append(before, strlen(before));
    append_identifier(thd, to, &part->field_name);
    before= ", ";
  }
  to->append(')');
}

/** Appends a declared foreign key as SHOW CREATE TABLE would print it, so that the warning says what is lost. */
void append_foreign_key(THD *thd, String *to, Foreign_key *key)
{
  to->append(STRING_WITH_LEN("FOREIGN KEY"));
  const LEX_CSTRING &name= key->constraint_name.str ? key->constraint_name : key->name;
  if (name.str)
  {
    to->append(' ');
    append_identifier(thd, to, &name);
  }
  append_names(thd, to, key->columns);
  to->append(STRING_WITH_LEN(" REFERENCES "));
  if (key->ref_db.str)
  {
    append_identifier(thd, to, &key->ref_db);
    to->append('.');
  }
  append_identifier(thd, to, &key->ref_table);
  if (key->ref_columns.elements)
    append_names(thd, to, key->ref_columns);
  const auto append_action= [&](const char *event, enum_fk_option action) {
    if (action == FK_OPTION_UNDEF)
      return;
    to->append(event, strlen(event));
    to->append(fk_option_name(action));
  };
  append_action(" ON DELETE ", key->delete_opt);
  append_action(" ON UPDATE ", key->update_opt);
}

/** Whether the table has a constraint that DROP CONSTRAINT would find. */
bool has_constraint(const TABLE *table, const char *name)
{
  for (Virtual_column_info **check= table->check_constraints; check && *check; check++)
    if ((*check)->name.str && same_name((*check)->name.str, name))
      return true;
  for (uint at= 0; at < table->s->keys; at++)
    if (table->key_info[at].flags & HA_NOSAME && same_name(table->key_info[at].name.str, name))
      return true;
  return false;
}

/** Whether an ALTER drops a foreign key that the table doesn't have. */
bool drops_absent(const TABLE *table, const Relations *relations, const Alter_drop *drop)
{
  if (relations)
    for (const ForeignKey &key : relations->own)
      if (key.is_named(drop->name))
        return false;
  return !drop->drop_if_exists && (drop->type == Alter_drop::FOREIGN_KEY ||
                                   (drop->type == Alter_drop::CHECK_CONSTRAINT && !has_constraint(table, drop->name)));
}

/** The table that an ALTER changes; the statement may copy it or change only its definition. */
const TABLE *changed(THD *thd)
{
  const TABLE_LIST *source= thd->lex->query_tables;
  return source ? source->table : nullptr;
}

void warn_of_drops(THD *thd)
{
  const TABLE *table= changed(thd);
  if (!table || table->file->ht != hton)
    return;
  const auto relations= relations_of(table_name(table->s->normalized_path.str));
  List_iterator<Alter_drop> each(thd->lex->alter_info.drop_list);
  while (Alter_drop *drop= each++)
    if (drops_absent(table, relations.get(), drop))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_CANT_DROP_FIELD_OR_KEY, ER_THD(thd, ER_CANT_DROP_FIELD_OR_KEY), "FOREIGN KEY", drop->name);
}

/** The definitions that a foreign key of the statement is checked against. */
struct Statement
{
  THD *thd;
  const TABLE *form;
  std::string table;                    // the engine's name, at the statement's end
  bool alters;
};

/** As InnoDB: a warning has the reason of error 1005, 150. */
int cannot_add(const Statement &of, const std::string &key, const std::string &why, bool warns= true)
{
  // A temporary table's file has another name.
  const TABLE_SHARE *share= of.form->s;
  const std::string table= share->tmp_table == NO_TMP_TABLE ? quoted(of.thd, TableName(of.table)) : quoted(of.thd, share->db.str) + "." + quoted(of.thd, share->table_name.str);
  const std::string text= std::string(of.alters ? "Alter" : "Create") + "  table " + table + " with foreign key " + key + (key.empty() ? "" : " ") +
                          "constraint failed. " + why;
  keep_foreign_error(of.thd, text);
  if (warns)
    push_warning(of.thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, text.c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

/** Why none of the indexes serves a foreign key. `types`: the child's index, whose columns they are compared with; null: with nothing. As in InnoDB, the last index's reason counts. */
std::string no_index(const KEY *keys, uint count, const std::vector<std::string> &columns, const KEY *types= nullptr)
{
  static const char start[]= "There is ", end[]= " index in the referenced table where the referenced columns appear as the first columns.";
  std::string why= std::string(start) + "no" + end;
  for (const KEY *key= keys; key < keys + count; key++)
    for (size_t part= 0; part < columns.size() && key->ext_key_parts >= columns.size(); part++)
    {
      const KEY_PART_INFO &one= key->key_part[part];
      const Field *own= types ? types->key_part[part].field : nullptr;
      if (one.key_part_flag & HA_PART_KEY_SEG)
        why= std::string(start) + "only prefix" + end;
      else if (same_name(one.field->field_name.str, columns[part]) && (!own || is_comparable(own, one.field)))
        continue;
      else if (same_name(one.field->field_name.str, columns[part]))
        why= std::string("Field type or character set for column '") + own->field_name.str + "' does not match referenced column '" + one.field->field_name.str + "'.";
      break;
    }
  return why;
}

/** Whether the table that a statement replaces has no index over the columns, as foreign_key_checks=0 allows. Sets `*error` to a handler error. */
bool had_no_index(const Statement &of, const std::vector<std::string> &columns, int *error)
{
  const Definition now(of.thd, of.table);
  *error= now.error;
  return !now.share || index_over(now.share->key_info, now.share->keys, columns) == MAX_KEY;
}

/** The server's name of a column, as its definition writes it; false if there is none. */
bool find_column(Field *const *fields, std::string *name)
{
  for (; *fields; fields++)
    if (same_name((*fields)->field_name.str, *name))
    {
      *name= (*fields)->field_name.str;
      return true;
    }
  return false;
}

/** Checks that the foreign key's actions may change its columns. `parents`: the parent's index, if the parent is there. Handler error. */
int check_options(const Statement &of, const std::string &shown, bool old, const KEY &index, const KEY *parents, const ForeignKey &key)
{
  for (size_t part= 0; key.modifies() && part < key.columns.size(); part++)
  {
    const Field *column= index.key_part[part].field;
    if (!column->real_maybe_null() && (key.on_delete == FK_OPTION_SET_NULL || key.on_update == FK_OPTION_SET_NULL))
    {
      if (!old)
        return cannot_add(of, shown, std::string("You have defined a SET NULL condition but column '") + column->field_name.str + "' is defined as NOT NULL.");
      my_error(ER_FK_COLUMN_NOT_NULL, MYF(0), column->field_name.str, key.name.c_str());
      return HA_ERR_CANNOT_ADD_FOREIGN;
    }
    if (!old && parents && copies_null(of.thd, key, column, parents->key_part[part].field))
      return cannot_add(of, shown, std::string("Column '") + column->field_name.str + "' is defined as NOT NULL, the referenced column is not.");
  }
  return 0;
}

/** Checks a foreign key of the statement's table against both tables. Handler error, with the reason as a warning. `old`: the table that an ALTER
    copies has it. */
int check_declared(const Statement &of, const std::string &shown, bool old, ForeignKey *key)
{
  const TABLE *form= of.form;
  for (std::string &column : key->columns)
    if (!find_column(form->field, &column))
      return cannot_add(of, shown, "Column " + column + " was not found.");
  const bool unchecked= thd_test_options(of.thd, OPTION_NO_FOREIGN_KEY_CHECKS);
  const uint own= index_over(form->key_info, form->s->keys, key->columns);
  if (own == MAX_KEY)
  {
    int error= 0;
    if (old && (unchecked || had_no_index(of, key->columns, &error)))
      return error;
    return cannot_add(of, shown, no_index(form->key_info, form->s->keys, key->columns));
  }
  const bool itself= key->parent() == of.table;
  // Rows are looked for in the table that is copied, so its index must be there; InnoDB answers the same.
  if (itself && of.alters && !old)
  {
    const Definition now(of.thd, of.table);
    if (now.error)
      return now.error;
    if (!now.share || index_over(now.share->key_info, now.share->keys, key->parent_columns) == MAX_KEY)
      return cannot_add(of, shown, no_index(form->key_info, form->s->keys, key->parent_columns));
  }
  std::unique_ptr<Definition> parent(itself ? nullptr : new Definition(of.thd, key->parent()));
  if (parent && parent->error)
    return parent->error;
  key->parent_index.clear();
  if (parent && !parent->share)
  {
    if (unchecked)
      return check_options(of, shown, old, form->key_info[own], nullptr, *key);
    return cannot_add(of, shown, "Referenced table " + quoted(of.thd, key->parent_database) + "." + quoted(of.thd, key->parent_table) +
                                   " not found in the data dictionary.");
  }
  const TABLE_SHARE *share= parent ? parent->share : form->s;
  const KEY *keys= parent ? share->key_info : form->key_info;
  for (std::string &column : key->parent_columns)
    if (!find_column(parent ? share->field : form->field, &column))
      return cannot_add(of, shown, "Column " + column + " was not found.");
  const uint index= index_over(keys, share->keys, key->parent_columns);
  if (index == MAX_KEY)
  {
    // Another table's was dropped before.
    if (old && (parent || unchecked))
      return 0;
    return cannot_add(of, shown, no_index(keys, share->keys, key->parent_columns, form->key_info + own));
  }
  // The server has compared the types of a table that is copied.
  if (!old && unequal(form->key_info + own, keys + index, key->columns.size()))
    return cannot_add(of, shown, no_index(keys, share->keys, key->parent_columns, form->key_info + own));
  key->parent_index= keys[index].name.str;
  return check_options(of, shown, old, form->key_info[own], keys + index, *key);
}

/** Checks that the table which the statement makes serves the foreign keys of other tables that refer to it. Handler error. */
int check_referring(const Statement &of, const Relations &relations)
{
  for (const Relations::Child &child : relations.children)
  {
    if (child.table == of.table)
      continue;
    // An application loads its tables in any order; the row that doesn't fit is found when it comes.
    if (!of.alters && thd_test_options(of.thd, OPTION_NO_FOREIGN_KEY_CHECKS))
      continue;
    const std::string shown= quoted(of.thd, child.key.name);
    const uint index= index_over(of.form->key_info, of.form->s->keys, child.key.parent_columns);
    if (index == MAX_KEY)
    {
      int error= 0;
      if (of.alters && (thd_test_options(of.thd, OPTION_NO_FOREIGN_KEY_CHECKS) || had_no_index(of, child.key.parent_columns, &error)))
      {
        if (error)
          return error;
        continue;
      }
      return cannot_add(of, shown, no_index(of.form->key_info, of.form->s->keys, child.key.parent_columns), of.alters);
    }
    const Definition other(of.thd, child.table);
    if (other.error)
      return other.error;
    const uint theirs= other.share ? index_over(other.share->key_info, other.share->keys, child.key.columns) : MAX_KEY;
    if (theirs == MAX_KEY)
      continue;
    int failed= 0;
    if (of.alters && !had_no_index(of, child.key.parent_columns, &failed))
      continue;
    if (failed)
      return failed;
    if (unequal(other.share->key_info + theirs, of.form->key_info + index, child.key.columns.size()))
      return cannot_add(of, shown, no_index(of.form->key_info, of.form->s->keys, child.key.parent_columns, other.share->key_info + theirs), of.alters);
  }
  return 0;
}

} // namespace

bool refuse_foreign_keys(THD *thd)
{
  static const char what[]= "FOREIGN KEY constraints in Terrace tables";
  if (foreign_keys(thd) == FOREIGN_KEYS_ENFORCED)
    return false;
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY || key->old)
      continue;
    if (foreign_keys(thd) == FOREIGN_KEYS_REFUSED)
    {
      my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), what);
      return true;
    }
    String lost;
    append_foreign_key(thd, &lost, static_cast<Foreign_key *>(key));
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_CHECK_NOT_IMPLEMENTED, ER_THD(thd, ER_CHECK_NOT_IMPLEMENTED), lost.c_ptr_safe());
  }
  if (thd_sql_command(thd) == SQLCOM_ALTER_TABLE && foreign_keys(thd) == FOREIGN_KEYS_WARNED)
    warn_of_drops(thd);
  return false;
}

int declare_foreign_keys(THD *thd, const TABLE *form, HA_CREATE_INFO *info, const std::string &name, const std::string &replaced,
                         std::vector<std::string> *made)
{
  const bool alters= info->options & HA_CREATE_TMP_ALTER;
  const Statement of= {thd, form, replaced.empty() ? name : replaced, alters};
  const auto relations= relations_of(of.table);
  const bool renames= alters && info->alter_info && info->alter_info->flags & ALTER_RENAME;
  if (relations && renames && !relations->children.empty())
    return refuse_by_name("RENAME of a Terrace table that FOREIGN KEY constraints refer to");
  if (relations && !is_passing_name(of.table))
    if (int error= check_referring(of, *relations))
      return error;
  if (!info->alter_info)
    return 0;
  ForeignKeys keys;
  std::set<std::string> fresh;
  const std::string table= TableName(of.table).table;
  ulong number= generated_number(table, relations.get());
  List_iterator<Key> each(info->alter_info->key_list);
  while (Key *one= each++)
  {
    // CREATE TABLE … LIKE makes none, as in InnoDB.
    if (one->type != Key::FOREIGN_KEY || (one->old ? !alters : foreign_keys(thd) != FOREIGN_KEYS_ENFORCED))
      continue;
    ForeignKey key= read_declared(of.table, static_cast<Foreign_key *>(one));
    // As InnoDB, whose server layer says the same of other engines' temporary tables.
    if (info->options & HA_LEX_CREATE_TMP_TABLE)
      return cannot_add(of, "", "Temporary tables can't have foreign key constraints.");
    std::string shown= key.name.empty() ? "(" : quoted(thd, key.name);
    for (size_t at= 0; key.name.empty() && at < key.columns.size(); at++)
      shown+= key.columns[at] + (at + 1 < key.columns.size() ? ", " : ")");
    if (key.name.empty())
      key.name= generated_name(table, ++number);
    bool twice= false;
    for (const ForeignKey &other : keys)
      twice|= same_name(other.name, key.name);
    // As InnoDB: without a warning, if the statement itself declares both.
    if (twice && !one->old && fresh.count(key.name))
      return HA_ERR_CANNOT_ADD_FOREIGN;
    if (int error= check_declared(of, shown, one->old, &key))
      return error;
    if (twice || (!one->old && has_constraint_beside(of.table, key.name)))
    {
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_FOUND_DUPP_KEY, "CREATE or ALTER TABLE %s failed: duplicate name, %s",
                          quoted(thd, TableName(of.table)).c_str(), key.text(thd, TableName(of.table).database).c_str());
      return HA_ERR_FOUND_DUPP_KEY;
    }
    if (!one->old && alters && key.parent() != of.table)
      if (int error= wait_for_prepared(thd, key.parent()))
        return error;
    if (!one->old)
      fresh.insert(key.name);
    keys.push_back(key);
  }
  for (const ForeignKey &key : keys)
    made->push_back(key.bytes());
  if (alters)
    Session::of(thd)->fresh_keys= {name, fresh};
  return 0;
}

int refuse_drop(THD *thd, const std::string &name)
{
  // A table that the statement has made itself goes when the statement fails.
  if (!thd || server_recovers() || is_passing_name(name) || thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS) ||
      Session::of(thd)->doubts.created.count(name))
    return 0;
  const auto relations= relations_of(name);
  if (!relations)
    return 0;
  const std::string database= TableName(name).database;
  for (const Relations::Child &child : relations->children)
    if (child.table != name && !(thd_sql_command(thd) == SQLCOM_DROP_DB && TableName(child.table).database == database))
      return HA_ERR_ROW_IS_REFERENCED;
  return 0;
}

std::vector<std::string> absent_keys_dropped(THD *thd, const TABLE *table, const Relations *relations)
{
  std::vector<std::string> names;
  if (thd_sql_command(thd) != SQLCOM_ALTER_TABLE || foreign_keys(thd) != FOREIGN_KEYS_WARNED)
    return names;
  List_iterator<Alter_drop> each(thd->lex->alter_info.drop_list);
  while (Alter_drop *drop= each++)
    if (drops_absent(table, relations, drop))
      names.push_back(drop->name);
  return names;
}

} // namespace terrace
