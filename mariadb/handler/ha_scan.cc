/* SPDX-License-Identifier: GPL-2.0-only */
/* The handler's read functions that the server calls: scans, index reads, positions. ha_terrace.h has the map of the handler. */
#include "ha_terrace.h"

using namespace terrace;

int ha_terrace::index_init(uint number, bool)
{
  active_index= number;
  return open_cursor(tree_of(number), false);
}

int ha_terrace::index_end()
{
  in_range_check_pushed_down= false;
  m_multi_range.dsmrr_close();
  close_cursor();
  return 0;
}

int ha_terrace::index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function flag)
{
  if (!key)
    return index_first(buf);
  m_prefix.clear();
  m_indexes[active_index].encode_image(key, parts, &m_prefix);
  m_prefix_set= false;
  Gap gap= AT_PREFIX;
  int error;
  m_any_order= false;
  KeyCodec::CutPart cut;
  const bool is_cut= m_indexes[active_index].find_cut(m_prefix.data(), m_prefix.size(), 0, &cut);
  if (is_cut)
  {
    m_cut_parts= parts == HA_WHOLE_KEY ? make_prev_keypart_map(table->key_info[active_index].user_defined_key_parts) : parts;
    m_cut_image.assign(key, calculate_key_len(table, active_index, key, m_cut_parts));
  }
  const bool by_order= flag == HA_READ_KEY_OR_NEXT || flag == HA_READ_AFTER_KEY || flag == HA_READ_BEFORE_KEY ||
                       flag == HA_READ_KEY_OR_PREV || flag == HA_READ_PREFIX_LAST_OR_PREV;
  if (by_order && is_cut)
  {
    error= seek_cut_bound(buf, flag);
    return came_to_gap(flag == HA_READ_KEY_OR_NEXT || flag == HA_READ_BEFORE_KEY ? AT_PREFIX : BEHIND_PREFIX,
                       error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error);
  }
  switch (flag) {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
  {
    m_prefix_set= true;
    const bool waits= m_semi_wanted && m_tree == 0 && is_whole_key(parts);
    if (waits)
      terrace_cursor_set_semi_consistent(m_cursor, false);
    error= seek(buf, TERRACE_SEEK_AT_LEAST, &m_prefix, &m_prefix);
    if (waits)
      terrace_cursor_set_semi_consistent(m_cursor, true);
    break;
  }
  case HA_READ_KEY_OR_NEXT:
    error= seek(buf, TERRACE_SEEK_AT_LEAST, &m_prefix, nullptr);
    break;
  case HA_READ_AFTER_KEY:
    gap= BEHIND_PREFIX;
    m_key.assign(m_prefix.data(), m_prefix.size());
    error= successor(&m_key) ? seek(buf, TERRACE_SEEK_AT_LEAST, &m_key, nullptr) : HA_ERR_END_OF_FILE;
    break;
  case HA_READ_BEFORE_KEY:
    error= seek(buf, TERRACE_SEEK_BEFORE, &m_prefix, nullptr);
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST:
  case HA_READ_PREFIX_LAST_OR_PREV:
  {
    gap= BEHIND_PREFIX;
    m_prefix_set= flag == HA_READ_PREFIX_LAST;
    const Bytes *prefix= m_prefix_set ? &m_prefix : nullptr;
    m_key.assign(m_prefix.data(), m_prefix.size());
    error= successor(&m_key) ? seek(buf, TERRACE_SEEK_BEFORE, &m_key, prefix)
                             : seek(buf, TERRACE_SEEK_LAST, nullptr, prefix);
    break;
  }
  default:
    return HA_ERR_WRONG_COMMAND;
  }
  return came_to_gap(gap, error == HA_ERR_END_OF_FILE ? HA_ERR_KEY_NOT_FOUND : error);
}

int ha_terrace::index_read_last_map(uchar *buf, const uchar *key, key_part_map parts)
{
  return index_read_map(buf, key, parts, HA_READ_PREFIX_LAST);
}

int ha_terrace::index_next(uchar *buf) { return step(buf, FORWARD, nullptr); }
int ha_terrace::index_prev(uchar *buf) { return step(buf, BACKWARD, nullptr); }

