/* SPDX-License-Identifier: GPL-2.0-only */
/* The handler's writes: insert, update, delete, auto-increment. The map is in ha_terrace.h. */
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"
#include "kill_scope.h"

using namespace terrace;

/**
  The entries of `record` in secondary indexes; with `other` only in those where the two records differ.
  The primary key's bytes are in `primary`. They go to m_entries[set].
*/
int ha_terrace::make_entries(const uchar *record, const Bytes &primary, const uchar *other, uint set)
{
  Entries &entries= m_entries[set];
  entries.list.clear();
  entries.bytes.clear();
  // Offsets first: the bytes move while they grow.
  struct Span
  {
    size_t key, primary_at, value, end;
    uint tree;
    bool unique;
  };
  Span spans[MAX_KEY];
  uint count= 0;
  for (uint at= m_hidden ? 0 : 1; at < table->s->keys; at++)
  {
    const KeyCodec &index= m_indexes[at];
    if (other && index.same(record, other))
      continue;
    Span &span= spans[count++];
    bool has_null;
    span.tree= tree_of(at);
    span.key= entries.bytes.size();
    index.encode_record(record, &entries.bytes, &has_null);
    span.primary_at= entries.bytes.size();
    span.unique= index.is_unique() && !has_null;
    entries.bytes.append(primary.data(), primary.size());
    span.value= entries.bytes.size();
    index.originals(record, span.value - span.key, &entries.bytes);
    span.end= entries.bytes.size();
  }
  for (uint at= 0; at < count; at++)
  {
    const Span &span= spans[at];
    const uchar *bytes= entries.bytes.data();
    terrace_entry entry= {};
    entry.size= sizeof entry;
    entry.index= span.tree;
    entry.key= bytes_of(bytes + span.key, span.value - span.key);
    entry.unique_len= span.unique ? span.primary_at - span.key : SIZE_MAX;
    entry.primary_at= span.primary_at - span.key;
    entry.value= bytes_of(bytes + span.value, span.end - span.value);
    entries.list.push_back(entry);
  }
  return 0;
}

/** Makes m_row_bytes of the record, and m_spans. */
void ha_terrace::encode_row(const uchar *record, const Bytes &primary)
{
  encode_row(m_row, record, primary, &m_row_bytes, &m_spans);
}

/** Makes the row of the record, and its spans, if it may have no room in its leaf. */
void ha_terrace::encode_row(const RowCodec &codec, const uchar *record, const Bytes &primary, Bytes *row, std::vector<terrace_span> *spans)
{
  static const size_t IN_LEAF= 3900;    // a row and its key that have no more bytes are in their leaf
  codec.encode(record, row, spans);
  if (row->size() + primary.size() <= IN_LEAF)
    spans->clear();
}

int ha_terrace::write_failed(int32_t code)
{
  if (code == TERRACE_DUPLICATE)
  {
    uint32_t tree= terrace_error_index();
    m_session->duplicate_index= m_hidden ? tree - 1 : tree;
  }
  return map(code);
}

/**
  After a duplicate: that it is there was read. As InnoDB's it is locked until the transaction ends, shared; others are turned away by it, too.
  Where the statement is all of the transaction, the lock is only waited for, unless rows that it meets later may go by it: at SERIALIZABLE, and
  where the statement itself is logged and would find another row when it is replayed. REPLACE and ON DUPLICATE KEY UPDATE look for it
  and change it: it is locked for them here, for they take it for a fault that it is not there any more.
  @param set     of m_entries: the new row's
  @param goes_on a row is inserted: REPLACE and ON DUPLICATE KEY UPDATE go on to change the one that it met
  @param gone    the row is not there any more: the caller tries again
*/
int ha_terrace::lock_duplicate(const Bytes &primary, uint set, bool goes_on, bool *gone)
{
  *gone= false;
  THD *thd= ha_thd();
  const bool by_statement= m_session->isolation() >= ISO_REPEATABLE_READ && mysql_bin_log.is_open() &&
                           thd_test_options(thd, OPTION_BIN_LOG) && !thd->is_current_stmt_binlog_format_row();
  const bool changes= goes_on && thd->lex->duplicates != DUP_ERROR;
  const bool stays= m_session->isolation() == ISO_SERIALIZABLE || by_statement || changes;
  const bool is_all= !thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
  const uint tree= tree_of(m_session->duplicate_index);
  // The attempt itself has waited.
  if (tree == 0 && is_all && !stays)
    return 0;
  const uint32_t lock= changes ? TERRACE_LOCK_EXCLUSIVE : TERRACE_LOCK_SHARED;
  int32_t code= tree == 0 ? terrace_row_lock(m_session->transaction(), m_table, bytes_of(primary.data(), primary.size()), lock)
                          : lock_duplicate_entry(tree, set, lock, stays || !is_all);
  // A statement of very many duplicates goes on without.
  if (code == TERRACE_TOO_MANY_LOCKS && !stays)
    code= TERRACE_OK;
  *gone= code == TERRACE_NO_ROW;
  return *gone ? 0 : map(code);
}

