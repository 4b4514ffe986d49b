/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Gathers the rows that an UPDATE or DELETE of one table changes, and applies the changes some hundreds at a time: the engine goes through
  each of the table's trees in key order, so it visits a page once instead of once for each row.

  The rows are locked from the time they are read, so no other transaction changes them before that. The statement itself must not read them
  meanwhile either: it calls no trigger and no routine, has no subquery, and looks up no other row before it writes one. Its scan reads ahead
  of the gathered rows; before the scan moves anywhere but forward, the gathered changes are applied.

  An error is reported with a later row or at the end of the statement. So only statements that end with the first error gather.

  The first row is changed at once: a statement that changes only one row pays nothing.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"

using namespace terrace;

/** The most bytes and rows that are gathered; the last row may exceed the bytes. */
static const size_t GATHERED_MAX= 256 * 1024, GATHERED_ROWS_MAX= 4096;
/**
  The most rows if entries of secondary indexes change. A transaction that comes by such an entry locks it and waits for the row's lock, and so
  blocks the change of the entry. The two transactions deadlock, the more often the longer a row is locked before its entry is changed.
*/
static const size_t GATHERED_ROWS_WITH_ENTRIES_MAX= 64;
/** A longer row is changed on its own, as is a row with values that may be stored off-page. */
static const size_t GATHERED_ROW_MAX= 64 * 1024;

bool ha_terrace::may_gather() const
{
  // The server also asks partitions that the statement does not name and that are not open.
  if (!m_table)
    return false;
  THD *thd= ha_thd();
  LEX *lex= thd->lex;
  SELECT_LEX *select= lex->first_select_lex();
  return (lex->sql_command == SQLCOM_UPDATE || lex->sql_command == SQLCOM_DELETE) && !thd->in_sub_stmt &&
         thd->locked_tables_mode <= LTM_LOCK_TABLES && !lex->ignore && lex->all_selects_list == select &&
         !select->next_select_in_list() && !lex->uses_stored_routines() && !lex->analyze_stmt && !table->triggers &&
         !table->part_info && !table->versioned() && !looks_before_writes() && !refers_to_itself() && !cascades_come_back() &&
         !(table->pos_in_table_list && table->pos_in_table_list->has_period()) && m_session && m_session->transaction() &&
         m_lock == TERRACE_LOCK_EXCLUSIVE;
}

/** Called when the second row is about to be changed. */
void ha_terrace::begin_gathering()
{
  const LEX *lex= ha_thd()->lex;
  m_gathers= GATHERS;
  if (m_cursor && !lex->first_select_lex()->limit_params.explicit_limit && !lex->limit_rows_examined && !lex->with_rownum)
    m_locks_ahead= !terrace_cursor_set_reads_all(m_cursor, true);
}

/** Applies the gathered changes, unless the statement has failed and will be rolled back. */
int ha_terrace::change_gathered()
{
  int32_t code= TERRACE_OK;
  if (m_gathered_rows && !ha_thd()->is_error())
    code= terrace_rows_change(m_session->transaction(), m_table, bytes_of(m_gathered.data(), m_gathered.size()));
  m_gathered.clear();
  m_gathered_rows= 0;
  return map(code);
}

/** Called when the scan is about to seek elsewhere. If it seeks for each row, gathering saves nothing and stops. */
int ha_terrace::change_gathered_before_seek()
{
  const bool few= m_gathered_rows < 2;
  const int error= change_gathered();
  if (few)
    m_gathers= NOT;
  return error;
}

/** Whether the current row is to be gathered. */
bool ha_terrace::gathers()
{
  if (m_gathers == FROM_NEXT_ROW)
    begin_gathering();
  else if (m_gathers == FROM_NEXT_BUT_ONE)
    m_gathers= FROM_NEXT_ROW;
  return m_gathers == GATHERS;
}

bool ha_terrace::start_bulk_delete()
{
  if (!may_gather())
    return true;
  m_gathers= FROM_NEXT_BUT_ONE;
  return false;
}

int ha_terrace::end_bulk_delete()
{
  const int error= change_gathered();
  end_gathering();
  return error;
}

