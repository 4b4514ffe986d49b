/* SPDX-License-Identifier: GPL-2.0-only */
#include "space_tables.h"
#include "globals.h"
#include "info_schema.h"
#include "session.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_table.h"
#include "tztime.h"
#include "my_rdtsc.h"

namespace Show {

/* Number of digits times 100, plus the number of digits after the decimal point. */
static const uint RATIO= 706, MONEY= 1806;

#define TERRACE_STATISTICS \
  Column("PAGES_MEMORY", ULonglong(), NOT_NULL), \
  Column("PAGES_FLASH", ULonglong(), NOT_NULL), \
  Column("PAGES_VOLUME", ULonglong(), NOT_NULL), \
  Column("PAGES_OBJECT", ULonglong(), NOT_NULL), \
  Column("BYTES_MEMORY", ULonglong(), NOT_NULL), \
  Column("BYTES_FLASH", ULonglong(), NOT_NULL), \
  Column("BYTES_VOLUME", ULonglong(), NOT_NULL), \
  Column("BYTES_OBJECT", ULonglong(), NOT_NULL), \
  Column("READS_MEMORY", ULonglong(), NOT_NULL), \
  Column("READS_FLASH", ULonglong(), NOT_NULL), \
  Column("READS_VOLUME", ULonglong(), NOT_NULL), \
  Column("READS_OBJECT", ULonglong(), NOT_NULL), \
  Column("READS_LOG", ULonglong(), NOT_NULL), \
  Column("PAGES_AHEAD", ULonglong(), NOT_NULL), \
  Column("HIT_RATIO_MEMORY", Decimal(RATIO), NULLABLE), \
  Column("HIT_RATIO_FLASH", Decimal(RATIO), NULLABLE), \
  Column("HIT_RATIO_VOLUME", Decimal(RATIO), NULLABLE), \
  Column("HIT_RATIO_OBJECT", Decimal(RATIO), NULLABLE), \
  Column("FLASH_ADMITTED", ULonglong(), NOT_NULL), \
  Column("FLASH_REMEMBERED", ULonglong(), NOT_NULL), \
  Column("GHOST_HITS", ULonglong(), NOT_NULL), \
  Column("SINKS", ULonglong(), NOT_NULL), \
  Column("WRITE_POLICY", Varchar(8), NOT_NULL), \
  Column("WRITES_CLEAN", ULonglong(), NOT_NULL), \
  Column("WRITES_DUAL", ULonglong(), NOT_NULL), \
  Column("WRITES_SINGLE", ULonglong(), NOT_NULL), \
  Column("STORE_GETS", ULonglong(), NOT_NULL), \
  Column("STORE_GET_BYTES", ULonglong(), NOT_NULL), \
  Column("STORE_PUTS", ULonglong(), NOT_NULL), \
  Column("STORE_PUT_BYTES", ULonglong(), NOT_NULL), \
  Column("COST_MEMORY", Decimal(MONEY), NOT_NULL), \
  Column("COST_FLASH", Decimal(MONEY), NOT_NULL), \
  Column("COST_VOLUME", Decimal(MONEY), NOT_NULL), \
  Column("COST_OBJECT", Decimal(MONEY), NOT_NULL), \
  Column("COST_REQUESTS", Decimal(MONEY), NOT_NULL), \
  Column("COST_MONTH", Decimal(MONEY), NOT_NULL)

static ST_FIELD_INFO terrace_index_statistics_fields[]= {
  TERRACE_TABLE_COLUMNS,
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  TERRACE_STATISTICS,
  CEnd()};

static ST_FIELD_INFO terrace_table_statistics_fields[]= {
  TERRACE_TABLE_COLUMNS,
  TERRACE_STATISTICS,
  CEnd()};

static ST_FIELD_INFO terrace_miss_ratio_curve_fields[]= {
  Column("MEMORY_BYTES", ULonglong(), NOT_NULL),
  Column("FLASH_BYTES", ULonglong(), NOT_NULL),
  Column("IS_CURRENT", ULonglong(), NOT_NULL),
  Column("MISS_RATIO_MEMORY", Decimal(RATIO), NOT_NULL),
  Column("MISS_RATIO", Decimal(RATIO), NOT_NULL),
  Column("FIRST_READ_RATIO", Decimal(RATIO), NOT_NULL),
  Column("READS", ULonglong(), NOT_NULL),
  Column("SAMPLE_RATE", Decimal(RATIO), NOT_NULL),
  Column("COST_STORAGE", Decimal(MONEY), NOT_NULL),
  Column("COST_REQUESTS", Decimal(MONEY), NOT_NULL),
  Column("COST_MONTH", Decimal(MONEY), NOT_NULL),
  CEnd()};

static ST_FIELD_INFO terrace_advice_fields[]= {
  Column("LINE", ULonglong(), NOT_NULL),
  Column("ADVICE", Varchar(1024), NOT_NULL),
  CEnd()};

static ST_FIELD_INFO terrace_metrics_fields[]= {
  Column("NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("SUBSYSTEM", Varchar(NAME_LEN), NOT_NULL),
  Column("VALUE", ULonglong(), NOT_NULL),
  Column("TYPE", Varchar(16), NOT_NULL),
  Column("COMMENT", Varchar(256), NOT_NULL),
  CEnd()};

} // namespace Show

namespace terrace {

Field **Filling::put(const terrace_value *values, size_t count)
{
  Field **field= table->field, **end= field + table->s->fields;
  for (const terrace_value *value= values; value < values + count && field < end; value++, field++)
  {
    (*field)->set_notnull();
    std::string text(reinterpret_cast<const char *>(value->text.data), value->text.len);
    switch (value->kind) {
    case TERRACE_VALUE_NUMBER:
      (*field)->store((longlong) value->number, true);
      break;
    case TERRACE_VALUE_REAL:
      (*field)->store(value->real);
      break;
    case TERRACE_VALUE_TEXT:
      (*field)->store(text.data(), text.size(), &my_charset_utf8mb4_bin);
      break;
    case TERRACE_VALUE_TIME:
    {
      MYSQL_TIME when;
      thd->variables.time_zone->gmt_sec_to_TIME(&when, (my_time_t) (value->number / 1000));
      when.second_part= value->number % 1000 * 1000;
      (*field)->store_time_dec(&when, 3);
      break;
    }
    case TERRACE_VALUE_TABLE:
      field= store_table(field, text) - 1;
      break;
    default:
      (*field)->set_null();
    }
  }
  return field;
}

void Filling::put_row()
{
  failed= schema_table_store_record(thd, table);
  rows++;
}

void fill_row(void *context, const terrace_value *values, size_t count)
{
  Filling *filling= static_cast<Filling *>(context);
  if (filling->failed)
    return;
  filling->put(values, count);
  filling->put_row();
}

int fill_seen(const char *name, Filling *filling, terrace_row_fn each)
{
  if (engine)
    terrace_engine_seen(engine, bytes_of(name, strlen(name)), each, filling);
  return filling->failed;
}

int fill_seen(THD *thd, TABLE_LIST *tables, const char *name)
{
  Filling filling= {thd, tables->table, 0, false};
  return fill_seen(name, &filling);
}

static int fill(THD *thd, TABLE_LIST *tables, const char *name)
{
  return check_global_access(thd, PROCESS_ACL, true) ? 0 : fill_seen(thd, tables, name);
}

static int fill_index_statistics(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "index_statistics"); }
static int fill_table_statistics(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "table_statistics"); }
static int fill_miss_ratio_curve(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "miss_ratio_curve"); }
static int fill_advice(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "advice"); }
static int fill_metrics(THD *thd, TABLE_LIST *tables, COND *)
{
  return check_global_access(thd, PROCESS_ACL) ? 1 : fill_seen(thd, tables, "metrics");
}

