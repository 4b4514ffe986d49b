/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Partitions that a crash parted from their table. The server renames, creates and drops a table's partitions one by one, and the list
  of them (.par) before or after them; its own recovery looks at the list, and so leaves what lies between, with any engine.

  After the server's recovery, partitions whose table has no list are looked at: where another table's list names a partition that the
  engine lacks, a rename was interrupted, and it is brought back. A list without a definition (.frm) was parted from it: it and its
  partitions follow the definition that has their version and no list. What belongs to nobody is named in the error log and stays until
  DROP TABLE or DROP DATABASE is told of it: a data directory may be lost for other reasons, and the rows not with it.
*/
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "mysqld.h"
#include "handler.h"
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace terrace {

static const char MARK[]= "#P#";
/* A list: words of 4 bytes. Its length in words, a checksum, the number of partitions; a byte for each, its engine; the length of
   the names, the names, each ended by a zero. */
static const size_t WORD= 4, COUNT_AT= 8, ENGINES_AT= 12;

namespace fs= std::filesystem;

/** Whether the server has such a file of a table; if that can't be known, it has. */
static bool has_file(const std::string &table, const char *extension)
{
  std::error_code error;
  return fs::exists(fs::path(mysql_real_data_home) / (table + extension), error) || error;
}

static size_t words(size_t bytes) { return (bytes + WORD - 1) / WORD * WORD; }

/** The names that a list has, if its partitions are this engine's. */
static std::vector<std::string> names_in(const fs::path &file)
{
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string list= text.str();
  const uchar *bytes= reinterpret_cast<const uchar *>(list.data());
  std::vector<std::string> names;
  if (!in || list.size() < ENGINES_AT + WORD)
    return names;
  const size_t count= uint4korr(bytes + COUNT_AT), names_at= ENGINES_AT + words(count) + WORD;
  if (count == 0 || count > list.size() || names_at > list.size() || bytes[ENGINES_AT] != (uchar) hton->db_type)
    return names;
  size_t at= names_at;
  for (size_t one= 0; one < count && at < list.size(); one++)
  {
    names.emplace_back(list.c_str() + at);
    at+= names.back().size() + 1;
  }
  return names;
}

/* The engine's tables, each with the version of its definition. */
typedef std::map<std::string, std::string> Tables;

static void list_name(void *context, terrace_bytes name, terrace_bytes properties)
{
  (*static_cast<Tables *>(context))[std::string(reinterpret_cast<const char *>(name.data), name.len)]= version_of(properties);
}

/** The version in a definition of the server's; empty: there is none. */
static std::string version_in(const fs::path &frm)
{
  static const size_t HEAD= 64;
  std::ifstream in(frm, std::ios::binary);
  std::string text(4096, 0);
  in.read(&text[0], text.size());
  text.resize(in.gcount());
  const uchar *bytes= reinterpret_cast<const uchar *>(text.data());
  // Fields of a type, a length and so many bytes; the version is the first, of type 0.
  if (text.size() < HEAD + 2 || bytes[0] != 0xfe || bytes[1] != 1 || bytes[HEAD] != 0 || text.size() < HEAD + 2 + bytes[HEAD + 1])
    return "";
  return text.substr(HEAD + 2, bytes[HEAD + 1]);
}

/** Partitions without a list, by what follows the table's name. */
static std::multimap<std::string, std::string> strays(const Tables &tables)
{
  std::multimap<std::string, std::string> found;
  for (const auto &one : tables)
  {
    const std::string &name= one.first;
    const size_t mark= name.find(MARK);
    if (mark != std::string::npos && !has_file(name.substr(0, mark), ".par"))
      found.emplace(name.substr(mark), name);
  }
  return found;
}

static std::atomic<bool> recovering{true};

bool server_recovers() { return recovering; }

/** Calls `each` with every file of this extension in a database, and its table. */
template <class Each> static void for_each_file(const char *extension, Each each)
{
  std::error_code error;
  for (const fs::directory_entry &database : fs::directory_iterator(mysql_real_data_home, error))
    if (database.is_directory(error))
      for (const fs::directory_entry &file : fs::directory_iterator(database.path(), error))
        if (file.path().extension() == extension)
          each(file.path(), database.path().filename().string() + "/" + file.path().stem().string());
}

/** Whether each partition has this version, by the name of the list or by that of the definition. */
static bool are_of(const std::vector<std::string> &names, const std::string &listed, const std::string &defined,
                   const std::string &version, const Tables &tables)
{
  for (const std::string &name : names)
  {
    const auto one= tables.find(listed + MARK + name), other= tables.find(defined + MARK + name);
    if ((one == tables.end()) == (other == tables.end()) || (one == tables.end() ? other : one)->second != version)
      return false;
  }
  return !names.empty() && !version.empty();
}

/** A list without a definition, and its partitions, follow the definition. */
static void follow_definition(const fs::path &list, const std::string &listed, Tables *tables)
{
  const std::vector<std::string> names= names_in(list);
  std::vector<std::string> fitting;
  for_each_file(".frm", [&](const fs::path &frm, const std::string &table) {
    if (!names.empty() && !has_file(table, ".par") && are_of(names, listed, table, version_in(frm), *tables))
      fitting.push_back(table);
  });
  if (fitting.size() != 1)
    return;
  const std::string &defined= fitting[0];
  for (const std::string &name : names)
  {
    const std::string from= listed + MARK + name, to= defined + MARK + name;
    if (!tables->count(from))
      continue;
    if (terrace_table_rename(engine, bytes_of(from), bytes_of(to)))
    {
      sql_print_warning("Terrace: can't rename %s to %s: %s", from.c_str(), to.c_str(), last_message().c_str());
      return;
    }
    (*tables)[to]= (*tables)[from];
    tables->erase(from);
  }
  std::error_code error;
  fs::rename(list, fs::path(mysql_real_data_home) / (defined + ".par"), error);
  if (error)
    sql_print_warning("Terrace: can't rename %s: %s", list.c_str(), error.message().c_str());
  else
    sql_print_information("Terrace: a rename was interrupted: the partitions of %s are those of %s", listed.c_str(), defined.c_str());
}

static void bring_back_partitions()
{
  Tables tables;
  if (terrace_table_list(engine, list_name, &tables))
    return;
  std::vector<std::pair<fs::path, std::string>> lists;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    if (!has_file(table, ".frm"))
      lists.emplace_back(list, table);
  });
  for (const auto &one : lists)
    follow_definition(one.first, one.second, &tables);
  std::multimap<std::string, std::string> stray= strays(tables);
  if (stray.empty())
    return;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    for (const std::string &partition : names_in(list))
    {
      const std::string suffix= MARK + partition, name= table + suffix;
      // Which of several it would be is not known.
      if (tables.count(name) || stray.count(suffix) != 1)
        continue;
      const std::string from= stray.find(suffix)->second;
      if (terrace_table_rename(engine, bytes_of(from), bytes_of(name)))
        sql_print_warning("Terrace: can't rename %s back to %s: %s", from.c_str(), name.c_str(), last_message().c_str());
      else
        sql_print_information("Terrace: a rename was interrupted: %s is %s again", from.c_str(), name.c_str());
      stray.erase(suffix);
    }
  });
  for (const auto &one : stray)
    sql_print_warning("Terrace: %s is a partition of no table of the server; DROP TABLE of its table removes it", one.second.c_str());
}

static int recovered(handlerton *)
{
  recovering= false;
  try
  {
    if (engine)
      bring_back_partitions();
  }
  catch (const fs::filesystem_error &error)
  {
    sql_print_warning("Terrace: can't look for partitions that a crash left: %s", error.what());
  }
  return 0;
}

std::vector<std::string> left_partitions(const std::string &table)
{
  Tables tables;
  std::vector<std::string> left;
  if (has_file(table, ".frm") || terrace_table_list(engine, list_name, &tables))
    return left;
  const std::string start= table + MARK;
  for (auto at= tables.lower_bound(start); at != tables.end() && !at->first.compare(0, start.size(), start); ++at)
    left.push_back(at->first);
  return left;
}

void fill_partition_calls(handlerton *into)
{
  into->signal_ddl_recovery_done= recovered;
}

} // namespace terrace
