/* SPDX-License-Identifier: GPL-2.0-only */
#include "statistics.h"
#include "ha_terrace.h"
#include "globals.h"

namespace terrace {

/** Distinct values of an index's first `parts` parts, met by skipping. */
static double skip_through(terrace_cursor *cursor, terrace_table *handle, uint tree, const KeyCodec &index, uint parts,
                           ulonglong rows)
{
  terrace_fetch fetch= {};
  fetch.size= sizeof fetch;
  fetch.want= TERRACE_WANT_ENTRY;
  fetch.max_rows= 1;
  fetch.seek= TERRACE_SEEK_FIRST;
  terrace_batch batch= {};
  batch.size= sizeof batch;
  Bytes key;
  uint values= 0;
  uint64_t passed= rows;
  while (terrace_cursor_fetch(cursor, &fetch, &batch) == TERRACE_OK)
  {
    terrace_row_head head;
    memcpy(&head, batch.data.data, sizeof head);
    const uchar *entry= batch.data.data + sizeof head;
    size_t length= index.prefix_length(entry, head.key_len, parts);
    if (!length)
      return 1;
    values++;
    key.assign(entry, length);
    if (!successor(&key))
      break;
    if (values >= Statistics::SKIPS)
    {
      terrace_table_records_in_range(handle, tree, bytes_of(nullptr, 0), bytes_of(key.data(), key.size()), &passed);
      break;
    }
    fetch.seek= TERRACE_SEEK_AT_LEAST;
    fetch.key= bytes_of(key.data(), key.size());
  }
  return values ? MY_MAX(1.0, (double) passed / values) : 1;
}

void Statistics::sample(TABLE *table, terrace_table *handle, const std::vector<KeyCodec> &indexes, bool hidden,
                        ulonglong rows)
{
  std::lock_guard<std::mutex> lock(guard);
  std::vector<std::vector<double>> found(indexes.size());
  terrace_txn *txn= nullptr;
  if (terrace_txn_begin(engine, TERRACE_ISOLATION_READ_COMMITTED, &txn))
    return;
  terrace_txn_statement_begin(txn);
  for (uint at= 0; at < indexes.size(); at++)
  {
    uint tree= hidden ? at + 1 : at, parts= indexes[at].own_parts();
    terrace_cursor_options options= {};
    options.size= sizeof options;
    options.index= tree;
    options.scan= true;
    terrace_cursor *cursor= nullptr;
    if (terrace_cursor_open(txn, handle, &options, &cursor))
      break;
    double last= (double) rows;
    for (uint part= 1; part <= parts; part++)
    {
      bool one= last <= 1.01 || (part == parts && indexes[at].is_unique());
      double sampled= one ? 1 : skip_through(cursor, handle, tree, indexes[at], part, rows);
      last= MY_MIN(last, sampled);
      found[at].push_back(last);
    }
    terrace_cursor_close(cursor);
  }
  terrace_txn_rollback(txn);
  terrace_txn_close(txn);
  rows_per_value.swap(found);
  sampled_rows.store(rows, std::memory_order_relaxed);
}

void Statistics::fill(TABLE *table, ulonglong)
{
  std::lock_guard<std::mutex> lock(guard);
  for (uint at= 0; at < table->s->keys && at < rows_per_value.size(); at++)
  {
    KEY *key= table->key_info + at;
    if (!key->rec_per_key)
      continue;
    const std::vector<double> &sampled= rows_per_value[at];
    for (uint part= 0; part < key->ext_key_parts; part++)
    {
      // Half of it, as InnoDB says: the optimizer takes scans for cheaper, and look-ups for dearer, than they are.
      ulong rows= part < sampled.size() ? (ulong) (sampled[part] + 0.5) / 2 : 1;
      key->rec_per_key[part]= MY_MAX(1, rows);
    }
  }
}

} // namespace terrace

using namespace terrace;

bool ha_terrace::attach_statistics()
{
  lock_shared_ha_data();
  m_statistics= static_cast<Statistics *>(get_ha_share_ptr());
  if (!m_statistics)
  {
    m_statistics= new Statistics;
    set_ha_share_ptr(m_statistics);
  }
  unlock_shared_ha_data();
  return true;
}

void ha_terrace::refresh_statistics(bool fill)
{
  if (!m_statistics->is_current(stats.records))
  {
    m_statistics->sample(table, m_table, m_indexes, m_hidden, stats.records);
    fill= true;
  }
  if (fill)
    m_statistics->fill(table, stats.records);
}

int ha_terrace::analyze(THD *, HA_CHECK_OPT *)
{
  if (int error= info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_TIME))
    return error;
  m_statistics->sample(table, m_table, m_indexes, m_hidden, stats.records);
  m_statistics->fill(table, stats.records);
  return HA_ADMIN_OK;
}
