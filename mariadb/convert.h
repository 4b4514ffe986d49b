/* SPDX-License-Identifier: GPL-2.0-only */
/*
  CONVERT PARTITION … TO TABLE and CONVERT TABLE … TO PARTITION.

  The server notes in its log of DDL that the table's definition and list are to be put back, and only then puts them aside. Its recovery
  removes what stands in their place before it looks for what was put aside: after a crash between the two it removes the only ones that
  there are, with any engine. So both have a second name from before the engine renames the partition until the statement ends.
*/
#ifndef TERRACE_CONVERT_H
#define TERRACE_CONVERT_H

#include "server.h"
#include <string>

namespace terrace {

/** Says so if the statement converts a partition into a table of its own table's name: the server would write that one's definition over this one's. */
bool refuse_converted_to_itself(THD *thd, const TABLE_SHARE *table);
/** If the statement converts a partition: keeps its table's definition and list. Names are the engine's, before and after the rename. */
void keep_converted(THD *thd, const std::string &before, const std::string &after);
/** Whether the table's definition and list are kept. */
bool is_converted(const std::string &table);
/** The statement has ended, or the server has recovered: what of the table's files is lost is put back, and the second names go. */
void settle_converted(const std::string &table);
/** The same after a crash, for all tables. */
void settle_all_converted();
/** Definitions of tables that are partitions now: the server removed them, and noted it before that was durable. */
void remove_converted_definitions();

} // namespace terrace
#endif
