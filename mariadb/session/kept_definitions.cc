/* SPDX-License-Identifier: GPL-2.0-only */
#include "kept_definitions.h"
#include "definition_files.h"
#include "errors.h"
#include "globals.h"
#include "in_doubt.h"
#include "own_table.h"
#include "performance.h"
#include "walk.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <dirent.h>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <sys/stat.h>
#include <thread>

namespace terrace {

namespace fs= std::filesystem;

static const char TABLE_NAME[]= "#definitions";        // no table of the server is named so: those have a slash
static const char FORMAT= 1;
static const size_t HEAD= 9, PART= 2000;
/** Bytes of one transaction. */
static const size_t AT_ONCE= 1 << 20;
/** What changed so recently may change again without another time. */
static const ulonglong UNSURE= 2000000000;
static const std::chrono::milliseconds EVERY(1000);

namespace {

struct Stamp
{
  ulonglong time= 0, size= 0, inode= 0;
  bool is_sure= false;
  bool same(const Stamp &other) const { return is_sure && time == other.time && size == other.size && inode == other.inode; }
};

/** A file as it is in the engine. */
struct KeptFile
{
  uint32 length= 0, crc= 0;
  Stamp stamp;
};

/** A file to be put, or (no bytes) to be forgotten. */
struct Changed
{
  std::string path;
  std::optional<std::string> bytes;
  Stamp stamp;
};

/** What is kept, and of which look. One thread at a time. */
struct Keeper
{
  std::mutex mutex;
  bool is_read= false, had_trouble= false;
  std::map<std::string, KeptFile> files;
  std::map<std::string, Stamp> directories;

