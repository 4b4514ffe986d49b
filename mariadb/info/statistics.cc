/* SPDX-License-Identifier: GPL-2.0-only */
#include "statistics.h"
#include "ha_terrace.h"
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "kill_scope.h"
#include "kept_statistics.h"
#include <chrono>

namespace terrace {

/** The keys of one leaf, in order. */
struct Leaf
{
  std::vector<std::string> keys;
};

static void take_key(void *context, terrace_bytes key)
{
  static_cast<Leaf *>(context)->keys.emplace_back(reinterpret_cast<const char *>(key.data), key.len);
}

static const uchar *bytes_in(const std::string &key)
{
  return reinterpret_cast<const uchar *>(key.data());
}

/** Rows whose key starts as this one does, about. */
static double group_size(terrace_table *handle, uint tree, const std::string &key, size_t length)
{
  uint64_t rows= 0;
  bool near= false;
  Bytes end;
  end.assign(key.data(), length);
  terrace_bytes high= successor(&end) ? bytes_of(end.data(), end.size()) : bytes_of(nullptr, 0);
  if (terrace_table_records_in_range(handle, tree, bytes_of(key.data(), length), high, &rows, &near))
    return 0;
  return (double) rows;
}

/**
  For each row of the leaf, one part in the size of its group, added up.
  @param edges  whether the first and the last group may go on in other leaves
*/
static double values_in(const Leaf &leaf, terrace_table *handle, uint tree, const KeyCodec &index, uint parts, bool edges)
{
  double sum= 0;
  const size_t count= leaf.keys.size();
  for (size_t from= 0, to; from < count; from= to)
  {
    const std::string &first= leaf.keys[from];
    const size_t length= index.prefix_length(bytes_in(first), first.size(), parts);
    to= from + 1;
    while (to < count && length && !leaf.keys[to].compare(0, length, first, 0, length))
      to++;
    const double here= (double) (to - from);
    const double all= edges && (from == 0 || to == count) ? group_size(handle, tree, first, length) : here;
    sum+= here / MY_MAX(here, all);
  }
  return sum;
}

Statistics::Turn::Turn(Statistics *of) : lock(of->turn, std::defer_lock)
{
  while (!lock.try_lock_for(std::chrono::milliseconds(100)))
    if (current_thd && is_killed(current_thd))
      return;
}

void Statistics::sample(TABLE *table, terrace_table *handle, const std::vector<KeyCodec> &indexes, bool hidden,
                        ulonglong rows)
{
  Heard heard;
  std::vector<std::vector<double>> found(indexes.size());
  for (uint at= 0; at < indexes.size(); at++)
  {
    const uint tree= hidden ? at + 1 : at, own= indexes[at].own_parts(), parts= table->key_info[at].ext_key_parts;
    std::vector<Leaf> leaves;
    size_t sampled= 0;
    for (uint place= 0; place < LEAVES; place++)
    {
      Leaf leaf;
      if (terrace_table_sample(handle, tree, (place + 0.5) / LEAVES, take_key, &leaf))
        return;
      // A tree of few leaves gives the same leaf again.
      if (!leaves.empty() && leaf.keys == leaves.back().keys)
        continue;
      sampled+= leaf.keys.size();
      leaves.push_back(std::move(leaf));
    }
    const bool whole= leaves.size() == 1 && sampled >= rows;
    double last= 1;
    for (uint part= 1; part <= parts; part++)
    {
      double sum= 0;
      if (last < (double) rows && !(part >= own && indexes[at].is_distinct()))
        for (const Leaf &leaf : leaves)
          sum+= values_in(leaf, handle, tree, indexes[at], part, !whole);
      const double all= sum && sampled ? sum / (double) sampled * (double) rows : (double) rows;
      last= MY_MIN(MY_MAX(last, all), MY_MAX(1.0, (double) rows));
      found[at].push_back(last);
    }
  }
  std::lock_guard<std::mutex> lock(guard);
  values.swap(found);
  sampled_rows.store(rows, std::memory_order_relaxed);
}

/*
  Kept: a version (1 byte), the rows (8 bytes), for each index the number of its prefixes (1 byte) and for each of them
  the number of values (8 bytes, a double). Little-endian.
*/
static const uchar KEPT_VERSION= 1;

bool Statistics::load(const std::string &key, TABLE *table)
{
  std::string row;
  if (!read_statistics(key, &row) || row.size() < 9 || (uchar) row[0] != KEPT_VERSION)
    return false;
  const uchar *at= bytes_in(row) + 1, *end= bytes_in(row) + row.size();
  const ulonglong rows= uint8korr(at);
  at+= 8;
  std::vector<std::vector<double>> found;
  for (uint index= 0; index < table->s->keys; index++)
  {
    if (at >= end || *at != table->key_info[index].ext_key_parts || (size_t) (end - at - 1) < *at * 8U)
      return false;
    found.emplace_back();
    const uint parts= *at++;
    for (uint part= 0; part < parts; part++, at+= 8)
    {
      double number;
      float8get(number, at);
      if (!(number >= 1))
        return false;
      found.back().push_back(number);
    }
  }
  if (at != end)
    return false;
  std::lock_guard<std::mutex> lock(guard);
  values.swap(found);
  sampled_rows.store(rows, std::memory_order_relaxed);
  return true;
}

void Statistics::keep(const std::string &key, bool durable)
{
  std::string row(1, (char) KEPT_VERSION);
  {
    std::lock_guard<std::mutex> lock(guard);
    const ulonglong rows= sampled_rows.load(std::memory_order_relaxed);
    if (rows == NEVER || rows < LARGE)
      return;
    uchar bytes[8];
    int8store(bytes, rows);
    row.append(reinterpret_cast<char *>(bytes), 8);
    for (const std::vector<double> &index : values)
    {
      row+= (char) index.size();
      for (double number : index)
      {
        float8store(bytes, number);
        row.append(reinterpret_cast<char *>(bytes), 8);
      }
    }
  }
  keep_statistics(key, row, durable);
}

void Statistics::fill(TABLE *table, ulonglong rows)
{
  // Half of it, as InnoDB says: the optimizer takes scans for cheaper, and look-ups for dearer, than they are.
  // optimizer_adjust_secondary_key_costs = 'fix_innodb_cardinality' has the whole of it, from either engine.
  const ulong share_of= current_thd && !thd_double_innodb_cardinality(current_thd) ? 1 : 2;
  std::lock_guard<std::mutex> lock(guard);
  const double then= (double) sampled_rows.load(std::memory_order_relaxed);
  for (uint at= 0; at < table->s->keys && at < values.size(); at++)
  {
    KEY *key= table->key_info + at;
    if (!key->rec_per_key)
      continue;
    const std::vector<double> &sampled= values[at];
    for (uint part= 0; part < key->ext_key_parts; part++)
    {
      // Where each row had a value of its own, or there was none, each that has come since has one, too.
      const bool shared= part < sampled.size() && sampled[part] < then;
      ulong share= shared ? (ulong) ((double) rows / sampled[part] + 0.5) / share_of : 1;
      key->rec_per_key[part]= MY_MAX(1, share);
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

std::string ha_terrace::statistics_key() const
{
  return terrace::statistics_of(m_table, m_name);
}

static int killed()
{
  return current_thd && is_killed(current_thd) ? HA_ERR_ABORTED_BY_USER : 0;
}

/** Also keeps the sample. The caller has the turn. Handler error: the connection is killed. */
int ha_terrace::sample_statistics(bool durable)
{
  m_statistics->sample(table, m_table, m_indexes, m_hidden, stats.records);
  if (int error= killed())
    return error;
  const std::string key= statistics_key();
  if (!key.empty())
    m_statistics->keep(key, durable);
  return 0;
}

int ha_terrace::refresh_statistics(bool fill)
{
  if (!m_statistics->is_current(stats.records))
  {
    const Statistics::Turn turn(m_statistics);
    if (!turn.is_taken())
      return HA_ERR_ABORTED_BY_USER;
    // Perhaps another has made it meanwhile.
    if (!m_statistics->is_current(stats.records))
    {
      const std::string key= stats.records >= Statistics::LARGE ? statistics_key() : "";
      const bool kept= !key.empty() && m_statistics->load(key, table) && m_statistics->is_current(stats.records);
      if (!kept)
        if (int error= sample_statistics(false))
          return error;
    }
    fill= true;
  }
  if (fill)
    m_statistics->fill(table, stats.records);
  return 0;
}

int ha_terrace::analyze(THD *thd, HA_CHECK_OPT *)
{
  {
    const Heard heard;
    if (int32_t code= terrace_table_recount(m_table))
    {
      if (is_killed(thd))
        thd->send_kill_message();
      else
        report_error(code, "the rows could not be counted");
      return HA_ADMIN_FAILED;
    }
  }
  if (int error= info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_TIME))
    return error;
  const Statistics::Turn turn(m_statistics);
  if (!turn.is_taken() || sample_statistics(true))
  {
    thd->send_kill_message();
    return HA_ADMIN_FAILED;
  }
  m_statistics->fill(table, stats.records);
  return HA_ADMIN_OK;
}
