/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What a row's change does to rows of other tables: CASCADE and SET NULL.

  A parent's handler opens no child. It takes a table from here: the one that the server has opened for the statement, because the handler names the children
  whose rows the statement may change (get_parent_foreign_key_list), or one that is opened here. A table that is taken is given to nobody else until it is
  given back. So each level of a cascade has a handler and records of its own, also in a table that the statement itself reads.

  The chain has the rows that are being changed, each because of the one before; the first is the statement's. By it a cascade ends: InnoDB's rules are that a
  row that is being deleted is not touched again, that a table of which a row is being updated is not updated again (error 1451), and that a chain has at
  most DEPTH_MAX rows (error 193).

  A row's entries stay until its children are changed. InnoDB deletes them index by index, and looks for the children of each index's key after it has deleted
  that index's entry. Each step of the chain knows the index at hand: of a row that is being deleted, the entries up to that index count as deleted.

  The savepoint is from before the first change of a row other than the statement's. If the statement's row fails, what cascaded from it is undone, because a
  statement with IGNORE goes on to the next row.

  All tables are given back, and those that were opened here closed, before the statement ends.
*/
#ifndef TERRACE_CASCADE_H
#define TERRACE_CASCADE_H

#include "server.h"
#include <memory>
#include <string>
#include <vector>

namespace terrace {

class Cascades
{
public:
  /** The most rows in a chain, as in InnoDB. */
  static const size_t DEPTH_MAX= 15;

  struct Step
  {
    const std::string *table;           // the engine's name
    std::string row;                    // the bytes of the primary key
    bool updates;                       // the row is updated; otherwise it is deleted
    uint index;                         // the server's number of the index of whose key the children are looked at
  };
  std::vector<Step> chain;
  bool updates(const std::string &table) const
  {
    for (const Step &step : chain)
      if (step.updates && *step.table == table)
        return true;
    return false;
  }
  /** Whether the row is being deleted, and its entry in the index counts as deleted. Index 0: the row itself. */
  bool deletes(const std::string &table, uint index, const uchar *row, size_t length) const
  {
    for (const Step &step : chain)
      if (!step.updates && step.index >= index && step.row.size() == length && !memcmp(step.row.data(), row, length) && *step.table == table)
        return true;
    return false;
  }
  /** Whether there is such a row. */
  bool deletes(const std::string &table, uint index) const
  {
    for (const Step &step : chain)
      if (!step.updates && step.index >= index && *step.table == table)
        return true;
    return false;
  }

  /** Null if nothing has cascaded from the statement's row yet. */
  terrace_savepoint *savepoint= nullptr;
  /** Of the last duplicate that a cascade met: the child's name, and its index. */
  std::string duplicate_table, duplicate_key;

  /** Whether take() gives a table without opening it. */
  bool is_open(THD *thd, const std::string &name) { return find(thd, name); }
  /** A table to change rows in. Null: `*error` is a handler error, or 0 if the engine has no such table. */
  TABLE *take(THD *thd, const std::string &name, int *error);
  void give_back(TABLE *table);
  /** Closes what was opened here. */
  void close_tables();

private:
  struct Open
  {
    std::string name;
    TABLE *table;
    bool taken;
    std::unique_ptr<TABLE_LIST> list;   // null: the server has opened the table
  };
  Open *find(THD *thd, const std::string &name);
  std::vector<std::unique_ptr<Open>> all;
};

} // namespace terrace
#endif
