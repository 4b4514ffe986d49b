/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The foreign keys that a statement declares, or that an ALTER leaves or breaks.

  terrace_foreign_keys says what becomes of a declaration: it is enforced, an error, or left out with a warning that names it. What is declared stays
  enforced, whatever the setting is later.
*/
#include "declared.h"
#include "ddl.h"
#include "globals.h"
#include "ha_terrace.h"
#include "in_doubt.h"
#include "link.h"
#include "relations.h"
#include "xid.h"

namespace terrace {

/** Between the table's name and the number, in names that are generated: as InnoDB's. */
static const char GENERATED[]= "_ibfk_";

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
int cannot_add(const Statement &of, const std::string &key, const std::string &why)
{
  const std::string text= std::string(of.alters ? "Alter" : "Create") + "  table " + quoted(of.thd, TableName(of.table)) + " with foreign key " + key +
                          " constraint failed. " + why;
  push_warning(of.thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_CANNOT_ADD_FOREIGN, text.c_str());
  return HA_ERR_CANNOT_ADD_FOREIGN;
}

int refuse_by_name(const std::string &what)
{
  my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), what.c_str());
  return HA_ERR_UNSUPPORTED;
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

const char *unequal(const KEY *one, const KEY *other, size_t columns)
{
  for (size_t part= 0; part < columns; part++)
    if (!is_comparable(one->key_part[part].field, other->key_part[part].field))
      return one->key_part[part].field->field_name.str;
  return nullptr;
}

/** Whether NULL in the parent's column would be copied to a column that can't be NULL. InnoDB looks at it in strict mode, and for no other actions. */
bool copies_null(THD *thd, const ForeignKey &key, const Field *column, const Field *parents)
{
  return key.on_update == FK_OPTION_CASCADE && key.on_delete == FK_OPTION_RESTRICT && !column->real_maybe_null() && parents->real_maybe_null() &&
         thd->is_strict_mode();
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
  const uint own= index_over(form->key_info, form->s->keys, key->columns);
  if (own == MAX_KEY)
    return cannot_add(of, shown, "There is no index in the table where the columns appear as the first columns.");
  const bool itself= key->parent() == of.table;
  // Rows are looked for in the table that is copied, so its index must be there; InnoDB answers the same.
  if (itself && of.alters && !old)
  {
    const Definition now(of.thd, of.table);
    if (now.error)
      return now.error;
    if (!now.share || index_over(now.share->key_info, now.share->keys, key->parent_columns) == MAX_KEY)
      return cannot_add(of, shown, "There is no index in the referenced table where the referenced columns appear as the first columns.");
  }
  std::unique_ptr<Definition> parent(itself ? nullptr : new Definition(of.thd, key->parent()));
  if (parent && parent->error)
    return parent->error;
  key->parent_index.clear();
  if (parent && !parent->share)
  {
    if (thd_test_options(of.thd, OPTION_NO_FOREIGN_KEY_CHECKS))
      return check_options(of, shown, old, form->key_info[own], nullptr, *key);
    return cannot_add(of, shown, "Referenced table " + quoted(of.thd, key->parent_database) + "." + quoted(of.thd, key->parent_table) +
                                   " not found in the data dictionary.");
  }
  const TABLE_SHARE *share= parent ? parent->share : form->s;
  if (share->versioned)
    return refuse_by_name("FOREIGN KEY constraints that refer to system-versioned Terrace tables");
  const KEY *keys= parent ? share->key_info : form->key_info;
  for (std::string &column : key->parent_columns)
    if (!find_column(parent ? share->field : form->field, &column))
      return cannot_add(of, shown, "Column " + column + " was not found.");
  const uint index= index_over(keys, share->keys, key->parent_columns);
  if (index == MAX_KEY)
    return cannot_add(of, shown, "There is no index in the referenced table where the referenced columns appear as the first columns.");
  if (const char *column= unequal(form->key_info + own, keys + index, key->columns.size()))
    return cannot_add(of, shown, std::string("Field type or character set for column '") + column + "' does not match referenced column.");
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
    if (of.form->s->versioned)
      return refuse_by_name("FOREIGN KEY constraints that refer to system-versioned Terrace tables");
    const std::string shown= quoted(of.thd, child.key.name);
    const uint index= index_over(of.form->key_info, of.form->s->keys, child.key.parent_columns);
    if (index == MAX_KEY)
      return cannot_add(of, shown, "There is no index in the referenced table where the referenced columns appear as the first columns.");
    const Definition other(of.thd, child.table);
    if (other.error)
      return other.error;
    const uint theirs= other.share ? index_over(other.share->key_info, other.share->keys, child.key.columns) : MAX_KEY;
    if (theirs == MAX_KEY)
      continue;
    if (const char *column= unequal(other.share->key_info + theirs, of.form->key_info + index, child.key.columns.size()))
      return cannot_add(of, shown, std::string("Field type or character set for column '") + column + "' does not match referenced column.");
  }
  return 0;
}

