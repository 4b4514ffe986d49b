/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Partitions that a crash parted from their table. The server renames, creates and drops a table's partitions one by one, and the list
  of them (.par) before or after them; its own recovery looks at the list, and so leaves what lies between, with any engine.

  After the server's recovery, partitions whose table has no list are looked at: where another table's list names a partition that the
  engine lacks, a rename was interrupted, and it is brought back. A list without a definition (.frm) was parted from it: they
  come together again, by the version that the partitions have. What belongs to nobody is named in the error log and stays until
  DROP TABLE or DROP DATABASE is told of it: a data directory may be lost for other reasons, and the rows not with it.

  The server opens a table by its list, and never compares it with the definition: with fewer partitions in the list it crashes, with others
  it looks for rows in the wrong ones. So each partition that is opened asks whether they agree. (A statement that names only partitions
  past the end of a list that is too short, and opens the table, ends the server all the same: it opens none, and takes one's lock count.)
*/
#include "convert.h"
#include "ddl.h"
#include "definition_files.h"
#include "errors.h"
#include "globals.h"
#include "relations.h"
#include "ha_terrace.h"
#include "in_doubt.h"
#include "sql_table.h"
#include "partition_info.h"
#include "ha_partition.h"
#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

namespace terrace {

namespace fs= std::filesystem;

bool list_shown(Tables *tables)
{
  if (!list_tables(tables))
    return false;
  for (auto at= tables->begin(); at != tables->end();)
    at= at->second.has(Properties::DROPPED) ? tables->erase(at) : std::next(at);
  return true;
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

/** Whether each partition has this version, by the name of the list or by that of the definition. */
static bool are_of(const std::vector<std::string> &names, const std::string &listed, const std::string &defined,
                   const std::string &version, const Tables &tables)
{
  for (const std::string &name : names)
  {
    const auto one= tables.find(listed + MARK + name), other= tables.find(defined + MARK + name);
    if ((one == tables.end()) == (other == tables.end()) || (one == tables.end() ? other : one)->second.version != version)
      return false;
  }
  return !names.empty() && !version.empty();
}

/** Partitions that have a table's name come under another one's, and are found so in `tables`. False: that failed. */
static bool rename_partitions(const std::vector<std::string> &names, const std::string &from_table, const std::string &to_table, Tables *tables)
{
  for (const std::string &name : names)
  {
    const std::string from= from_table + MARK + name, to= to_table + MARK + name;
    if (!tables->count(from))
      continue;
    if (terrace_table_rename(engine, bytes_of(from), bytes_of(to)))
    {
      sql_print_warning("Terrace: can't rename %s to %s: %s", from.c_str(), to.c_str(), last_message().c_str());
      return false;
    }
    (*tables)[to]= (*tables)[from];
    tables->erase(from);
  }
  return true;
}

/** Whether all partitions have the list's name, and one statement renamed them to it. `origin` is set to their table's name before that statement. */
static bool were_renamed(const std::vector<std::string> &names, const std::string &listed, const Tables &tables, std::string *origin)
{
  std::string statement;
  for (const std::string &name : names)
  {
    const auto one= tables.find(listed + MARK + name);
    if (one == tables.end() || !one->second.has(Properties::RENAMED) || one->second.statement.empty() ||
        (!statement.empty() && one->second.statement != statement))
      return false;
    statement= one->second.statement;
    *origin= table_of(one->second.origin);
  }
  return !statement.empty();
}

/**
  The definition that RENAME left behind, where the versions don't tell: a change of some partitions gives the definition a version that the
  others do not have. It is the definition of a partitioned table that has no list and whose name no partition has. If there are several, it is
  the one with the name that the partitions had before the statement; the result is empty if none has it.
*/
static std::string left_behind(const std::vector<std::string> &names, const std::string &listed, const Tables &tables)
{
  std::string origin;
  if (is_passing_name(listed) || !were_renamed(names, listed, tables, &origin))
    return "";
  std::vector<std::string> possible;
  for_each_file(".frm", [&](const fs::path &frm, const std::string &table) {
    const auto first= tables.lower_bound(table + MARK);
    const bool has_partitions= first != tables.end() && table_of(first->first) == table;
    if (!is_passing_name(table) && !has_file(table, ".par") && !has_partitions && is_of_partitions(table) && engine_in(frm) == "Terrace")
      possible.push_back(table);
  });
  if (possible.size() == 1)
    return possible[0];
  return std::count(possible.begin(), possible.end(), origin) ? origin : "";
}

/**
  A list without a definition, and the definition that its partitions have come together. The server renames partitions, list and definition in
  this order. In RENAME the definition follows: the server may have noted, and even begun, the statement's next rename, to the name that the
  definition left, and takes that one back first, with the definition that it finds there. In ALTER the list goes back: the server's recovery goes by
  the definitions.
*/
static void join_definition(const fs::path &list, const std::string &listed, Tables *tables)
{
  const std::vector<std::string> names= names_in(list, recovering);
  std::vector<std::string> fitting;
  for_each_file(".frm", [&](const fs::path &frm, const std::string &table) {
    if (!names.empty() && !has_file(table, ".par") && are_of(names, listed, table, version_in(frm), *tables))
      fitting.push_back(table);
  });
  // The server's recovery takes a rename of partitions back only if the definition has the name that they have.
  if (const std::string left= fitting.empty() && recovering ? left_behind(names, listed, *tables) : ""; !left.empty())
    fitting.push_back(left);
  if (fitting.size() != 1)
    return;
  const std::string &defined= fitting[0];
  if (!is_passing_name(listed) && !is_passing_name(defined))
  {
    if (rename_partitions(names, defined, listed, tables))
      install_definition(defined, listed);
    return;
  }
  if (!rename_partitions(names, listed, defined, tables))
    return;
  std::error_code error;
  fs::rename(list, file_of(defined, ".par"), error);
  if (error)
    sql_print_warning("Terrace: can't rename %s: %s", list.c_str(), error.message().c_str());
  else
    sql_print_information("Terrace: a rename was interrupted: the partitions of %s are those of %s", listed.c_str(), defined.c_str());
}

/**
  Partitions that REORGANIZE made, and that have their name still from before the old ones were dropped: with the list, they are the
  table's.
*/
static void take_new_names(Tables *tables)
{
  static const char NEW[]= "#TMP#";
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    for (const std::string &partition : names_in(list))
    {
      const std::string name= table + MARK + partition, made= name + NEW;
      if (tables->count(name) || !tables->count(made))
        continue;
      if (terrace_table_rename(engine, bytes_of(made), bytes_of(name)))
        sql_print_warning("Terrace: can't rename %s to %s: %s", made.c_str(), name.c_str(), last_message().c_str());
      else
        sql_print_information("Terrace: a change of partitions was interrupted: %s is %s", made.c_str(), name.c_str());
      (*tables)[name]= (*tables)[made];
      tables->erase(made);
    }
  });
}

/**
  ADD PARTITION puts its new definition and list in the place of the old ones when the partitions are made, and notes that this is
  done. The note may be durable, and the directory not: then they stand under their first name still, or the list does.
*/
static void install_lists(const Tables &tables)
{
  std::vector<std::pair<std::string, std::string>> lists;
  for_each_file(".par", [&](const fs::path &list, const std::string &shadow) {
    const std::string table= named_in(shadow, "#sql-shadow-");
    if (table.empty() || has_file(table, ".par") || has_file(table, ".frm") == has_file(shadow, ".frm"))
      return;
    const std::vector<std::string> names= names_in(list);
    const bool all= std::all_of(names.begin(), names.end(), [&](const std::string &name) { return tables.count(table + MARK + name); });
    if (all && !names.empty())
      lists.emplace_back(shadow, table);
  });
  for (const auto &[shadow, table] : lists)
  {
    std::error_code error;
    fs::rename(file_of(shadow, ".par"), file_of(table, ".par"), error);
    if (error)
      sql_print_warning("Terrace: can't rename %s.par to %s.par: %s", shadow.c_str(), table.c_str(), error.message().c_str());
    else if (has_file(shadow, ".frm"))
      install_definition(shadow, table);
    else
      sync_directory(table.substr(0, table.find(FN_LIBCHAR)));
  }
}

typedef std::multimap<std::string, std::string>::const_iterator Stray;

/**
  The stray that is this partition: ALTER put it aside, or it alone has the definition's version, or there is no other. Else it is not
  known which it would be: the end. What ALTER put aside goes to no other table than its own; and what a list without a definition
  names, as an ALTER in place leaves it, need not be there at all, and another table's partition may have the same name.
*/
static Stray parted_from(const std::string &name, const std::string &version, std::pair<Stray, Stray> range, const Tables &tables)
{
  Stray found= range.second;
  uint count= 0;
  for (Stray at= range.first; at != range.second; ++at)
  {
    const Properties &properties= tables.at(at->second);
    const bool is_put_aside= properties.has(Properties::REPLACED), is_its_own= properties.origin == name;
    if (is_put_aside && is_its_own)
      return at;
    const bool is_only= std::next(range.first) == range.second && !is_put_aside && (is_its_own || !version.empty());
    if ((properties.version == version && !version.empty()) || is_only)
    {
      found= at;
      count++;
    }
  }
  return count == 1 ? found : range.second;
}

/** Partitions that have gone from their table without its list follow it back: a rename was interrupted. `stray`: by what follows the table's name. */
static void unite(std::multimap<std::string, std::string> stray, const Tables &tables)
{
  if (stray.empty())
    return;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    const std::string version= defined_version(table);
    // While the engine starts it has no number yet that a list could name; and what a change of partitions has left is the server's.
    if (recovering && (is_passing_name(table) || engine_in(file_of(table, ".frm")) != "Terrace"))
      return;
    for (const std::string &partition : names_in(list, recovering))
    {
      const std::string suffix= MARK + partition, name= table + suffix;
      if (tables.count(name))
        continue;
      const auto range= stray.equal_range(suffix);
      const auto found= parted_from(name, version, range, tables);
      if (found == range.second)
        continue;
      const std::string from= found->second;
      Properties properties= tables.at(from);
      properties.flags&= ~(Properties::REPLACED | Properties::RENAMED);
      if (redefine(from, name, properties))
        sql_print_warning("Terrace: can't rename %s back to %s: %s", from.c_str(), name.c_str(), last_message().c_str());
      else
        sql_print_information("Terrace: a rename was interrupted: %s is %s again", from.c_str(), name.c_str());
      stray.erase(found);
    }
  });
}

