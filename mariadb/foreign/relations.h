/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Which table refers to which by foreign keys.

  A child's properties, in the engine's catalog, have its foreign keys. What is here is made of them: read from the catalog at the start, and of a table
  again after each change of its properties or name. Each change raises the generation; whoever keeps something made of relations or of the definition of
  a related table compares it.

  A change of the catalog is made under an exclusive metadata lock on the table; then comes note_relations(). Between the two, and between the two
  renames of a copying ALTER, relations are those before: a table that ALTER puts aside counts under its previous name. So whoever finds a
  relation locks the other table's metadata first, then compares the generation.
*/
#ifndef TERRACE_RELATIONS_H
#define TERRACE_RELATIONS_H

#include "foreign_key.h"
#include <functional>
#include <memory>
#include <utility>

namespace terrace {

/** One table's foreign keys, and those of other tables, or its own, that refer to it. Never changes. */
struct Relations
{
  struct Child
  {
    std::string table;                  // the engine's name
    ForeignKey key;
  };
  ForeignKeys own;                      // by name
  std::vector<Child> children;
  bool to_itself= false;
  /** A table other than this one that refers to it; null if there is none. */
  const Child *other_child(const std::string &table) const
  {
    for (const Child &child : children)
      if (child.table != table)
        return &child;
    return nullptr;
  }
};

ulonglong relations_generation();
/** Null if the table has none. `name` is the engine's. */
std::shared_ptr<const Relations> relations_of(const std::string &name);
/** Reads the properties of these tables again, after they were created, changed, renamed or dropped. */
void note_relations(const std::vector<std::string> &names);
/** Reads those of all tables. */
void read_relations();
/** All tables' foreign keys. */
std::vector<Relations::Child> all_foreign_keys();
/** Tables, by their names in the catalog, with the properties that they are to have. */
typedef std::vector<std::pair<std::string, std::string>> Redefinitions;
/**
  Changes, by `edit`, the foreign keys of other tables that refer to the table; `all` gets these tables, and nothing is stored. Returns an engine code.
  `name` is the engine's.
*/
int32_t edit_referring(const std::string &name, const std::function<void(ForeignKey *)> &edit, Redefinitions *all);
/** Keeps the other tables that refer to it as they are defined until the transaction ends. Raises an error and returns a handler error if that fails. */
int lock_referring(THD *thd, const std::string &name);
/** Whether a change of a row of the table may, by cascades, change other rows of the table. `name` is the engine's. */
bool cascades_come_back(const std::string &name);
/** Whether another table than `table`, in the same database, has a constraint of this name. Names are the engine's. */
bool has_constraint_beside(const std::string &table, const std::string &constraint);

} // namespace terrace
#endif
