/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The position of a scan after a read that found no row. In the server only HANDLER continues from such a position, and gets the same rows as
  with InnoDB: past the last row PREV returns the last row; after a missing key NEXT returns the row after its position and PREV the row before.
*/
#include "ha_terrace.h"
#include "globals.h"

using namespace terrace;

/** Records the position if the read has found no row. Returns `error`. */
int ha_terrace::came_to_gap(Gap gap, int error)
{
  // No scan continues from the end of a range.
  if ((error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND) && !m_ends)
    m_gap= gap;
  return error;
}

/** Reads the row next to the recorded position, in the given direction. */
int ha_terrace::leave_gap(uchar *buf, Direction direction, const Bytes *prefix)
{
  const Gap gap= m_gap, end= direction == FORWARD ? BEHIND_LAST : BEFORE_FIRST;
  if (prefix || gap == end)
    return HA_ERR_END_OF_FILE;
  int error;
  if (gap == BEHIND_LAST || gap == BEFORE_FIRST)
    error= seek(buf, direction == FORWARD ? TERRACE_SEEK_FIRST : TERRACE_SEEK_LAST, nullptr, nullptr);
  else if (KeyCodec::CutPart cut; m_indexes[active_index].find_cut(m_prefix.data(), m_prefix.size(), 0, &cut))
    error= seek_cut_bound(buf, direction == FORWARD ? (gap == AT_PREFIX ? HA_READ_KEY_OR_NEXT : HA_READ_AFTER_KEY)
                                                    : (gap == AT_PREFIX ? HA_READ_BEFORE_KEY : HA_READ_PREFIX_LAST_OR_PREV));
  else
  {
    Bytes key;
    key.assign(m_prefix.data(), m_prefix.size());
    if (gap == BEHIND_PREFIX && !successor(&key))
      error= direction == FORWARD ? HA_ERR_END_OF_FILE : seek(buf, TERRACE_SEEK_LAST, nullptr, nullptr);
    else
      error= seek(buf, direction == FORWARD ? TERRACE_SEEK_AT_LEAST : TERRACE_SEEK_BEFORE, &key, nullptr);
  }
  return came_to_gap(end, error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error);
}
