/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Rows: converts between the server's record and the bytes that the engine stores.

  A row is
    1 byte    the layout that the row was written in (row_layouts.h)
    fixed     the record's null bits and all columns of fixed length, in the record's order and layout: a few runs,
              each copied at once (a single run if the table has no column of variable length)
    variable  each VARCHAR, CHAR of a character set, TEXT, BLOB, JSON and GEOMETRY that isn't NULL, in column order:
              the length as in the record (1 to 4 bytes; 2 for CHAR), then the bytes. A CHAR is stored without its
              trailing spaces.
  The engine may store long values of variable length off-page (terrace_span), so that the rest of the row fits into its leaf. A span's
  name is its column's position in the layout that the row was written in. A reader that doesn't ask for such a column gets the row
  with a hole in place of its bytes.
  Virtual columns, which are not stored, are not part of a row. Equal rows have equal bytes: the bytes of a NULL in the fixed part are the
  column's default, as in a record that InnoDB fills (the server compares those bytes, too).

  Decoding always copies the fixed part, and copies from the variable part only the requested columns. A BLOB's bytes are not copied: the
  record points to the row's bytes, which live until the cursor's next fetch.

  Bytes from the engine are not trusted: a row that doesn't match the layout is an error.
*/
#ifndef TERRACE_ROW_CODEC_H
#define TERRACE_ROW_CODEC_H

#include "server.h"
#include "bytes.h"
#include "row_layouts.h"
#include <vector>

namespace terrace {

/** The places in a row where bytes are missing because its reader did not ask for them. */
struct Holes
{
  const terrace_hole *first= nullptr;
  uint32 count= 0;
};

class RowCodec
{
public:
  void prepare(TABLE *table);
  /** Sets the layouts that earlier rows were written in. @return false if they don't match this table */
  bool know(const RowLayouts &layouts);
  /** The layout in which rows are written now. */
  const RowLayouts::Layout &layout() const { return written; }
  /** A column's value in `record`, to be used for rows of layouts without the column. */
  RowLayouts::Added value_of(uint16 number, const uchar *record) const;
  /** Encodes `record` as a row into `out`; `spans` gets the row's values that may be stored off-page. */
  void encode(const uchar *record, Bytes *out, std::vector<terrace_span> *spans= nullptr) const;
  /** The number of a row's first bytes that certainly contain these columns, whatever their values. `ALL`: the whole row is needed. */
  uint32 bytes_for(const MY_BITMAP *columns) const;
  static constexpr uint32 ALL= UINT_MAX32;
  /** The greatest length of a row. */
  uint64 longest() const { return longest_row; }
  /** Whether the part (span) `name` of a row, whose first bytes are given, belongs to a wanted column; `wanted` is null if all are. */
  bool wants_part(const uchar *row, size_t length, uint32 name, const MY_BITMAP *wanted) const;
  /**
    Decodes a row into `record`. `wanted`: the columns of variable length that are needed; null for all. `cut`: the row may continue after
    these bytes, which contain all wanted columns.
    @return false if the bytes are no row of this table, or a wanted column is a hole
  */
  bool decode(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted, bool cut= false,
              Holes holes= Holes()) const;

  /** If set: collects the columns that are NULL in a row and can't be NULL in `record`; they get their default. */
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
    uint16 number, part;                // the column's number in the table, and its position in the layout
    uint32 offset, null_offset, field_length, default_length;
    CHARSET_INFO *cs;
    const uchar *default_bytes;         // the bytes of a NULL in a record; null: zeroes
  };
  /* A virtual column's null bit, which is cleared in the stored row. */
  struct NullBit
  {
    uint32 offset;
    uchar mask;
  };
  /* A nullable column of fixed length. If it is NULL, the stored row has its default's bytes. `at` is an offset in the fixed part. */
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
  std::vector<uint32> ends;             // by column number: how far into a row the column may reach; a column that is not stored is in no row
  uint64 longest_row= 0;

  /* For rows of earlier layouts: the position of a column in the record, by column number. */
  struct Place
  {
    RowLayouts::Kind kind;
    bool stored, pads;                  // pads: a text padded with one-byte spaces
    uint8 length_bytes;
    uchar null_bit;
    uint32 offset, null_offset, length;
  };
  /* A layout, and the elements of `added` that its rows lack. */
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

/** The length that precedes a VARCHAR's or BLOB's bytes. */
inline size_t read_length(const uchar *at, uint bytes)
{
  switch (bytes) {
  case 1: return *at;
  case 2: return uint2korr(at);
  case 3: return uint3korr(at);
  default: return uint4korr(at);
  }
}

/** The bytes of a BLOB, whose pointer follows its length. */
inline const uchar *blob_pointer(const uchar *at, uint length_bytes)
{
  const uchar *bytes;
  memcpy(&bytes, at + length_bytes, sizeof bytes);
  return bytes;
}

} // namespace terrace
#endif
