/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_DDL_H
#define TERRACE_DDL_H

#include "server.h"
#include <string>
#include <vector>

namespace terrace {

/** The engine's name for the table at the server's path. */
std::string table_name(const char *path);
/** Sets the handlerton's functions for definitions. */
void fill_definition_calls(handlerton *into);
/** The properties of a table that the server doesn't know. */
std::string plain_properties();
/**
  Refuses ROW_FORMAT=FIXED or PAGE, which neither this engine nor InnoDB has: returns true, or warns if innodb_strict_mode is off. A format
  that the statement doesn't name, but that comes from another engine or table, is accepted.
*/
bool refuse_row_format(THD *thd, const HA_CREATE_INFO *info);
void drop_left_temporary_tables();
/** The partitions of a table for which the server has no definition. `table` is the engine's name. */
std::vector<std::string> left_partitions(const std::string &table);
/** The partitions of the same table that were made by a definition of another version. `partition` is the engine's name. */
std::vector<std::string> partitions_of_others(const std::string &partition, const std::string &version);
/** Whether the server is still recovering statements that a crash interrupted. */
bool server_recovers();
/** Returns false, and says so in the error log, if the partition is opened by a list other than that of its table's definition. `name` is the engine's. */
bool fits_definition(const TABLE *table, const handler *partition, const std::string &name);
void fill_partition_calls(handlerton *into);
/** Before the server recovers: moves back partitions that an interrupted rename separated from their table, and records those of tables that lost their list. */
void remember_strays();
/** The key under which a table's statistics sample is kept; empty if none is. `name` is the engine's. */
std::string statistics_of(const terrace_table *table, const std::string &name);
void drop_left_statistics();

} // namespace terrace
#endif
