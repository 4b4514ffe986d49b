/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What the engine keeps of a table for the server:
    1 byte   version (2; of version 1 the rest is the definition version)
    1 byte   flags, below
    u16      length of the server's definition version (of the .frm), by which check_version tells after a crash which
             definition the engine's table has, and the definition version
    u16      with REPLACED or RENAMED: length of the name that it had, and that name
    u16      with RENAMED: length of the statement's number, and that, in digits
    rest     the layouts of its rows (row_layouts.h)
*/
#ifndef TERRACE_PROPERTIES_H
#define TERRACE_PROPERTIES_H

#include "server.h"
#include <string>

namespace terrace {

struct Properties
{
  enum : uchar
  {
    TEMPORARY= 1,               // dropped at the start if a former version left it
    CREATED= 2,                 // in doubt (in_doubt.h): the statement that made it was not seen to end
    DROPPED= 4,                 // in doubt: the statement that drops it was not seen to end
    REPLACED= 8,                // ALTER put it aside, under a name of its own
    RENAMED= 16,                // the last statement that renamed it, and the name before that
    CUTS= 32                    // long values are cut in keys (key_codec.h); tables of former builds refuse rows with such
  };
  uchar flags= 0;
  std::string version, origin, statement, layouts;

  Properties()= default;
  /** What isn't there is empty. */
  explicit Properties(const terrace_bytes &bytes);
  std::string bytes() const;
  bool has(uchar flag) const { return flags & flag; }
};

} // namespace terrace
#endif
