/* SPDX-License-Identifier: GPL-2.0-only */
/* How an ALTER affects what is computed from columns: virtual and stored columns, keys and partitions over them, constraints. */
#ifndef TERRACE_COMPUTED_H
#define TERRACE_COMPUTED_H

#include "server.h"
#include <vector>

namespace terrace {

/**
  Whether a value computed from the column, directly or through other computed columns, is stored, indexed or determines a row's partition.
  With `moved`: computed columns that are dropped don't count.
*/
bool feeds_stored(const Field &field, const std::vector<uint16> *moved= nullptr);
/**
  Whether values computed from columns would be kept although they are no longer correct: because a column is dropped and another one of its
  name added, or because a virtual column's expression changes. Computed columns that are dropped don't count. `moved`: as in ColumnChange.
*/
bool leaves_stale(const TABLE *table, const std::vector<uint16> &moved, bool expressions_change);
/** Whether a constraint requires valid JSON; a valid text stays valid in every character set. */
bool wants_json(const Virtual_column_info *constraint);
/** Whether existing rows may violate a constraint after the change, because it reads the column or a value computed from it. */
bool feeds_constraint(const Field &field);

} // namespace terrace
#endif