int start_seen(void *place, ST_FIELD_INFO *fields, int (*fill_table)(THD *, TABLE_LIST *, COND *))
{
  ST_SCHEMA_TABLE *schema= static_cast<ST_SCHEMA_TABLE *>(place);
  schema->fields_info= fields;
  schema->fill_table= fill_table;
  return 0;
}

int start_index_statistics(void *place)
{
  return start_seen(place, Show::terrace_index_statistics_fields, fill_index_statistics);
}
int start_table_statistics(void *place)
{
  return start_seen(place, Show::terrace_table_statistics_fields, fill_table_statistics);
}
int start_miss_ratio_curve(void *place)
{
  return start_seen(place, Show::terrace_miss_ratio_curve_fields, fill_miss_ratio_curve);
}
int start_advice(void *place) { return start_seen(place, Show::terrace_advice_fields, fill_advice); }
int start_metrics(void *place) { return start_seen(place, Show::terrace_metrics_fields, fill_metrics); }

/* --- a session's reads ----------------------------------------------------------------------- */

/** The session whose reads this thread counts now. Session numbers are never reused. */
static thread_local ulonglong reader;

void Session::begin_reads()
{
  if (reader == serial)
    return;
  terrace_reads_take();                 // discards reads of another session
  reader= serial;
}

