/* SPDX-License-Identifier: GPL-2.0-only */
#include "query_cache.h"
#include "ddl.h"
#include "globals.h"
#include "session.h"
#include <map>
#include <mutex>

namespace terrace {

static std::atomic<ulonglong> ends;
/* The number of the last end by name, which may concern any table, and the number of ends by name in progress. */
static std::atomic<ulonglong> last_by_name;
static std::atomic<uint> ending_by_name;

struct Known
{
  std::mutex guard;                     // protects both maps
  std::map<std::string, std::weak_ptr<Writers>> tables;
  /* When tables that no handler has open were last changed; kept as long as the table exists. */
  std::map<std::string, time_t> update_times;
};

/** Never freed: handlers may be closed after the plugin's statics are gone. */
static Known &known()
{
  static Known *all= new Known;
  return *all;
}

/** Records an end in `last`. If two ends run concurrently, the one with the lower number may store it last: the higher number stays. */
static void note_end(std::atomic<ulonglong> &last)
{
  const ulonglong mine= ends.fetch_add(1) + 1;
  ulonglong before= last.load();
  while (before < mine && !last.compare_exchange_weak(before, mine))
    ;
}

ulonglong Writers::next() { return ends.fetch_add(1) + 1; }
ulonglong Writers::now() { return ends.load(); }

std::shared_ptr<Writers> Writers::of(const std::string &table)
{
  std::lock_guard<std::mutex> lock(known().guard);
  std::weak_ptr<Writers> &place= known().tables[table];
  std::shared_ptr<Writers> found= place.lock();
  if (!found)
  {
    const auto at= known().update_times.find(table);
    place= found= std::shared_ptr<Writers>(new Writers(table, at == known().update_times.end() ? 0 : at->second));
  }
  return found;
}

Writers::~Writers()
{
  std::lock_guard<std::mutex> lock(known().guard);
  auto at= known().tables.find(table);
  if (at == known().tables.end() || !at->second.expired())
    return;
  known().tables.erase(at);
  if (update_time.load())
    known().update_times[table]= update_time.load();
}

void Writers::renamed(const std::string &from, const std::string &to)
{
  std::lock_guard<std::mutex> lock(known().guard);
  const auto at= known().update_times.find(from);
  if (at == known().update_times.end())
    return;
  known().update_times[to]= at->second;
  known().update_times.erase(at);
}

void Writers::dropped(const std::string &table)
{
  std::lock_guard<std::mutex> lock(known().guard);
  known().update_times.erase(table);
}

void Writers::ended()
{
  note_end(last);
  open.fetch_sub(1);
}

void Writers::changed() { note_end(last); }

Ends_by_name::Ends_by_name() { ending_by_name.fetch_add(1); }

Ends_by_name::~Ends_by_name()
{
  note_end(last_by_name);
  ending_by_name.fetch_sub(1);
}

/**
  Whether an answer from the table may be cached (`keeps`) or returned from the cache.
  @param data   the answer's data: set when the answer is cached, and when a cached answer is too old, which makes the server drop it
*/
my_bool may_cache(THD *thd, const char *path, uint length, ulonglong *data, bool keeps)
{
  if (!engine || thd_tx_isolation(thd) == ISO_SERIALIZABLE)
    return false;
  // It may read changes of a prepared transaction without a session, or of one that is being rolled back in the background, for which no writer is registered.
  if (keeps && thd_tx_isolation(thd) == ISO_READ_UNCOMMITTED)
    return false;
  std::shared_ptr<Writers> writers;
  {
    // The path is "./db/table" when an answer is cached, "/db/table" when it is returned.
    std::string table= table_name(std::string(path, length).c_str());
    if (!table.empty() && table[0] == FN_LIBCHAR)
      table.erase(0, 1);
    std::lock_guard<std::mutex> lock(known().guard);
    auto at= known().tables.find(table);
    if (at != known().tables.end())
      writers= at->second.lock();
  }
  if (!writers)
  {
    *data= 0;                           // matches no end's number: the table has been closed
    return false;
  }
  Session *session= Session::of(thd);
  // The answer is what the transaction reads now; opening its read view here makes it read the same later.
  if (!keeps && thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) &&
      (session->enter(thd) ||
       (session->isolation() == ISO_REPEATABLE_READ && terrace_txn_open_view(session->transaction()))))
    return false;
  if (writers->open.load() || ending_by_name.load())
    return false;
  const ulonglong last= std::max(writers->last.load(), last_by_name.load());
  if (!keeps && last != *data)
  {
    *data= last;
    return false;
  }
  if (session->transaction() ? last > session->seen_ends : keeps)
    return false;
  *data= last;
  return true;
}

static my_bool may_give(THD *thd, const char *path, uint length, ulonglong *data)
{
  return may_cache(thd, path, length, data, false);
}

my_bool register_answer(THD *thd, const char *path, uint length, qc_engine_callback *ask, ulonglong *data)
{
  *data= 0;
  *ask= may_give;
  return may_cache(thd, path, length, data, true);
}

} // namespace terrace
