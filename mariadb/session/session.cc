/* SPDX-License-Identifier: GPL-2.0-only */
#include "session.h"
#include "errors.h"
#include "globals.h"
#include "query_cache.h"
#include "xid.h"
#include "set_var.h"
#include "sql_parse.h"
#include <algorithm>
#include <atomic>

/* The server exports them and declares them in no header. */
extern "C" int thd_need_wait_reports(const MYSQL_THD thd);
extern "C" int thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other_thd);

namespace terrace {

/*
  A lock wait. Workers of parallel replication commit in the source's order: the server kills a later one that an earlier one waits
  for, and applies it again.
*/
static void on_lock_wait(void *waiter, void *holder)
{
  thd_rpl_deadlock_check(static_cast<THD *>(waiter), static_cast<THD *>(holder));
}

void tell_lock_waits()
{
  terrace_engine_tell_lock_waits(engine, on_lock_wait);
}

static bool is_whole(THD *thd, bool all)
{
  return all || !goes_on(thd);
}

ulonglong Session::next_serial()
{
  static std::atomic<ulonglong> last;
  return ++last;
}

Session *Session::of(THD *thd)
{
  Session *session= static_cast<Session *>(thd_get_ha_data(thd, hton));
  if (!session)
  {
    session= new Session;
    thd_set_ha_data(thd, hton, session);
  }
  return session;
}

/**
  Whether what the statement reads goes to the client, or may. A statement that only changes rows tells how many they were, and that before its
  transaction has ended.
*/
static bool tells_rows(THD *thd)
{
  if (thd->slave_thread)
    return false;
  switch (thd_sql_command(thd)) {
  case SQLCOM_INSERT:
  case SQLCOM_INSERT_SELECT:
  case SQLCOM_REPLACE:
  case SQLCOM_REPLACE_SELECT:
  case SQLCOM_DELETE:
    return thd->lex->has_returning();
  case SQLCOM_UPDATE:                   // what has_returning() looks at are its columns
  case SQLCOM_UPDATE_MULTI:
  case SQLCOM_DELETE_MULTI:
  case SQLCOM_LOAD:
    return false;
  default:
    return true;
  }
}

int Session::settle_seen()
{
  const int32_t code= txn ? terrace_txn_settle(txn) : TERRACE_OK;
  if (code)
    report_error(code, "what was read may not be durable");
  return code ? 1 : 0;
}

int Session::begin(THD *thd)
{
  begun++;
  level= isolation_of(thd);
  strict= one_way= false;
  tells= true;
  seen_ends= Writers::now();
  bool same= false;
  int32_t code= idle ? terrace_txn_begin_again(idle, level, &same) : terrace_txn_begin(engine, level, &txn);
  if (code)
    return map_error(thd, code);
  if (idle)
  {
    txn= idle;
    idle= nullptr;
  }
  if (thd_need_wait_reports(thd))
    terrace_txn_set_owner(txn, thd);
  // A worker of parallel replication starts when what it builds on is committed, but perhaps not durable.
  if (thd->slave_thread)
    terrace_txn_set_views_of_all(txn, true);
  if (same)
    return 0;
  terrace_txn_set_connection(txn, thd->thread_id);
  std::lock_guard<std::mutex> lock(guard);
  terrace_cancel_close(cancel);
  cancel= nullptr;
  terrace_txn_cancel_handle(txn, &cancel);
  return 0;
}

/** What was committed or rolled back leaves its handle, and that to cancel it, to the next one; what is prepared waits for its name. */
void Session::let_go()
{
  if (txn && terrace_txn_rest(txn))
    idle= txn;
  else
  {
    forget_cancel();
    terrace_txn_close(txn);
  }
  txn= nullptr;
}

/** The transaction is over, or another's. */
void Session::ended()
{
  release_counters();
  for (Savepoint *savepoint : savepoints)
  {
    terrace_savepoint_close(savepoint->at);
    delete savepoint;
  }
  savepoints.clear();
  take_reads();
  tell_rows();
  let_go();
  in_statement= in_phases= ordered= refused= false;
  refill= Refill();
  version= version_before= 0;
  for (const Locked &one : locked)
    if (one.writes)
      one.table->ended();
  locked.clear();
  tables_locked.store(0, std::memory_order_relaxed);
}

int32_t Session::take_counter(terrace_table *table)
{
  counters.push_back(table);
  return terrace_row_counter_lock(txn, table);
}

void Session::release_counters()
{
  for (terrace_table *table : counters)
    terrace_row_counter_release(txn, table);
  counters.clear();
}

/** What a statement saw at READ COMMITTED keeps purge from nothing while the transaction rests. */
void Session::let_view_go()
{
  if (txn && level == ISO_READ_COMMITTED)
    terrace_txn_statement_end(txn);
}

/** Whether the statement sets the variable for itself (SET STATEMENT, NOWAIT, WAIT n). */
static bool sets(THD *thd, const char *name)
{
  List_iterator_fast<set_var_base> each(thd->lex->stmt_var_list);
  while (set_var_base *one= each++)
    if (one->is_system() && !strcmp(static_cast<const set_var *>(one)->var->name.str, name))
      return true;
  return false;
}

/**
  NOWAIT and WAIT n set lock_wait_timeout and innodb_lock_wait_timeout for the statement, as far as there are such variables. By itself
  lock_wait_timeout is of metadata locks.
*/
void Session::set_patience(THD *thd)
{
  ulonglong wait= lock_wait_ms(thd);
  if (!thd->lex->stmt_var_list.is_empty() && !sets(thd, "terrace_lock_wait_timeout_ms"))
  {
    const ulonglong innodb= innodb_lock_wait_ms(thd);
    if (sets(thd, "innodb_lock_wait_timeout"))
      wait= innodb;
    else if (innodb == ULONGLONG_MAX && sets(thd, "lock_wait_timeout"))
      wait= (ulonglong) thd->variables.lock_wait_timeout * 1000;
  }
  terrace_txn_set_lock_wait(txn, wait);
  patient= true;
}

void Session::locks(THD *thd, const std::shared_ptr<Writers> &table, bool writes)
{
  if (!patient)
    set_patience(thd);
  auto at= std::find_if(locked.begin(), locked.end(), [&](const Locked &one) { return one.table == table; });
  if (at == locked.end())
  {
    at= locked.insert(at, {table, false, false});
    tables_locked.store((uint) locked.size(), std::memory_order_relaxed);
  }
  if (writes && !at->writes)
  {
    table->began();
    at->writes= true;
  }
}

void Session::changed(const std::shared_ptr<Writers> &table)
{
  for (Locked &one : locked)
    if (one.table == table)
      one.changed= true;
}

void Session::note_update_times()
{
  time_t now= 0;
  for (const Locked &one : locked)
    if (one.changed)
      one.table->updated(now= now ? now : time(nullptr));
}

void Session::note_emptied(THD *thd, const std::vector<std::string> &names, const std::string &with)
{
  emptied= std::set<std::string>(names.begin(), names.end());
  emptied.erase(with);
  emptied_by= thd->query_id;
}

bool Session::is_emptied(THD *thd, const std::string &name)
{
  return emptied_by == thd->query_id && emptied.erase(name);
}

terrace_cancel *Session::own_waits()
{
  if (!waits)
  {
    std::lock_guard<std::mutex> lock(guard);
    terrace_cancel_create(&waits);
  }
  return waits;
}

void Session::hear(terrace_cancel *one)
{
  std::lock_guard<std::mutex> lock(guard);
  others.push_back(one);
}

void Session::unhear(terrace_cancel *one)
{
  std::lock_guard<std::mutex> lock(guard);
  others.erase(std::find(others.begin(), others.end(), one));
}

void Session::forget_cancel()
{
  std::lock_guard<std::mutex> lock(guard);
  terrace_cancel_close(cancel);
  cancel= nullptr;
}

/** The connection ends: rolls back, unless the transaction is prepared, which then waits for XA COMMIT by name. */
Session::~Session()
{
  if (!doubts.empty())
    settle(&doubts);
  cascades.close_tables();
  if (xa)
    leave_xa();
  else if (txn)
    ended();
  tell_rows();
  forget_cancel();
  terrace_cancel_close(waits);
  terrace_txn_close(idle);
}

int Session::enter(THD *thd)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  if (xa)
    leave_xa();                         // what is prepared reads no more: the connection was reset
  const bool begins= !txn;
  if (begins)
    if (int error= begin(thd))
      return error;
  if (in_statement)
    return 0;
  begin_reads();
  if (level <= ISO_READ_COMMITTED)
    seen_ends= Writers::now();
  in_statement= true;
  patient= false;
  version_before= version;
  trans_register_ha(thd, false, hton, 0);
  if (goes_on(thd))
    trans_register_ha(thd, true, hton, 0);
  if (strict != snapshot_isolation(thd))
    terrace_txn_set_strict(txn, strict= !strict);
  if (tells != tells_rows(thd))
    terrace_txn_set_tells(txn, tells= !tells);
  if (one_way != thd->transaction->all.modified_non_trans_table)
    terrace_txn_set_one_way(txn, one_way= !one_way);
  int32_t code= terrace_txn_statement_begin(txn);
  // statement_begin clears the handle. A KILL that arrived before that must not be lost: under LOCK TABLES the server does not look again.
  if (is_killed(thd))
    terrace_txn_cancel(cancel);
  // As InnoDB: what the transaction locks is of the moment at which it began.
  if (!code && begins && strict && level == ISO_SERIALIZABLE)
    code= terrace_txn_open_view(txn);
  return map_error(thd, code);
}

