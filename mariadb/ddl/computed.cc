/* SPDX-License-Identifier: GPL-2.0-only */
#include "computed.h"
#include "row_layouts.h"

namespace terrace {

/** Whether an expression of the column's table reads it. */
static bool reads(const Virtual_column_info *computed, const Field &field)
{
  List<Item_field> read;
  computed->expr->walk(&Item::collect_item_field_processor, false, &read);
  List_iterator_fast<Item_field> it(read);
  while (const Item_field *one= it++)
    if (one->field && one->field->field_index == field.field_index)
      return true;
  return false;
}

bool feeds_stored(const Field &field, const std::vector<uint16> *moved)
{
  for (Field **at= field.table->vfield; at && *at; at++)
  {
    if (!reads((*at)->vcol_info, field) || (moved && (*moved)[(*at)->field_index] == RowLayouts::DROPPED))
      continue;
    if ((*at)->stored_in_db() || (*at)->flags & (PART_KEY_FLAG | FIELD_IN_PART_FUNC_FLAG) || feeds_stored(**at, moved))
      return true;
  }
  return false;
}

bool leaves_stale(const TABLE *table, const std::vector<uint16> &moved, bool expressions_change)
{
  for (Field **at= table->field; *at; at++)
  {
    const Field &field= **at;
    const bool other= moved[field.field_index] == RowLayouts::DROPPED || (expressions_change && field.vcol_info && !field.stored_in_db());
    if (other && (field.flags & FIELD_IN_PART_FUNC_FLAG || feeds_stored(field, &moved)))
      return true;
  }
  return false;
}

bool wants_json(const Virtual_column_info *constraint)
{
  const Item *expr= constraint ? constraint->expr : nullptr;
  return expr && expr->type() == Item::FUNC_ITEM && !strcmp(static_cast<const Item_func *>(expr)->func_name(), "json_valid");
}

bool feeds_constraint(const Field &field)
{
  for (Virtual_column_info **at= field.table->check_constraints; at && *at; at++)
    if (!wants_json(*at) && reads(*at, field))
      return true;
  for (Field **at= field.table->vfield; at && *at; at++)
    if (reads((*at)->vcol_info, field) && feeds_constraint(**at))
      return true;
  return false;
}

} // namespace terrace
