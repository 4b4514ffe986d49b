/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Sessions: what a connection has open in the engine, and the handlerton's transaction calls.

  A session has at most one transaction. It starts when a statement locks its first table (external_lock, start_stmt) or
  at START TRANSACTION WITH CONSISTENT SNAPSHOT; it ends in commit or rollback. A statement starts with its first
  table, so that the engine's implicit savepoint is where the server's statement rollback wants it, and ends with the
  server's call for the statement (all = false).

  Without a binary log a commit is one phase: the engine commits, and the session waits for the ticket as
  terrace_flush_log_at_trx_commit says. With it: prepare (durable, or written), then commit_ordered in the binary log's order without any wait, then
  commit, which has nothing left to wait for: if the server crashes, the binary log decides, and recover() hands the prepared
  transaction over.

  With terrace_flush_log_at_trx_commit=1 nobody is answered with a commit that a crash can undo. Views hold durable commits only; a commit that the
  binary log has is durable, for it is prepared durably. A read under locks waits for the commits that it has seen before it returns a row. A
  statement that only changes rows doesn't wait: what it has seen is waited for when it fails, before the next statement that reads, and by the
  commit or rollback.

  KILL: kill_query comes from another thread. It finds the transaction's cancel handle under the session's mutex, which
  the owner takes only when that changes: a session's transactions follow one another in one handle, as a rule. What the
  session waits for outside of its transaction has handles of its own (kill_scope.h).
*/
#ifndef TERRACE_SESSION_H
#define TERRACE_SESSION_H

#include "cascade.h"
#include "globals.h"
#include "in_doubt.h"
#include "server.h"
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

class ha_terrace;

namespace terrace {

class Writers;

/** Whether the statement is to end: by KILL, SOFT or HARD, or because its time is over (which thd_killed doesn't say). Not by
    LIMIT ROWS EXAMINED, after which the server still wants what there is. */
inline bool is_killed(const THD *thd)
{
  const killed_state how= killed_mask_hard(thd->killed);
  return how == KILL_QUERY || how >= KILL_TIMEOUT;
}

/** The rows of some partitions go to new ones that only this statement sees. */
struct Refill
{
  const TABLE *table= nullptr;
  uint sources= 0;                      // partitions that are not read to their end yet
  std::vector<ha_terrace *> parts;      // those that are filled in bulk
};

/** Waits for a commit as long as is asked for; the ticket is gone then. */
int32_t wait_for(terrace_ticket **ticket, Flush flush);
/** As is set; that of DDL is durable. */
Flush flush_of_commit(THD *thd);

class Session
{
public:
  ~Session();
  /** The session of a connection; made if there is none. */
  static Session *of(THD *thd);

  /** Starts the transaction if there is none, and the statement if this is its first table. Handler error. */
  int enter(THD *thd);
  /** The open transaction, or null. */
  terrace_txn *transaction() const { return txn; }
  /** How many transactions have begun. */
  ulonglong begun= 0;
  /** From now on what this thread reads is the session's. */
  void begin_reads();
  /** Adds what this thread has read to `reads`; returns it. */
  terrace_reads take_reads();
  /** What the session has read. */
  terrace_reads reads= {};
  /** Rows that statements have read and changed, and that the engine is not told of yet: it is at a statement's end, or when they are many. */
  void count(uint64_t terrace_row_counts::*what, uint64_t rows= 1)
  {
    if ((untold.*what+= rows) >= UNTOLD_MAX)
      tell_rows();
  }
  void tell_rows();
  /** Those that it was told of. */
  const terrace_row_counts &rows() const { return told; }
  uint isolation() const { return level; }
  /** What versions of rows that the transaction writes are known by; from now on it has such. Handler error. */
  int version_number(THD *thd, ulonglong *number);

  /** The server's number of the index of the last HA_ERR_FOUND_DUPP_KEY. A partitioned table asks another of its handlers than
      the one that met it. */
  uint duplicate_index= MAX_KEY;
  /** What the DDL statement at hand has done. */
  InDoubt doubts;
  /** The foreign keys that the copy which an ALTER makes has, and the table didn't have: rows are checked as they are copied. */
  struct
  {
    std::string copy;
    std::set<std::string> names;
  } fresh_keys;
  bool is_fresh_key(const std::string &copy, const std::string &name) const { return fresh_keys.copy == copy && fresh_keys.names.count(name); }
  /** What the row that the statement is changing does to other tables. */
  Cascades cascades;
  /** Those that fill a table in bulk in the statement at hand. */
  std::vector<ha_terrace *> loads;
  /** The table's counter is the statement's alone, from its first value to the end. A code of the engine's. */
  int32_t take_counter(terrace_table *table);
  bool has_counter(const terrace_table *table) const { return std::find(counters.begin(), counters.end(), table) != counters.end(); }
  /** The change of partitions at hand. */
  Refill refill;
  /** It has failed where the server doesn't hear of it: the commit is a roll back. */
  bool refused= false;