int Session::version_number(THD *thd, ulonglong *number)
{
  uint64_t given= version;
  if (!given)
    if (int32_t code= terrace_txn_number(txn, &given))
      return map_error(thd, code);
  *number= version= given;
  return 0;
}

int32_t wait_for(terrace_ticket **ticket, Flush flush)
{
  if (flush == FLUSH_NEVER_WAIT)
    return TERRACE_OK;
  terrace_ticket *one= *ticket;
  *ticket= nullptr;
  return flush == FLUSH_AT_COMMIT ? terrace_ticket_wait(one) : terrace_ticket_wait_written(one);
}

/** What ALTER has copied is durable whatever is set: after a crash the server goes on from there, and drops the original. So is all DDL. */
Flush flush_of_commit(THD *thd)
{
  return sql_command_flags[thd_sql_command(thd)] & CF_AUTO_COMMIT_TRANS ? FLUSH_AT_COMMIT : flush_at_commit();
}

/**
  XA PREPARE is a promise to somebody else. Between the server's own phases it is as a commit would be, but no less than written: else a
  killed server would have transactions in its binary log that the engine knows nothing of.
*/
static Flush flush_of_prepare(THD *thd)
{
  if (thd_sql_command(thd) == SQLCOM_XA_PREPARE || flush_of_commit(thd) == FLUSH_AT_COMMIT)
    return FLUSH_AT_COMMIT;
  return FLUSH_WRITTEN;
}