std::vector<std::string> names_of(List<Key_part_spec> &parts)
{
  std::vector<std::string> names;
  List_iterator<Key_part_spec> each(parts);
  while (Key_part_spec *part= each++)
    names.emplace_back(part->field_name.str, part->field_name.length);
  return names;
}

std::string lowered(const std::string &name)
{
  std::string text= name;
  if (lower_case_table_names)
  {
    text.resize(text.size() * 4 + 1);
    strcpy(&text[0], name.c_str());
    my_casedn_str(system_charset_info, &text[0]);
    text.resize(strlen(text.c_str()));
  }
  return text;
}

/** The number in a name that was generated for the table; 0 if the name is of another form. */
ulong generated_number(const std::string &table, const std::string &name)
{
  const std::string start= table + GENERATED;
  if (name.size() <= start.size() || !same_name(name.substr(0, start.size()), start))
    return 0;
  char *end;
  const ulong number= strtoul(name.c_str() + start.size(), &end, 10);
  return *end ? 0 : number;
}

ForeignKey read(const Statement &of, Foreign_key *from)
{
  ForeignKey key;
  if (from->constraint_name.str)
    key.name.assign(from->constraint_name.str, from->constraint_name.length);
  key.parent_database= from->ref_db.str ? lowered(from->ref_db.str) : TableName(of.table).database;
  key.parent_table= lowered(from->ref_table.str);
  key.columns= names_of(from->columns);
  key.parent_columns= names_of(from->ref_columns);
  // As in InnoDB: SET DEFAULT is RESTRICT.
  const auto option= [](enum_fk_option one) {
    return (uchar) (one == FK_OPTION_UNDEF || one == FK_OPTION_SET_DEFAULT ? FK_OPTION_RESTRICT : one);
  };
  key.on_delete= option(from->delete_opt);
  key.on_update= option(from->update_opt);
  return key;
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
  ulong number= 0;
  const std::string table= TableName(of.table).table;
  if (relations)
    for (const ForeignKey &key : relations->own)
      number= MY_MAX(number, generated_number(table, key.name));
  List_iterator<Key> each(info->alter_info->key_list);
  while (Key *one= each++)
  {
    // CREATE TABLE … LIKE makes none, as in InnoDB.
    if (one->type != Key::FOREIGN_KEY || (one->old ? !alters : foreign_keys(thd) != FOREIGN_KEYS_ENFORCED))
      continue;
    ForeignKey key= read(of, static_cast<Foreign_key *>(one));
    // As InnoDB, whose server layer says the same of other engines' temporary tables.
    if (info->options & HA_LEX_CREATE_TMP_TABLE)
      return cannot_add(of, "", "Temporary tables can't have foreign key constraints.");
    if (form->s->versioned)
      return refuse_by_name("FOREIGN KEY constraints in system-versioned Terrace tables");
    std::string shown= key.name.empty() ? "(" : quoted(thd, key.name);
    for (size_t at= 0; key.name.empty() && at < key.columns.size(); at++)
      shown+= key.columns[at] + (at + 1 < key.columns.size() ? ", " : ")");
    if (key.name.empty())
      key.name= table + GENERATED + std::to_string(++number);
    if (int error= check_declared(of, shown, one->old, &key))
      return error;
    bool twice= !one->old && has_constraint_beside(of.table, key.name);
    for (const ForeignKey &other : keys)
      twice|= same_name(other.name, key.name);
    if (twice)
      return HA_ERR_FOUND_DUPP_KEY;
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

bool keep_foreign_keys(THD *thd, const std::string &name, const TABLE *table, const TABLE *altered, Alter_inplace_info *info,
                       std::vector<std::string> *made)
{
  const auto relations= relations_of(name);
  if (!relations)
    return false;
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
  const auto index_lost= [&](const std::vector<std::string> &before) {
    const uint was= index_over(table->key_info, table->s->keys, before);
    my_error(ER_DROP_INDEX_FK, MYF(0), was == MAX_KEY ? "" : table->key_info[was].name.str);
    return true;
  };
  /* Before the statement. */
  const auto may_be_null= [&](const std::string &column) {
    for (Field **field= table->field; *field; field++)
      if (same_name((*field)->field_name.str, column))
        return (*field)->real_maybe_null();
    return false;
  };
  if (altered->s->versioned)
    return refuse_by_name("FOREIGN KEY constraints of system-versioned Terrace tables");
  for (ForeignKey key : relations->own)
  {
    if (is_dropped(key))
      continue;
    const std::vector<std::string> before= key.columns;
    const bool itself= key.parent() == name;
    for (std::string &column : key.columns)
    {
      const std::string after= name_after(column);
      if (after.empty())
        return index_lost(before);
      column= after;
    }
    for (std::string &column : key.parent_columns)
      if (itself && !name_after(column).empty())
        column= name_after(column);
    const uint own= index_over(altered->key_info, altered->s->keys, key.columns);
    if (own == MAX_KEY)
      return index_lost(before);
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
    if (index != MAX_KEY)
      if (const char *column= unequal(altered->key_info + own, keys + index, key.columns.size()))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE, MYF(0), column, key.name.c_str());
        return true;
      }
    made->push_back(key.bytes());
  }
  for (const Relations::Child &child : relations->children)
  {
    const bool itself= child.table == name;
    if (itself && is_dropped(child.key))
      continue;
    const std::string theirs= quoted(thd, TableName(child.table));
    std::vector<std::string> after;
    for (const std::string &column : child.key.parent_columns)
    {
      after.push_back(name_after(column));
      if (after.back().empty())
      {
        my_error(ER_FK_COLUMN_CANNOT_DROP_CHILD, MYF(0), column.c_str(), child.key.name.c_str(), theirs.c_str());
        return true;
      }
      if (!itself && !same_name(after.back(), column))
        return refuse_by_name("RENAME of a column that FOREIGN KEY constraints of other Terrace tables refer to");
    }
    if (!itself && alter->flags & ALTER_RENAME)
      return refuse_by_name("RENAME of a Terrace table that FOREIGN KEY constraints refer to");
    const uint own= index_over(altered->key_info, altered->s->keys, after);
    if (own == MAX_KEY)
      return index_lost(child.key.parent_columns);
    if (itself)
      continue;                         // compared above
    const Definition other(thd, child.table);
    if (other.error)
      return true;
    const uint index= other.share ? index_over(other.share->key_info, other.share->keys, child.key.columns) : MAX_KEY;
    for (size_t part= 0; index != MAX_KEY && part < after.size(); part++)
      if (!may_be_null(child.key.parent_columns[part]) && copies_null(thd, child.key, other.share->key_info[index].key_part[part].field, altered->key_info[own].key_part[part].field))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), child.key.parent_columns[part].c_str(), child.key.name.c_str(), theirs.c_str());
        return true;
      }
    if (index != MAX_KEY)
      if (const char *column= unequal(altered->key_info + own, other.share->key_info + index, after.size()))
      {
        my_error(ER_FK_COLUMN_CANNOT_CHANGE_CHILD, MYF(0), column, child.key.name.c_str(), theirs.c_str());
        return true;
      }
  }
  return false;
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