/** Updates that the binary log records row by row, those that cascade, and those that change primary keys or AUTO_INCREMENT columns, are done row by row. */
bool ha_terrace::start_bulk_update()
{
  if (!may_gather() || row_logging || cascades_update() || (table->found_next_number_field &&
                                       bitmap_is_set(table->write_set, table->found_next_number_field->field_index)))
    return true;
  for (uint at= 0; !m_hidden && at < table->key_info[0].user_defined_key_parts; at++)
    if (bitmap_is_set(table->write_set, table->key_info[0].key_part[at].fieldnr - 1))
      return true;
  m_gathers= FROM_NEXT_BUT_ONE;
  return false;
}

int ha_terrace::exec_bulk_update(ha_rows *duplicates)
{
  *duplicates= 0;
  return change_gathered();
}

int ha_terrace::end_bulk_update()
{
  end_gathering();
  return 0;
}

/** Counts here what the server's own ha_update_row() would count. */
int ha_terrace::bulk_update_row(const uchar *old_data, const uchar *new_data, ha_rows *duplicates)
{
  *duplicates= 0;
  status_var_increment(ha_thd()->status_var.ha_update_count);
  const int error= gathers() ? gather_update(old_data, new_data) : change_row(old_data, new_data);
  if (!error)
    rows_changed++;
  return error;
}

void ha_terrace::gather_change(uint tree, const uchar *key, size_t length, size_t primary_at, const uchar *value, size_t value_length)
{
  terrace_change_head head;
  head.index= tree;
  head.key_len= (uint32) length;
  head.primary_at= (uint32) primary_at;
  head.value_len= value ? (uint32) value_length : UINT32_MAX;
  uchar *to= m_gathered.reserve(sizeof head + length + value_length);
  memcpy(to, &head, sizeof head);
  memcpy(to + sizeof head, key, length);
  if (value_length)
    memcpy(to + sizeof head + length, value, value_length);
  m_gathered.take(sizeof head + length + value_length);
}

void ha_terrace::gather_entries(uint set, bool put)
{
  static const uchar nothing= 0;
  for (const terrace_entry &entry : m_entries[set].list)
    if (put)
      gather_change(entry.index, entry.key.data, entry.key.len, entry.primary_at, entry.value.len ? entry.value.data : &nothing,
                    entry.value.len);
    else
      gather_change(entry.index, entry.key.data, entry.key.len, entry.primary_at, nullptr, 0);
}

int ha_terrace::gathered_row()
{
  note_change();
  m_gathered_rows++;
  const size_t rows_max= m_entries[0].list.empty() ? GATHERED_ROWS_MAX : GATHERED_ROWS_WITH_ENTRIES_MAX;
  return m_gathered.size() < GATHERED_MAX && m_gathered_rows < rows_max ? 0 : change_gathered();
}

int ha_terrace::gather_changed(const uchar *old_data, const uchar *new_data)
{
  encode_primary(old_data, &m_primary_bytes);
  encode_row(new_data, m_primary_bytes);
  m_row.encode(old_data, &m_old_row_bytes);
  if (m_row_bytes.equals(m_old_row_bytes.data(), m_old_row_bytes.size()))
    return HA_ERR_RECORD_IS_THE_SAME;
  if (foreign())
  {
    if (int error= check_children(old_data, new_data))
      return error;
    if (int error= check_parents(new_data, old_data))
      return error;
  }
  make_entries(old_data, m_primary_bytes, new_data, 0);
  make_entries(new_data, m_primary_bytes, old_data, 1);
  bool alone= m_row_bytes.size() > GATHERED_ROW_MAX || !m_spans.empty();
  for (const terrace_entry &entry : m_entries[1].list)
    alone|= entry.unique_len != SIZE_MAX;
  if (alone)
  {
    const int error= change_gathered();
    return error ? error : change_row(old_data, new_data);
  }
  gather_change(0, m_primary_bytes.data(), m_primary_bytes.size(), 0, m_row_bytes.data(), m_row_bytes.size());
  gather_entries(0, false);
  gather_entries(1, true);
  count_row(&terrace_row_counts::updated);
  return gathered_row();
}

int ha_terrace::gather_delete(const uchar *buf)
{
  encode_primary(buf, &m_primary_bytes);
  make_entries(buf, m_primary_bytes, nullptr, 0);
  gather_change(0, m_primary_bytes.data(), m_primary_bytes.size(), 0, nullptr, 0);
  gather_entries(0, false);
  count_row(&terrace_row_counts::deleted);
  return gathered_row();
}
