/* SPDX-License-Identifier: GPL-2.0-only */
/*
  CONVERT PARTITION … TO TABLE and CONVERT TABLE … TO PARTITION.

  The server records in its DDL log that the table's definition and partition list must be restored, and only then moves them aside. Its
  recovery removes the files in their place before it looks for those that were moved aside. After a crash between the two steps it therefore
  removes the only copies, with any engine. So both files get a second name (a hard link) before the engine renames the partition, and keep
  it until the statement ends.
*/
#ifndef TERRACE_CONVERT_H
#define TERRACE_CONVERT_H

#include "server.h"
#include <string>

namespace terrace {

/** Raises an error and returns true if the statement converts a partition into a table with the name of the partitioned table: the server would overwrite its definition. */
bool refuse_converted_to_itself(THD *thd, const TABLE_SHARE *table);
/** If the statement converts a partition: keeps its table's definition and list. `before` and `after` are the engine's names before and after the rename. */
void keep_converted(THD *thd, const std::string &before, const std::string &after);
/** Whether the table's definition and list are kept. */
bool is_converted(const std::string &table);
/** After the statement has ended or the server has recovered: restores those of the table's files that are lost, and removes the second names. */
void settle_converted(const std::string &table);
/** Does the same for all tables after a crash. */
void settle_all_converted();
/** Removes definitions of tables that are partitions now: the server had removed them, and recorded that before the removal was durable. */
void remove_converted_definitions();

} // namespace terrace
#endif
