/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Sequences. The server keeps a sequence as a table of one row, which it changes each time a range of values is reserved.
  The change is not the calling transaction's: it commits by itself, before any of its values is handed out, so a rollback takes no value
  back, and no value comes twice after a crash (of the server if terrace_flush_log_at_trx_commit is 2, of the machine if it is 1). For the same reason a read sees what is
  committed now, whatever the session's view is. Writers of one sequence come one by one: the server has a mutex for it.
*/
#include "ha_terrace.h"
#include "globals.h"

using namespace terrace;

/** A new transaction for the next cursor. Cursors of the former one are closed. Handler error. */
int ha_terrace::begin_own_read()
{
  end_own_read();
  if (int error= map(terrace_txn_begin(engine, TERRACE_ISOLATION_READ_COMMITTED, &m_own_read)))
    return error;
  m_own_read_heard.emplace(m_own_read);
  return 0;
}

void ha_terrace::close_own_read()
{
  close_cursor();
  free_retired();
  m_own_read_heard.reset();
  terrace_txn_close(m_own_read);
  m_own_read= nullptr;
}

/** Inserts the row (no old_data) or replaces it, committed when it returns. Handler error. */
int ha_terrace::write_sequence(const uchar *old_data, const uchar *new_data)
{
  if (!m_hidden || table->s->keys)
    return HA_ERR_UNSUPPORTED;
  m_primary_bytes.clear();
  if (old_data)
    encode_primary(old_data, &m_primary_bytes);
  else
  {
    uint64_t row_id;
    if (int error= next_row_id(&row_id))
      return error;
    mi_int8store(m_primary_bytes.reserve(8), row_id);
    m_primary_bytes.take(8);
  }
  m_row.encode(new_data, &m_row_bytes);
  const terrace_bytes key= bytes_of(m_primary_bytes.data(), m_primary_bytes.size());
  const terrace_bytes row= bytes_of(m_row_bytes.data(), m_row_bytes.size());
  terrace_txn *txn= nullptr;
  terrace_ticket *ticket= nullptr;
  int32_t code= terrace_txn_begin(engine, TERRACE_ISOLATION_READ_COMMITTED, &txn);
  if (code)
    return map(code);
  {
    const Heard heard(txn);
    if (old_data)
      code= terrace_row_update(txn, m_table, key, row, nullptr, 0, nullptr, 0, nullptr, 0);
    else
      code= terrace_row_insert(txn, m_table, key, row, nullptr, 0, nullptr, 0);
    if (!code)
      code= terrace_txn_commit(txn, &ticket);
  }
  if (!code)
    code= wait_for(&ticket, flush_of_commit(table->in_use));
  const int error= map(code);
  terrace_ticket_close(ticket);
  terrace_txn_close(txn);               // rolls back what is not committed
  if (!error)
    count_row(old_data ? &terrace_row_counts::updated : &terrace_row_counts::inserted);
  if (!error && !old_data)
    m_position.assign(m_primary_bytes.data(), m_primary_bytes.size());
  return error;
}
