/* SPDX-License-Identifier: GPL-2.0-only */
/* The options of tables and indexes in CREATE and ALTER. */
#ifndef TERRACE_TABLE_OPTIONS_H
#define TERRACE_TABLE_OPTIONS_H

#include "server.h"
#include <string>
#include <vector>

/* The numeric options: their names in SQL and in the structures. */
#define TERRACE_NUMBER_OPTIONS(EACH) \
  EACH("FLASH_MIN", flash_min) EACH("FLASH_MAX", flash_max) EACH("BUFFER_MIN", buffer_min) EACH("BUFFER_MAX", buffer_max) \
  EACH("FLASH_IOPS", flash_iops) EACH("FLASH_BANDWIDTH", flash_bandwidth) \
  EACH("VOLUME_IOPS", volume_iops) EACH("VOLUME_BANDWIDTH", volume_bandwidth) \
  EACH("OBJECT_IOPS", object_iops) EACH("OBJECT_BANDWIDTH", object_bandwidth) \
  EACH("FLASH_WRITE_IOPS", flash_write_iops) EACH("FLASH_WRITE_BANDWIDTH", flash_write_bandwidth) \
  EACH("VOLUME_WRITE_IOPS", volume_write_iops) EACH("VOLUME_WRITE_BANDWIDTH", volume_write_bandwidth) \
  EACH("OBJECT_WRITE_IOPS", object_write_iops) EACH("OBJECT_WRITE_BANDWIDTH", object_write_bandwidth)

/* The server requires the names of these structures. */
struct ha_table_option_struct
{
  /* Numbers as written in the statement; null: not given. */
#define TERRACE_TEXT(name, field) char *field;
  TERRACE_NUMBER_OPTIONS(TERRACE_TEXT)
#undef TERRACE_TEXT
  /* PLACEMENT: a position in the list of its values. */
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
  For an option of the definition that should be a number but isn't: raises an error and returns true. An option that the table's definition
  `before` (may be null) had already is accepted, as the table could be opened with it. If the server only warns of bad options, so does this.
*/
bool refuse_options(THD *thd, const TABLE *definition, const TABLE *before);

/** Reports such options in the error log when a table is opened, each only once. */
void log_options(const TABLE *definition);

/**
  For a KEY_BLOCK_SIZE that InnoDB refuses, or that is meaningless with the ROW_FORMAT: warns and returns true, or without innodb_strict_mode
  only warns. A KEY_BLOCK_SIZE that the table's definition `before` (may be null) had already is accepted.
*/
bool refuse_block_size(THD *thd, const TABLE *definition, const TABLE *before);

/** Whether the statement itself gives options, rather than only copying those of an existing table. */
bool says_options(THD *thd);

/** Warns that the engine has refused rules of a definition that the statement only copies, and continues without them. */
void warn_without_rules(THD *thd, const std::string &name);

/** Warns if the statement gives rules to a temporary table, which can't have any. */
void warn_of_rules(THD *thd, const TABLE *definition);

/** Raises a note if the statement gives rules for a tier that is not configured. */
void note_absent_tiers(THD *thd, const TABLE *definition);

/** The options of a definition in the engine's form. An option that isn't a valid number counts as not given. Valid as long as the definition. */
class TableOptions
{
public:
  explicit TableOptions(const TABLE *definition);
  TableOptions(const TableOptions &)= delete;
  TableOptions &operator=(const TableOptions &)= delete;
  const terrace_table_options *get() const { return &all; }
  /** Sets the options of the engine's table `name`, which will replace the table `instead_of` if that isn't empty. Returns an engine code. */
  int32_t apply(const std::string &name, const std::string &instead_of) const;

private:
  terrace_table_options all= {};
  std::vector<terrace_placement> indexes;
};

} // namespace terrace

#endif