  /** The statement at hand has emptied these with the one of this name: their own turn comes. */
  void note_emptied(THD *thd, const std::vector<std::string> &names, const std::string &with);
  /** Whether it has, and this is its turn. */
  bool is_emptied(THD *thd, const std::string &name);

  /** The transaction locks rows of the table, from now on, and perhaps writes to it. */
  void locks(THD *thd, const std::shared_ptr<Writers> &table, bool writes);
  /** It has changed a row of the table, which it writes to. */
  void changed(const std::shared_ptr<Writers> &table);
  /** The handle of what the session's thread waits for in no transaction: one for all its life. */
  terrace_cancel *own_waits();
  /** A KILL is this handle's, too, until `unhear`. */
  void hear(terrace_cancel *one);
  void unhear(terrace_cancel *one);
  /** Tables that the statement at hand has, and tables in which the transaction locks rows. Others look at them. */
  std::atomic<uint> tables_in_use{0}, tables_locked{0};
  /** One more, or one less, is in use. */
  void uses_table(int more) { tables_in_use.store(tables_in_use.load(std::memory_order_relaxed) + more, std::memory_order_relaxed); }
  /** Transactions that ended before the view can have been opened: Writers::now() then. */
  ulonglong seen_ends= 0;

private:
  friend struct Calls;
  friend void let_go_of_prepared(const std::string &name);
  int begin(THD *thd);
  /** What the transaction has seen is durable, or an error is reported. */
  int settle_seen();
  /** XA PREPARE has come to its end: of a transaction of this name, or of one that has changed nothing. */
  void note_xa_prepared(const std::string &name);
  /** The transaction that the connection prepared is no longer its own: it waits for its name; if it changed nothing, it is over. */
  void leave_xa();
  /** The connection decides the transaction that it prepared. */
  void take_xa();
  void forget_xa();
  void let_go();
  void let_view_go();
  void set_patience(THD *thd);
  void ended();
  void forget_cancel();
  void note_update_times();

  static const uint64_t UNTOLD_MAX= 4096;
  terrace_row_counts untold= {}, told= {};
  /** Differs from that of every other session there ever was; never 0. */
  const ulonglong serial= next_serial();
  static ulonglong next_serial();
  terrace_txn *txn= nullptr;
  terrace_txn *idle= nullptr;           // ended: the next transaction's handle
  uint level= 0;
  bool in_statement= false, in_phases= false, ordered= false;
  bool xa= false;                       // XA PREPARE was the last that the transaction did
  std::string xa_name;                  // empty: it had changed nothing
  bool patient= false;                  // the transaction knows how long the statement waits for locks
  bool strict= false;                   // terrace_snapshot_isolation, as the transaction has it
  bool tells= true;                     // what the statement reads goes to the client
  bool one_way= false;                  // it changed a table of an engine without transactions
  terrace_ticket *ticket= nullptr;
  int32_t ordered_code= TERRACE_OK;
  std::string ordered_message;
  struct Savepoint
  {
    terrace_savepoint *at;
    ulonglong version;
  };
  std::vector<Savepoint *> savepoints;
  std::vector<terrace_table *> counters;
  void release_counters();
  struct Locked
  {
    std::shared_ptr<Writers> table;
    bool writes, changed;
  };
  std::vector<Locked> locked;
  std::set<std::string> emptied;
  query_id_t emptied_by= 0;             // the statement
  std::mutex guard;                     // of the handles
  terrace_cancel *cancel= nullptr, *waits= nullptr;
  std::vector<terrace_cancel *> others;
  /* By what its versions of rows are known; 0: it has none. Then of before the statement. */
  ulonglong version= 0, version_before= 0;
};

/** Calls `each` with the tables that XA transactions which connections have prepared, and still have, have changed or locked. */
int32_t tables_of_prepared(terrace_xid_fn each, void *context);
/**
  Somebody else decides the transaction of this name. The connection that prepared it may be there, without knowing of it any more: COM_RESET_CONNECTION
  and COM_CHANGE_USER leave it to whoever names it, and tell no engine.
*/
void let_go_of_prepared(const std::string &name);
/** From now on the server is told of lock waits. */
void tell_lock_waits();
/** Puts the transaction calls into the handlerton. */
void fill_transaction_calls(handlerton *hton);

} // namespace terrace
#endif
