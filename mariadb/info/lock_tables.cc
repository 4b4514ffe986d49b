/* SPDX-License-Identifier: GPL-2.0-only */
#include "lock_tables.h"
#include "globals.h"
#include "info_schema.h"
#include "key_words.h"
#include "space_tables.h"
#include "session.h"
#include "sql_acl.h"
#include "sql_class.h"
#include "sql_i_s.h"
#include <atomic>
#include <map>

namespace Show {

/* Lengths of lock ids and keys, in hexadecimal digits: 256 bytes of a key, and the text around them. */
static const uint KEY_TEXT= 514, ID_TEXT= 600, STATEMENT_TEXT= 1024, OPERATION_TEXT= 64, DATA_TEXT= 2048;

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
  Column("WEIGHT", ULonglong(), NOT_NULL),
  Column("ROWS_LOCKED", ULonglong(), NOT_NULL),
  Column("ROWS_MODIFIED", ULonglong(), NULLABLE),
  Column("OPERATION_STATE", Varchar(OPERATION_TEXT), NULLABLE),
  Column("TABLES_IN_USE", ULonglong(), NULLABLE),
  Column("TABLES_LOCKED", ULonglong(), NULLABLE),
  Column("UNIQUE_CHECKS", SLong(1), NULLABLE),
  Column("FOREIGN_KEY_CHECKS", SLong(1), NULLABLE),
  Column("IS_READ_ONLY", SLong(1), NULLABLE),
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
  Column("LOCK_DATA", Varchar(DATA_TEXT), NULLABLE),
  CEnd()};

