/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_DECLARED_H
#define TERRACE_DECLARED_H

#include "relations.h"

namespace terrace {

/**
  For foreign keys that a CREATE or ALTER TABLE declares: if terrace_foreign_keys doesn't enforce them, raises an error and returns true, or warns of
  each.
*/
bool refuse_foreign_keys(THD *thd);
/**
  The foreign keys of a table that a statement makes, as its properties will have them: those that it declares, and those of the table that it
  replaces (`replaced`, the engine's name; empty: none). Handler error.
*/
int declare_foreign_keys(THD *thd, const TABLE *form, HA_CREATE_INFO *info, const std::string &name, const std::string &replaced,
                         std::vector<std::string> *made);
/**
  The same for an ALTER in place. Returns true, with an error raised, if a foreign key of or to the table would break. `others`: tables that refer to a column
  which gets another name.
*/
bool keep_foreign_keys(THD *thd, const std::string &name, const TABLE *table, const TABLE *altered, Alter_inplace_info *info,
                       std::vector<std::string> *made, Redefinitions *others);
/** Whether foreign keys forbid the drop. Handler error. */
int refuse_drop(THD *thd, const std::string &name);
/** Changes the foreign keys of a table that gets another name, and those of other tables that refer to it, or refuses that. Handler error. */
int rename_foreign_keys(THD *thd, const std::string &before, const std::string &after, std::vector<std::string> *keys, Redefinitions *others);
/** Gives a table a name and properties, and in the same change other tables theirs. Returns an engine code. */
int32_t redefine_together(const std::string &before, const std::string &after, const std::string &properties, const Redefinitions &others);
/**
  After a crash: gives a table another name. Foreign keys that refer to it name it `shown` from then on. Returns an engine code.
*/
int32_t rename_with_keys(const std::string &before, const std::string &after, const std::string &shown);
/** If declarations are left out with a warning: the names of foreign keys that an ALTER drops and the table doesn't have. */
std::vector<std::string> absent_keys_dropped(THD *thd, const TABLE *table, const Relations *relations);

} // namespace terrace
#endif
