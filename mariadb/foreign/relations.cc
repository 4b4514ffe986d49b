/* SPDX-License-Identifier: GPL-2.0-only */
#include "relations.h"
#include "globals.h"
#include "in_doubt.h"
#include "link.h"
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>

namespace terrace {

namespace {

std::mutex guard;
std::atomic<ulonglong> generation{1};
/** Foreign keys by their tables; and, for a table that ALTER put aside, the name under which it counts. */
struct Known
{
  ForeignKeys keys;
  std::string counts_as;
};
std::map<std::string, Known> known;
/** The tables of `known` that refer to a table. */
std::map<std::string, std::set<std::string>> referring;

void forget(const std::string &name)
{
  const auto found= known.find(name);
  if (found == known.end())
    return;
  for (const ForeignKey &key : found->second.keys)
  {
    const auto all= referring.find(key.parent());
    if (all != referring.end() && all->second.erase(name) && all->second.empty())
      referring.erase(all);
  }
  known.erase(found);
}

void learn(const std::string &name, const Properties &properties)
{
  if (properties.has(Properties::DROPPED) || properties.foreign.empty())
    return;
  Known one;
  one.counts_as= is_passing_name(name) ? properties.has(Properties::REPLACED) ? properties.origin : "" : name;
  for (const std::string &bytes : properties.foreign)
  {
    one.keys.emplace_back();
    if (!one.keys.back().parse(bytes))
    {
      sql_print_error("Terrace: a foreign key of %s is damaged: it is not enforced", name.c_str());
      one.keys.pop_back();
    }
  }
  std::sort(one.keys.begin(), one.keys.end(), [](const ForeignKey &a, const ForeignKey &b) { return a.name < b.name; });
  for (const ForeignKey &key : one.keys)
    referring[key.parent()].insert(name);
  known[name]= std::move(one);
}

} // namespace

ulonglong relations_generation() { return generation.load(std::memory_order_acquire); }

std::shared_ptr<const Relations> relations_of(const std::string &name)
{
  std::lock_guard<std::mutex> lock(guard);
  const auto own= known.find(name);
  const auto others= referring.find(name);
  if (own == known.end() && others == referring.end())
    return nullptr;
  auto made= std::make_shared<Relations>();
  if (own != known.end())
    made->own= own->second.keys;
  std::set<std::pair<std::string, std::string>> seen;
  if (others != referring.end())
    for (const std::string &table : others->second)
    {
      const Known &child= known.at(table);
      // A copy that ALTER makes doesn't count: its original does.
      if (child.counts_as.empty())
        continue;
      for (const ForeignKey &key : child.keys)
        if (key.parent() == name && seen.emplace(child.counts_as, key.name).second)
          made->children.push_back({child.counts_as, key});
    }
  for (const ForeignKey &key : made->own)
    made->to_itself|= key.parent() == name;
  return made;
}

void note_relations(const std::vector<std::string> &names)
{
  std::vector<std::pair<std::string, Properties>> read;
  for (const std::string &name : names)
  {
    Properties properties;
    if (properties_of(name, &properties))
      properties= Properties();
    read.emplace_back(name, properties);
  }
  std::lock_guard<std::mutex> lock(guard);
  bool related= false;
  for (const auto &one : read)
  {
    related|= known.count(one.first) || referring.count(one.first) || !one.second.foreign.empty();
    forget(one.first);
  }
  for (const auto &one : read)
    learn(one.first, one.second);
  if (related)
    generation.fetch_add(1, std::memory_order_release);
}

void read_relations()
{
  Tables tables;
  if (!list_tables(&tables))
    return;
  std::lock_guard<std::mutex> lock(guard);
  known.clear();
  referring.clear();
  for (const auto &one : tables)
    learn(one.first, one.second);
  generation.fetch_add(1, std::memory_order_release);
}

std::vector<Relations::Child> all_foreign_keys()
{
  std::vector<Relations::Child> all;
  std::lock_guard<std::mutex> lock(guard);
  for (const auto &one : known)
    if (one.second.counts_as == one.first)
      for (const ForeignKey &key : one.second.keys)
        all.push_back({one.first, key});
  return all;
}

int32_t edit_referring(const std::string &name, const std::function<void(ForeignKey *)> &edit, Redefinitions *all)
{
  std::set<std::string> tables;
  {
    std::lock_guard<std::mutex> lock(guard);
    const auto others= referring.find(name);
    if (others != referring.end())
      tables= others->second;
  }
  for (const std::string &table : tables)
  {
    if (table == name)
      continue;
    Properties properties;
    if (const int32_t code= properties_of(table, &properties))
      return code;
    for (std::string &bytes : properties.foreign)
    {
      ForeignKey key;
      if (!key.parse(bytes) || key.parent() != name)
        continue;
      edit(&key);
      bytes= key.bytes();
    }
    all->emplace_back(table, properties.bytes());
  }
  return 0;
}

int lock_referring(THD *thd, const std::string &name)
{
  const auto relations= relations_of(name);
  if (relations)
    for (const Relations::Child &child : relations->children)
      if (child.table != name)
        if (int error= lock_definition(thd, child.table, MDL_SHARED_UPGRADABLE))
          return error;
  return 0;
}

bool cascades_come_back(const std::string &name)
{
  std::lock_guard<std::mutex> lock(guard);
  std::set<std::string> seen;
  std::vector<std::string> next= {name};
  while (!next.empty())
  {
    const std::string parent= next.back();
    next.pop_back();
    const auto others= referring.find(parent);
    if (others == referring.end())
      continue;
    for (const std::string &table : others->second)
    {
      const Known &child= known.at(table);
      for (const ForeignKey &key : child.keys)
      {
        if (!key.modifies() || key.parent() != parent || child.counts_as.empty())
          continue;
        if (child.counts_as == name)
          return true;
        if (seen.insert(child.counts_as).second)
          next.push_back(child.counts_as);
      }
    }
  }
  return false;
}

bool has_constraint_beside(const std::string &table, const std::string &constraint)
{
  const std::string database= table.substr(0, table.find(FN_LIBCHAR) + 1);
  std::lock_guard<std::mutex> lock(guard);
  for (auto at= known.lower_bound(database); at != known.end() && !at->first.compare(0, database.size(), database); ++at)
    if (at->second.counts_as != table && !at->second.counts_as.empty())
      for (const ForeignKey &key : at->second.keys)
        if (same_name(key.name, constraint))
          return true;
  return false;
}

} // namespace terrace
