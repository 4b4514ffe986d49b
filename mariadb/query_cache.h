/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What the server's query cache may keep and give.

  The cache asks for each table of a statement, before its first row is read and again before an answer is given. An answer may be
  kept, and given, only if it is what the asking transaction would read:
    nobody's transaction that writes to the table is open, the asking one's neither;
    none has ended since the asking transaction's view can have been opened, nor, to be given, since the answer was asked for.
  So it doesn't matter when the server drops answers. A transaction counts as writing from the statement that locks the table for it, and
  until after its commit can be seen; the number of its end is the table's from then on, and the answer's data in the cache.

  Prepared transactions that outlive their session or the server are committed by name: no answer from before is given after.
*/
#ifndef TERRACE_QUERY_CACHE_H
#define TERRACE_QUERY_CACHE_H

#include "server.h"
#include <atomic>
#include <memory>
#include <string>

namespace terrace {

/** Of one table, shared by its handlers and by those that write to it. */
class Writers
{
public:
  /** By the engine's name of the table; made if there is none. */
  static std::shared_ptr<Writers> of(const std::string &table);
  ~Writers();

  void began() { open.fetch_add(1); }
  /** Its changes can be seen by all, or are gone. */
  void ended();
  /** Definitions changed, with no transaction. */
  void changed();

  /** When a transaction that has changed rows was last committed; 0: not since the server's start. */
  time_t updated() const { return update_time.load(); }
  void updated(time_t now)
  {
    if (updated() != now) // within a second nobody else's processor has to fetch it again
      update_time.store(now);
  }
  /** What `updated` says of a table outlives the handlers, but not the table. */
  static void renamed(const std::string &from, const std::string &to);
  static void dropped(const std::string &table);

  /** The number of the last end so far, of any table. */
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

/** While a prepared transaction is ended by its name. */
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
