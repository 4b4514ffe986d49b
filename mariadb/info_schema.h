/* SPDX-License-Identifier: GPL-2.0-only */
/*
  information_schema.TERRACE_SPACES: where the pages of each table and index are. TERRACE_IO: what was asked of the
  devices and the store.
*/
#ifndef TERRACE_INFO_SCHEMA_H
#define TERRACE_INFO_SCHEMA_H

#include "server.h"
#include <string>

namespace terrace {

extern struct st_mysql_information_schema info_schema_interface;
int start_spaces(void *place);
int start_io(void *place);
int start_rules(void *place);

/** `db/table` in file name encoding → the same in names. */
std::string name_of_table(const std::string &path);

} // namespace terrace
#endif
