/* SPDX-License-Identifier: GPL-2.0-only */
#include "definition_files.h"
#include "in_doubt.h"
#include "globals.h"
#include "mysqld.h"
#include "handler.h"
#include "unireg.h"
#include "sql_table.h"
#include <algorithm>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace terrace {

/* A list (.par) consists of words of 4 bytes: its length in words, a checksum, the number of partitions, the engine of each partition
   (a byte each), the length of the names, and the names, each terminated by a zero. */
static const size_t WORD= 4, COUNT_AT= 8, ENGINES_AT= 12;

namespace fs= std::filesystem;

bool is_partition(const std::string &name)
{
  return name.find(MARK) != std::string::npos;
}

std::string table_of(const std::string &name)
{
  return name.substr(0, name.find(MARK));
}

fs::path file_of(const std::string &table, const char *extension)
{
  return fs::path(mysql_real_data_home) / (table + extension);
}

bool has_file(const std::string &table, const char *extension)
{
  std::error_code error;
  return fs::exists(file_of(table, extension), error) || error;
}

static size_t words(size_t bytes) { return (bytes + WORD - 1) / WORD * WORD; }

std::vector<std::string> names_in(const fs::path &file, bool whosever)
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
  if (count == 0 || count > list.size() || names_at > list.size() || (!whosever && bytes[ENGINES_AT] != (uchar) hton->db_type))
    return names;
  size_t at= names_at;
  for (size_t one= 0; one < count && at < list.size(); one++)
  {
    names.emplace_back(list.c_str() + at);
    at+= names.back().size() + 1;
  }
  return names;
}

std::string version_in(const fs::path &frm)
{
  static const size_t HEAD= 64;
  std::ifstream in(frm, std::ios::binary);
  std::string text(4096, 0);
  in.read(&text[0], text.size());
  text.resize(in.gcount());
  const uchar *bytes= reinterpret_cast<const uchar *>(text.data());
  // Each field is a type, a length and `length` bytes; the version is the first field and has type 0.
  if (text.size() < HEAD + 2 || bytes[0] != 0xfe || bytes[1] != 1 || bytes[HEAD] != 0 || text.size() < HEAD + 2 + bytes[HEAD + 1])
    return "";
  return text.substr(HEAD + 2, bytes[HEAD + 1]);
}

/** The engine of a partitioned table. It is one of the fields, each a type, a length and `length` bytes. */
static std::string partitions_engine_in(const std::string &frm, size_t at)
{
  const uchar *bytes= reinterpret_cast<const uchar *>(frm.data());
  const size_t end= std::min(frm.size(), at + uint2korr(bytes + 4));
  while (at + 3 <= end)
  {
    const uchar type= bytes[at++];
    size_t length= bytes[at++];
    if (!length)
    {
      if (at + 2 > end)
        return "";
      length= uint2korr(bytes + at);
      at+= 2;
    }
    if (length > end - at)
      return "";
    if (type == EXTRA2_DEFAULT_PART_ENGINE)
      return frm.substr(at, length);
    at+= length;
  }
  return "";
}

std::string engine_in(const fs::path &file)
{
  static const size_t HEAD= 64;
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  const std::string frm= text.str();
  const uchar *bytes= reinterpret_cast<const uchar *>(frm.data());
  if (!in || frm.size() <= HEAD || bytes[0] != 0xfe || bytes[1] != 1)
    return "";
  if (bytes[3] == DB_TYPE_PARTITION_DB)
    return partitions_engine_in(frm, HEAD);
  // The row of defaults is followed by the connection's length, the connection, the engine's length, the engine.
  const size_t keys= uint2korr(bytes + 14);
  size_t at= uint2korr(bytes + 6) + (keys == 0xffff ? uint4korr(bytes + 47) : keys) + uint2korr(bytes + 16);
  if (at + 2 > frm.size() || (at+= 2 + uint2korr(bytes + at)) + 2 > frm.size())
    return "";
  const size_t length= uint2korr(bytes + at);
  return at + 2 + length > frm.size() ? "" : frm.substr(at + 2, length);
}

/** The engine's number in a table's definition; 0 if there is no such file. The server's own engines have fixed numbers; this engine gets
    a new one at each start. */
static uchar engine_number(const std::string &table)
{
  static const size_t ENGINE_AT= 3;
  std::ifstream in(file_of(table, ".frm"), std::ios::binary);
  uchar head[ENGINE_AT + 1];
  if (!in.read(reinterpret_cast<char *>(head), sizeof head) || head[0] != 0xfe || head[1] != 1)
    return 0;
  return head[ENGINE_AT];
}

bool is_of_another_engine(const std::string &table)
{
  const uchar number= engine_number(table);
  return number && number < DB_TYPE_FIRST_DYNAMIC && number != DB_TYPE_PARTITION_DB;
}

bool is_of_partitions(const std::string &table) { return engine_number(table) == DB_TYPE_PARTITION_DB; }