/** The calls of the handlerton; friends of the session. */
struct Calls
{
  /** The end of a statement that may have changed definitions. One that did nothing else commits nothing, as the server counts. */
  static void settle_statement(Session *session, bool all, ulong *counted)
  {
    if (session->doubts.empty())
      return;
    settle(&session->doubts);
    if (!all && !session->in_statement)
      --*counted;                       // the server will add one for us
  }

  static int commit(handlerton *, THD *thd, bool all)
  {
    Session *session= Session::of(thd);
    settle_statement(session, all, &thd->status_var.ha_commit_count);
    session->release_counters();
    session->cascades.close_tables();
    if (!is_whole(thd, all))
    {
      session->in_statement= false;
      session->take_reads();
      session->tell_rows();
      session->let_view_go();
      return session->tells ? session->settle_seen() : 0;
    }
    if (session->xa)
      session->take_xa();
    if (!session->txn)
      return 0;
    if (session->refused)
    {
      terrace_txn_rollback(session->txn);
      session->ended();
      return 1;
    }
    int32_t code= session->ordered_code;
    if (!session->ordered)
      code= terrace_txn_commit(session->txn, &session->ticket);
    if (code)
    {
      // The server takes the transaction for ended.
      if (session->ordered)
        my_printf_error(ER_UNKNOWN_ERROR, "Terrace: the commit failed: %s", MYF(0),
                        session->ordered_message.c_str());
      else
      {
        report_error(code, "the commit failed and was rolled back");
        terrace_txn_rollback(session->txn);
      }
    }
    else if (!session->ordered)
    {
      // The order is fixed: the next transaction to commit on a parallel replica shares the sync.
      thd->wakeup_subsequent_commits(0);
      if ((code= wait_for(&session->ticket, flush_of_commit(thd))))
        report_error(code, "the commit may not be durable");
    }
    if (!code)
      session->note_update_times();
    terrace_ticket_close(session->ticket);
    session->ticket= nullptr;
    session->ordered_code= TERRACE_OK;
    // Noting versions in the registry, InnoDB joined the transaction while the server was ending it: it would stay begun.
    if (session->version)
      thd->server_status&= ~SERVER_STATUS_IN_TRANS;
    session->ended();
    return code ? 1 : 0;
  }

