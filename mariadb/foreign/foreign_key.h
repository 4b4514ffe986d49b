/* SPDX-License-Identifier: GPL-2.0-only */
/*
  A foreign key, as its table's properties have it (properties.h):
    texts    constraint's name, the parent's database and table as the server names them, the name of the parent's index; each with its length (u16)
    1 byte   what DELETE of a parent does, 1 byte what UPDATE does (the server's enum_fk_option)
    u16      number of columns; the names of the columns, then those of the parent's columns, each with its length (u16)
*/
#ifndef TERRACE_FOREIGN_KEY_H
#define TERRACE_FOREIGN_KEY_H

#include "server.h"
#include <string>
#include <vector>

namespace terrace {

struct ForeignKey
{
  std::string name;                     // unique in the database of the table
  std::string parent_database, parent_table;
  std::string parent_index;             // when it was declared; empty: the parent wasn't there
  uchar on_delete= FK_OPTION_RESTRICT, on_update= FK_OPTION_RESTRICT;
  std::vector<std::string> columns, parent_columns;

  std::string bytes() const;
  /** @return false if the bytes are damaged */
  bool parse(const std::string &bytes);
  /** The engine's name of the parent. */
  std::string parent() const;
  /** As SHOW CREATE TABLE has it; the parent's database is left out if it is `database`. */
  std::string text(THD *thd, const std::string &database) const;
  /** Whether the parent's change may change rows of the table: that event's option. */
  static bool modifies(uchar option) { return option == FK_OPTION_CASCADE || option == FK_OPTION_SET_NULL; }
  bool modifies() const { return modifies(on_delete) || modifies(on_update); }
  bool is_named(const char *other) const { return !my_strcasecmp(system_charset_info, name.c_str(), other); }
};

typedef std::vector<ForeignKey> ForeignKeys;

/** The parts of an engine's name of a table, as the server names them. */
struct TableName
{
  explicit TableName(const std::string &engine_name);
  std::string database, table;
};
/** The engine's name of a table that the server names so. */
std::string engine_name_of(const std::string &database, const std::string &table);
/** The name, quoted as the session's SQL mode wants it. */
std::string quoted(THD *thd, const std::string &name);
/** `db`.`table`, quoted. */
std::string quoted(THD *thd, const TableName &name);
inline bool same_name(const std::string &one, const std::string &other)
{
  return !my_strcasecmp(system_charset_info, one.c_str(), other.c_str());
}

} // namespace terrace
#endif