int ha_terrace::index_first(uchar *buf)
{
  m_any_order= m_indexes[active_index].may_cut() && !end_range && needs_no_order();
  int error= seek(buf, TERRACE_SEEK_FIRST, nullptr, nullptr);
  return came_to_gap(BEHIND_LAST, error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error);
}

int ha_terrace::index_last(uchar *buf)
{
  m_any_order= false;
  int error= seek(buf, TERRACE_SEEK_LAST, nullptr, nullptr);
  return came_to_gap(BEFORE_FIRST, error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error);
}

int ha_terrace::index_next_same(uchar *buf, const uchar *key, uint length)
{
  if (!m_prefix_set)
  {
    m_prefix.clear();
    m_indexes[active_index].encode_image_bytes(key, length, &m_prefix);
    // The current batch was fetched without this bound: restart after the current row.
    m_at_cursor= false;
    m_batch_left= 0;
    m_prefix_set= true;
  }
  return step(buf, FORWARD, &m_prefix);
}

int ha_terrace::rnd_init(bool scan)
{
  m_scan_ended= false;
  if (m_cursor && m_tree == 0 && scan == m_scan)
  {
    m_batch_left= 0;
    m_direction= NOWHERE;
    m_at_cursor= false;
    m_gap= ON_ROW;
    m_current= Row();
    return 0;
  }
  return open_cursor(0, scan);
}

int ha_terrace::rnd_end()
{
  // A multi-range read fetches its rows by position; the next multi-range read may use another index.
  m_multi_range.dsmrr_close();
  close_cursor();
  return 0;
}

int ha_terrace::rnd_next(uchar *buf)
{
  int error;
  if (m_scan_ended)
    return HA_ERR_END_OF_FILE;
  if (m_direction == NOWHERE && !m_current.key)
    error= seek(buf, TERRACE_SEEK_FIRST, nullptr, nullptr);
  else
  {
    error= step(buf, FORWARD, nullptr);
  }
  if (error == HA_ERR_KEY_NOT_FOUND)
    error= HA_ERR_END_OF_FILE;
  m_scan_ended= error == HA_ERR_END_OF_FILE;
  if (m_scan_ended && table->part_info)
    if (int failed= source_ended())
      return failed;
  return error;
}

int ha_terrace::rnd_pos(uchar *buf, uchar *place)
{
  if (!m_cursor || m_tree != 0)
    if (int error= open_cursor(0, false))
      return error;
  encode_reference(place, &m_key);
  m_prefix_set= false;
  m_gap= ON_ROW;
  m_direction= FORWARD;
  m_steps= 0;
  int error= fetch(TERRACE_SEEK_AT_LEAST, &m_key, &m_key, 1);
  if (error == HA_ERR_END_OF_FILE)
    return HA_ERR_KEY_NOT_FOUND;
  return error ? error : unpack(buf, &m_key);
}

/* A position is the primary key in the server's format (key_copy), or the hidden row id. */
void ha_terrace::position(const uchar *record)
{
  if (m_hidden)
    memcpy(ref, m_position.data(), MY_MIN(m_position.size(), 8));
  else
    key_copy(ref, record, table->key_info, table->key_info->key_length);
}

void ha_terrace::encode_reference(const uchar *place, Bytes *out)
{
  out->clear();
  if (m_hidden)
    out->append(place, 8);
  else
    m_primary.encode_image_bytes(place, ref_length, out);
}

void ha_terrace::encode_primary(const uchar *record, Bytes *out)
{
  out->clear();
  bool has_null;
  if (m_hidden)
    out->append(m_position.data(), m_position.size());
  else
    m_primary.encode_record(record, out, &has_null);
}

/** Orders positions as the rows' keys: merged index scans deliver rows in this order. */
int ha_terrace::cmp_ref(const uchar *one, const uchar *other)
{
  if (m_hidden)
    return memcmp(one, other, 8);
  return m_primary.compare_images(one, other, &m_compared[0], &m_compared[1]);
}

/* In READ COMMITTED, releases the lock of a row that didn't match. */
void ha_terrace::unlock_row()
{
  if (m_semi_read)
    m_semi_read= false;                 // nothing was locked
  else if (m_cursor && m_lock != TERRACE_LOCK_NONE && m_session && m_session->isolation() <= ISO_READ_COMMITTED)
    terrace_cursor_unlock_last(m_cursor);
}
