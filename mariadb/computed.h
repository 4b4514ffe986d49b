/* SPDX-License-Identifier: GPL-2.0-only */
/* What an ALTER means for what is computed of columns: virtual and stored ones, keys and partitions of them, constraints. */
#ifndef TERRACE_COMPUTED_H
#define TERRACE_COMPUTED_H

#include "server.h"
#include <vector>

namespace terrace {

/** Whether something computed from the column, or from what is, is stored or places a row; with `moved`: something that isn't dropped. */
bool feeds_stored(const Field &field, const std::vector<uint16> *moved= nullptr);
/**
  Whether what is computed of columns would stay as it is and not be right any more: a column goes, and another one of its name comes, or what is
  computed of a virtual one changes. Only what stays counts. `moved`: as in ColumnChange.
*/
bool leaves_stale(const TABLE *table, const std::vector<uint16> &moved, bool expressions_change);
/** Whether a constraint asks for valid JSON, which a text remains in each character set. */
bool wants_json(const Virtual_column_info *constraint);
/** Whether a constraint may find rows wrong now: of the column, or of what is computed from it. */
bool feeds_constraint(const Field &field);

} // namespace terrace
#endif
