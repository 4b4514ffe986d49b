/* SPDX-License-Identifier: GPL-2.0-only */
/* The handler's cursor: fetching batches, walking over them, unpacking their rows. The map is in ha_terrace.h. */
#include "ha_terrace.h"
#include "space_tables.h"
#include "errors.h"
#include "globals.h"

using namespace terrace;

static const uint BATCH_ROWS= 256, BATCH_BYTES= 48 * 1024, FIRST_OF_RANGE= 64, GROWTH= 4;

int ha_terrace::open_cursor(uint tree, bool scan)
{
  close_cursor();
  if (is_sequence())
  {
    if (int error= begin_own_read())
      return error;
  }
  else if (!m_session || !m_session->transaction())
    return HA_ERR_WRONG_COMMAND;
  else if (!m_session->loads.empty())
    if (int error= finish_other_loads())
      return error;
  terrace_cursor_options options= {};
  options.size= sizeof options;
  options.index= tree;
  options.lock= m_own_read ? TERRACE_LOCK_NONE : m_lock;
  options.scan= scan;
  options.skip_locked= m_skip_locked;
  options.rows_alone= applies_rows() || m_follows;
  options.reads_all= scan && options.lock != TERRACE_LOCK_NONE && reads_to_the_end();
  m_tree= tree;
  m_scan= scan;
  terrace_txn *txn= m_own_read ? m_own_read : m_session->transaction();
  int32_t code= terrace_cursor_open(txn, m_table, &options, &m_cursor);
  if (!code && m_semi_wanted)
    code= terrace_cursor_set_semi_consistent(m_cursor, true);
  return map(code);
}

/** Whether nothing but an error ends a scan of the table before its last row: then its rows may be locked some at a time. */
bool ha_terrace::reads_to_the_end() const
{
  THD *thd= ha_thd();
  LEX *lex= thd->lex;
  SELECT_LEX *select= lex->first_select_lex();
  const TABLE_LIST *from= select->table_list.first;   // of an INSERT, without the table that it inserts into
  return (lex->sql_command == SQLCOM_SELECT || lex->sql_command == SQLCOM_INSERT_SELECT) && !thd->in_sub_stmt &&
         from && !from->next_local && lex->all_selects_list == select && !select->next_select_in_list() &&
         !select->limit_params.explicit_limit && !lex->limit_rows_examined && !lex->with_rownum &&
         thd->variables.select_limit == HA_POS_ERROR && !(select->options & SELECT_DISTINCT);
}

/**
  LOCK IN SHARE MODE SKIP LOCKED of one unique value: the server asks for the row, where it asks for the entry alone without SKIP LOCKED.
  InnoDB goes by the columns that are read: it locks the entry, and who has locked the row is not in the way.
*/
bool ha_terrace::is_covered_beside_locks() const
{
  if (!m_skip_locked || m_lock != TERRACE_LOCK_SHARED || table->vfield)
    return false;
  for (Field **field= table->field; *field; field++)
    if (bitmap_is_set(table->read_set, (*field)->field_index) && !(*field)->part_of_key.is_set(active_index))
      return false;
  return true;
}

void ha_terrace::close_cursor()
{
  if (m_cursor)
  {
    free_retired();
    m_retired= m_cursor;
  }
  m_cursor= nullptr;
  count_reads();
  m_batch_left= m_steps= 0;
  m_direction= NOWHERE;
  m_at_cursor= m_prefix_set= m_ends= m_in_range= m_ends_next= m_in_range_next= m_semi_read= m_bare= false;
  m_locks_ahead= m_range_ahead= m_range_ahead_next= false;
  m_gap= ON_ROW;
  m_current= Row();
  m_cut_runs.clear();
  m_cut_kept.reset();
}

void ha_terrace::park_open_cursor()
{
  if (m_current.key)
    m_key.assign(m_current.key, m_current.key_length);
  const Row place= m_current;
  const Gap gap= m_gap;
  forget_cut_units();
  std::vector<std::unique_ptr<CutRun>> runs= std::move(m_cut_runs);
  close_cursor();
  m_cut_runs= std::move(runs);
  m_current= place;
  m_current.key= place.key ? m_key.data() : nullptr;
  m_gap= gap;
}

