/* SPDX-License-Identifier: GPL-2.0-only */
#include "put_aside.h"
#include "definition_files.h"
#include "errors.h"
#include "failed_drops.h"
#include "globals.h"
#include "in_doubt.h"

namespace terrace {

namespace fs= std::filesystem;

/** The table's partitions among `tables`, or the table itself. */
static std::vector<std::string> parts_of(const std::string &table, const Tables &tables)
{
  std::vector<std::string> parts;
  for (auto at= tables.lower_bound(table); at != tables.end() && !at->first.compare(0, table.size(), table); ++at)
    if (table_of(at->first) == table)
      parts.push_back(at->first);
  return parts;
}

/** Whether every partition that the list names exists. */
static bool has_listed(const std::string &table, const Tables &tables)
{
  const std::vector<std::string> names= names_in(file_of(table, ".par"));
  for (const std::string &name : names)
    if (!tables.count(table + MARK + name))
      return false;
  return !names.empty();
}

static bool is_version_defined(const std::string &version)
{
  bool found= false;
  for_each_definition([&](const std::string &, const std::string &other) { found= found || other == version; });
  return found;
}

/**
  DROP TABLE removes the list of partitions first, and keeps the definition if a partition can't be dropped. The definition may have a later
  version than its partitions, from an ALTER that changed only the list.
*/
static bool is_half_dropped(const std::string &name)
{
  const std::string table= table_of(name);
  return is_partition(name) && !has_file(table, ".par") && is_of_partitions(table) && engine_in(file_of(table, ".frm")) == "Terrace";
}

void finish_drops()
{
  Tables all, left;
  if (!list_tables(&all) || !list_shown(&left))
    return;
  std::set<std::string> done;
  for (const auto &one : all)
    if (one.second.has(Properties::DROPPED) && is_half_dropped(shown(one.first)) && parts_of(table_of(shown(one.first)), left).empty())
      done.insert(table_of(shown(one.first)));
  for (const std::string &table : done)
  {
    remove_definition(table);
    sync_directory(table.substr(0, table.find(FN_LIBCHAR)));
  }
}

void undo_exchanges()
{
  static const char EXCHANGED[]= "/#sql-exchange-";
  Tables tables;
  if (!list_shown(&tables))
    return;
  for (const auto &one : tables)
  {
    const std::string &exchanged= one.first, &table= one.second.origin;
    const auto came= tables.find(table);
    if (exchanged.find(EXCHANGED) == std::string::npos || !one.second.has(Properties::RENAMED) || came == tables.end() ||
        !came->second.has(Properties::RENAMED) || came->second.statement != one.second.statement)
      continue;
    const std::string &partition= came->second.origin;
    if (!is_partition(partition) || tables.count(partition) || !is_defined(partition, ""))
      continue;
    Properties back= came->second, own= one.second;
    back.version= defined_version(partition);
    back.flags&= ~(Properties::RENAMED | Properties::REPLACED);
    own.flags&= ~(Properties::RENAMED | Properties::REPLACED);
    // If only the first of the two is done, the table is found by its version.
    if (redefine(table, partition, back) || redefine(exchanged, table, own))
      sql_print_error("Terrace: can't take back the exchange of %s with %s: %s", partition.c_str(), table.c_str(), last_message().c_str());
    else
      sql_print_information("Terrace: the exchange of %s with %s was interrupted: it is taken back", partition.c_str(), table.c_str());
  }
}

void do_failed_drops()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  bool all= true;
  std::set<std::string> half;
  for (const auto &one : failed_drops())
  {
    const std::string &name= one.first, &version= one.second;
    const auto found= tables.find(name);
    if (found == tables.end() || found->second.version != version)
      continue;
    const bool is_half= is_half_dropped(name);
    // A partition that a list names, and a table that has a definition under any name, keep their rows.
    const std::string table= table_of(name);
    const bool has_list= is_partition(name) && (has_file(table, ".par") || has_file(table, ".frm"));
    const bool may_go= has_list ? is_half || (has_listed(table, tables) && !is_defined(name, version)) : !is_version_defined(version);
    if (!may_go)
      continue;
    if (drop_now(name, name, found->second))
    {
      sql_print_warning("Terrace: can't drop %s: %s", name.c_str(), last_message().c_str());
      all= false;
      continue;
    }
    sql_print_information("Terrace: the drop of %s failed before: it is done", name.c_str());
    if (is_half)
      half.insert(table);
    tables.erase(found);
  }
  for (const std::string &table : half)
    if (parts_of(table, tables).empty())
      remove_definition(table);
  if (all)
    forget_failed_drops();
}