  /** May run on another thread than the session's, one call at a time. Waits for nothing. */
  static void commit_ordered(handlerton *, THD *thd, bool all)
  {
    Session *session= Session::of(thd);
    if (!is_whole(thd, all) || !session->txn)
      return;
    session->ordered= true;
    // XA PREPARE's name is nothing that the binary log decides after a crash.
    session->ordered_code= session->in_phases && !session->xa ? terrace_txn_commit_decided(session->txn, &session->ticket)
                                                              : terrace_txn_commit(session->txn, &session->ticket);
    if (session->ordered_code)
      session->ordered_message= last_message();
  }

  static int rollback(handlerton *, THD *thd, bool all)
  {
    Session *session= Session::of(thd);
    settle_statement(session, all, &thd->status_var.ha_rollback_count);
    session->release_counters();
    session->cascades.close_tables();
    if (!session->txn)
      return 0;
    if (is_whole(thd, all))
    {
      if (session->xa)
        session->take_xa();
      int32_t code= terrace_txn_rollback(session->txn);
      if (code)
        report_error(code, "the rollback goes on in the background, and what the transaction changed stays locked until then");
      // An error that the client is told of may come from what was seen. If the log has failed, so has more than this.
      terrace_txn_settle(session->txn);
      session->ended();
      return code ? 1 : 0;
    }
    int32_t code= terrace_txn_statement_rollback(session->txn);
    session->in_statement= false;
    session->let_view_go();
    session->take_reads();
    session->tell_rows();
    session->version= session->version_before;
    const int error= undone(thd, code);
    terrace_txn_settle(session->txn);
    return error;
  }

  /** What is undone in part can only be undone whole. */
  static int undone(THD *thd, int32_t code)
  {
    if (code)
      thd->mark_transaction_to_rollback(true);
    return map_error(thd, code);
  }

  static int prepare(handlerton *, THD *thd, bool all)
  {
    Session *session= Session::of(thd);
    if (!is_whole(thd, all))
    {
      session->in_statement= false;
      return 0;
    }
    if (session->refused)
      return 1;
    const bool is_xa= thd_sql_command(thd) == SQLCOM_XA_PREPARE;
    // Changes of temporary tables alone don't outlive the server, nor the connection: the server takes them for none.
    if (!session->txn || !terrace_txn_has_changes(session->txn) || !thd->ha_data[hton->slot].ha_info[all].is_trx_read_write())
    {
      if (is_xa && session->txn)
        session->note_xa_prepared(std::string());
      return 0;
    }
    MYSQL_XID raw;
    thd_get_xid(thd, &raw);
    std::string name= name_of(reinterpret_cast<const XID *>(&raw));
    int32_t code= flush_of_prepare(thd) == FLUSH_AT_COMMIT ? terrace_txn_prepare(session->txn, bytes_of(name))
                                                           : terrace_txn_prepare_written(session->txn, bytes_of(name));
    if (code)
    {
      report_error(code, "the transaction can't be prepared");
      return 1;
    }
    session->in_phases= true;
    // As InnoDB: after XA PREPARE a session reads no more.
    if (is_xa && session->level != ISO_SERIALIZABLE)
      terrace_txn_release_reads(session->txn);
    if (is_xa)
      session->note_xa_prepared(name);
    return 0;
  }

  /**
    The server asks before a commit. If the transaction has written versions of rows by its number, it goes to `*number`; the answer
    is one for the commit. 0: it has not. ULONGLONG_MAX: there is no number, and the commit fails.
  */
  static ulonglong prepare_commit_versioned(THD *thd, ulonglong *number)
  {
    Session *session= static_cast<Session *>(thd_get_ha_data(thd, hton));
    *number= session && session->txn && !session->xa ? session->version : 0;
    if (!*number)
      return 0;
    uint64_t commit;
    return terrace_txn_number_after(session->txn, &commit) ? ULONGLONG_MAX : commit;
  }

