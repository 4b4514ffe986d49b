/* SPDX-License-Identifier: GPL-2.0-only */
/* Options of a table and of an index in CREATE and ALTER. */
#ifndef TERRACE_TABLE_OPTIONS_H
#define TERRACE_TABLE_OPTIONS_H

#include "server.h"
#include <string>
#include <vector>

/* The server's names for them. */
struct ha_table_option_struct
{
  ulonglong flash_min, flash_max, buffer_min, buffer_max;
  ulonglong flash_iops, flash_bandwidth, volume_iops, volume_bandwidth, object_iops, object_bandwidth;
  ulonglong flash_write_iops, flash_write_bandwidth, volume_write_iops, volume_write_bandwidth,
    object_write_iops, object_write_bandwidth;
  /* PLACEMENT: a place in the list of its values. */
  uint placement;
  /* COMPRESSION: the same. */
  uint compression;
  /* WRITE_POLICY: the same. */
  uint write_policy;
};
struct ha_index_option_struct
{
  uint placement;
};

namespace terrace {

void fill_table_options(handlerton *into);

/** What a definition says, as the engine takes it. Valid as long as the definition. */
class TableOptions
{
public:
  explicit TableOptions(const TABLE *definition);
  TableOptions(const TableOptions &)= delete;
  TableOptions &operator=(const TableOptions &)= delete;
  const terrace_table_options *get() const { return &all; }
  /** Tells the engine of its table `name`. A code of the engine's. */
  int32_t apply(const std::string &name) const;

private:
  terrace_table_options all= {};
  std::vector<terrace_placement> indexes;
};

} // namespace terrace

#endif
