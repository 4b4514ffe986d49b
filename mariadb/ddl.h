/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_DDL_H
#define TERRACE_DDL_H

#include "server.h"
#include <string>
#include <vector>

namespace terrace {

/** The engine's name of a table, from the server's path. */
std::string table_name(const char *path);
/** Puts the calls about definitions into the handlerton. */
void fill_definition_calls(handlerton *into);
/** The properties of a table that is not the server's. */
std::string plain_properties();
/** Foreign keys that a CREATE or ALTER TABLE declares: an error, true, or by the session's setting a warning for each. */
bool refuse_foreign_keys(THD *thd);
/**
  ROW_FORMAT=FIXED or PAGE, which no table of this engine's, nor of InnoDB's, has: true, or a warning if innodb_strict_mode is off. A format
  that is not asked for, but brought along from another engine or table, is accepted.
*/
bool refuse_row_format(THD *thd, const HA_CREATE_INFO *info);
void drop_left_temporary_tables();
/** The partitions of a table that the server has no definition of. `table` is the engine's name. */
std::vector<std::string> left_partitions(const std::string &table);
/** The partitions of the same table that another definition has made than the one of this version. `partition` is the engine's name. */
std::vector<std::string> partitions_of_others(const std::string &partition, const std::string &version);
/** Whether the server still brings to an end what a crash interrupted. */
bool server_recovers();
/** False: the partition is opened by a list that is not the one of its table's definition; the error log says so. `name` is the engine's. */
bool fits_definition(const TABLE *table, const handler *partition, const std::string &name);
void fill_partition_calls(handlerton *into);
/** Before the server recovers: partitions that an interrupted rename has parted go back, and those of tables that lost their list are noted. */
void remember_strays();
/** Under what a table's sample is kept; empty: it isn't. `name` is the engine's. */
std::string statistics_of(const terrace_table *table, const std::string &name);
void drop_left_statistics();

} // namespace terrace
#endif
