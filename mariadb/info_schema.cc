/* SPDX-License-Identifier: GPL-2.0-only */
#include "info_schema.h"
#include "globals.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_table.h"

namespace Show {

static ST_FIELD_INFO terrace_spaces_fields[]= {
  Column("SPACE", ULong(), NOT_NULL),
  Column("TABLE_NAME", Varchar(NAME_LEN * 2 + 1), NOT_NULL),
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("PAGES", ULonglong(), NOT_NULL),
  Column("PAGES_MEMORY", ULonglong(), NOT_NULL),
  Column("PAGES_FLASH", ULonglong(), NOT_NULL),
  Column("PAGES_VOLUME", ULonglong(), NOT_NULL),
  Column("PAGES_OBJECT", ULonglong(), NOT_NULL),
  CEnd()};

static ST_FIELD_INFO terrace_io_fields[]= {
  Column("TIER", Varchar(16), NOT_NULL),
  Column("PURPOSE", Varchar(32), NOT_NULL),
  Column("REQUESTS", ULonglong(), NOT_NULL),
  Column("BYTES", ULonglong(), NOT_NULL),
  Column("ERRORS", ULonglong(), NOT_NULL),
  Column("RETRIES", ULonglong(), NOT_NULL),
  Column("MEAN_US", ULonglong(), NOT_NULL),
  Column("P50_US", ULonglong(), NOT_NULL),
  Column("P99_US", ULonglong(), NOT_NULL),
  CEnd()};

} // namespace Show

namespace terrace {

struct st_mysql_information_schema info_schema_interface= {MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

struct Filling
{
  THD *thd;
  TABLE *table;
  bool failed;
};

static void store_text(Field *field, const char *text, size_t length)
{
  field->store(text, length, system_charset_info);
}

/** `db/table` in file name encoding → the same in names. */
std::string name_of_table(const std::string &path)
{
  size_t cut= path.find('/');
  if (cut == std::string::npos || path[0] == '/')
    return path;
  char db[NAME_LEN * 2 + 1], table[NAME_LEN * 2 + 1];
  filename_to_tablename(path.substr(0, cut).c_str(), db, sizeof db, true);
  filename_to_tablename(path.substr(cut + 1).c_str(), table, sizeof table, true);
  return std::string(db) + "/" + table;
}

static void fill_one(void *context, const terrace_space *space)
{
  Filling *filling= static_cast<Filling *>(context);
  if (filling->failed)
    return;
  Field **field= filling->table->field;
  std::string name= name_of_table(std::string(reinterpret_cast<const char *>(space->table.data), space->table.len));
  field[0]->store((longlong) space->space, true);
  store_text(field[1], name.data(), name.size());
  store_text(field[2], reinterpret_cast<const char *>(space->index.data), space->index.len);
  field[3]->store((longlong) space->pages, true);
  field[4]->store((longlong) space->memory, true);
  field[5]->store((longlong) space->flash, true);
  field[6]->store((longlong) space->volume, true);
  field[7]->store((longlong) space->object, true);
  filling->failed= schema_table_store_record(filling->thd, filling->table);
}

static int fill_spaces(THD *thd, TABLE_LIST *tables, COND *)
{
  if (!engine || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  Filling filling= {thd, tables->table, false};
  terrace_engine_spaces(engine, fill_one, &filling);
  return filling.failed;
}

static void fill_requests(void *context, const terrace_requests *one)
{
  Filling *filling= static_cast<Filling *>(context);
  if (filling->failed)
    return;
  Field **field= filling->table->field;
  store_text(*field++, reinterpret_cast<const char *>(one->tier.data), one->tier.len);
  store_text(*field++, reinterpret_cast<const char *>(one->purpose.data), one->purpose.len);
  for (uint64_t number : {one->requests, one->bytes, one->errors, one->retries, one->mean, one->p50, one->p99})
    (*field++)->store((longlong) number, true);
  filling->failed= schema_table_store_record(filling->thd, filling->table);
}

static int fill_io(THD *thd, TABLE_LIST *tables, COND *)
{
  if (!engine || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  Filling filling= {thd, tables->table, false};
  terrace_engine_requests(engine, fill_requests, &filling);
  return filling.failed;
}

int start_io(void *place)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= Show::terrace_io_fields;
  schema->fill_table= fill_io;
  return 0;
}

int start_spaces(void *place)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= Show::terrace_spaces_fields;
  schema->fill_table= fill_spaces;
  return 0;
}

} // namespace terrace