  bool read();
  bool look(std::vector<Changed> *changed);
  bool look_in(const std::string &database, const Stamp &stamp, std::vector<Changed> *changed);
  bool look_at(const std::string &path, const fs::path &file, std::vector<Changed> *changed);
  int32_t write(const std::vector<Changed> &changed);
  void trouble(const std::string &text);
};

} // namespace

static Keeper keeper;
static std::atomic<ulonglong> kept_ms;

static ulonglong now_ns()
{
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

static bool stamp_of(const fs::path &path, bool directory, Stamp *stamp)
{
  struct stat found;
  if (stat(path.c_str(), &found) || (directory ? !S_ISDIR(found.st_mode) : !S_ISREG(found.st_mode)))
    return false;
  stamp->time= found.st_mtim.tv_sec * 1000000000ULL + found.st_mtim.tv_nsec;
  stamp->size= directory ? 0 : found.st_size;
  stamp->inode= found.st_ino;
  stamp->is_sure= stamp->time + UNSURE < now_ns();
  return true;
}

static bool is_kept_kind(const fs::path &file)
{
  const std::string kind= file.extension().string(), name= file.filename().string();
  return (kind == ".frm" || kind == ".par" || kind == ".opt" || kind == ".TRG" || kind == ".TRN") && name[0] != '#' && name[0] != '.';
}

/** Those of the server itself have no definitions of ours, and are made anew with each data directory. */
static bool is_database(const std::string &name)
{
  return name[0] != '.' && name[0] != '#' && name != "mysql" && name != "sys" && name != "performance_schema" && name != "lost+found";
}

static bool is_definition_of_table(const std::string &path)
{
  const std::string kind= fs::path(path).extension().string();
  return kind == ".frm" || kind == ".par";
}

/** Whether all of a definition is there: its first bytes say how long it is. */
static bool is_whole(const std::string &kind, const std::string &bytes)
{
  const uchar *at= reinterpret_cast<const uchar *>(bytes.data());
  if (kind == ".frm")
    return !bytes.empty() && (at[0] != 0xfe || (bytes.size() > 64 && uint4korr(at + 10) == bytes.size()));
  if (kind == ".par")
    return bytes.size() > 8 && uint4korr(at) * 4ULL <= bytes.size();
  return true;
}

/** Whether the definition is of a table of another engine. */
static bool is_of_others(const fs::path &frm)
{
  const std::string engine_name= engine_in(frm);
  return !engine_name.empty() && strcasecmp(engine_name.c_str(), "Terrace");
}

void Keeper::trouble(const std::string &text)
{
  if (!had_trouble)
    sql_print_warning("Terrace: definitions are not kept for backups: %s", text.c_str());
  had_trouble= true;
}

/** What the engine has, the first time. */
bool Keeper::read()
{
  if (is_read)
    return true;
  files.clear();
  OwnTable kept(TABLE_NAME, true);
  if (!kept.is_open())
    return false;
  const int32_t code= walk(kept.txn, kept.table, 0, nullptr, [&](const uchar *key, size_t key_len, const uchar *row, size_t row_len) {
    if (key_len < 5 || row_len < HEAD || uint4korr(key + key_len - 4) || row[0] != FORMAT)
      return true;
    KeptFile file;
    file.length= uint4korr(row + 1);
    file.crc= uint4korr(row + 5);
    files[std::string(reinterpret_cast<const char *>(key), key_len - 5)]= file;
    return true;
  });
  return is_read= !code;
}

/** A file that may have changed. Returns false if it changes at this moment. */
bool Keeper::look_at(const std::string &path, const fs::path &file, std::vector<Changed> *changed)
{
  Stamp before, after;
  if (!stamp_of(file, false, &before))
    return true;
  const auto kept= files.find(path);
  if (kept != files.end() && kept->second.stamp.same(before))
    return true;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  std::string bytes= text.str();
  if (!in || !stamp_of(file, false, &after) || after.time != before.time || after.size != before.size || after.inode != before.inode ||
      bytes.size() != before.size || !is_whole(file.extension().string(), bytes))
    return false;
  if (file.extension() == ".frm" && is_of_others(file))
  {
    if (kept != files.end())
      changed->push_back({path, {}, {}});
    return true;
  }
  if (kept != files.end() && kept->second.length == bytes.size() && kept->second.crc == my_crc32c(0, bytes.data(), bytes.size()))
    kept->second.stamp= before;
  else
    changed->push_back({path, std::move(bytes), before});
  return true;
}

/** The definitions of a database. Returns false if they must be looked at again. */
bool Keeper::look_in(const std::string &database, const Stamp &stamp, std::vector<Changed> *changed)
{
  const fs::path place= fs::path(mysql_real_data_home) / database;
  std::error_code error;
  std::set<std::string> there;
  bool settled= stamp.is_sure;
  for (const fs::directory_entry &one : fs::directory_iterator(place, error))
  {
    if (!is_kept_kind(one.path()))
      continue;
    const std::string path= database + "/" + one.path().filename().string();
    there.insert(path);
    settled&= look_at(path, one.path(), changed);
  }
  if (error)
    return false;
  for (auto at= files.lower_bound(database + "/"); at != files.end() && !at->first.compare(0, database.size() + 1, database + "/"); ++at)
    if (!there.count(at->first))
      changed->push_back({at->first, {}, {}});
  return settled;
}

bool Keeper::look(std::vector<Changed> *changed)
{
  std::error_code error;
  std::set<std::string> there;
  for (const fs::directory_entry &one : fs::directory_iterator(mysql_real_data_home, error))
  {
    const std::string name= one.path().filename().string();
    Stamp stamp;
    if (!is_database(name) || !stamp_of(one.path(), true, &stamp) || fs::exists(one.path() / "superblock", error))
      continue;
    there.insert(name);
    // The options of a database are written in place.
    const Stamp &before= directories[name];
    if (!before.same(stamp) || !stamp.is_sure)
    {
      stamp.is_sure= look_in(name, stamp, changed);
      directories[name]= stamp;
    }
    else
      look_at(name + "/db.opt", one.path() / "db.opt", changed);
  }
  if (error)
  {
    trouble("the data directory can't be read: " + error.message());
    return false;
  }
  for (auto at= directories.begin(); at != directories.end();)
    at= there.count(at->first) ? std::next(at) : directories.erase(at);
  for (const auto &file : files)
    if (!there.count(file.first.substr(0, file.first.find(FN_LIBCHAR))))
      changed->push_back({file.first, {}, {}});
  return true;
}

/** Removes from `changed` what is to be forgotten although the engine has the tables. */
static bool keep_orphaned(std::vector<Changed> *changed, std::set<std::string> *unsettled)
{
  const auto is_gone= [](const Changed &one) { return !one.bytes; };
  if (std::none_of(changed->begin(), changed->end(), is_gone))
    return true;
  Tables tables;
  if (!list_shown(&tables))
    return false;
  const auto has= [&](const std::string &start, bool whole) {
    const auto at= tables.lower_bound(start);
    return at != tables.end() && !at->first.compare(0, start.size(), start) && (!whole || table_of(at->first) == start);
  };
  const auto is_needed= [&](const Changed &one) {
    if (one.bytes)
      return false;
    const std::string database= one.path.substr(0, one.path.find(FN_LIBCHAR) + 1);
    std::error_code error;
    const bool lost= !fs::is_directory(fs::path(mysql_real_data_home) / database, error);
    const std::string table= one.path.substr(0, one.path.rfind('.'));
    const bool needed= lost ? has(database, false) : is_definition_of_table(one.path) && !has_file(table, fs::path(one.path).extension().c_str()) && has(table, true);
    if (needed)
      unsettled->insert(database.substr(0, database.size() - 1));
    return needed;
  };
  changed->erase(std::remove_if(changed->begin(), changed->end(), is_needed), changed->end());
  return true;
}

static std::string key_of(const std::string &path, uint32 part)
{
  char number[4];
  mi_int4store(number, part);
  return path + '\0' + std::string(number, sizeof number);
}

static size_t parts_of(size_t length) { return length ? (length + PART - 1) / PART : 1; }

static int32_t put(OwnTable *kept, const std::string &path, const std::string &bytes, uint32 crc)
{
  char head[HEAD]= {FORMAT};
  int4store(head + 1, bytes.size());
  int4store(head + 5, crc);
  for (size_t part= 0; part < parts_of(bytes.size()); part++)
  {
    const std::string row= (part ? std::string() : std::string(head, HEAD)) + bytes.substr(part * PART, PART);
    if (const int32_t code= kept->put(key_of(path, part), row))
      return code;
  }
  return TERRACE_OK;
}

/** Durable when it returns. What could not be written is found again by the next look. */
int32_t Keeper::write(const std::vector<Changed> &changed)
{
  for (size_t at= 0; at < changed.size();)
  {
    OwnTable kept(TABLE_NAME, true);
    if (!kept.is_open())
      return TERRACE_INVALID;
    const size_t from= at;
    for (size_t bytes= 0; at < changed.size() && bytes < AT_ONCE; at++)
    {
      const Changed &one= changed[at];
      const auto before= files.find(one.path);
      size_t part= one.bytes ? parts_of(one.bytes->size()) : 0;
      if (one.bytes)
        if (const int32_t code= put(&kept, one.path, *one.bytes, my_crc32c(0, one.bytes->data(), one.bytes->size())))
          return code;
      for (; before != files.end() && part < parts_of(before->second.length); part++)
        if (const int32_t code= kept.remove(key_of(one.path, part)); code && code != TERRACE_NO_ROW)
          return code;
      bytes+= one.bytes ? one.bytes->size() + PART : PART;
    }
    if (const int32_t code= kept.commit(true))
      return code;
    for (size_t one= from; one < at; one++)
    {
      if (!changed[one].bytes)
        files.erase(changed[one].path);
      else
        files[changed[one].path]= {(uint32) changed[one].bytes->size(), my_crc32c(0, changed[one].bytes->data(), changed[one].bytes->size()), changed[one].stamp};
    }
  }
  return TERRACE_OK;
}

static void keep_now()
{
  const ulonglong began= now_ns() / 1000000;
  std::vector<Changed> changed;
  std::set<std::string> unsettled;
  if (!keeper.read())
    return keeper.trouble(last_message());
  if (!keeper.look(&changed))
    return;
  const bool listed= keep_orphaned(&changed, &unsettled);
  const int32_t code= listed ? keeper.write(changed) : TERRACE_INVALID;
  for (const Changed &one : changed)
    if (code)
      unsettled.insert(one.path.substr(0, one.path.find(FN_LIBCHAR)));
  for (const std::string &database : unsettled)
    keeper.directories.erase(database);
  if (code)
  {
    // What a transaction that failed has written is not known.
    keeper.is_read= false;
    return keeper.trouble(last_message());
  }
  if (keeper.had_trouble)
    sql_print_information("Terrace: definitions are kept again");
  keeper.had_trouble= false;
  kept_ms= began;
}

void keep_definitions()
{
  std::lock_guard<std::mutex> lock(keeper.mutex);
  if (!engine)
    return;
  try
  {
    keep_now();
  }
  catch (const fs::filesystem_error &error)
  {
    // A directory can be opened, but not be read to its end.
    keeper.directories.clear();
    keeper.trouble(error.what());
  }
}

ulonglong definitions_kept_ms() { return kept_ms; }

static std::thread thread;
static std::mutex waiting;
static std::condition_variable wake;
static bool ending;

static void keep()
{
  const Shown_thread shown("definitions");
  std::unique_lock<std::mutex> lock(waiting);
  while (!wake.wait_for(lock, EVERY, [] { return ending; }))
  {
    lock.unlock();
    keep_definitions();
    lock.lock();
  }
}

void start_keeping_definitions()
{
  ending= false;
  thread= std::thread(keep);
}

void stop_keeping_definitions()
{
  if (!thread.joinable())
    return;
  {
    std::lock_guard<std::mutex> lock(waiting);
    ending= true;
  }
  wake.notify_all();
  thread.join();
}

} // namespace terrace