  static int savepoint_set(handlerton *, THD *thd, void *place)
  {
    Session *session= Session::of(thd);
    terrace_savepoint *at= nullptr;
    if (!session->txn)
      return HA_ERR_NO_SAVEPOINT;
    if (int32_t code= terrace_txn_savepoint(session->txn, &at))
      return map_error(thd, code);
    Session::Savepoint *savepoint= new Session::Savepoint{at, session->version};
    session->savepoints.push_back(savepoint);
    memcpy(place, &savepoint, sizeof savepoint);
    return 0;
  }

  static Session::Savepoint *savepoint_at(void *place)
  {
    Session::Savepoint *savepoint;
    memcpy(&savepoint, place, sizeof savepoint);
    return savepoint;
  }

  static int savepoint_rollback(handlerton *, THD *thd, void *place)
  {
    Session *session= Session::of(thd);
    if (!session->txn)
      return HA_ERR_NO_SAVEPOINT;
    Session::Savepoint *savepoint= savepoint_at(place);
    session->version= session->version_before= savepoint->version;
    return undone(thd, terrace_txn_rollback_to(session->txn, savepoint->at));
  }

  static int savepoint_release(handlerton *, THD *thd, void *place)
  {
    std::vector<Session::Savepoint *> &all= Session::of(thd)->savepoints;
    // From the last on: the server forgets those set after the one that it releases, and they stay until the transaction ends.
    for (auto at= all.end(); at != all.begin();)
      if (*--at == savepoint_at(place))
      {
        terrace_savepoint_close((*at)->at);
        delete *at;
        all.erase(at);
        break;
      }
    return 0;
  }

  /** Row locks taken after the savepoint stay, so the tables' metadata locks must too. */
  static bool savepoint_can_release_mdl(handlerton *, THD *thd)
  {
    Session *session= Session::of(thd);
    return !session->txn || !terrace_txn_has_locks(session->txn);
  }

  static int consistent_snapshot(handlerton *, THD *thd)
  {
    if (!engine)
      return 0;
    Session *session= Session::of(thd);
    if (session->xa)
      session->leave_xa();
    if (!session->txn)
      if (int error= session->begin(thd))
        return error;
    trans_register_ha(thd, true, hton, 0);
    if (session->isolation() == ISO_READ_UNCOMMITTED)
    {
      // InnoDB's words and code.
      push_warning(thd, Sql_condition::WARN_LEVEL_WARN, HA_ERR_UNSUPPORTED,
                   "Terrace: WITH CONSISTENT SNAPSHOT is ignored at READ UNCOMMITTED isolation level.");
      return 0;
    }
    // With a binary log the server holds the commits back meanwhile: the view is that of its position.
    return map_error(thd, terrace_txn_open_view_of_all(session->txn));
  }

  static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
  {
    Session *session= static_cast<Session *>(thd_get_ha_data(thd, hton));
    if (!session)
      return;
    std::lock_guard<std::mutex> lock(session->guard);
    for (terrace_cancel *one : session->others)
      terrace_txn_cancel(one);
    for (terrace_cancel *one : {session->cancel, session->waits})
      if (one)
        terrace_txn_cancel(one);
  }

  static int close_connection(handlerton *, THD *thd)
  {
    Session *session= static_cast<Session *>(thd_get_ha_data(thd, hton));
    if (!session)
      return 0;
    thd_set_ha_data(thd, hton, nullptr);
    delete session;
    return 0;
  }
};

void fill_transaction_calls(handlerton *into)
{
  into->savepoint_offset= sizeof(void *);
  into->commit= Calls::commit;
  into->commit_ordered= Calls::commit_ordered;
  into->rollback= Calls::rollback;
  into->prepare= Calls::prepare;
  into->prepare_commit_versioned= Calls::prepare_commit_versioned;
  into->savepoint_set= Calls::savepoint_set;
  into->savepoint_rollback= Calls::savepoint_rollback;
  into->savepoint_release= Calls::savepoint_release;
  into->savepoint_rollback_can_release_mdl= Calls::savepoint_can_release_mdl;
  into->start_consistent_snapshot= Calls::consistent_snapshot;
  into->kill_query= Calls::kill_query;
  into->close_connection= Calls::close_connection;
  fill_recovery_calls(into);
}

} // namespace terrace