int ha_terrace::unpark_cursor()
{
  const Row place= m_current;
  const Gap gap= m_gap;
  std::vector<std::unique_ptr<CutRun>> runs= std::move(m_cut_runs);
  int error= open_cursor(m_tree, m_scan);
  m_cut_runs= std::move(runs);
  m_current= place;
  m_gap= gap;
  return error;
}

/** One call into the engine; the batch's first row becomes the current one. */
int ha_terrace::fetch(uint32_t seek, const Bytes *key, const Bytes *prefix, uint max_rows)
{
  if (!m_cursor)
    if (int error= unpark_cursor())
      return error;
  if (m_gathered_rows && seek != TERRACE_SEEK_NEXT && seek != TERRACE_SEEK_PREVIOUS)
    if (int error= change_gathered_before_seek())
      return error;
  terrace_fetch fetch= {};
  fetch.size= sizeof fetch;
  fetch.seek= seek;
  fetch.first_bytes= m_batch_first= m_looks ? RowCodec::ALL : first_bytes();
  fetch.want= !m_looks && only_index() ? TERRACE_WANT_ENTRY : m_batch_first == RowCodec::ALL ? TERRACE_WANT_ROW : TERRACE_WANT_START;
  if (key)
    fetch.key= bytes_of(key->data(), key->size());
  if (prefix)
    fetch.prefix= bytes_of(prefix->data(), prefix->size());
  if ((m_ends || ((m_locks_ahead || m_range_ahead) && m_in_range)) && !m_looks && m_cut_runs.empty())
    fetch.end= bytes_of(m_end.data(), m_end.size());
  fetch.context= this;
  if (!m_looks && judges_entries())
  {
    fetch.filter= judge_entry;
    // A filter asks for the row's position, whose columns need not be those that the statement asks for.
    m_judged= filters_rowids() ? m_indexes[active_index].all() : extent();
  }
  if (!m_looks && may_lack_parts())
    fetch.parts= wants_part;
  fetch.max_rows= max_rows;
  fetch.max_bytes= BATCH_BYTES;
  m_batch.size= sizeof m_batch;
  m_batch_want= fetch.want;
  count_reads();
  m_batch_left= 0;
  m_at_cursor= m_semi_read= m_judges_rows= false;
  Meter meter(handler_stats, m_session);
  int32_t code= terrace_cursor_fetch_rows(m_cursor, &fetch, &m_batch);
  if (code)
    return code == TERRACE_NO_ROW ? HA_ERR_END_OF_FILE : map(code);
  m_batch_left= m_batch.count;
  m_batch_hole= m_batch.first_hole;
  m_at_cursor= true;
  m_semi_read= m_semi_wanted && terrace_cursor_is_semi_consistent(m_cursor);
  return next_in_batch() ? 0 : HA_ERR_CRASHED;
}

/** Rows that are no longer are in their leaf, all of them, whatever their keys are. */
static const uint64 ALWAYS_IN_LEAF= 400;

/** Whether rows may come without long values that are not asked for. */
bool ha_terrace::may_lack_parts()
{
  return m_row.longest() > ALWAYS_IN_LEAF && wanted();
}

bool ha_terrace::wants_part(void *context, terrace_bytes row, uint32_t name)
{
  ha_terrace *self= static_cast<ha_terrace *>(context);
  return self->m_row.wants_part(row.data, row.len, name, self->wanted());
}

/** Whether the server asks for more of the current row, which may lack something, than when it was fetched. */
bool ha_terrace::lacks_wanted_of_lacking()
{
  const Holes holes= m_current.holes;
  for (const terrace_hole *hole= holes.first; hole < holes.first + holes.count; hole++)
    if (m_row.wants_part(m_current.value, m_current.value_length, hole->name, wanted()))
      return true;
  return is_cut() && first_bytes() > m_batch_first;
}

/**
  How many first bytes of a row that its leaf has no room for have what is asked for; 0: its key has it. `ALL`: the row is wanted.
*/
uint32 ha_terrace::first_bytes()
{
  const MY_BITMAP *columns= wanted();
  if (!columns || m_row.longest() <= ALWAYS_IN_LEAF)
    return RowCodec::ALL;
  if (m_hidden ? bitmap_is_clear_all(columns) : m_primary.gives_back(columns))
    return 0;
  return m_row.bytes_for(columns);
}

