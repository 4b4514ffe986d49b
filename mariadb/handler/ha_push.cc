/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What the optimizer pushes down to the handler, so that it reads fewer rows, or reads them in a better order:

    index conditions   a part of WHERE that can be evaluated on an index's columns alone
    rowid filters      the set of primary keys in a range of another index
    ranges             the end of a range of an index
    multi-range reads  many ranges at once, sorted by key or by primary key: the server's own DS-MRR

  Conditions and filters are evaluated in judge_entry(), which the engine calls for each visible entry of a secondary index before it reads
  the entry's row. It unpacks the entry's columns into the server's record. Rows are fetched in batches, so entries are judged ahead of the
  row that the server has received. A bare entry is kept, and its row is judged when it is returned to the server (judge_row(); a filter only
  saves reads and is not evaluated again).

  A locking cursor reads row by row. It has locked the entry and the row before they are judged, and releases the locks only in READ
  COMMITTED, as it does for rows that the server itself finds not to match.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"

using namespace terrace;

/** Takes the whole condition, or none of it: none for an index with a virtual column, as in InnoDB. */
Item *ha_terrace::idx_cond_push(uint number, Item *condition)
{
  if (tree_of(number) == 0 || m_indexes[number].has_virtual())
    return condition;
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= number;
  in_range_check_pushed_down= true;
  return nullptr;
}

bool ha_terrace::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

bool ha_terrace::judges_entries() const
{
  return m_tree != 0 && inited == INDEX &&
         ((pushed_idx_cond && pushed_idx_cond_keyno == active_index) || filters_rowids());
}

static int32_t verdict(check_result_t result)
{
  switch (result) {
  case CHECK_NEG:
    return TERRACE_VERDICT_SKIP;
  case CHECK_POS:
    return TERRACE_VERDICT_KEEP;
  case CHECK_OUT_OF_RANGE:
    return TERRACE_VERDICT_END;
  default:
    return TERRACE_VERDICT_CANCEL;
  }
}

int32_t ha_terrace::judge_entry(void *context, terrace_bytes key, uint32_t primary_at, terrace_bytes value)
{
  ha_terrace *self= static_cast<ha_terrace *>(context);
  const KeyCodec &index= self->m_indexes[self->active_index];
  switch (index.decode_entry(key.data, key.len, value.data, value.len, self->table->record[0], self->m_judged)) {
  case KeyCodec::DAMAGED:
    return TERRACE_VERDICT_DAMAGED;
  case KeyCodec::BARE:
    self->m_judges_rows= true;
    return TERRACE_VERDICT_KEEP;
  case KeyCodec::WHOLE:
    break;
  }
  // position() reads m_position.
  if (self->m_hidden)
    self->m_position.assign(key.data + primary_at, key.len - primary_at);
  // The server would compare the record with the range's end. The record is incomplete if the index holds only a prefix of a column: then
  // the key's bytes are compared instead.
  key_range *const end= self->end_range;
  if (end && !index.is_whole())
  {
    if (self->m_in_range && self->m_direction == FORWARD && self->m_end.not_above(key.data, key.len))
      return TERRACE_VERDICT_END;
    self->end_range= nullptr;
  }
  check_result_t result= CHECK_POS;
  if (self->pushed_idx_cond && self->pushed_idx_cond_keyno == self->active_index)
    result= handler_index_cond_check(self);
  if (result == CHECK_POS && self->filters_rowids())
    result= handler_rowid_filter_check(self);
  self->end_range= end;
  // Entries after it in tree order may be before it in index order.
  if (result == CHECK_OUT_OF_RANGE && self->is_cut_within(key))
    return TERRACE_VERDICT_SKIP;
  return verdict(result);
}

/** Evaluates the pushed condition on a row found through a bare entry. Returns REJECTED if the next row must be read. */
int ha_terrace::judge_row()
{
  if (!pushed_idx_cond || pushed_idx_cond_keyno != active_index)
    return 0;
  check_result_t result= handler_index_cond_check(this);
  if (result == CHECK_OUT_OF_RANGE && is_cut_within(bytes_of(m_current.key, m_current.key_length)))
    result= CHECK_NEG;
  switch (result) {
  case CHECK_POS:
    return 0;
  case CHECK_NEG:
    unlock_row();
    return REJECTED;
  case CHECK_OUT_OF_RANGE:
    return HA_ERR_END_OF_FILE;
  default:
    return HA_ERR_ABORTED_BY_USER;
  }
}

/** Encodes an upper bound of all keys of the range. `shared`: bytes, up to the end of a cut part, that the range's start shares. Returns false if there is no bound. */
bool ha_terrace::encode_end(const key_range *end, size_t shared, Bytes *out) const
{
  out->clear();
  m_indexes[active_index].encode_image(end->key, end->keypart_map, out);
  const bool widened= m_indexes[active_index].widen(out, shared);
  return ((end->flag != HA_READ_AFTER_KEY && !widened) || successor(out)) && !out->empty();
}

int ha_terrace::read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted)
{
  // The next read is the range's first; the steps after it belong to the range.
  m_cut_confined_next= 0;
  if (start && end && m_indexes[active_index].may_cut())
  {
    Bytes from, to;
    m_indexes[active_index].encode_image(start->key, start->keypart_map, &from);
    m_indexes[active_index].encode_image(end->key, end->keypart_map, &to);
    m_cut_confined_next= m_indexes[active_index].shared_cuts(from, to);
  }
  m_in_range_next= end && encode_end(end, m_cut_confined_next, &m_end);
  m_ends_next= m_in_range_next && !equal && m_lock == TERRACE_LOCK_NONE;
  // All rows of the range are read, so they may be locked several at a time.
  m_range_ahead_next= m_lock != TERRACE_LOCK_NONE && m_tree == 0 && (m_in_range_next || !end) && reads_to_the_end();
  return handler::read_range_first(start, end, equal, sorted);
}

int ha_terrace::multi_range_read_init(RANGE_SEQ_IF *ranges, void *context, uint count, uint mode, HANDLER_BUFFER *buffer)
{
  return m_multi_range.dsmrr_init(this, ranges, context, count, mode, buffer);
}

int ha_terrace::multi_range_read_next(range_id_t *range)
{
  return m_multi_range.dsmrr_next(range);
}

ha_rows ha_terrace::multi_range_read_info_const(uint number, RANGE_SEQ_IF *ranges, void *context, uint count, uint *size,
                                                uint *flags, Cost_estimate *cost)
{
  m_multi_range.init(this, table);
  return m_multi_range.dsmrr_info_const(number, ranges, context, count, size, flags, cost);
}

ha_rows ha_terrace::multi_range_read_info(uint number, uint count, uint keys, uint parts, uint *size, uint *flags,
                                          Cost_estimate *cost)
{
  m_multi_range.init(this, table);
  return m_multi_range.dsmrr_info(number, count, keys, parts, size, flags, cost);
}

int ha_terrace::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return m_multi_range.dsmrr_explain_info(mode, text, size);
}

/** Opens a second handler of the same table, which reads under the same lock. m_name is used because for a partition the server passes the name of the whole table. */
handler *ha_terrace::clone(const char *, MEM_ROOT *root)
{
  handler *copy= handler::clone(m_name.c_str(), root);
  if (copy)
  {
    static_cast<ha_terrace *>(copy)->m_stored_lock= m_lock;
    static_cast<ha_terrace *>(copy)->m_skip_locked= m_skip_locked;
  }
  return copy;
}
