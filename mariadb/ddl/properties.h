/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The properties that the engine stores with a table for the server:
    1 byte   version (3 with FOREIGN, else 2; in version 1 the rest is the definition version)
    1 byte   flags, below
    u16      length of the server's definition version (of the .frm), and that version. By it check_version tells after a crash which
             definition the engine's table has
    u16      with REPLACED or RENAMED: length of the table's previous name, and that name
    u16      with RENAMED: length of the statement's identifier, and that identifier, in digits
    u16      with FOREIGN: number of foreign keys; then for each its length (u16) and itself (foreign_key.h)
    rest     the layouts of its rows (row_layouts.h)
*/
#ifndef TERRACE_PROPERTIES_H
#define TERRACE_PROPERTIES_H

#include "server.h"
#include <string>
#include <vector>

namespace terrace {

struct Properties
{
  enum : uchar
  {
    TEMPORARY= 1,               // dropped at startup if an earlier version left it
    CREATED= 2,                 // in doubt (in_doubt.h): the end of the statement that created it is not recorded
    DROPPED= 4,                 // in doubt: the end of the statement that drops it is not recorded
    REPLACED= 8,                // ALTER moved it aside, under a temporary name
    RENAMED= 16,                // records the last statement that renamed it, and the name before that
    CUTS= 32,                   // long values are cut in keys (key_codec.h); tables of earlier builds refuse rows with such values
    FOREIGN= 64                 // the table has foreign keys; set by bytes()
  };
  uchar flags= 0;
  std::string version, origin, statement, layouts;
  std::vector<std::string> foreign;     // foreign keys

  Properties()= default;
  /** Members that the bytes don't contain stay empty. */
  explicit Properties(const terrace_bytes &bytes);
  std::string bytes() const;
  bool has(uchar flag) const { return flags & flag; }

private:
  bool take_foreign(const uchar **at, const uchar *end);
};

} // namespace terrace
#endif