/** Locks the entry in a secondary index that the new row's is a duplicate of, and its row; `keeps`: for longer than it takes. */
int32_t ha_terrace::lock_duplicate_entry(uint tree, uint set, uint32_t lock, bool keeps)
{
  terrace_cursor_options options= {};
  options.size= sizeof options;
  options.index= tree;
  options.lock= lock;
  terrace_cursor *cursor= nullptr;
  if (const int32_t code= terrace_cursor_open(m_session->transaction(), m_table, &options, &cursor))
    return code;
  terrace_fetch fetch= {};
  fetch.size= sizeof fetch;
  fetch.seek= TERRACE_SEEK_AT_LEAST;
  fetch.want= TERRACE_WANT_ENTRY;
  for (const terrace_entry &entry : m_entries[set].list)
    if (entry.index == tree)
      fetch.key= fetch.prefix= bytes_of(entry.key.data, MY_MIN(entry.unique_len, entry.key.len));
  fetch.max_rows= 1;
  fetch.max_bytes= 4096;
  terrace_rows rows= {};
  rows.size= sizeof rows;
  const int32_t code= terrace_cursor_fetch_rows(cursor, &fetch, &rows);
  if (!code && !keeps)
    terrace_cursor_unlock_last(cursor);
  terrace_cursor_close(cursor);
  return code;
}

int ha_terrace::write_row(const uchar *buf)
{
  if (is_sequence())
    return write_sequence(nullptr, buf);
  const bool generates= table->next_number_field && buf == table->record[0];
  if (generates)
    if (int error= update_auto_increment())
      return error == HA_ERR_AUTOINC_READ_FAILED && m_auto_error ? m_auto_error : error;
  const uchar *record= buf;
  if (is_versioned_write())
    if (int error= make_version(buf, VERSION_BEGINS, &record))
      return error;
  const int error= insert_row(record);
  if (generates && m_auto_rows)
    m_auto_rows--;
  if (error)
  {
    // Statements that go on after a duplicate move the counter past its value, as InnoDB's do.
    const int command= thd_sql_command(ha_thd());
    if (error == HA_ERR_FOUND_DUPP_KEY && generates && !insert_id_for_cur_row &&
        (command == SQLCOM_REPLACE || command == SQLCOM_REPLACE_SELECT || command == SQLCOM_INSERT_SELECT))
      if (int failed= raise_auto_increment(buf, table->next_number_field))
        return failed;
    return error;
  }
  // A value that was given moves the counter too, by the user or, as INSERT_ID, by the one whose statement is replayed.
  if (generates && (!insert_id_for_cur_row || insert_id_for_cur_row >= m_counter_past))
    return raise_auto_increment(buf, table->next_number_field);
  return 0;
}

