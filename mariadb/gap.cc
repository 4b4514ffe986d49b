/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Where a scan stands after a read that found nothing. Of the server, HANDLER alone goes on from there, and finds what it finds with
  InnoDB: behind the last row PREV gives the last one; after a key that is not there NEXT gives the row behind its place and PREV the one before.
*/
#include "ha_terrace.h"
#include "globals.h"

using namespace terrace;

/** Notes the place, if the read has found nothing. Returns the error. */
int ha_terrace::came_to_gap(Gap gap, int error)
{
  // The end of a range is no place that anybody goes on from.
  if ((error == HA_ERR_END_OF_FILE || error == HA_ERR_KEY_NOT_FOUND) && !m_ends)
    m_gap= gap;
  return error;
}

/** The row next to the place, in the direction. */
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
