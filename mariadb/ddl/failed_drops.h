/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Drops that the engine could not do because its volume was unavailable. The server continues where it can't undo its own steps: after an
  ALTER it keeps the new table, after DROP PARTITION the new list. So these drops are recorded in the server's data directory, in the file
  `terrace-failed-drops`, and done at the next start of the engine, if the server has no definition of the table by then. Each entry:

    u16      length of the engine's name of the table, and that name
    u16      length of the version of its definition, and that version
*/
#ifndef TERRACE_FAILED_DROPS_H
#define TERRACE_FAILED_DROPS_H

#include <string>
#include <utility>
#include <vector>

namespace terrace {

/** Records a failed drop, durably. If recording fails, the error log says so, and the table stays. */
void note_failed_drop(const std::string &name, const std::string &version);
/** The recorded names and versions. */
std::vector<std::pair<std::string, std::string>> failed_drops();
void forget_failed_drops();

} // namespace terrace
#endif
