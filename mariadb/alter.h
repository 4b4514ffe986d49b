/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_ALTER_H
#define TERRACE_ALTER_H

#include "server.h"
#include "row_layouts.h"
#include <string>
#include <vector>

struct terrace_table;

namespace terrace {

/** What the engine keeps of a table for the server (see ddl.cc). */
std::string make_properties(uchar flags, const TABLE *table, const std::string &layouts);
/** The layouts of a table's rows. @return false if its properties are damaged */
bool read_layouts(const terrace_table *table, RowLayouts *layouts);

/* Columns that rows of earlier layouts have or lack. */
const alter_table_operations COLUMNS=
  ALTER_ADD_STORED_BASE_COLUMN | ALTER_DROP_STORED_COLUMN | ALTER_STORED_COLUMN_ORDER | ALTER_COLUMN_NULLABLE;

/** Whether rows stored for the one table are rows of the other. Virtual columns come and go. */
bool same_columns(const TABLE *before, const TABLE *after);
/** Whether rows of the one can be read as rows of the other, their virtual columns with them. */
bool same_records(const TABLE *before, const TABLE *after);

/** How the texts of a column are kept. */
enum class TextKind { NONE, CHAR, VARCHAR, BLOB };
TextKind text_kind(const Type_handler *type);
/** Whether texts of the one character set are the same bytes, and mean the same, in the other. */
bool reads_as(CHARSET_INFO *one, CHARSET_INFO *other);

/** What becomes of a table's columns, where no row is changed. */
struct ColumnChange
{
  std::vector<uint16> moved;            // by old number: the new one, or RowLayouts::DROPPED
  std::vector<uint16> added;            // new numbers of new columns that are stored
  bool counts= false;                   // one of them has AUTO_INCREMENT: each row gets its own value

  bool loses_null= false;               // a column has no NULL any more: each row is looked at
  bool loses_timestamp_null= false;     // of a TIMESTAMP a copy makes the statement's time

  /** @return false if rows must be copied */
  bool follow(const TABLE *before, const TABLE *after, const Alter_inplace_info *info);
  /** Fills `values` with what rows have in the new columns. @return false if that isn't one value for all */
  bool values(TABLE *after, std::vector<RowLayouts::Added> *values) const;
};

} // namespace terrace
#endif