/** Inserts a row as it is. A duplicate is HA_ERR_FOUND_DUPP_KEY. */
int ha_terrace::insert_row(const uchar *buf)
{
  if (m_load_after && !--m_load_after)
    begin_load_beside();
  if (m_load_waits)
    begin_waiting_load();
  m_primary_bytes.clear();
  if (m_hidden)
  {
    uint64_t row_id;
    if (int error= next_row_id(&row_id))
      return error;
    mi_int8store(m_primary_bytes.reserve(8), row_id);
    m_primary_bytes.take(8);
  }
  else
    encode_primary(buf, &m_primary_bytes);
  encode_row(buf, m_primary_bytes);
  make_entries(buf, m_primary_bytes, nullptr, 0);
  const terrace_bytes key= bytes_of(m_primary_bytes.data(), m_primary_bytes.size());
  const terrace_bytes row= bytes_of(m_row_bytes.data(), m_row_bytes.size());
  const std::vector<terrace_entry> &entries= m_entries[0].list;
  bool before_duplicates= false;
  const int foreign= check_parents(buf, nullptr, &before_duplicates);
  if (foreign && (foreign != HA_ERR_NO_REFERENCED_ROW || before_duplicates || m_load))
    return foreign;
  if (foreign)
    return find_duplicate(key, row, foreign);
  int32_t code;
  int error;
  bool gone= false;
  do
  {
    code= m_load ? terrace_load_row(m_load, key, row, m_spans.data(), m_spans.size(), entries.data(), entries.size())
                 : terrace_row_insert(m_session->transaction(), m_table, key, row, m_spans.data(), m_spans.size(),
                                      entries.data(), entries.size());
    error= code ? write_failed(code) : 0;
    if (code == TERRACE_DUPLICATE && (!m_load || m_load_within))
    {
      if (int failed= lock_duplicate(m_primary_bytes, 0, true, &gone))
        return failed;
      gone&= !m_load;   // a load that has failed takes nothing more
    }
  } while (code && gone);
  if (error)
    return error;
  note_change();
  count_row(&terrace_row_counts::inserted);
  m_position.assign(m_primary_bytes.data(), m_primary_bytes.size());
  return 0;
}

/**
  A row without its parent: a duplicate is reported in preference, so that statements which go on after one do so, as with InnoDB. `missing`: the error if
  there is none.
*/
int ha_terrace::find_duplicate(terrace_bytes key, terrace_bytes row, int missing)
{
  terrace_txn *txn= m_session->transaction();
  terrace_savepoint *savepoint= nullptr;
  if (const int32_t code= terrace_txn_savepoint(txn, &savepoint))
    return map(code);
  int error;
  bool gone= false;
  do
  {
    const std::vector<terrace_entry> &entries= m_entries[0].list;
    const int32_t code= terrace_row_insert(txn, m_table, key, row, m_spans.data(), m_spans.size(), entries.data(), entries.size());
    error= code ? write_failed(code) : missing;
    gone= false;
    if (code == TERRACE_DUPLICATE)
    {
      if (int failed= lock_duplicate(m_primary_bytes, 0, true, &gone))
        error= failed, gone= false;
    }
    else if (!code)
      if (const int32_t failed= terrace_txn_rollback_to(txn, savepoint))
      {
        // What is undone in part can only be undone whole.
        ha_thd()->mark_transaction_to_rollback(true);
        error= map(failed);
      }
  } while (gone);
  terrace_savepoint_close(savepoint);
  return error;
}

int ha_terrace::update_row(const uchar *old_data, const uchar *new_data)
{
  if (is_sequence())
    return write_sequence(old_data, new_data);
  if (int error= is_versioned_write() ? update_version(old_data, new_data) : change_row(old_data, new_data))
    return error;
  if (Field *field= table->found_next_number_field)
    if (new_data == table->record[0] && bitmap_is_set(table->write_set, field->field_index) &&
        field->cmp(field->ptr, field->ptr + (old_data - new_data)))
      return raise_auto_increment(new_data, field);
  return 0;
}

