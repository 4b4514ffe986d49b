/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Index statistics for the optimizer: how many rows share a value, for each prefix of each index.

  A sample reads LEAVES leaves of each index, spread over the whole tree. Each row in them counts as one divided by the size of its group (the
  rows that share its value). The mean of that, times the number of rows of the table, is the number of values. Groups within a leaf are
  counted there. Groups that extend beyond it, at most two in each leaf, are estimated as a range. So the sample is right both for a large
  number of small groups and for a few large ones.

  A sample is taken when a table is first used, when it has doubled or halved in size, and by ANALYZE TABLE. All handlers of the table share
  it. Samples of large tables are kept across restarts of the server (kept_statistics.h); taking a small table's sample again gives the same
  result. ANALYZE TABLE … PERSISTENT stores the server's own statistics and histograms in addition.
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

  /** Whether the sample was taken when the table had about this size. */
  bool is_current(ulonglong rows) const
  {
    ulonglong then= sampled_rows.load(std::memory_order_relaxed);
    return then != NEVER && rows <= then * 2 + 100 && then <= rows * 2 + 100;
  }
  /** The right to take a sample; other sessions wait for it. Not acquired if the connection is killed. */
  class Turn
  {
  public:
    explicit Turn(Statistics *of);
    bool is_taken() const { return lock.owns_lock(); }

  private:
    std::unique_lock<std::timed_mutex> lock;
  };
  /** Takes a sample. The caller holds the Turn. The previous sample stays if the table can't be read, or the connection is killed. */
  void sample(TABLE *table, terrace_table *handle, const std::vector<KeyCodec> &indexes, bool hidden, ulonglong rows);
  /** Loads the sample kept under the key. Returns false if there is none, or if it is of other indexes. */
  bool load(const std::string &key, TABLE *table);
  void keep(const std::string &key, bool durable);
  /** Fills in the statistics of the server's TABLE. */
  void fill(TABLE *table, ulonglong rows);

private:
  static const ulonglong NEVER= ~0ULL;
  std::atomic<ulonglong> sampled_rows{NEVER};
  std::timed_mutex turn;                // held while the table's pages are read, perhaps from a lower tier
  std::mutex guard;                     // protects `values`
  std::vector<std::vector<double>> values;      // for each index and each of its prefixes: the number of values
};

} // namespace terrace
#endif
