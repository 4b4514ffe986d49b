/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Rows versioned by transaction (BIGINT UNSIGNED GENERATED ALWAYS AS ROW START and END). The server leaves the numbers in the
  rows to the engine: who wrote a version, and who ended it; for rows versioned by time it does all of this itself. At the
  commit it asks for the numbers (Calls::prepare_commit_versioned) and notes them in mysql.transaction_registry.

  A transaction makes one version of a row: what it changes twice has no history in between, and what it made itself is just deleted.
*/
#include "ha_terrace.h"

using namespace terrace;

/** Finds the virtual columns that are of the system columns, each behind those that it is of. */
void ha_terrace::follow_versions()
{
  m_versions_followed= true;
  if (!table->vfield)
    return;
  const size_t bytes= bitmap_buffer_size(table->s->fields);
  std::vector<uchar> buffer(2 * bytes);
  MY_BITMAP used, of_versions;
  my_bitmap_init(&used, reinterpret_cast<my_bitmap_map *>(buffer.data()), table->s->fields);
  my_bitmap_init(&of_versions, reinterpret_cast<my_bitmap_map *>(buffer.data() + bytes), table->s->fields);
  bitmap_set_bit(&of_versions, table->vers_start_field()->field_index);
  bitmap_set_bit(&of_versions, table->vers_end_field()->field_index);
  for (bool more= true; more;)
  {
    more= false;
    for (Field **at= table->vfield; *at; at++)
    {
      Field *column= *at;
      bitmap_clear_all(&used);
      column->vcol_info->expr->walk(&Item::register_field_in_bitmap, 1, &used);
      if (bitmap_is_set(&of_versions, column->field_index) || !bitmap_is_overlapping(&used, &of_versions))
        continue;
      bitmap_set_bit(&of_versions, column->field_index);
      more= true;
      m_of_versions.push_back(column);
    }
  }
}

/**
  A copy of `record` with the transaction's number, for the table's own use: the server's record stays as it is.
  @param version  lives until the next call
*/
int ha_terrace::make_version(const uchar *record, Version what, const uchar **version)
{
  ulonglong number;
  if (int error= m_session->version_number(ha_thd(), &number))
    return error;
  const size_t length= table->s->reclength;
  m_version.assign(record, record + length);
  uchar *copy= m_version.data();
  auto put= [&](const Field *column, ulonglong value) { int8store(copy + column->offset(table->record[0]), value); };
  if (what != VERSION_ENDS)
    put(table->vers_start_field(), number);
  if (what != VERSION_GOES_ON)
    put(table->vers_end_field(), what == VERSION_ENDS ? number : ULONGLONG_MAX);
  *version= copy;
  if (!m_versions_followed)
    follow_versions();
  if (m_of_versions.empty())
    return 0;
  // Computed in record[0] only.
  auto exchange= [&] { std::swap_ranges(copy, copy + length, table->record[0]); };
  exchange();
  bool failed= false;
  for (Field *column : m_of_versions)
    failed|= table->update_virtual_field(column, true);
  exchange();
  return failed ? HA_ERR_INTERNAL_ERROR : 0;
}

/** The changed row is a version of this transaction's; the row as it was is history, unless it was of this transaction, too. */
int ha_terrace::update_version(const uchar *old_data, const uchar *new_data)
{
  const uchar *version;
  if (int error= make_version(new_data, VERSION_GOES_ON, &version))
    return error;
  const bool has_history= table->vers_start_id(new_data) != table->vers_start_id(version);
  const int error= change_row(old_data, version);
  if (error && error != HA_ERR_RECORD_IS_THE_SAME)
    return error;
  if (!has_history)
    return 0;
  const std::vector<uchar> position(m_position.data(), m_position.data() + m_position.size());
  if (int failed= make_version(old_data, VERSION_ENDS, &version))
    return failed;
  const int failed= insert_row(version);
  m_position.assign(position.data(), position.size());  // the scan goes on at the row that is
  return failed;
}

/** The row becomes history; history, and what this transaction wrote, is deleted. */
int ha_terrace::end_version(const uchar *buf)
{
  const uchar *version;
  if (int error= make_version(buf, VERSION_ENDS, &version))
    return error;
  Field *end= table->vers_end_field();
  if (!end->is_max(end->ptr_in_record(buf)) || table->vers_start_id(buf) == table->vers_end_id(version))
    return erase_row(buf);
  const int error= change_row(buf, version);
  // One key, by way of another row, twice in one transaction: one version of it is enough, as for rows versioned by time.
  return error == HA_ERR_FOUND_DUPP_KEY ? erase_row(buf) : error;
}
