/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Foreign keys, which the engine does not enforce: a statement that declares or drops one fails, or raises a warning.
*/
#include "ha_terrace.h"
#include "ddl.h"
#include "globals.h"

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

bool same_name(const char *one, const char *other) { return !my_strcasecmp(system_charset_info, one, other); }

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

/** Whether an ALTER drops a foreign key, which the table doesn't have. */
bool drops(const TABLE *table, const Alter_drop *drop)
{
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
  List_iterator<Alter_drop> each(thd->lex->alter_info.drop_list);
  while (Alter_drop *drop= each++)
    if (drops(table, drop))
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_CANT_DROP_FIELD_OR_KEY, ER_THD(thd, ER_CANT_DROP_FIELD_OR_KEY), "FOREIGN KEY", drop->name);
}

} // namespace

bool refuse_foreign_keys(THD *thd)
{
  static const char what[]= "FOREIGN KEY constraints in Terrace tables";
  List_iterator<Key> keys(thd->lex->alter_info.key_list);
  while (Key *key= keys++)
  {
    if (key->type != Key::FOREIGN_KEY)
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
  if (thd_sql_command(thd) == SQLCOM_ALTER_TABLE && foreign_keys(thd) != FOREIGN_KEYS_REFUSED)
    warn_of_drops(thd);
  return false;
}

} // namespace terrace

using namespace terrace;

/** If foreign keys are ignored with a warning, an ALTER may drop them: an application that declared them does so in an upgrade. The server
    asks for all foreign keys of the table; the answer is those that the statement drops. */
int ha_terrace::get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys)
{
  if (thd_sql_command(thd) != SQLCOM_ALTER_TABLE || foreign_keys(thd) == FOREIGN_KEYS_REFUSED)
    return 0;
  List_iterator<Alter_drop> each(thd->lex->alter_info.drop_list);
  while (Alter_drop *drop= each++)
    if (drops(table, drop))
    {
      void *room= thd->alloc(sizeof(FOREIGN_KEY_INFO));
      FOREIGN_KEY_INFO *key= room ? new (room) FOREIGN_KEY_INFO() : nullptr;
      if (!key || !(key->foreign_id= thd->make_clex_string(drop->name, strlen(drop->name))) || keys->push_back(key, thd->mem_root))
        return HA_ERR_OUT_OF_MEM;
    }
  return 0;
}
