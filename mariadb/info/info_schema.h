/* SPDX-License-Identifier: GPL-2.0-only */
/*
  information_schema.TERRACE_SPACES: which tiers hold the pages of each table and index. TERRACE_IO: the requests made to the devices and
  the object store.
*/
#ifndef TERRACE_INFO_SCHEMA_H
#define TERRACE_INFO_SCHEMA_H

#include "server.h"
#include <string>

/* The columns that identify a table, as in information_schema.PARTITIONS. store_table fills them. */
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
int start_foreign(void *place);
int start_foreign_cols(void *place);

/** Decodes `db/table` (for a partition with `#P#partition#SP#subpartition`) from file name encoding into plain names. */
std::string name_of_table(const std::string &path);
/** Stores the same names in the TERRACE_TABLE_COLUMNS, the first of which is `field`. Returns the field after them. */
Field **store_table(Field **field, const std::string &path);

} // namespace terrace
#endif