/**
  How many rows to fetch at once. The first fetches after a seek are small, so that a short look-up reads no more than it
  needs; where a range is known to end, the first of it are more, if they don't need a second tree.
*/
uint ha_terrace::batch_rows() const
{
  if (m_one_by_one)
    return 1;
  if (m_scan)
    return BATCH_ROWS;
  const bool near= m_range_ahead || (m_ends && (m_tree == 0 || m_batch_want == TERRACE_WANT_ENTRY));
  uint rows= near ? FIRST_OF_RANGE : 1;
  for (uint step= 0; step < m_steps && rows < BATCH_ROWS; step++)
    rows*= GROWTH;
  return MY_MIN(rows, BATCH_ROWS);
}

void ha_terrace::set_extent()
{
  const MY_BITMAP *columns= table->read_set;
  m_extent_index= active_index;
  m_extent_of.assign(columns->bitmap, bitmap_buffer_size(columns->n_bits));
  m_extent= m_indexes[active_index].extent(columns);
}

/** The current row, into the server's record. */
inline int ha_terrace::unpack_current(uchar *buf, const Bytes *prefix)
{
  remember_position();
  if (m_batch_want == TERRACE_WANT_ENTRY && m_tree != 0)
  {
    const auto decoded= m_indexes[active_index].decode_entry(m_current.key, m_current.key_length, m_current.value,
                                                             m_current.value_length, buf, extent());
    if (decoded != KeyCodec::DAMAGED)
      return decoded == KeyCodec::WHOLE ? 0 : read_row_of_entry(buf, prefix);
  }
  else if (unpack_row(buf))
    return m_judges_rows ? judge_row() : 0;
  log_error_once("a row of " + m_name + " is not of its table's layout");
  return HA_ERR_CRASHED;
}

int ha_terrace::unpack(uchar *buf, const Bytes *prefix) { return unpack_current(buf, prefix); }

/** The row of the current entry, which is bare; those that follow come as rows, too. */
int ha_terrace::read_row_of_entry(uchar *buf, const Bytes *prefix)
{
  m_bare= true;
  m_batch_at--;                         // as a row it is counted
  m_key.assign(m_current.key, m_current.key_length);
  const uint32_t where= m_direction == BACKWARD ? TERRACE_SEEK_AT_MOST : TERRACE_SEEK_AT_LEAST;
  if (int error= fetch(where, &m_key, prefix, batch_rows()))
    return error;
  return unpack(buf, prefix);
}

/**
  The server takes an index-only read's virtual columns from the index; where the row was read, they are computed. So are those
  by which a partitioned table merges its partitions: the server computes none outside of its own record.
*/
inline bool ha_terrace::unpack_row(uchar *buf)
{
  const bool apart= buf != table->record[0];
  const bool computes= table->vfield && (apart ? table->file != this && active_index != MAX_KEY && m_indexes[active_index].has_virtual()
                                               : keyread_enabled());
  if (is_cut() && !m_batch_first)
  {
    const uint32 at= m_current.primary_at;
    return m_hidden || m_primary.decode_key(m_current.key + at, m_current.key_length - at, buf);
  }
  // A row that may be cut, or lacks parts, has no column that is asked for and computed of what is missing.
  const MY_BITMAP *columns= computes && !is_cut() && !m_current.holes.count ? nullptr : wanted();
  if (!m_row.decode(m_current.value, m_current.value_length, buf, columns, is_cut(), m_current.holes))
    return false;
  if (computes)
  {
    const uint index= keyread;
    keyread= MAX_KEY;
    if (apart)
      table->move_fields(table->field, buf, table->record[0]);
    table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ);
    if (apart)
      table->move_fields(table->field, table->record[0], buf);
    keyread= index;
  }
  return true;
}

/** Goes somewhere; the row there, if it starts with `prefix`. */
int ha_terrace::seek(uchar *buf, uint32_t where, const Bytes *key, const Bytes *prefix)
{
  const Direction direction= where == TERRACE_SEEK_AT_MOST || where == TERRACE_SEEK_BEFORE || where == TERRACE_SEEK_LAST ? BACKWARD : FORWARD;
  begin_seek(direction);
  if (!meets_cuts())
    return go(buf, where, key, prefix);
  if (prefix)
    enter_units_of_bound(prefix->size());
  return put_in_order(buf, go(buf, where, key, prefix), direction, prefix);
}