terrace_reads Session::take_reads()
{
  const terrace_reads now= terrace_reads_take();
  reads.pages_memory+= now.pages_memory;
  reads.pages_flash+= now.pages_flash;
  reads.pages_volume+= now.pages_volume;
  reads.pages_object+= now.pages_object;
  reads.pages_log+= now.pages_log;
  reads.pages_ahead_flash+= now.pages_ahead_flash;
  reads.pages_ahead_volume+= now.pages_ahead_volume;
  reads.pages_ahead_object+= now.pages_ahead_object;
  reads.pages_ahead_log+= now.pages_ahead_log;
  reads.nanos_wait+= now.nanos_wait;
  reads.nanos_flash+= now.nanos_flash;
  reads.nanos_volume+= now.nanos_volume;
  reads.nanos_object+= now.nanos_object;
  reads.nanos_log+= now.nanos_log;
  return now;
}

void Session::tell_rows()
{
  if (!(untold.read | untold.inserted | untold.updated | untold.deleted) || !engine)
    return;
  terrace_engine_count_rows(engine, serial, &untold);
  told.read+= untold.read;
  told.inserted+= untold.inserted;
  told.updated+= untold.updated;
  told.deleted+= untold.deleted;
  untold= {};
}

/** Pages that were prefetched, from all tiers. */
static uint64_t came_ahead(const terrace_reads &reads)
{
  return reads.pages_ahead_flash + reads.pages_ahead_volume + reads.pages_ahead_object + reads.pages_ahead_log;
}

Meter::Meter(ha_handler_stats *into, Session *session) : m_into(session ? into : nullptr), m_session(session)
{
  if (m_into)
    m_session->take_reads();            // earlier reads belong to another handler
}

Meter::~Meter()
{
  if (!m_into)
    return;
  const terrace_reads now= m_session->take_reads();
  const ulonglong below= now.pages_flash + now.pages_volume + now.pages_object + now.pages_log;
  const ulonglong ahead= came_ahead(now);
  m_into->pages_accessed+= now.pages_memory + below + ahead;
  m_into->pages_read_count+= below;
  m_into->pages_prefetched+= ahead;
  const double nanos= (double) (now.nanos_wait + now.nanos_flash + now.nanos_volume + now.nanos_object + now.nanos_log);
  m_into->pages_read_time+= (ulonglong) (nanos * 1e-9 * (double) timer_tracker_frequency());
}

void add_session_counts(THD *thd, std::vector<st_mysql_show_var> *list)
{
  Session *session= Session::of(thd);
  session->begin_reads();
  session->take_reads();
  session->tell_rows();
  const terrace_reads &r= session->reads;
  const terrace_row_counts &rows= session->rows();
  const struct { const char *name; uint64_t value; } all[]= {
    {"session_rows_read", rows.read},
    {"session_rows_inserted", rows.inserted},
    {"session_rows_updated", rows.updated},
    {"session_rows_deleted", rows.deleted},
    {"session_pages_memory", r.pages_memory},
    {"session_pages_flash", r.pages_flash},
    {"session_pages_volume", r.pages_volume},
    {"session_pages_object", r.pages_object},
    {"session_pages_log", r.pages_log},
    {"session_pages_ahead", came_ahead(r)},
    {"session_pages_ahead_flash", r.pages_ahead_flash},
    {"session_pages_ahead_volume", r.pages_ahead_volume},
    {"session_pages_ahead_object", r.pages_ahead_object},
    {"session_pages_ahead_log", r.pages_ahead_log},
    {"session_wait_microseconds", r.nanos_wait / 1000},
    {"session_flash_microseconds", r.nanos_flash / 1000},
    {"session_volume_microseconds", r.nanos_volume / 1000},
    {"session_object_microseconds", r.nanos_object / 1000},
    {"session_log_microseconds", r.nanos_log / 1000}};
  for (const auto &one : all)
  {
    ulonglong *number= static_cast<ulonglong *>(thd_alloc(thd, sizeof(ulonglong)));
    if (!number)
      return;
    *number= one.value;
    st_mysql_show_var variable= {};
    variable.name= one.name;
    variable.value= number;
    variable.type= SHOW_ULONGLONG;
    list->push_back(variable);
  }
}

} // namespace terrace
