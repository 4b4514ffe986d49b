/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Rows versioned by transaction (BIGINT UNSIGNED GENERATED ALWAYS AS ROW START and END). The server leaves the numbers in the
  rows to the engine: which transaction wrote a version, and which ended it; for rows versioned by time the server does all of this itself. At
  commit it asks for the numbers (Calls::prepare_commit_versioned) and records them in mysql.transaction_registry.

  A transaction makes one version of a row: a row that it changes twice gets no history version in between, and a row that it inserted itself is
  simply deleted.
*/
#include "ha_terrace.h"

using namespace terrace;

/** Finds the virtual columns that depend on the system columns, each after the columns that it depends on. */
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
  Makes a copy of `record` with the transaction's number, to be stored; the server's record stays unchanged.
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
  // Virtual columns can be computed only in record[0].
  auto exchange= [&] { std::swap_ranges(copy, copy + length, table->record[0]); };
  exchange();
  bool failed= false;
  for (Field *column : m_of_versions)
    failed|= table->update_virtual_field(column, true);
  exchange();
  return failed ? HA_ERR_INTERNAL_ERROR : 0;
}

/** Stores the changed row as this transaction's version. The previous row becomes history, unless this transaction wrote it, too. */
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
  m_position.assign(position.data(), position.size());  // the scan continues at the current row
  return failed;
}

/** Deletes a row: it becomes history. History rows, and rows that this transaction wrote, are deleted for real. */
int ha_terrace::end_version(const uchar *buf)
{
  const uchar *version;
  if (int error= make_version(buf, VERSION_ENDS, &version))
    return error;
  Field *end= table->vers_end_field();
  if (!end->is_max(end->ptr_in_record(buf)) || table->vers_start_id(buf) == table->vers_end_id(version))
    return erase_row(buf);
  const int error= change_row(buf, version);
  // The transaction has ended a version with this key before, of another row: one version is enough, as for rows versioned by time.
  return error == HA_ERR_FOUND_DUPP_KEY ? erase_row(buf) : error;
}
