/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The engine's troubles in the error log: a store that does not answer, a fence that was lost, flash that is off, an engine
  that stopped. Each is written when it comes or changes, and once more when it has gone.
*/
#include "watch.h"
#include "globals.h"
#include "performance.h"
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace terrace {

static const std::chrono::seconds EVERY(2);

static std::thread watcher;
static std::mutex mutex;
static std::condition_variable wake;
static bool ending;

typedef std::map<std::string, std::string> Troubles;

static void collect_trouble(void *context, terrace_bytes name, terrace_bytes text)
{
  static const std::string SUFFIX= "_trouble";
  std::string key(reinterpret_cast<const char *>(name.data), name.len);
  if (key.size() <= SUFFIX.size() || key.compare(key.size() - SUFFIX.size(), SUFFIX.size(), SUFFIX))
    return;
  key.resize(key.size() - SUFFIX.size());
  (*static_cast<Troubles *>(context))[key]= std::string(reinterpret_cast<const char *>(text.data), text.len);
}

static void report(const Troubles &before, const Troubles &now)
{
  for (const auto &[name, text] : now)
  {
    auto known= before.find(name);
    if (known == before.end() || known->second != text)
      sql_print_warning("Terrace: %s: %s", name.c_str(), text.c_str());
  }
  for (const auto &[name, text] : before)
    if (!now.count(name))
      sql_print_information("Terrace: %s: works again", name.c_str());
}

static void watch()
{
  const Shown_thread shown("watch");
  Troubles before;
  std::unique_lock<std::mutex> lock(mutex);
  do
  {
    Troubles now;
    terrace_engine_notes(engine, collect_trouble, &now);
    report(before, now);
    before.swap(now);
  } while (!wake.wait_for(lock, EVERY, [] { return ending; }));
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