bool is_replaced(const std::string &name, const Properties &properties, const Tables &tables)
{
  const std::string origin= table_of(properties.origin), version= defined_version(origin);
  if (version.empty() || version == properties.version)
    return false;
  const bool is_whole= has_file(table_of(name), ".frm") && is_defined(name, properties.version);
  if (is_of_another_engine(origin))
    return !is_whole;
  for (const std::string &part : parts_of(origin, tables))
  {
    const Properties &other= tables.at(part);
    if (other.version == version && (!is_whole || (!properties.statement.empty() && other.statement == properties.statement)))
      return true;
  }
  return false;
}

/**
  The name that all these parts had before ALTER took it; empty if they don't belong to one table, or their definition isn't here. Partitions
  may have the versions of several definitions, as ALTERs made them, so their list is checked.
*/
static std::string origin_of(const std::string &table, const std::vector<std::string> &parts, const Tables &tables)
{
  std::string origin;
  for (const std::string &part : parts)
  {
    const Properties &properties= tables.at(part);
    const bool is_whole= has_file(table, ".frm") && !properties.version.empty() && is_defined(part, properties.version);
    if (!properties.has(Properties::REPLACED) || !is_whole || (!origin.empty() && origin != table_of(properties.origin)))
      return "";
    origin= table_of(properties.origin);
  }
  return !is_partition(parts.front()) || has_listed(table, tables) ? origin : "";
}

static void bring_back(const std::string &table, const std::string &origin, const std::vector<std::string> &parts, const Tables &tables)
{
  for (const std::string &part : parts)
  {
    Properties properties= tables.at(part);
    properties.flags&= ~(Properties::REPLACED | Properties::RENAMED);
    if (redefine(part, origin + part.substr(table.size()), properties))
    {
      sql_print_error("Terrace: can't rename %s, which an interrupted ALTER put aside: %s", part.c_str(), last_message().c_str());
      return;
    }
  }
  std::error_code error;
  if (is_partition(parts.front()))
    fs::rename(file_of(table, ".par"), file_of(origin, ".par"), error);
  if (error)
    sql_print_error("Terrace: can't rename %s.par to %s.par: %s", table.c_str(), origin.c_str(), error.message().c_str());
  else
    install_definition(table, origin);
}

void bring_back_put_aside()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  // Tables by their previous name. If there are several for a name, the right one can't be determined.
  std::map<std::string, std::set<std::string>> aside;
  for (const auto &one : tables)
    if (one.second.has(Properties::REPLACED) && is_passing_name(one.first))
    {
      const std::string table= table_of(one.first), origin= origin_of(table, parts_of(table, tables), tables);
      if (!origin.empty() && !is_passing_name(origin))
        aside[origin].insert(table);
    }
  for (const auto &one : aside)
  {
    const std::string &origin= one.first;
    const bool taken= has_file(origin, ".frm") || has_file(origin, ".par") || !parts_of(origin, tables).empty();
    if (!taken && one.second.size() == 1)
      bring_back(*one.second.begin(), origin, parts_of(*one.second.begin(), tables), tables);
  }
}

/** The message about a table that no definition names; empty if there is nothing to report. */
static std::string undefined(const std::string &name, const std::string &version)
{
  const std::string table= table_of(name);
  const size_t slash= table.find(FN_LIBCHAR);
  if (slash == std::string::npos)
    return "";
  if (is_passing_name(table) && has_file(table, ".frm"))
    return table + " was put aside by a statement that was interrupted, and has its rows: RENAME TABLE `#mysql50#" + table.substr(0, slash) +
           "`.`#mysql50#" + table.substr(slash + 1) + "` TO another name brings it back";
  if (is_defined(name, version))
    return "";
  if (!is_partition(name) || (has_file(table, ".par") && !has_file(table, ".frm")))
    return name + " has rows, and the server has no definition of it (" + table + ".frm): it stays until DROP DATABASE";
  // Partitions without a list are reported elsewhere, by the code that looks for them.
  return has_file(table, ".par") ? "the list of partitions of " + table + " doesn't name " + name + ": it stays until DROP DATABASE" : "";
}

void name_undefined()
{
  Tables tables;
  if (!list_shown(&tables))
    return;
  std::set<std::string> told;
  for (const auto &one : tables)
  {
    const std::string text= one.second.has(Properties::TEMPORARY) ? "" : undefined(one.first, one.second.version);
    if (!text.empty() && told.insert(text).second)
      sql_print_error("Terrace: %s", text.c_str());
  }
}

} // namespace terrace