static void bring_back_partitions()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  take_new_names(&tables);
  install_lists(tables);
  std::vector<std::pair<fs::path, std::string>> lists;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    if (!has_file(table, ".frm"))
      lists.emplace_back(list, table);
  });
  for (const auto &one : lists)
    join_definition(one.first, one.second, &tables);
  unite(strays(tables), tables);
}

/** Tables whose partitions have lost their list, but not their definition: the server was dropping them, and goes on with it. */
static std::set<std::string> being_dropped;

void remember_strays()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  // Those of a rename that was interrupted come together first, with list and definition: the server takes renames back, this one
  // and those before it, by names that they stand under.
  std::vector<std::pair<fs::path, std::string>> lists;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    if (!has_file(table, ".frm") && !is_passing_name(table) && !is_converted(table))
      lists.emplace_back(list, table);
  });
  for (const auto &[list, table] : lists)
    join_definition(list, table, &tables);
  std::multimap<std::string, std::string> renamed;
  for (const auto &one : strays(tables))
  {
    const std::string table= table_of(one.second);
    if (!defined_version(table).empty())
      being_dropped.insert(table);
    else if (!has_file(table, ".frm"))
      renamed.insert(one);
  }
  unite(renamed, tables);
}

static void drop_strays()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  for (const auto &one : strays(tables))
  {
    const std::string &name= one.second, table= table_of(name);
    if (!being_dropped.count(table) || has_file(table, ".frm"))
      sql_print_warning("Terrace: %s is a partition of no table of the server; DROP TABLE of its table removes it", name.c_str());
    else if (terrace_table_drop(engine, bytes_of(name)))
      sql_print_warning("Terrace: can't drop %s: %s", name.c_str(), last_message().c_str());
    else
      sql_print_information("Terrace: the drop of %s was interrupted: it is done", name.c_str());
  }
  being_dropped.clear();
}

