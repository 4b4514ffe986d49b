/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Semi-consistent reads, as in InnoDB below REPEATABLE READ: an UPDATE that meets a row that another transaction has locked reads its last
  committed version. If that doesn't match, the statement continues without waiting. If it does, the server asks for the next row and gets
  this one again, after waiting for its lock, or the next row if it is gone. The look-up of one row by its key always waits.
*/
#include "ha_terrace.h"
#include "globals.h"

using namespace terrace;

void ha_terrace::try_semi_consistent_read(bool wanted)
{
  m_semi_wanted= wanted && m_session && m_session->isolation() <= ISO_READ_COMMITTED;
  if (m_cursor)
    terrace_cursor_set_semi_consistent(m_cursor, m_semi_wanted);
}

/** Reads the current row again to lock it, or the row after it. */
int ha_terrace::read_again(uchar *buf, Direction direction, const Bytes *prefix)
{
  m_semi_read= false;
  if (m_current.key != m_key.data())
    m_key.assign(m_current.key, m_current.key_length);
  m_direction= direction;
  terrace_cursor_set_semi_consistent(m_cursor, false);
  int error= fetch(direction == FORWARD ? TERRACE_SEEK_AT_LEAST : TERRACE_SEEK_AT_MOST, &m_key, prefix, 1);
  terrace_cursor_set_semi_consistent(m_cursor, m_semi_wanted);
  if (error != HA_ERR_END_OF_FILE)
    return error ? error : unpack(buf, prefix);
  m_current= Row();
  m_batch.ended= true;
  return error;
}
