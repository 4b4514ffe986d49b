/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Which answers the server's query cache may keep and return.

  The cache asks about each table of a statement, before its first row is read and again before a cached answer is returned. An answer may be
  cached or returned only if it is what the asking transaction would read:
    no transaction that writes to the table is open, including the asking one;
    none has ended since the asking transaction's read view may have been opened nor, to return an answer, since the answer was computed.
  So it doesn't matter when the server drops answers. A transaction counts as writing from the statement that locks the table for writing until
  after its commit is visible. The number of its end then becomes the table's, and is the answer's data in the cache.

  Prepared transactions that outlive their session or the server are ended by name: no answer from before is returned afterwards.
*/
#ifndef TERRACE_QUERY_CACHE_H
#define TERRACE_QUERY_CACHE_H

#include "server.h"
#include <atomic>
#include <memory>
#include <string>

namespace terrace {

/** The state of one table, shared by its handlers and by the sessions that write to it. */
class Writers
{
public:
  /** The state of the table with this engine name; created if there is none. */
  static std::shared_ptr<Writers> of(const std::string &table);
  ~Writers();

  void began() { open.fetch_add(1); }
  /** A writing transaction has ended: its changes are visible to all, or rolled back. */
  void ended();
  /** The table's definition has changed, outside any transaction. */
  void changed();

  /** When a transaction that has changed rows was last committed; 0: not since the server's start. */
  time_t updated() const { return update_time.load(); }
  void updated(time_t now)
  {
    if (updated() != now) // at most one store a second, so that other processors seldom fetch the cache line again
      update_time.store(now);
  }
  /** The time that `updated` returns outlives the handlers, but not the table. */
  static void renamed(const std::string &from, const std::string &to);
  static void dropped(const std::string &table);

  /** The number of the last end so far, for any table. */
  static ulonglong now();

private:
  friend my_bool may_cache(THD *, const char *, uint, ulonglong *, bool);
  Writers(const std::string &table, time_t updated) : table(table), last(next()), update_time(updated) {}
  static ulonglong next();

  const std::string table;
  std::atomic<uint> open{0};
  std::atomic<ulonglong> last;
  std::atomic<time_t> update_time;
};

/** Lives while a prepared transaction is ended by its name. */
class Ends_by_name
{
public:
  Ends_by_name();
  ~Ends_by_name();
};

/** handler::register_query_cache_table. */
my_bool register_answer(THD *thd, const char *path, uint length, qc_engine_callback *ask, ulonglong *data);

} // namespace terrace
#endif
