/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The engine's troubles in the error log. A state is a name and a severity: it is written once when it begins, as [ERROR] if a person must act and as
  [Warning] if the engine does with less for a while, however its text changes meanwhile. When nothing of a name is left, a [Note] says so.
*/
#include "watch.h"
#include "globals.h"
#include "performance.h"
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

namespace terrace {

static const std::chrono::seconds EVERY(2);

static std::thread watcher;
static std::mutex mutex;
static std::condition_variable wake;
static bool ending;

/** By name and severity: the texts. */
typedef std::map<std::pair<std::string, uint8_t>, std::string> Troubles;

static const uint8_t DEGRADED= 1;

static void collect_trouble(void *context, terrace_bytes name, uint8_t severity, terrace_bytes text)
{
  static const std::string SUFFIX= "_trouble";
  std::string key(reinterpret_cast<const char *>(name.data), name.len);
  if (key.size() > SUFFIX.size() && !key.compare(key.size() - SUFFIX.size(), SUFFIX.size(), SUFFIX))
    key.resize(key.size() - SUFFIX.size());
  (*static_cast<Troubles *>(context))[{key, severity}]= std::string(reinterpret_cast<const char *>(text.data), text.len);
}

static void report(const Troubles &before, const Troubles &now)
{
  std::set<std::string> left, ended;
  for (const auto &[state, text] : now)
  {
    const auto &[name, severity]= state;
    left.insert(name);
    if (before.count(state))
      continue;
    if (severity == DEGRADED)
      sql_print_warning("Terrace: %s: %s", name.c_str(), text.c_str());
    else
      sql_print_error("Terrace: %s: %s", name.c_str(), text.c_str());
  }
  for (const auto &[state, text] : before)
    if (!left.count(state.first) && ended.insert(state.first).second)
      sql_print_information("Terrace: %s: works again", state.first.c_str());
}

static void watch()
{
  const Shown_thread shown("watch");
  Troubles before;
  std::unique_lock<std::mutex> lock(mutex);
  // Once more at the end: what came since the last look is not lost.
  for (bool last= false;; last= wake.wait_for(lock, EVERY, [] { return ending; }))
  {
    Troubles now;
    terrace_engine_troubles(engine, collect_trouble, &now);
    report(before, now);
    if (last)
      return;
    before.swap(now);
  }
}

void start_watch()
{
  ending= false;
  watcher= std::thread(watch);
}

void stop_watch()
{
  if (!watcher.joinable())
    return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    ending= true;
  }
  wake.notify_all();
  watcher.join();
}

} // namespace terrace