void for_each_file(const char *extension, const std::function<void(const fs::path &, const std::string &)> &each)
{
  std::error_code error;
  for (const fs::directory_entry &database : fs::directory_iterator(mysql_real_data_home, error))
    if (database.is_directory(error))
      for (const fs::directory_entry &file : fs::directory_iterator(database.path(), error))
        if (file.path().extension() == extension)
          each(file.path(), database.path().filename().string() + "/" + file.path().stem().string());
}

void for_each_definition(const std::function<void(const std::string &, const std::string &)> &each)
{
  for_each_file(".frm", [&](const fs::path &frm, const std::string &table) {
    const std::string version= version_in(frm);
    if (!version.empty())
      each(table, version);
  });
}

std::string defined_version(const std::string &name)
{
  return version_in(file_of(table_of(name), ".frm"));
}

bool is_defined(const std::string &name, const std::string &version)
{
  const std::string table= table_of(name);
  if (!has_file(table, ".frm"))
    return false;
  if (!is_partition(name))
  {
    const std::string defined= defined_version(name);
    return defined.empty() || version.empty() || defined == version;
  }
  const std::vector<std::string> names= names_in(file_of(table, ".par"));
  return std::find(names.begin(), names.end(), name.substr(table.size() + sizeof MARK - 1)) != names.end();
}

std::string named_in(const std::string &passing, const std::string &start)
{
  const size_t name= passing.find(FN_LIBCHAR) + 1, dash= passing.find('-', name + start.size());
  if (passing.compare(name, start.size(), start) || dash == std::string::npos)
    return "";
  char table[FN_REFLEN];
  tablename_to_filename(passing.c_str() + dash + 1, table, sizeof table);
  return passing.substr(0, name) + table;
}

void sync_directory(const std::string &database)
{
  const int file= open((fs::path(mysql_real_data_home) / database).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0)
    return;                             // DROP DATABASE has removed it
  if (fsync(file))
    sql_print_warning("Terrace: can't sync the directory of database %s: error %d", database.c_str(), errno);
  close(file);
}

static void sync_file(const fs::path &path)
{
  const int file= open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0)
    return;                             // the file has been removed
  if (fsync(file))
    sql_print_warning("Terrace: can't sync %s: error %d", path.c_str(), errno);
  close(file);
}

void sync_ddl_log()
{
  char name[FN_REFLEN];
  fn_format(name, opt_ddl_recovery_file, mysql_real_data_home, ".log", MYF(MY_REPLACE_EXT));
  sync_file(name);
}

void sync_list(const std::string &table)
{
  sync_file(file_of(table, ".par"));
}

void sync_lists(const std::string &table)
{
  const size_t name= table.find(FN_LIBCHAR) + 1;
  const std::string plain= table.substr(name);
  std::error_code error;
  // The server writes the new list next to the old one, as #sql-shadow-…-table or #sql-alter-….
  for (const fs::directory_entry &file : fs::directory_iterator(fs::path(mysql_real_data_home) / table.substr(0, name), error))
  {
    const std::string stem= file.path().stem().string();
    if (file.path().extension() == ".par" && (stem == plain || stem[0] == '#'))
      sync_file(file.path());
  }
}

void install_definition(const std::string &from, const std::string &to)
{
  std::error_code error;
  fs::rename(file_of(from, ".frm"), file_of(to, ".frm"), error);
  if (error)
    sql_print_warning("Terrace: can't make %s.frm the definition of %s: %s", from.c_str(), to.c_str(), error.message().c_str());
  else
    sql_print_information("Terrace: a statement was interrupted: %s has its definition, which was %s.frm", to.c_str(), from.c_str());
  sync_directory(to.substr(0, to.find(FN_LIBCHAR)));
}

void remove_definition(const std::string &table)
{
  std::error_code error;
  if (!fs::remove(file_of(table, ".frm"), error))
    sql_print_warning("Terrace: can't remove %s.frm: %s", table.c_str(), error.message().c_str());
  else
    sql_print_information("Terrace: %s.frm was left by an interrupted statement and is removed", table.c_str());
}

/* The prefix of a kept definition's name, in its database. */
static const char KEPT[]= "#sql-terrace-kept-";

void keep_definition_file(const std::string &table)
{
  const size_t name= table.find(FN_LIBCHAR) + 1;
  const std::string plain= table.substr(table[name] == '#' ? name + 1 : name);
  std::error_code error;
  fs::create_hard_link(file_of(table, ".frm"), file_of(table.substr(0, name) + KEPT + plain, ".frm"), error);
}

void forget_definitions()
{
  std::vector<fs::path> kept;
  for_each_file(".frm", [&](const fs::path &frm, const std::string &) {
    if (!frm.filename().string().compare(0, sizeof KEPT - 1, KEPT))
      kept.push_back(frm);
  });
  std::error_code error;
  for (const fs::path &frm : kept)
    fs::remove(frm, error);
}

} // namespace terrace
