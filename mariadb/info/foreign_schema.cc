/* SPDX-License-Identifier: GPL-2.0-only */
/* information_schema.TERRACE_FOREIGN and TERRACE_FOREIGN_COLS: as INNODB_SYS_FOREIGN and INNODB_SYS_FOREIGN_COLS, column by column. */
#include "info_schema.h"
#include "globals.h"
#include "relations.h"
#include "sql_acl.h"
#include "sql_i_s.h"

namespace Show {

static ST_FIELD_INFO terrace_foreign_fields[]= {
  Column("ID", Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Column("FOR_NAME", Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Column("REF_NAME", Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Column("N_COLS", ULong(), NOT_NULL),
  Column("TYPE", ULong(), NOT_NULL),
  CEnd()};

static ST_FIELD_INFO terrace_foreign_cols_fields[]= {
  Column("ID", Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Column("FOR_COL_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("REF_COL_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("POS", ULong(), NOT_NULL),
  CEnd()};

} // namespace Show

namespace terrace {

/** The bits that InnoDB has for a foreign key's actions. */
static ulong type_of(const ForeignKey &key)
{
  const auto bits= [](uchar option) { return option == FK_OPTION_CASCADE ? 1 : option == FK_OPTION_SET_NULL ? 2 : option == FK_OPTION_NO_ACTION ? 16 : 0; };
  const ulong updated= bits(key.on_update);
  return bits(key.on_delete) | (updated == 16 ? 32 : updated << 2);
}

static void put(Field *field, const std::string &text) { field->store(text.data(), text.size(), system_charset_info); }

static std::string id_of(const Relations::Child &one) { return TableName(one.table).database + "/" + one.key.name; }

static int fill_foreign(THD *thd, TABLE_LIST *tables, COND *)
{
  if (!engine || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  TABLE *table= tables->table;
  for (const Relations::Child &one : all_foreign_keys())
  {
    Field **field= table->field;
    const TableName child(one.table);
    put(*field++, id_of(one));
    put(*field++, child.database + "/" + child.table);
    put(*field++, one.key.parent_database + "/" + one.key.parent_table);
    (*field++)->store((longlong) one.key.columns.size(), true);
    (*field++)->store((longlong) type_of(one.key), true);
    if (schema_table_store_record(thd, table))
      return 1;
  }
  return 0;
}

static int fill_foreign_cols(THD *thd, TABLE_LIST *tables, COND *)
{
  if (!engine || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  TABLE *table= tables->table;
  for (const Relations::Child &one : all_foreign_keys())
    for (size_t at= 0; at < one.key.columns.size(); at++)
    {
      Field **field= table->field;
      put(*field++, id_of(one));
      put(*field++, one.key.columns[at]);
      put(*field++, one.key.parent_columns[at]);
      (*field++)->store((longlong) at, true);
      if (schema_table_store_record(thd, table))
        return 1;
    }
  return 0;
}

int start_foreign(void *place)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= Show::terrace_foreign_fields;
  schema->fill_table= fill_foreign;
  return 0;
}

int start_foreign_cols(void *place)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= Show::terrace_foreign_cols_fields;
  schema->fill_table= fill_foreign_cols;
  return 0;
}

} // namespace terrace