/**
  Lists of partitions that there are none of, and lists without a word, both without a definition: the server made them for a table
  that it then did not make.
*/
static void remove_lists()
{
  Tables tables;
  if (!list_tables(&tables))
    return;
  std::vector<fs::path> left;
  for_each_file(".par", [&](const fs::path &list, const std::string &table) {
    const auto first= tables.lower_bound(table + MARK);
    const bool has_partitions= first != tables.end() && table_of(first->first) == table;
    std::error_code error;
    const bool is_mine= fs::file_size(list, error) == 0 || !names_in(list).empty();
    if (!has_file(table, ".frm") && !has_partitions && is_mine)
      left.push_back(list);
  });
  std::error_code error;
  for (const fs::path &list : left)
    if (!fs::remove(list, error))
      sql_print_warning("Terrace: can't remove %s: %s", list.c_str(), error.message().c_str());
}

static int recovered(handlerton *)
{
  recovering= false;
  try
  {
    if (engine)
    {
      settle_all_converted();
      bring_back_partitions();
      settle_all();
      drop_strays();
      remove_lists();
      read_relations();
    }
  }
  catch (const fs::filesystem_error &error)
  {
    sql_print_warning("Terrace: can't look for what a crash left: %s", error.what());
  }
  return 0;
}

std::vector<std::string> left_partitions(const std::string &table)
{
  Tables tables;
  std::vector<std::string> left;
  if (has_file(table, ".frm") || !list_tables(&tables))
    return left;
  const std::string start= table + MARK;
  for (auto at= tables.lower_bound(start); at != tables.end() && !at->first.compare(0, start.size(), start); ++at)
    left.push_back(at->first);
  return left;
}

