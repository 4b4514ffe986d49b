/* SPDX-License-Identifier: GPL-2.0-only */
#include "info_schema.h"
#include "globals.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_table.h"

namespace Show {

static ST_FIELD_INFO terrace_spaces_fields[]= {
  Column("SPACE", ULong(), NOT_NULL),
  TERRACE_TABLE_COLUMNS,
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

/** Decodes a name up to `#`. The rest is no user's name: marks of the server, and names of the engine's own. */
static std::string decoded(const std::string &encoded)
{
  const std::string name= encoded.substr(0, encoded.find('#'));
  char text[NAME_LEN * 2 + 1]= "";
  if (!name.empty())
    filename_to_tablename(name.c_str(), text, sizeof text, true);
  return text + encoded.substr(name.size());
}

namespace {

struct Names
{
  std::string schema, table, partition, subpartition;
  explicit Names(const std::string &path);
};

} // namespace

Names::Names(const std::string &path)
{
  // A temporary table's name is a path without a schema; the engine's own tables have no schema either.
  const size_t cut= path[0] == '/' ? std::string::npos : path.find('/');
  if (cut == std::string::npos)
  {
    table= path;
    return;
  }
  schema= decoded(path.substr(0, cut));
  std::string rest= path.substr(cut + 1);
  auto cut_off= [&rest](const char *mark) {
    const size_t at= rest.find(mark);
    const std::string behind= at == std::string::npos ? "" : decoded(rest.substr(at + strlen(mark)));
    rest= rest.substr(0, at);
    return behind;
  };
  subpartition= cut_off("#SP#");
  partition= cut_off("#P#");
  table= decoded(rest);
}

std::string name_of_table(const std::string &path)
{
  const Names names(path);
  std::string text= names.schema.empty() ? names.table : names.schema + "/" + names.table;
  if (!names.partition.empty())
    text+= "#P#" + names.partition;
  return names.subpartition.empty() ? text : text + "#SP#" + names.subpartition;
}

Field **store_table(Field **field, const std::string &path)
{
  const Names names(path);
  store_text(*field++, names.schema.data(), names.schema.size());
  store_text(*field++, names.table.data(), names.table.size());
  for (const std::string *part : {&names.partition, &names.subpartition})
  {
    (*field)->set_notnull();
    if (part->empty())
      (*field)->set_null();
    else
      store_text(*field, part->data(), part->size());
    field++;
  }
  return field;
}

static void fill_one(void *context, const terrace_space *space)
{
  Filling *filling= static_cast<Filling *>(context);
  if (filling->failed)
    return;
  Field **field= filling->table->field;
  (*field++)->store((longlong) space->space, true);
  field= store_table(field, std::string(reinterpret_cast<const char *>(space->table.data), space->table.len));
  store_text(*field++, reinterpret_cast<const char *>(space->index.data), space->index.len);
  for (uint64_t pages : {space->pages, space->memory, space->flash, space->volume, space->object})
    (*field++)->store((longlong) pages, true);
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
