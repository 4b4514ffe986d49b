/* SPDX-License-Identifier: GPL-2.0-only */
#include "performance.h"
#include "globals.h"
#include "session.h"
#include "mysql/psi/mysql_file.h"
#include "mysql/psi/mysql_memory.h"
#include "mysql/psi/mysql_stage.h"
#include "mysql/psi/mysql_thread.h"
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace terrace {

static const char CATEGORY[]= "terrace";

/* --- registered instruments, in the order of the engine's numbers ------------------------------ */

static const size_t MOST= TERRACE_OBSERVED_MAX;

static PSI_file_key file_keys[MOST];
static PSI_file *files[MOST];                   // null: the instrument was disabled at startup
static PSI_cond_key cond_keys[MOST];
static PSI_cond *conds[MOST];
static PSI_mutex_key mutex_keys[MOST];
static PSI_mutex *mutexes[MOST];
static PSI_rwlock_key rwlock_keys[MOST];
static PSI_rwlock *rwlocks[MOST];
static PSI_memory_key memory_keys[MOST];
static std::atomic<int64_t> memory_counted[MOST];

static PSI_stage_info stages[]= {
  {0, "Building the table", PSI_FLAG_STAGE_PROGRESS},
  {0, "Reading rows for new indexes", PSI_FLAG_STAGE_PROGRESS},
  {0, "Building an index", PSI_FLAG_STAGE_PROGRESS},
  {0, "Following changes of rows", 0}};

/** Calls `each` with the number and the name of every observed object of a kind. */
template <class Each> static void for_each_observed(uint32_t kind, Each each)
{
  for (uint32_t number= 0; number < MOST; number++)
  {
    const terrace_bytes name= terrace_observed_name(kind, number);
    if (!name.len)
      return;
    each(number, std::string(reinterpret_cast<const char *>(name.data), name.len));
  }
}

/* --- threads ------------------------------------------------------------------------------------ */

static PSI_thread_key key_of_thread(const std::string &name)
{
  static std::mutex mutex;
  static std::map<std::string, PSI_thread_key> keys;
  std::lock_guard<std::mutex> lock(mutex);
  const auto [at, is_new]= keys.emplace(name, 0);
  if (is_new)
  {
    PSI_thread_info info= {&at->second, at->first.c_str(), 0};
    mysql_thread_register(CATEGORY, &info, 1);
  }
  return at->second;
}

static void begin_thread(const std::string &name)
{
  PSI_thread *thread= PSI_CALL_new_thread(key_of_thread(name), nullptr, 0);
  PSI_CALL_set_thread_os_id(thread);
  PSI_CALL_set_thread(thread);
}

static void thread_begins(terrace_bytes name)
{
  begin_thread(std::string(reinterpret_cast<const char *>(name.data), name.len));
}

static void thread_ends() { PSI_CALL_delete_current_thread(); }

Shown_thread::Shown_thread(const char *name) { begin_thread(name); }
Shown_thread::~Shown_thread() { thread_ends(); }

/* --- transfers and waits ------------------------------------------------------------------------ */

static PSI_file_operation operation_of(uint32_t operation)
{
  switch (operation) {
  case TERRACE_OPERATION_READ:
    return PSI_FILE_READ;
  case TERRACE_OPERATION_WRITE:
    return PSI_FILE_WRITE;
  case TERRACE_OPERATION_DELETE:
    return PSI_FILE_DELETE;
  case TERRACE_OPERATION_LIST:
    return PSI_FILE_STAT;
  default:
    return PSI_FILE_SYNC;
  }
}

/** Which parts of the server were told of an event; stored in the last byte of its note. */
enum Told : uchar { TOLD_SHOWN= 1, TOLD_POOL= 2 };
static uchar &told(void *note) { return static_cast<uchar *>(note)[TERRACE_NOTE_BYTES - 1]; }

static_assert(sizeof(PSI_file_locker_state) < TERRACE_NOTE_BYTES, "a note has room for an event of a file");
static_assert(sizeof(PSI_cond_locker_state) < TERRACE_NOTE_BYTES, "a note has room for an event of a condition");

/** Whether a thread pool (thread_handling) serves connections. It runs other connections while it knows that one waits. */
static bool pooled;

static bool begins(bool shown, int kind, void *note)
{
  if (pooled)
    thd_wait_begin(nullptr, kind);
  told(note)= (shown ? TOLD_SHOWN : 0) | (pooled ? TOLD_POOL : 0);
  return told(note);
}

/** Returns whether the performance schema was told of the event's begin. */
static bool ends(void *note)
{
  if (told(note) & TOLD_POOL)
    thd_wait_end(nullptr);
  return told(note) & TOLD_SHOWN;
}

static bool show_transfer(uint32_t place, uint32_t operation, uint64_t bytes, void *note)
{
  PSI_file_locker_state *state= static_cast<PSI_file_locker_state *>(note);
  const PSI_file_operation op= operation_of(operation);
  PSI_file_locker *locker=
    files[place] ? PSI_FILE_CALL(get_thread_file_stream_locker)(state, files[place], op)
                 : PSI_FILE_CALL(get_thread_file_name_locker)(state, file_keys[place], op, "", nullptr);
  if (locker)
    PSI_FILE_CALL(start_file_wait)(locker, bytes, __FILE__, __LINE__);
  return locker;
}

static bool transfer_begins(uint32_t place, uint32_t operation, uint64_t bytes, void *note)
{
  return begins(show_transfer(place, operation, bytes, note), operation == TERRACE_OPERATION_SYNC ? THD_WAIT_SYNC : THD_WAIT_DISKIO, note);
}

static void transfer_ends(void *note, uint64_t bytes)
{
  if (ends(note))
    PSI_FILE_CALL(end_file_wait)(static_cast<PSI_file_locker *>(note), bytes);
}

static bool wait_begins(uint32_t wait, void *note)
{
  PSI_cond_locker_state *state= static_cast<PSI_cond_locker_state *>(note);
  const bool shown= conds[wait] && PSI_COND_CALL(start_cond_wait)(state, conds[wait], nullptr, PSI_COND_TIMEDWAIT, __FILE__, __LINE__);
  return begins(shown, THD_WAIT_ROW_LOCK, note);
}

static void wait_ends(void *note)
{
  if (ends(note))
    PSI_COND_CALL(end_cond_wait)(static_cast<PSI_cond_locker *>(note), 0);
}

/* --- locks -------------------------------------------------------------------------------------- */

static_assert(sizeof(PSI_mutex_locker_state) <= TERRACE_NOTE_BYTES, "a note has room for an event of a mutex");
static_assert(sizeof(PSI_rwlock_locker_state) <= TERRACE_NOTE_BYTES, "a note has room for an event of a lock");

static bool lock_begins(uint32_t wanted, uint32_t number, void *note)
{
  if (wanted == TERRACE_WANTED_MUTEX)
    return mutexes[number] &&
           PSI_MUTEX_CALL(start_mutex_wait)(static_cast<PSI_mutex_locker_state *>(note), mutexes[number],
                                            PSI_MUTEX_LOCK, __FILE__, __LINE__);
  PSI_rwlock *lock= rwlocks[number];
  PSI_rwlock_locker_state *state= static_cast<PSI_rwlock_locker_state *>(note);
  if (!lock)
    return false;
  return wanted == TERRACE_WANTED_SHARED
           ? PSI_RWLOCK_CALL(start_rwlock_rdwait)(state, lock, PSI_RWLOCK_READLOCK, __FILE__, __LINE__)
           : PSI_RWLOCK_CALL(start_rwlock_wrwait)(state, lock, PSI_RWLOCK_WRITELOCK, __FILE__, __LINE__);
}

/** Reports to the server that the lock was not acquired, so that it has no owner: an instance stands for all locks of its name. The wait is counted as usual. */
static const int NO_OWNER= 1;

static void lock_ends(uint32_t wanted, void *note)
{
  if (wanted == TERRACE_WANTED_MUTEX)
    PSI_MUTEX_CALL(end_mutex_wait)(static_cast<PSI_mutex_locker *>(note), NO_OWNER);
  else if (wanted == TERRACE_WANTED_SHARED)
    PSI_RWLOCK_CALL(end_rwlock_rdwait)(static_cast<PSI_rwlock_locker *>(note), NO_OWNER);
  else
    PSI_RWLOCK_CALL(end_rwlock_wrwait)(static_cast<PSI_rwlock_locker *>(note), NO_OWNER);
}

/* --- memory ------------------------------------------------------------------------------------- */

/** Memory that was allocated while the instrument was disabled is not subtracted when it is freed. */
static void memory(uint32_t what, int64_t change)
{
  std::atomic<int64_t> &counted= memory_counted[what];
  PSI_thread *owner= nullptr;
  if (change > 0)
  {
    if (PSI_CALL_memory_alloc(memory_keys[what], (size_t) change, &owner))
      counted+= change;
    return;
  }
  int64_t now= counted, less;
  do
    less= std::min(now, -change);
  while (!counted.compare_exchange_weak(now, now - less));
  if (less > 0)
    PSI_CALL_memory_free(memory_keys[what], (size_t) less, nullptr);
}

/* --- startup ------------------------------------------------------------------------------------ */

/** All files of a place share one file instance, to which its events belong. */
static PSI_file *open_place(PSI_file_key key, const std::string &name)
{
  PSI_file_locker_state state;
  PSI_file_locker *locker=
    PSI_FILE_CALL(get_thread_file_name_locker)(&state, key, PSI_FILE_OPEN, name.c_str(), &state);
  if (!locker)
    return nullptr;
  PSI_FILE_CALL(start_file_open_wait)(locker, __FILE__, __LINE__);
  return PSI_FILE_CALL(end_file_open_wait)(locker, &state);
}

void start_performance()
{
  bool is_on= false;
  for_each_observed(TERRACE_OBSERVED_PLACES, [&](uint32_t number, const std::string &name) {
    PSI_file_info info= {&file_keys[number], name.c_str(), 0};
    mysql_file_register(CATEGORY, &info, 1);
    is_on|= file_keys[number] != 0;
    files[number]= open_place(file_keys[number], "Terrace (" + name + ")");
  });
  for_each_observed(TERRACE_OBSERVED_WAITS, [&](uint32_t number, const std::string &name) {
    PSI_cond_info info= {&cond_keys[number], name.c_str(), 0};
    mysql_cond_register(CATEGORY, &info, 1);
    is_on|= cond_keys[number] != 0;
    if (!conds[number])
      conds[number]= PSI_COND_CALL(init_cond)(cond_keys[number], &conds[number]);
  });
  std::string names[MOST];
  for_each_observed(TERRACE_OBSERVED_MUTEXES, [&](uint32_t number, const std::string &name) {
    // Mutexes with the same name share one instrument.
    const uint32_t same= std::find(names, names + number, name) - names;
    names[number]= name;
    if (same < number)
    {
      mutexes[number]= mutexes[same];
      return;
    }
    PSI_mutex_info info= {&mutex_keys[number], name.c_str(), 0};
    mysql_mutex_register(CATEGORY, &info, 1);
    is_on|= mutex_keys[number] != 0;
    if (!mutexes[number])
      mutexes[number]= PSI_MUTEX_CALL(init_mutex)(mutex_keys[number], &mutexes[number]);
  });
  for_each_observed(TERRACE_OBSERVED_RWLOCKS, [&](uint32_t number, const std::string &name) {
    PSI_rwlock_info info= {&rwlock_keys[number], name.c_str(), 0};
    mysql_rwlock_register(CATEGORY, &info, 1);
    is_on|= rwlock_keys[number] != 0;
    if (!rwlocks[number])
      rwlocks[number]= PSI_RWLOCK_CALL(init_rwlock)(rwlock_keys[number], &rwlocks[number]);
  });
  for_each_observed(TERRACE_OBSERVED_MEMORY, [&](uint32_t number, const std::string &name) {
    PSI_memory_info info= {&memory_keys[number], name.c_str(), PSI_FLAG_GLOBAL};
    mysql_memory_register(CATEGORY, &info, 1);
    is_on|= memory_keys[number] != 0;
  });
  PSI_stage_info *all[array_elements(stages)];
  for (size_t at= 0; at < array_elements(stages); at++)
    all[at]= &stages[at];
  mysql_stage_register(CATEGORY, all, (int) array_elements(stages));
  pooled= thread_handling == SCHEDULER_TYPES_COUNT; // pool-of-threads
  if (!is_on && !pooled)
    return;
  terrace_observer observer= {};
  observer.size= sizeof observer;
  observer.thread_begins= thread_begins;
  observer.thread_ends= thread_ends;
  observer.transfer_begins= transfer_begins;
  observer.transfer_ends= transfer_ends;
  observer.wait_begins= wait_begins;
  observer.wait_ends= wait_ends;
  observer.lock_begins= lock_begins;
  observer.lock_ends= lock_ends;
  observer.memory= memory;
  // If an observer is registered already, it is this one: the library has been in use before.
  terrace_observe(&observer);
}

/* --- stages ------------------------------------------------------------------------------------- */

Stage::Stage(THD *thd, Name name) : m_thd(thd)
{
  thd->backup_stage(&m_before);
  thd->enter_stage(&stages[name], __func__, __FILE__, __LINE__);
}

Stage::~Stage() { m_thd->enter_stage(&m_before, __func__, __FILE__, __LINE__); }

void Stage::report(ulonglong done, ulonglong all)
{
  thd_progress_report(m_thd, done, all);
  mysql_stage_set_work_estimated(m_thd->m_stage_progress_psi, all);
  mysql_stage_set_work_completed(m_thd->m_stage_progress_psi, done);
}

bool Stage::told(void *self, uint64_t done, uint64_t all)
{
  Stage *stage= static_cast<Stage *>(self);
  stage->report(done, all);
  return !is_killed(stage->m_thd);
}

} // namespace terrace
