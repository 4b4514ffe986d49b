/* SPDX-License-Identifier: GPL-2.0-only */
/* Options of a table and of an index in CREATE and ALTER. */
#ifndef TERRACE_TABLE_OPTIONS_H
#define TERRACE_TABLE_OPTIONS_H

#include "server.h"
#include <string>
#include <vector>

/* Those that are numbers: their names in SQL, and in the structures. */
#define TERRACE_NUMBER_OPTIONS(EACH) \
  EACH("FLASH_MIN", flash_min) EACH("FLASH_MAX", flash_max) EACH("BUFFER_MIN", buffer_min) EACH("BUFFER_MAX", buffer_max) \
  EACH("FLASH_IOPS", flash_iops) EACH("FLASH_BANDWIDTH", flash_bandwidth) \
  EACH("VOLUME_IOPS", volume_iops) EACH("VOLUME_BANDWIDTH", volume_bandwidth) \
  EACH("OBJECT_IOPS", object_iops) EACH("OBJECT_BANDWIDTH", object_bandwidth) \
  EACH("FLASH_WRITE_IOPS", flash_write_iops) EACH("FLASH_WRITE_BANDWIDTH", flash_write_bandwidth) \
  EACH("VOLUME_WRITE_IOPS", volume_write_iops) EACH("VOLUME_WRITE_BANDWIDTH", volume_write_bandwidth) \
  EACH("OBJECT_WRITE_IOPS", object_write_iops) EACH("OBJECT_WRITE_BANDWIDTH", object_write_bandwidth)

/* The server's names for them. */
struct ha_table_option_struct
{
  /* Numbers as they were written; null: not given. */
#define TERRACE_TEXT(name, field) char *field;
  TERRACE_NUMBER_OPTIONS(TERRACE_TEXT)
#undef TERRACE_TEXT
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

/**
  An option of the definition that should be a number and is none: an error, true. Not what the table's definition `before` (may be
  null) said already, as it opened with that. Where the server only warns of bad options, so does this.
*/
bool refuse_options(THD *thd, const TABLE *definition, const TABLE *before);

/** The same in the error log, of a table that is opened; once. */
void log_options(const TABLE *definition);

/**
  A KEY_BLOCK_SIZE that InnoDB refuses, or has no use for beside the ROW_FORMAT: true after a warning, or without innodb_strict_mode the warning
  alone. Not what the table's definition `before` (may be null) said already.
*/
bool refuse_block_size(THD *thd, const TABLE *definition, const TABLE *before);

/** Whether the statement itself says options, and doesn't only take along those of a table that is there. */
bool says_options(THD *thd);

/** A warning: the engine has refused what a definition says, which the statement has taken along, and goes on without. */
void warn_without_rules(THD *thd, const std::string &name);

/** A warning, if the statement gives rules to a temporary table, which has none. */
void warn_of_rules(THD *thd, const TABLE *definition);

/** A note, if the statement gives rules that are about a tier that there is not. */
void note_absent_tiers(THD *thd, const TABLE *definition);

/** What a definition says, as the engine takes it. What is no number counts as not given. Valid as long as the definition. */
class TableOptions
{
public:
  explicit TableOptions(const TABLE *definition);
  TableOptions(const TableOptions &)= delete;
  TableOptions &operator=(const TableOptions &)= delete;
  const terrace_table_options *get() const { return &all; }
  /** Tells the engine of its table `name`, which is to take the place of another, if that is not empty. A code of the engine's. */
  int32_t apply(const std::string &name, const std::string &instead_of) const;

private:
  terrace_table_options all= {};
  std::vector<terrace_placement> indexes;
};

} // namespace terrace

#endif
