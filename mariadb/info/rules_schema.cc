/* SPDX-License-Identifier: GPL-2.0-only */
/* information_schema.TERRACE_RULES: quotas, limits and placement, as the engine applies them. */
#include "info_schema.h"
#include "globals.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_table.h"

namespace Show {

static ST_FIELD_INFO terrace_rules_fields[]= {
  TERRACE_TABLE_COLUMNS,
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("PLACEMENT", Varchar(8), NOT_NULL),
  Column("WRITE_POLICY", Varchar(8), NOT_NULL),
  Column("COMPRESSION", Varchar(8), NOT_NULL),
  Column("FLASH_MIN", ULonglong(), NOT_NULL),
  Column("FLASH_MAX", ULonglong(), NOT_NULL),
  Column("FLASH_PAGES", ULonglong(), NOT_NULL),
  Column("BUFFER_MIN", ULonglong(), NOT_NULL),
  Column("BUFFER_MAX", ULonglong(), NOT_NULL),
  Column("BUFFER_PAGES", ULonglong(), NOT_NULL),
  Column("FLASH_IOPS", ULonglong(), NOT_NULL),
  Column("FLASH_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("VOLUME_IOPS", ULonglong(), NOT_NULL),
  Column("VOLUME_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("OBJECT_IOPS", ULonglong(), NOT_NULL),
  Column("OBJECT_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("FLASH_WRITE_IOPS", ULonglong(), NOT_NULL),
  Column("FLASH_WRITE_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("VOLUME_WRITE_IOPS", ULonglong(), NOT_NULL),
  Column("VOLUME_WRITE_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("OBJECT_WRITE_IOPS", ULonglong(), NOT_NULL),
  Column("OBJECT_WRITE_BANDWIDTH", ULonglong(), NOT_NULL),
  Column("WAITS", ULonglong(), NOT_NULL),
  Column("WAIT_US", ULonglong(), NOT_NULL),
  Column("WRITE_WAITS", ULonglong(), NOT_NULL),
  Column("WRITE_WAIT_US", ULonglong(), NOT_NULL),
  Column("PAGES_HELD", ULonglong(), NOT_NULL),
  Column("BLOCKS_HELD", ULonglong(), NOT_NULL),
  Column("WRITES_OVER", ULonglong(), NOT_NULL),
  Column("FILLS_REFUSED", ULonglong(), NOT_NULL),
  CEnd()};

} // namespace Show

namespace terrace {

struct Filling_rules
{
  THD *thd;
  TABLE *table;
  bool failed;
};

static void fill_rule(void *context, const terrace_rule_line *line)
{
  static const char *const placements[]= {"DEFAULT", "KEEP", "NONE"};
  static const char *const policies[]= {"DEFAULT", "AUTO", "CLEAN", "DUAL"};
  Filling_rules *filling= static_cast<Filling_rules *>(context);
  if (filling->failed)
    return;
  auto text= [](terrace_bytes bytes) { return std::string(reinterpret_cast<const char *>(bytes.data), bytes.len); };
  auto put= [](Field *field, const std::string &text) { field->store(text.data(), text.size(), system_charset_info); };
  Field **field= filling->table->field;
  field= store_table(field, text(line->table));
  put(*field++, text(line->index));
  put(*field++, placements[line->placement]);
  const terrace_rules &rules= line->rules;
  put(*field++, policies[rules.write_policy]);
  put(*field++, line->compression.len ? text(line->compression) : "DEFAULT");
  for (uint64_t number : {rules.flash_min, rules.flash_max, line->flash_pages, rules.buffer_min, rules.buffer_max, line->buffer_pages, rules.flash_iops, rules.flash_bandwidth,
                          rules.volume_iops, rules.volume_bandwidth, rules.object_iops, rules.object_bandwidth,
                          rules.flash_write_iops, rules.flash_write_bandwidth, rules.volume_write_iops,
                          rules.volume_write_bandwidth, rules.object_write_iops, rules.object_write_bandwidth,
                          line->waits, line->wait_microseconds, line->write_waits, line->write_wait_microseconds, line->pages_held,
                          line->blocks_held, line->writes_over, line->fills_refused})
    (*field++)->store((longlong) number, true);
  filling->failed= schema_table_store_record(filling->thd, filling->table);
}

static int fill_rules(THD *thd, TABLE_LIST *tables, COND *)
{
  if (!engine || check_global_access(thd, PROCESS_ACL, true))
    return 0;
  Filling_rules filling= {thd, tables->table, false};
  terrace_engine_rules(engine, fill_rule, &filling);
  return filling.failed;
}

int start_rules(void *place)
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= Show::terrace_rules_fields;
  schema->fill_table= fill_rules;
  return 0;
}

} // namespace terrace
