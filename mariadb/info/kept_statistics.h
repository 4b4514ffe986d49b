/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Statistics samples that are kept across restarts of the server, so that its plans stay the same: one row for each large sampled table, in
  an engine table that the server doesn't know, `#statistics`.

    key   the server's definition version of the table, followed by the name of the partition if it is one: a rename keeps both, and every
          change of a table's indexes makes another version
    row   the format of statistics.cc

  Samples may be lost: one that can't be written or read is taken again.
*/
#ifndef TERRACE_KEPT_STATISTICS_H
#define TERRACE_KEPT_STATISTICS_H

#include "server.h"
#include <set>
#include <string>

namespace terrace {

/** The part of the engine's name of a table that is in its key. */
std::string statistics_suffix(const std::string &name);
/** The key under which the sample of a table is kept. `name` is the engine's. */
std::string statistics_key(const uchar *version, size_t length, const std::string &name);
/** Returns false if there is no sample. */
bool read_statistics(const std::string &key, std::string *row);
/** @param durable  waits until the sample is durable */
void keep_statistics(const std::string &key, const std::string &row, bool durable);
/** Removes the sample of a table that was dropped, emptied or changed. */
void forget_statistics(const std::string &key);
/** Removes all samples except the wanted ones: those of tables that were lost in a crash. */
void keep_statistics_of(const std::set<std::string> &wanted);

} // namespace terrace
#endif
