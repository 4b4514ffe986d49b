/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Rows: the server's record ↔ the bytes the engine stores.

  A row is
    1 byte    the layout the row was written in (row_layouts.h)
    fixed     the record's null bits and every column of fixed length, in the record's own order and layout: a few
              runs, each moved by one copy (one run in all, if the table has no column of variable length)
    variable  for each VARCHAR, CHAR of a character set, TEXT, BLOB, JSON, GEOMETRY, in column order and unless NULL:
              the length as the record has it (1 to 4 bytes; 2 for CHAR), then the bytes. CHAR without its trailing
              spaces.
  Long values of variable length may be kept apart by the engine (terrace_span), so that the rest has room in its leaf. A span's
  name is its column's place in the layout that the row was written in. A reader who doesn't ask for such a column gets the row
  with a hole where its bytes were.
  Columns that are not stored (virtual ones) are not in it. Equal rows have equal bytes: a NULL's place in the fixed part
  has the column's default, as it has in a record that InnoDB fills (the server compares those places too).

  Decoding copies the fixed part always, and of the variable part only what is asked for. A BLOB's bytes are not
  copied: the record points into the row's bytes, which live until the cursor's next fetch.

  Bytes from the engine are not trusted: a row that doesn't fit is an error.
*/
#ifndef TERRACE_ROW_CODEC_H
#define TERRACE_ROW_CODEC_H

#include "server.h"
#include "bytes.h"
#include "row_layouts.h"
#include <vector>

namespace terrace {

/** Where bytes of a row are missing that its reader did not ask for. */
struct Holes
{
  const terrace_hole *first= nullptr;
  uint32 count= 0;
};

class RowCodec
{
public:
  void prepare(TABLE *table);
  /** What rows were written in earlier. @return false if it isn't about this table */
  bool know(const RowLayouts &layouts);
  /** What rows written now look like. */
  const RowLayouts::Layout &layout() const { return written; }
  /** A column's value, for rows of layouts without it. */
  RowLayouts::Added value_of(uint16 number, const uchar *record) const;
  /** Makes `out` the row of `record`; `spans` gets the values of it that may be kept apart. */
  void encode(const uchar *record, Bytes *out, std::vector<terrace_span> *spans= nullptr) const;
  /** How many of a row's first bytes surely have these columns, whatever their values are. `ALL`: nothing less than the row. */
  uint32 bytes_for(const MY_BITMAP *columns) const;
  static constexpr uint32 ALL= UINT_MAX32;
  /** No row has more bytes. */
  uint64 longest() const { return longest_row; }
  /** Whether a part of a row, of which these are the first bytes, is of a column that is wanted; null: all are. */
  bool wants_part(const uchar *row, size_t length, uint32 name, const MY_BITMAP *wanted) const;
  /**
    Fills `record`. `wanted` tells which columns of variable length are needed; null: all. `cut`: the row may go on behind
    these bytes, which have all that is wanted.
    @return false if the bytes are no row of this table, or have a hole where something is wanted
  */
  bool decode(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted, bool cut= false,
              Holes holes= Holes()) const;

  /** If it is given: columns that are NULL in a row and can't be in `record` go there, and have their default. */
  std::vector<uint16> *lost_nulls= nullptr;

private:
  struct Run
  {
    uint32 offset, length;
  };
  static constexpr auto FIXED= RowLayouts::FIXED;
  static constexpr auto VARCHAR= RowLayouts::VARCHAR;
  static constexpr auto CHAR= RowLayouts::CHAR;
  static constexpr auto BLOB= RowLayouts::BLOB;
  struct Variable
  {
    RowLayouts::Kind kind;
    uint8 length_bytes;
    uchar null_bit;
    uint16 number, part;                // of the column in the table, and in the layout
    uint32 offset, null_offset, field_length, default_length;
    CHARSET_INFO *cs;
    const uchar *default_bytes;         // what a NULL's place has in a record; null: zeroes
  };
  /* A virtual column's null bit, which is cleared in the stored row. */
  struct NullBit
  {
    uint32 offset;
    uchar mask;
  };
  /* A column of fixed length that may be NULL: then the stored row has its default's bytes. `at` is in the fixed part. */
  struct Nullable
  {
    uint32 null_offset, at, length;
    uchar null_bit;
    const uchar *default_bytes;
  };
  std::vector<NullBit> absent;
  std::vector<Nullable> nullables;
  std::vector<Run> runs;
  std::vector<Variable> variables;
  size_t fixed_length= 0;
  std::vector<uint32> ends;             // how far in a row a column may reach, by its number; no row has one that is not stored
  uint64 longest_row= 0;

  /* For rows of earlier layouts: where a column is in the record, by its number. */
  struct Place
  {
    RowLayouts::Kind kind;
    bool stored, pads;                  // pads: a text that goes on with spaces of one byte
    uint8 length_bytes;
    uchar null_bit;
    uint32 offset, null_offset, length;
  };
  /* A layout, and which of `added` its rows lack. */
  struct Earlier
  {
    RowLayouts::Layout layout;
    std::vector<uint> lacks;
  };
  const RowLayouts::Layout *layout_of(const uchar *row, size_t length) const;
  bool decode_earlier(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted, bool cut, Holes holes) const;
  void measure(const RowLayouts::Layout &layout);
  bool put(uint16 number, bool null, const uchar *from, size_t bytes, uchar *record) const;

  RowLayouts::Layout written;
  std::vector<Place> places;
  std::vector<Earlier> earlier;
  std::vector<RowLayouts::Added> added;
  const uchar *defaults= nullptr;
  size_t record_length= 0;
};

/** The length that stands before a VARCHAR's or BLOB's bytes. */
inline size_t read_length(const uchar *at, uint bytes)
{
  switch (bytes) {
  case 1: return *at;
  case 2: return uint2korr(at);
  case 3: return uint3korr(at);
  default: return uint4korr(at);
  }
}

/** The bytes of a BLOB, behind its length. */
inline const uchar *blob_pointer(const uchar *at, uint length_bytes)
{
  const uchar *bytes;
  memcpy(&bytes, at + length_bytes, sizeof bytes);
  return bytes;
}

} // namespace terrace
#endif