std::vector<std::string> partitions_of_others(const std::string &partition, const std::string &version)
{
  Tables tables;
  std::vector<std::string> others;
  if (!list_tables(&tables))
    return others;
  const std::string start= table_of(partition) + MARK;
  for (auto at= tables.lower_bound(start); at != tables.end() && !at->first.compare(0, start.size(), start); ++at)
    if (!at->second.has(Properties::DROPPED) && at->second.version != version)
      others.push_back(at->first);
  return others;
}

/** What the list of a table would be by its definition, as the server writes it. */
static std::vector<std::string> names_by_definition(partition_info *info)
{
  std::vector<std::string> names;
  char part[FN_REFLEN], sub[FN_REFLEN];
  List_iterator<partition_element> parts(info->partitions);
  while (const partition_element *one= parts++)
  {
    tablename_to_filename(one->partition_name, part, sizeof part);
    if (!info->is_sub_partitioned())
      names.push_back(part);
    List_iterator<partition_element> subs(const_cast<partition_element *>(one)->subpartitions);
    while (const partition_element *other= subs++)
    {
      tablename_to_filename(other->partition_name, sub, sizeof sub);
      names.push_back(std::string(part) + "#SP#" + sub);
    }
  }
  return names;
}

bool fits_definition(const TABLE *table, const handler *partition, const std::string &name)
{
  // One that comes later, to a table that is open, is not in the definition yet.
  if (!is_partition(name) || !table->part_info || table->file->ref)
    return true;
  uint listed= 0;
  table->file->get_no_parts("", &listed);
  const std::string of= table_of(name);
  bool fits= listed == table->part_info->get_tot_partitions();
  // The names once for each time that the table is opened: by the first that is, for a statement may name those that it wants.
  const uint first= bitmap_get_first_set(&table->part_info->read_partitions);
  if (fits && (first == MY_BIT_NONE || static_cast<ha_partition *>(table->file)->get_child_handlers()[first] == partition))
    fits= names_in(file_of(of, ".par"), true) == names_by_definition(table->part_info);
  if (!fits)
    log_error_once(of + " can't be opened: its list of partitions (.par) is of another definition than its .frm");
  return fits;
}

/**
  The server has made a list of partitions, or given it another name. It syncs neither: a file system may bring the name to the disk, with the
  next fsync of anything else, and the words only later.
*/
static int list_changed(const char *path, const char *, chf_create_flags what)
{
  const std::string table= table_name(path ? path : "");
  if (what == CHF_CREATE_FLAG)
    sync_list(table);
  if (what == CHF_RENAME_FLAG)
    sync_directory(table.substr(0, table.find(FN_LIBCHAR)));
  return 0;
}

void fill_partition_calls(handlerton *into)
{
  into->create_partitioning_metadata= list_changed;
  into->signal_ddl_recovery_done= recovered;
}

} // namespace terrace

/**
  The server puts the options of a partition that ALTER adds into the definition that all who open the table share, and forgets them there:
  they end with the statement, and where that fails the definition stays. Who opened the table next read what was freed. What it said before
  is put back.
*/
void ha_terrace::put_back_options(const TABLE *form)
{
  // For a table that is open, not one that is being created.
  if (!form->part_info || !form->file || !form->file->ref || form->s->tmp_table != NO_TMP_TABLE)
    return;
  for (handler **part= static_cast<ha_partition *>(form->file)->get_child_handlers(); *part; part++)
  {
    const ha_terrace *open= static_cast<ha_terrace *>(*part);
    if (open->ht != terrace::hton || !open->m_table)
      continue;
    form->s->option_struct= open->m_shared_options;
    form->s->option_list= open->m_shared_list;
    return;
  }
}
