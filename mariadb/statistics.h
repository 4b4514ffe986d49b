/* SPDX-License-Identifier: GPL-2.0-only */
/*
  How many rows share a value, for each prefix of each index, as the optimizer wants to know.

  Sampled by LEAVES leaves of each index, spread over the whole tree. Each row in them counts for one part in the size of its group
  (the rows that share its value): the mean of that, times the rows of the table, is the number of values. Groups that
  lie within a leaf are counted there; those that reach beyond it, two in each leaf at most, are estimated as a range. So many small
  groups and a few large ones are both seen as they are.

  A sample is made when a table is first used, when it has grown or shrunk to twice or half, and by ANALYZE TABLE; it is
  shared by all handlers of the table. Those of large tables outlive the server (kept_statistics.h); a small table's is the
  same when it is made again. ANALYZE TABLE … PERSISTENT keeps the server's own statistics and histograms beside them.
*/
#ifndef TERRACE_STATISTICS_H
#define TERRACE_STATISTICS_H

#include "server.h"
#include "key_codec.h"
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace terrace {

class Statistics : public Handler_share
{
public:
  static const uint LEAVES= 20;
  static const ulonglong LARGE= 4096;   // rows

  /** Whether the sample is of a table of about this size. */
  bool is_current(ulonglong rows) const
  {
    ulonglong then= sampled_rows.load(std::memory_order_relaxed);
    return then != NEVER && rows <= then * 2 + 100 && then <= rows * 2 + 100;
  }
  /** The right to make a sample: the others wait for it. Not taken if the connection is killed. */
  class Turn
  {
  public:
    explicit Turn(Statistics *of);
    bool is_taken() const { return lock.owns_lock(); }

  private:
    std::unique_lock<std::timed_mutex> lock;
  };
  /** Whoever calls it has the turn. What is there stays if the table can't be read, or the connection is killed. */
  void sample(TABLE *table, terrace_table *handle, const std::vector<KeyCodec> &indexes, bool hidden, ulonglong rows);
  /** From what was kept under the key. False: nothing was, or not of these indexes. */
  bool load(const std::string &key, TABLE *table);
  void keep(const std::string &key, bool durable);
  /** Into the server's table. */
  void fill(TABLE *table, ulonglong rows);

private:
  static const ulonglong NEVER= ~0ULL;
  std::atomic<ulonglong> sampled_rows{NEVER};
  std::timed_mutex turn;                // held while the tables' pages, which may be far, are read
  std::mutex guard;                     // of `values`
  std::vector<std::vector<double>> values;      // of each index, of each prefix: how many there are
};

} // namespace terrace
#endif
