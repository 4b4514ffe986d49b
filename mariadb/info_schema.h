/* SPDX-License-Identifier: GPL-2.0-only */
/*
  information_schema.TERRACE_SPACES: where the pages of each table and index are. TERRACE_IO: what was asked of the
  devices and the store.
*/
#ifndef TERRACE_INFO_SCHEMA_H
#define TERRACE_INFO_SCHEMA_H

#include "server.h"
#include <string>

/* Which table: as information_schema.PARTITIONS has it. store_table fills them. */
#define TERRACE_TABLE_COLUMNS \
  Column("TABLE_SCHEMA", Varchar(NAME_LEN), NOT_NULL), \
  Column("TABLE_NAME", Varchar(NAME_LEN), NOT_NULL), \
  Column("PARTITION_NAME", Varchar(NAME_LEN), NULLABLE), \
  Column("SUBPARTITION_NAME", Varchar(NAME_LEN), NULLABLE)

namespace terrace {

extern struct st_mysql_information_schema info_schema_interface;
int start_spaces(void *place);
int start_io(void *place);
int start_rules(void *place);

/** `db/table` in file name encoding, with `#P#partition#SP#subpartition` where it is one → the same in names. */
std::string name_of_table(const std::string &path);
/** The same into the columns of TERRACE_TABLE_COLUMNS, of which the first is `field`. Returns the field behind them. */
Field **store_table(Field **field, const std::string &path);

} // namespace terrace
#endif
