/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Planted bugs of foreign keys: faults that a test must find (tests/sql/foreign_keys/test_planted.py). They exist only in a handler that is built with
  PLANTED=1, and there only if TERRACE_PLANTED_BUG names one in the server's environment.
*/
#ifndef TERRACE_FOREIGN_PLANTED_H
#define TERRACE_FOREIGN_PLANTED_H

#include <cstdlib>
#include <cstring>

namespace terrace {

enum class PlantedBug
{
  LOOKS_BY_VIEW,                        // look-ups of parents and children read the transaction's view, and lock nothing
  CASCADE_KEPT,                         // what cascaded from a row stays when the row fails
  CHILD_PASSED,                         // a cascade changes only the first of a parent's children
  LAST_UNCHECKED                        // the last rows of a bulk load come without a look for their parents
};

#ifdef TERRACE_PLANTED_BUGS
inline bool is_planted(PlantedBug bug)
{
  static const char *const names[]= {"LOOKS_BY_VIEW", "CASCADE_KEPT", "CHILD_PASSED", "LAST_UNCHECKED"};
  static const char *const planted= getenv("TERRACE_PLANTED_BUG");
  return planted && !strcmp(planted, names[static_cast<int>(bug)]);
}
#else
constexpr bool is_planted(PlantedBug) { return false; }
#endif

} // namespace terrace
#endif
