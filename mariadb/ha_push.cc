/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What the optimizer hands down to the handler, so that fewer rows are read, or in a better order:

    index conditions   a part of WHERE that an index's columns suffice for
    rowid filters      the primary keys that another index's range has, as a set
    ranges             where a range of an index ends
    multi-range reads  many ranges at once, sorted by key or by primary key: the server's own DS-MRR

  Conditions and filters are evaluated in judge_entry(), which the engine calls for each entry of a secondary index that
  the transaction sees, before it reads the entry's row. The entry's columns are unpacked into the server's record for
  that. Rows come in batches: what is judged is ahead of what the server has been given. A bare entry is kept, and its row is
  judged when the server is given it (judge_row(); a filter only spares reads, and is not asked again).

  A cursor that locks reads row by row. It has locked the entry and the row when they are judged, and gives the locks back only
  in READ COMMITTED, as it does for rows that the server itself finds not to match.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"

using namespace terrace;

/** The condition is evaluated as a whole. A virtual column's index gets none, as in InnoDB. */
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
  // position() takes it from here.
  if (self->m_hidden)
    self->m_position.assign(key.data + primary_at, key.len - primary_at);
  // Where the server compares the entry with the range's end, the record lacks what the index has a prefix of: the key's
  // bytes are compared instead.
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
  // What comes behind it in the tree may come before it in the index's order.
  if (result == CHECK_OUT_OF_RANGE && self->is_cut_within(key))
    return TERRACE_VERDICT_SKIP;
  return verdict(result);
}

/** The pushed condition of a row that came by a bare entry. REJECTED: the next one is wanted. */
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

/** Bytes that all keys of the range are below; `shared`: of a cut part, as the range's start has them. False: there are none. */
bool ha_terrace::encode_end(const key_range *end, size_t shared, Bytes *out) const
{
  out->clear();
  m_indexes[active_index].encode_image(end->key, end->keypart_map, out);
  const bool widened= m_indexes[active_index].widen(out, shared);
  return ((end->flag != HA_READ_AFTER_KEY && !widened) || successor(out)) && !out->empty();
}

int ha_terrace::read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted)
{
  // The next read is the range's first, and the steps after it are the range's.
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
  // All of it is read: its rows may be locked some at a time.
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

/** A second handler of the same table (a partition's: the server names the whole) reads under the same lock. */
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