/** What holds until the next one, and of the read itself what the server said before. */
void ha_terrace::begin_seek(Direction direction)
{
  m_direction= direction;
  m_steps= 0;
  m_cut_runs.clear();
  m_cut_confined= m_cut_confined_next;
  m_cut_confined_next= 0;
  m_gap= ON_ROW;
  m_ends= m_ends_next;
  m_in_range= m_in_range_next;
  m_ends_next= m_in_range_next= m_bare= false;
  const bool ahead= m_range_ahead_next && m_cursor;
  if (m_range_ahead != ahead)
    terrace_cursor_set_reads_all(m_cursor, m_range_ahead= ahead);
  m_range_ahead_next= false;
}

/** The row there, or the next in the scan's direction that is not rejected, if it starts with `prefix`. */
int ha_terrace::go(uchar *buf, uint32_t where, const Bytes *key, const Bytes *prefix)
{
  m_current= Row();
  m_batch_want= only_index() ? TERRACE_WANT_ENTRY : TERRACE_WANT_ROW;
  if (int error= fetch(where, key, prefix, batch_rows()))
    return error;
  return past_rejected(buf, prefix, unpack(buf, prefix));
}

/** As a rule the row is in the batch, whole. */
inline int ha_terrace::step_once(uchar *buf, Direction direction, const Bytes *prefix)
{
  const bool here= m_direction == direction && m_at_cursor && !m_semi_read &&
                   (m_batch_want == TERRACE_WANT_ENTRY) == only_index();
  if (!here || !next_in_batch())
    return step_beyond(buf, direction, prefix);
  return lacks_wanted() ? read_again(buf, direction, prefix) : unpack_current(buf, prefix);
}

/** The row after (before) the current one. */
int ha_terrace::step(uchar *buf, Direction direction, const Bytes *prefix)
{
  if (m_gap != ON_ROW)
    return leave_gap(buf, direction, prefix);
  const Bytes *const all= within(prefix);
  int error= step_once(buf, direction, all);
  if (error == REJECTED)
    error= past_rejected(buf, all, error);
  if (meets_cuts())
    error= put_in_order(buf, error, direction, prefix);
  return came_to_gap(prefix ? BEHIND_PREFIX : direction == FORWARD ? BEHIND_LAST : BEFORE_FIRST, error);
}

int ha_terrace::past_rejected(uchar *buf, const Bytes *prefix, int error)
{
  while (error == REJECTED)
    error= step_once(buf, m_direction, prefix);
  return error;
}

int ha_terrace::step_beyond(uchar *buf, Direction direction, const Bytes *prefix)
{
  if (m_semi_read)
    return read_again(buf, direction, prefix);
  if ((m_batch_want == TERRACE_WANT_ENTRY) != only_index())
    m_at_cursor= false;                 // index-only reading was switched on or off during the scan
  if (!m_current.key)
    return HA_ERR_END_OF_FILE;
  if (m_direction == direction && m_at_cursor && m_batch.ended && (prefix || (m_ends && direction == FORWARD)))
    return HA_ERR_END_OF_FILE;
  m_steps++;
  const uint rows= batch_rows();
  bool here= m_direction == direction && m_at_cursor && !m_batch.ended && !m_batch_left;
  m_direction= direction;
  int error;
  if (here)
    error= fetch(direction == FORWARD ? TERRACE_SEEK_NEXT : TERRACE_SEEK_PREVIOUS, nullptr, prefix, rows);
  else
  {
    if (m_current.key != m_key.data())
      m_key.assign(m_current.key, m_current.key_length);
    error= fetch(direction == FORWARD ? TERRACE_SEEK_AFTER : TERRACE_SEEK_BEFORE, &m_key, prefix, rows);
  }
  if (error == HA_ERR_END_OF_FILE)
  {
    // The cursor's buffer is empty now; the place is kept by the key.
    if (here)
      m_current= Row();
    else
    {
      m_current.key= m_key.data();
      m_at_cursor= false;
    }
    m_batch.ended= true;
  }
  return error ? error : unpack(buf, prefix);
}