int rename_foreign_keys(THD *thd, const std::string &before, const std::string &after, std::vector<std::string> *keys)
{
  if (server_recovers() || is_passing_name(before))
    return 0;
  const auto relations= relations_of(before);
  if (is_passing_name(after))
  {
    static const char EXCHANGED[]= "/#sql-exchange-";
    return relations && after.find(EXCHANGED) != std::string::npos ? HA_ERR_ROW_IS_REFERENCED : 0;
  }
  if (relations && relations->other_child(before))
    return refuse_by_name("RENAME of a Terrace table that FOREIGN KEY constraints refer to");
  if (relations_of(after) && !thd_test_options(thd, OPTION_NO_FOREIGN_KEY_CHECKS))
    return refuse_by_name("RENAME to a name that FOREIGN KEY constraints of Terrace tables refer to");
  if (relations && after.find("#P#") != std::string::npos)
    return refuse_by_name("FOREIGN KEY constraints of partitioned Terrace tables");
  const TableName was(before), is(after);
  for (std::string &bytes : *keys)
  {
    ForeignKey key;
    if (!key.parse(bytes))
      continue;
    if (key.parent() == before)
      key.parent_database= is.database, key.parent_table= is.table;
    if (const ulong number= generated_number(was.table, key.name))
      key.name= is.table + GENERATED + std::to_string(number);
    bytes= key.bytes();
  }
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
