/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Options of a table. The server keeps them with its definition and shows them; the engine keeps what it needs of them in its
  catalog, because blocks sink before anybody opens a table.

    COMPRESSION   how the table's pages are compressed in objects: zstd, lz4, none; default is terrace_compression's. What is
                  stored stays as it is until its block is stored anew.
*/
#include "ha_terrace.h"
#include "globals.h"
#include "table_options.h"

namespace terrace {

static const char *const compressions[]= {"", "none", "lz4", "zstd"};

static ha_create_table_option options[]= {
  HA_TOPTION_ENUM("COMPRESSION", compression, "default,none,lz4,zstd", 0),
  HA_TOPTION_END};

void fill_table_options(handlerton *into)
{
  into->table_options= options;
}

int32_t apply_table_options(const std::string &name, const TABLE *definition)
{
  const ha_table_option_struct *given= definition->s->option_struct;
  const char *compression= compressions[given ? given->compression : 0];
  return terrace_table_set_compression(engine, bytes_of(name), bytes_of(compression, strlen(compression)));
}

} // namespace terrace