/** Makes one row of another. HA_ERR_RECORD_IS_THE_SAME: nothing to do. */
int ha_terrace::exchange_row(const uchar *old_data, const uchar *new_data)
{
  encode_primary(old_data, &m_primary_bytes);
  encode_primary(new_data, &m_new_primary_bytes);
  encode_row(new_data, m_new_primary_bytes);
  m_row.encode(old_data, &m_old_row_bytes);
  if (m_row_bytes.equals(m_old_row_bytes.data(), m_old_row_bytes.size()))
    return HA_ERR_RECORD_IS_THE_SAME;   // done, and not counted as changed
  if (foreign())
  {
    if (int error= check_children(old_data, new_data))
      return error;
    if (int error= check_parents(new_data, old_data))
      return error;
  }
  terrace_txn *txn= m_session->transaction();
  const terrace_bytes row= bytes_of(m_row_bytes.data(), m_row_bytes.size());
  const terrace_bytes key= bytes_of(m_primary_bytes.data(), m_primary_bytes.size());
  int32_t code;
  if (m_new_primary_bytes.equals(m_primary_bytes.data(), m_primary_bytes.size()))
  {
    // The primary key's own bytes may differ though its order doesn't ('a' and 'A'): then entries that carry them do too.
    const bool same_primary= m_hidden || m_primary.same(old_data, new_data);
    make_entries(old_data, m_primary_bytes, same_primary ? new_data : nullptr, 0);
    make_entries(new_data, m_primary_bytes, same_primary ? old_data : nullptr, 1);
    code= terrace_row_update(txn, m_table, key, row, m_spans.data(), m_spans.size(), m_entries[0].list.data(),
                             m_entries[0].list.size(), m_entries[1].list.data(), m_entries[1].list.size());
    if (code)
    {
      if (code == TERRACE_ABSENT && m_one_by_one)
        return HA_ERR_KEY_NOT_FOUND;
      const int error= write_failed(code);
      bool gone= false;
      if (code == TERRACE_DUPLICATE)
        if (int failed= lock_duplicate(m_primary_bytes, 1, false, &gone))
          return failed;
      return gone ? change_row(old_data, new_data) : error;
    }
  }
  else
  {
    // Another primary key: delete and insert; if the insert meets a duplicate, the row is where it was.
    terrace_savepoint *savepoint= nullptr;
    if ((code= terrace_txn_savepoint(txn, &savepoint)))
      return map(code);
    make_entries(old_data, m_primary_bytes, nullptr, 0);
    make_entries(new_data, m_new_primary_bytes, nullptr, 1);
    code= terrace_row_delete(txn, m_table, key, m_entries[0].list.data(), m_entries[0].list.size());
    int error= 0;
    bool gone= false;
    if (!code)
      code= terrace_row_insert(txn, m_table, bytes_of(m_new_primary_bytes.data(), m_new_primary_bytes.size()), row,
                               m_spans.data(), m_spans.size(), m_entries[1].list.data(), m_entries[1].list.size());
    if (code)
    {
      error= write_failed(code);
      if (int32_t failed= terrace_txn_rollback_to(txn, savepoint))
      {
        // What is undone in part can only be undone whole.
        ha_thd()->mark_transaction_to_rollback(true);
        error= map(failed);
      }
      else if (code == TERRACE_DUPLICATE)
        if (int failed_lock= lock_duplicate(m_new_primary_bytes, 1, false, &gone))
          error= failed_lock;
    }
    terrace_savepoint_close(savepoint);
    if (error)
      return gone ? change_row(old_data, new_data) : error;
    m_position.assign(m_new_primary_bytes.data(), m_new_primary_bytes.size());
  }
  note_change();
  count_row(&terrace_row_counts::updated);
  unlock_applied();
  return 0;
}

int ha_terrace::delete_row(const uchar *buf)
{
  return is_versioned_write() ? end_version(buf) : erase_row(buf);
}

int ha_terrace::remove_row(const uchar *buf)
{
  if (foreign())
    if (int error= check_children(buf, nullptr))
      return error;
  if (gathers())
    return gather_delete(buf);
  encode_primary(buf, &m_primary_bytes);
  make_entries(buf, m_primary_bytes, nullptr, 0);
  const int32_t code= terrace_row_delete(m_session->transaction(), m_table, bytes_of(m_primary_bytes.data(), m_primary_bytes.size()),
                                         m_entries[0].list.data(), m_entries[0].list.size());
  // A routine of the statement has deleted the row's parent after the row was read. To InnoDB the row is deleted.
  if (code == TERRACE_ABSENT && m_one_by_one)
    return 0;
  if (!code)
  {
    note_change();
    count_row(&terrace_row_counts::deleted);
    unlock_applied();
  }
  return map(code);
}

/**
  Who applies a source's changes of rows looks each of them up. What it has changed, its transaction keeps from others without a lock; the lock would only
  matter if the change were undone and the transaction went on, which is of no use there. A million locks are too many.
*/
void ha_terrace::unlock_applied()
{
  terrace_cursor *const found_by= m_cursor ? m_cursor : m_retired;       // a look by position has ended by now
  if (found_by && applies_rows())
    terrace_cursor_unlock_last(found_by);
}

