/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Layouts that rows of a table have. A column that is added or dropped at once (ALGORITHM=INSTANT) changes no row: each row
  starts with the number of the layout it was written in, and the table's properties tell what rows of earlier ones look
  like, and what their readers find in columns that came later.

  As bytes (little-endian):
    u8        the number of the layout that is written now, from 1
    u16       earlier layouts, each:
                u8 number, u32 bytes of the fixed part, u16 columns, each in stored order:
                  u16 column of the table as it is now (0xffff: dropped since), u8 kind, u8 bytes of the length,
                  u8 mask of the null bit (0: never NULL), u16 place of its byte, u32 place and u32 length in the fixed part
    u16       columns that came later, each:
                u16 column, u8 1 if NULL, u32 length, the value as the record has it, a text without its trailing spaces
*/
#ifndef TERRACE_ROW_LAYOUTS_H
#define TERRACE_ROW_LAYOUTS_H

#include "server.h"
#include <string>
#include <vector>

namespace terrace {

struct RowLayouts
{
  static constexpr uint16 DROPPED= 0xffff;
  /* Numbers are one byte; then all rows are stored anew. */
  static constexpr uint LAYOUTS_MAX= 250;

  enum Kind : uint8 { FIXED, VARCHAR, CHAR, BLOB };
  struct Column
  {
    uint16 number;
    uint8 kind, length_bytes, null_bit;
    uint16 null_at;
    uint32 at, length;                  // FIXED: in the fixed part, which starts with the null bits

    bool stored_as(const Column &other) const
    {
      return kind == other.kind && length_bytes == other.length_bytes && null_bit == other.null_bit &&
             null_at == other.null_at && at == other.at && (kind != FIXED || length == other.length);
    }
  };
  struct Layout
  {
    uchar number;
    uint32 fixed_length;
    std::vector<Column> columns;
  };
  struct Added
  {
    uint16 number;
    bool null;
    std::string value;                  // VARCHAR and BLOB: without the length
  };

  uchar current= 1;
  std::vector<Layout> earlier;
  std::vector<Added> added;

  /** @return false if the bytes are no layouts */
  bool parse(const uchar *bytes, size_t length);
  std::string bytes() const;
  /** `was` are the rows' columns now. They become `is`, whose numbers are the new ones: `moved[number]`. */
  void change(const Layout &was, const Layout &is, const std::vector<uint16> &moved, std::vector<Added> &&more);
};

} // namespace terrace
#endif