static ST_FIELD_INFO terrace_lock_waits_fields[]= {
  Column("REQUESTING_TRX_ID", ULonglong(), NOT_NULL),
  Column("REQUESTED_LOCK_ID", Varchar(ID_TEXT), NOT_NULL),
  Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
  Column("REQUESTING_CONNECTION_ID", ULonglong(), NULLABLE),
  Column("BLOCKING_CONNECTION_ID", ULonglong(), NULLABLE),
  Column("WAIT_STARTED", Datetime(3), NOT_NULL),
  Column("MODE", Varchar(20), NOT_NULL),
  Column("TYPE", Varchar(8), NOT_NULL),
  TERRACE_TABLE_COLUMNS,
  Column("INDEX_NAME", Varchar(NAME_LEN), NOT_NULL),
  Column("LOCK_KEY", Varchar(KEY_TEXT), NOT_NULL),
  Column("LOCK_DATA", Varchar(DATA_TEXT), NULLABLE),
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

/** As with InnoDB's tables, a user without the privilege gets an error. */
static int fill(THD *thd, TABLE_LIST *tables, const char *name, terrace_row_fn each)
{
  Filling filling= {thd, tables->table, 0, false};
  return check_global_access(thd, PROCESS_ACL) ? 1 : fill_seen(name, &filling, each);
}


/* --- transactions ---------------------------------------------------------------------------- */

namespace {

/** The server's information about a connection. */
struct Connection
{
  std::string operation;
  bool unique_checks, foreign_key_checks, is_read_only;
  bool has_tables;
  uint tables_in_use, tables_locked;
};

struct Filling_trx : Filling
{
  std::map<uint64_t, Connection> connections;
};

} // namespace

static my_bool note_connection(THD *thd, std::map<uint64_t, Connection> *all)
{
  Connection one= {};
  const char *state= thd->get_command() == COM_SLEEP ? nullptr : thd->get_proc_info();
  one.operation= state ? state : "";
  one.unique_checks= !(thd->variables.option_bits & OPTION_RELAXED_UNIQUE_CHECKS);
  one.foreign_key_checks= !(thd->variables.option_bits & OPTION_NO_FOREIGN_KEY_CHECKS);
  one.is_read_only= thd->tx_read_only;
  // While this mutex is held the session stays. A session that is just beginning or ending is not waited for.
  if (!mysql_mutex_trylock(&thd->LOCK_thd_data))
  {
    if (const Session *session= static_cast<Session *>(thd_get_ha_data(thd, hton)))
    {
      one.has_tables= true;
      one.tables_in_use= session->tables_in_use;
      one.tables_locked= session->tables_locked;
    }
    mysql_mutex_unlock(&thd->LOCK_thd_data);
  }
  (*all)[thd->thread_id]= one;
  return false;
}

static void store_or_null(Field *field, bool is_there, ulonglong number)
{
  field->set_notnull();
  if (is_there)
    field->store((longlong) number, true);
  else
    field->set_null();
}

static void fill_trx_row(void *context, const terrace_value *values, size_t count)
{
  static const size_t CONNECTION= 6;
  Filling_trx *filling= static_cast<Filling_trx *>(static_cast<Filling *>(context));
  if (filling->failed)
    return;
  Field **field= filling->put(values, count);
  const bool has_connection= values[CONNECTION].kind != TERRACE_VALUE_NULL;
  const auto found= filling->connections.find(has_connection ? values[CONNECTION].number : 0);
  const bool known= has_connection && found != filling->connections.end();
  const Connection one= known ? found->second : Connection();
  (*field)->set_notnull();
  if (one.operation.empty())
    (*field)->set_null();
  else
    (*field)->store(one.operation.data(), one.operation.size(), system_charset_info);
  field++;
  store_or_null(*field++, one.has_tables, one.tables_in_use);
  store_or_null(*field++, one.has_tables, one.tables_locked);
  store_or_null(*field++, known, one.unique_checks);
  store_or_null(*field++, known, one.foreign_key_checks);
  store_or_null(*field++, known, one.is_read_only);
  filling->put_row();
}

static int fill_trx(THD *thd, TABLE_LIST *tables, COND *)
{
  if (check_global_access(thd, PROCESS_ACL))
    return 1;
  Filling_trx filling= {{thd, tables->table, 0, false}, {}};
  server_threads.iterate(note_connection, &filling.connections);
  return fill_seen("transactions", &filling, fill_trx_row);
}

/* --- locks ----------------------------------------------------------------------------------- */

/** Fills a row whose last values are table, index and key, and with `has_end` the end key; LOCK_DATA follows them. */
static void fill_with_data(void *context, const terrace_value *values, size_t count, bool has_end)
{
  Filling *filling= static_cast<Filling *>(context);
  if (filling->failed)
    return;
  Field *data= *filling->put(values, count);
  const terrace_value *last= values + count - (has_end ? 4 : 3);
  auto text= [&](size_t at) { return std::string(reinterpret_cast<const char *>(last[at].text.data), last[at].text.len); };
  enum { TABLE_PATH, INDEX, LOCK_KEY, LOCK_KEY_END };
  const bool is_range= has_end && last[LOCK_KEY_END].kind != TERRACE_VALUE_NULL;
  const std::string end= is_range ? text(LOCK_KEY_END) : "";
  std::string words;
  data->set_notnull();
  if (keys_in_words(text(TABLE_PATH), text(INDEX), text(LOCK_KEY), is_range ? &end : nullptr, filling->table, &words))
    data->store(words.data(), words.size(), &my_charset_utf8mb4_bin);
  else
    data->set_null();
  filling->put_row();
}

static void fill_lock(void *context, const terrace_value *values, size_t count) { fill_with_data(context, values, count, true); }
static void fill_lock_wait(void *context, const terrace_value *values, size_t count) { fill_with_data(context, values, count, false); }

static int fill_lock_waits(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "lock_waits", fill_lock_wait); }
static int fill_last_deadlock(THD *thd, TABLE_LIST *tables, COND *) { return fill(thd, tables, "last_deadlock", fill_row); }

static int fill_locks(THD *thd, TABLE_LIST *tables, COND *)
{
  if (check_global_access(thd, PROCESS_ACL))
    return 1;
  Filling filling= {thd, tables->table, 0, false};
  if (int error= fill_seen("locks", &filling, fill_lock))
    return error;
  if (filling.rows >= TERRACE_LOCKS_SEEN_MAX)
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
  // Doesn't wait: the statement of a connection that is just changing it or being killed is unknown.
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