/**
  What the counter is to be past the record[0]'s value; 0: it says nothing. It is the next of the series that this handler last took
  values of, and the next number if it took none: InnoDB's way. Values below zero are zeros.
*/
ulonglong ha_terrace::past_value(Field *field, bool zero_counts)
{
  if (field->is_null())
    return 0;
  MY_BITMAP *map_before= dbug_tmp_use_all_columns(table, &table->read_set);
  const ulonglong value= field->val_uint(), limit= field->get_max_int_value();
  dbug_tmp_restore_column_map(&table->read_set, map_before);
  // Above it are numbers of a FLOAT or DOUBLE that are not exact.
  if (value > limit || (!value && !zero_counts))
    return 0;
  return terrace_auto_increment_after(value, 1, m_series_offset, m_series_step, limit);
}

/** A hidden row id. Handler error. */
int ha_terrace::next_row_id(uint64_t *id)
{
  Heard heard;
  return map(terrace_table_next_row_id(m_table, id));
}

/** The counter goes past the value that `record` (record[0]) has. */
int ha_terrace::raise_auto_increment(const uchar *, Field *field)
{
  const ulonglong next= past_value(field, true);
  if (!next)
    return 0;
  if (m_load && !m_load_within)
  {
    m_load_counter= MY_MAX(m_load_counter, next);
    return 0;
  }
  Heard heard;
  return map(terrace_table_auto_increment_raise(m_table, next));
}

/**
  What the counter is to be past the largest value: the one at the end of the column's index. A prepared transaction that a restart or the
  end of its connection has left may commit its rows, or bring back those that it has deleted: both count. Handler error.
*/
int ha_terrace::past_largest(uint64_t *next)
{
  uint64_t committed= 1;
  if (int error= past_largest(TERRACE_ISOLATION_READ_COMMITTED, &committed))
    return error;
  const int error= past_largest(TERRACE_ISOLATION_READ_UNCOMMITTED, next);
  *next= MY_MAX(*next, committed);
  return error;
}

/** The first row or the last in the order of an index, as another transaction of this level sees it: `use` gets it. */
template <class Use> static int32_t with_end(const terrace_table *of, uint32_t isolation, uint32_t tree, uint32_t seek, uint32_t want, Use use)
{
  terrace_cursor_options options= {};
  options.size= sizeof options;
  options.index= tree;
  options.lock= TERRACE_LOCK_NONE;
  terrace_fetch one= {};
  one.size= sizeof one;
  one.seek= seek;
  one.want= want;
  one.max_rows= one.max_bytes= 1;
  terrace_rows rows= {};
  rows.size= sizeof rows;
  Heard heard;
  terrace_txn *txn= nullptr;
  terrace_cursor *cursor= nullptr;
  int32_t code= terrace_txn_begin(engine, isolation, &txn);
  if (!code)
    code= terrace_cursor_open(txn, of, &options, &cursor);
  if (!code)
    code= terrace_cursor_fetch_rows(cursor, &one, &rows);
  if (!code)
    code= use(*rows.first);
  terrace_cursor_close(cursor);
  terrace_txn_close(txn);
  return code;
}

int ha_terrace::past_largest(uint32_t isolation, uint64_t *next)
{
  *next= 1;
  const uint index= table->s->next_number_index;
  const bool descends= table->key_info[index].key_part->key_part_flag & HA_REVERSE_SORT;
  const int32_t code= with_end(m_table, isolation, tree_of(index), descends ? TERRACE_SEEK_FIRST : TERRACE_SEEK_LAST, TERRACE_WANT_ROW, [&](const auto &row) {
    bitmap_clear_all(&table->tmp_set);
    bitmap_set_bit(&table->tmp_set, table->found_next_number_field->field_index);
    if (!m_row.decode(row.value.data, row.value.len, table->record[0], &table->tmp_set))
      return (int32_t) TERRACE_CORRUPT;
    if (const ulonglong past= past_value(table->found_next_number_field, false))
      *next= past;
    return (int32_t) TERRACE_OK;
  });
  return code == TERRACE_NO_ROW ? 0 : map(code);
}

