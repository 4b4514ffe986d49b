/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The layouts of a table's rows. Adding or dropping a column instantly (ALGORITHM=INSTANT) changes no row: each row starts with the number of
  the layout that it was written in. The table's properties describe the earlier layouts, and give the values that readers of their rows find
  in columns that were added later.

  As bytes (little-endian):
    u8        the number of the layout in which rows are written now, from 1
    u16       number of earlier layouts, each:
                u8 number, u32 bytes of the fixed part, u16 number of columns, each in stored order:
                  u16 present number of the column (0xffff: dropped since), u8 kind, u8 size of the length in bytes,
                  u8 mask of the null bit (0: never NULL), u16 offset of its byte, u32 offset and u32 length in the fixed part
    u16       number of columns added later, each:
                u16 column, u8 1 if NULL, u32 length, the value as in the record, a text without its trailing spaces
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
  /* A layout's number is one byte; beyond this limit the table is rebuilt. */
  static constexpr uint LAYOUTS_MAX= 250;

  enum Kind : uint8 { FIXED, VARCHAR, CHAR, BLOB };
  struct Column
  {
    uint16 number;
    uint8 kind, length_bytes, null_bit;
    uint16 null_at;
    uint32 at, length;                  // FIXED: offset and length in the fixed part, which starts with the null bits

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

  /** @return false if the bytes aren't valid layouts */
  bool parse(const uchar *bytes, size_t length);
  std::string bytes() const;
  /** Changes the present layout `was` to `is`, whose columns have the new numbers `moved[number]`; `more`: the values of added columns. */
  void change(const Layout &was, const Layout &is, const std::vector<uint16> &moved, std::vector<Added> &&more);
};

} // namespace terrace
#endif
