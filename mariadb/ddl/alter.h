/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_ALTER_H
#define TERRACE_ALTER_H

#include "server.h"
#include "row_layouts.h"
#include <string>
#include <vector>

struct terrace_table;

namespace terrace {

/** The properties that the engine stores with a table for the server (see ddl.cc). */
std::string make_properties(uchar flags, const TABLE *table, const std::string &layouts, const std::vector<std::string> &foreign);
/** Reads the layouts of a table's rows. @return false if its properties are damaged */
bool read_layouts(const terrace_table *table, RowLayouts *layouts);

/* Operations after which rows of earlier layouts have columns too many or too few. */
const alter_table_operations COLUMNS=
  ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_NULLABLE;

/** Whether rows stored for one table are valid rows of the other. Virtual columns may be added and dropped. */
bool same_columns(const TABLE *before, const TABLE *after);
/** Whether rows of one table can be read as rows of the other, including their virtual columns. */
bool same_records(const TABLE *before, const TABLE *after);

/** How the texts of a column are stored. */
enum class TextKind { NONE, CHAR, VARCHAR, BLOB };
TextKind text_kind(const Type_handler *type);
/** Whether texts in one character set have the same bytes and the same meaning in the other. */
bool reads_as(CHARSET_INFO *one, CHARSET_INFO *other);

/** How a change of definition maps a table's columns, where no stored row is changed. */
struct ColumnChange
{
  std::vector<uint16> moved;            // indexed by old column number: the new number, or RowLayouts::DROPPED
  std::vector<uint16> added;            // the numbers of added stored columns
  bool counts= false;                   // an added column has AUTO_INCREMENT: each row gets its own value

  bool loses_null= false;               // a column becomes NOT NULL: each row must be checked
  bool loses_timestamp_null= false;     // that column is a TIMESTAMP: a copy would store the statement's time

  /** @return false if rows must be copied */
  bool follow(const TABLE *before, const TABLE *after, const Alter_inplace_info *info);
  /** Fills `values` with the values of existing rows in the added columns. @return false if they aren't the same for all rows */
  bool values(TABLE *after, std::vector<RowLayouts::Added> *values) const;
};

} // namespace terrace
#endif
