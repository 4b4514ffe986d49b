/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Samples that outlive the server, so that its plans do: one row for each large sampled table, in an engine table that the
  server doesn't know, `#statistics`.

    key   the server's definition version of the table, then, of a partition, its name: a rename keeps them, whatever
          changes a table's indexes makes another version
    row   what statistics.cc writes

  A sample is no promise: what can't be written or read is sampled anew.
*/
#ifndef TERRACE_KEPT_STATISTICS_H
#define TERRACE_KEPT_STATISTICS_H

#include "server.h"
#include <set>
#include <string>

namespace terrace {

/** What of the engine's name of a table is in its key. */
std::string statistics_suffix(const std::string &name);
/** Under what the sample of a table is kept. `name` is the engine's. */
std::string statistics_key(const uchar *version, size_t length, const std::string &name);
/** False: there is none. */
bool read_statistics(const std::string &key, std::string *row);
/** @param durable  waits until it is */
void keep_statistics(const std::string &key, const std::string &row, bool durable);
/** Of a table that was dropped, emptied or changed. */
void forget_statistics(const std::string &key);
/** Forgets all others: of tables that went in a crash. */
void keep_statistics_of(const std::set<std::string> &wanted);

} // namespace terrace
#endif