/** Whether there is a row, or one that may be back, or may stay, when a transaction ends. Handler error. */
int ha_terrace::has_rows(bool *found)
{
  *found= false;
  for (const uint32_t isolation : {TERRACE_ISOLATION_READ_COMMITTED, TERRACE_ISOLATION_READ_UNCOMMITTED})
  {
    const int32_t code= with_end(m_table, isolation, 0, TERRACE_SEEK_FIRST, TERRACE_WANT_ENTRY, [](const auto &) { return (int32_t) TERRACE_OK; });
    *found= *found || !code;
    if (code && code != TERRACE_NO_ROW)
      return map(code);
  }
  return 0;
}

/**
  A statement of which only its text is logged and whose rows nobody has counted gets its values one behind the other, as a replica will: nobody
  else takes any until it ends. What a partitioned table counts the server keeps so itself. A table that is being made nobody else has, and where
  that fails it is closed before the statement ends.
*/
bool ha_terrace::keeps_counter() const
{
  THD *thd= ha_thd();
  const enum_sql_command command= thd->lex->sql_command;
  return command != SQLCOM_INSERT && command != SQLCOM_CREATE_TABLE && command != SQLCOM_ALTER_TABLE && mysql_bin_log.is_open() &&
         thd_test_options(thd, OPTION_BIN_LOG) && !thd->is_current_stmt_binlog_format_row();
}

/** As terrace_table_auto_increment_take, when it is this statement's turn. */
int32_t ha_terrace::take_auto_increment(ulonglong offset, ulonglong increment, ulonglong limit, uint64_t *start, uint64_t *count)
{
  const bool alone= m_session && m_session->transaction() && table->file == this && !m_copies && !m_session->has_counter(m_table);
  const bool keeps= alone && keeps_counter(), waits= alone && !keeps && terrace_row_counter_is_locked(m_table);
  int32_t code= keeps ? m_session->take_counter(m_table) : waits ? terrace_row_counter_lock(m_session->transaction(), m_table) : TERRACE_OK;
  Heard heard;
  if (!code)
    code= terrace_table_auto_increment_take(m_table, offset, increment, m_auto_rows, limit, start, count);
  if (waits)
    terrace_row_counter_release(m_session->transaction(), m_table);
  return code;
}

void ha_terrace::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                                    ulonglong *taken)
{
  Field *field= table->next_number_field ? table->next_number_field : table->found_next_number_field;
  const ulonglong limit= field ? field->get_max_int_value() : ULONGLONG_MAX;
  uint64_t start= ULONGLONG_MAX, count= 0;
  // Asked again during the statement, because a row gave its own value: as many values as rows are left.
  if (!m_auto_rows)
    m_auto_rows= wanted;
  // ALTER notes the values that its rows had, to move the counter once: what it generates comes after them.
  int32_t code= m_load && !m_load_within && m_load_counter ? terrace_table_auto_increment_raise(m_table, m_load_counter) : 0;
  if (!code)
    code= take_auto_increment(offset, increment, limit, &start, &count);
  m_series_offset= offset;
  m_series_step= increment;
  m_counter_past= code || !count ? 0 : terrace_auto_increment_after(start, count, offset, increment, limit);
  m_auto_error= 0;
  // What is above the limit the server finds out of the column's range, and names column and row.
  if (code)
  {
    start= ULONGLONG_MAX, count= 0;     // the server's error is 1467, which says nothing of why
    m_auto_error= map(code);
    // A partitioned table's handler gives that one: a warning says why.
    if (is_own_error(m_auto_error) && table->file != this)
      push_warning_printf(ha_thd(), Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "Terrace: %s", last_message().c_str());
  }
  *first= start;
  *taken= count;
}

int ha_terrace::reset_auto_increment(ulonglong value)
{
  return map(terrace_table_auto_increment_raise(m_table, value));
}

void ha_terrace::update_create_info(HA_CREATE_INFO *info)
{
  if (!(info->used_fields & HA_CREATE_USED_AUTO) && table->found_next_number_field)
  {
    if (!this->info(HA_STATUS_AUTO))
      info->auto_increment_value= stats.auto_increment_value;
  }
}
