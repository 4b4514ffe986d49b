/* SPDX-License-Identifier: GPL-2.0-only */
#include "locks_seen.h"
#include "globals.h"
#include "info_schema.h"
#include "seen.h"
#include "sql_acl.h"
#include "sql_class.h"
#include "sql_i_s.h"

namespace Show {

/* Names of a lock and keys, in hexadecimal digits: 256 bytes of a key, and what stands around them. */
static const uint KEY_TEXT= 514, ID_TEXT= 600, STATEMENT_TEXT= 1024;

static ST_FIELD_INFO terrace_trx_fields[]= {
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("STATE", Varchar(16), NOT_NULL),
  Column("STARTED", Datetime(3), NOT_NULL),
  Column("ISOLATION_LEVEL", Varchar(16), NULLABLE),
  Column("UNDO_RECORDS", ULonglong(), NOT_NULL),
  Column("LOCKS", ULonglong(), NOT_NULL),
  Column("CONNECTION_ID", ULonglong(), NULLABLE),
  Column("STATEMENT", Varchar(STATEMENT_TEXT), NULLABLE),
  Column("WAIT_STARTED", Datetime(3), NULLABLE),
  Column("REQUESTED_LOCK_ID", Varchar(ID_TEXT), NULLABLE),
  CEnd()};

static ST_FIELD_INFO terrace_locks_fields[]= {
  Column("LOCK_ID", Varchar(ID_TEXT), NOT_NULL),
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("STATUS", Varchar(8), NOT_NULL),
  Column("MODE", Varchar(20), NOT_NULL),
  Column("TYPE", Varchar(8), NOT_NULL),
  TERRACE_TABLE_COLUMNS,
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("LOCK_KEY", Varchar(KEY_TEXT), NOT_NULL),
  Column("LOCK_KEY_END", Varchar(KEY_TEXT), NULLABLE),
  CEnd()};

static ST_FIELD_INFO terrace_lock_waits_fields[]= {
  Column("REQUESTING_TRX_ID", ULonglong(), NOT_NULL),
  Column("REQUESTED_LOCK_ID", Varchar(ID_TEXT), NOT_NULL),
  Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
  Column("REQUESTING_CONNECTION_ID", ULonglong(), NULLABLE),
  Column("BLOCKING_CONNECTION_ID", ULonglong(), NULLABLE),
  Column("WAIT_STARTED", Datetime(3), NOT_NULL),
  CEnd()};

static ST_FIELD_INFO terrace_last_deadlock_fields[]= {
  Column("DETECTED", Datetime(3), NOT_NULL),
  Column("MEMBER", ULonglong(), NOT_NULL),
  Column("TRX_ID", ULonglong(), NOT_NULL),
  Column("CONNECTION_ID", ULonglong(), NULLABLE),
  Column("GAVE_WAY", ULonglong(), NOT_NULL),
  Column("MODE", Varchar(20), NOT_NULL),
  Column("TYPE", Varchar(8), NOT_NULL),
  TERRACE_TABLE_COLUMNS,
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("LOCK_KEY", Varchar(KEY_TEXT), NOT_NULL),
  Column("WAITS_FOR_TRX_ID", ULonglong(), NOT_NULL),
  Column("STATEMENT", Varchar(STATEMENT_TEXT), NULLABLE),
  CEnd()};

} // namespace Show

namespace terrace {

/** As InnoDB's tables: who may not see them is told so. */
static int fill(THD *thd, TABLE_LIST *tables, const char *name, ha_rows *rows= nullptr)
{
  if (check_global_access(thd, PROCESS_ACL))
    return 1;
  return fill_seen(thd, tables, name, rows);
}

static int fill_trx(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "transactions"); }
static int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "lock_waits"); }
static int fill_last_deadlock(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "last_deadlock"); }
static int fill_locks(THD *thd, TABLE_LIST *tables, COND *)
{
  ha_rows rows= 0;
  if (int error= fill(thd, tables, "locks", &rows))
    return error;
  if (rows >= TERRACE_LOCKS_SEEN_MAX)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_UNKNOWN_ERROR,
                        "Terrace: of the locks no more than %u are shown", (uint) TERRACE_LOCKS_SEEN_MAX);
  return 0;
}

int start_trx(void *place) { return start_seen(place, Show::terrace_trx_fields, fill_trx); }
int start_locks(void *place) { return start_seen(place, Show::terrace_locks_fields, fill_locks); }
int start_lock_waits(void *place) { return start_seen(place, Show::terrace_lock_waits_fields, fill_lock_waits); }
int start_last_deadlock(void *place) { return start_seen(place, Show::terrace_last_deadlock_fields, fill_last_deadlock); }

/* --- statements ------------------------------------------------------------------------------ */

struct Asked
{
  uint64_t connection;
  char *text;
  size_t max, length;
};

static my_bool ask_thread(THD *thd, Asked *asked)
{
  if (thd->thread_id != asked->connection)
    return false;
  // Doesn't wait: a statement that is being changed or killed just now is not known.
  asked->length= thd_query_safe(thd, asked->text, asked->max);
  return true;
}

static size_t statement_of(uint64_t connection, uint8_t *text, size_t max)
{
  Asked asked= {connection, reinterpret_cast<char *>(text), max, 0};
  server_threads.iterate(ask_thread, &asked);
  return asked.length;
}

void tell_statements() { terrace_engine_ask_statements(engine, statement_of); }

} // namespace terrace
