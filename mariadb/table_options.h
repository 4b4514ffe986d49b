/* SPDX-License-Identifier: GPL-2.0-only */
/* Options of a table in CREATE and ALTER TABLE. */
#ifndef TERRACE_TABLE_OPTIONS_H
#define TERRACE_TABLE_OPTIONS_H

#include "server.h"
#include <string>

/* The server's name for it. */
struct ha_table_option_struct
{
  /* COMPRESSION: a place in the list of its values. */
  uint compression;
};

namespace terrace {

void fill_table_options(handlerton *into);
/** Tells the engine what the definition says of the engine's table `name`. A code of the engine's. */
int32_t apply_table_options(const std::string &name, const TABLE *definition);

} // namespace terrace

#endif
