/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Keys: encodes columns into bytes whose memcmp order is the index's order, and decodes them where possible.

  A key is the concatenation of its parts. No part's bytes are a prefix of another value's bytes of the same part, so
  a key's first parts are a prefix of the key's bytes, and a range of keys is a range of bytes.

  A part is
    null mark   only if the column may be NULL: 0 for NULL (nothing follows), 1 otherwise
    value       by kind:
      SIGNED, UNSIGNED   big-endian; signed with the sign bit flipped
      FLOAT, DOUBLE      big-endian IEEE; the sign bit flipped if positive, all bits if negative; -0 as 0
      FIXED              the column's own bytes, which sort correctly (DECIMAL, new temporal types, BINARY, UUID, INET6)
      VARBINARY          escaped: 00 → 00 FF; end 00 00
      TEXT               for each level of the collation the weights that strnxfrm makes, then their end (see below)
  and all its bytes are inverted if the index's part is DESC.

  The end of a text. NO PAD collations: escaped as VARBINARY; but those with several levels pad on all levels except the first. PAD SPACE
  collations compare as if the shorter text were padded with spaces without end. So trailing space weights are dropped, and at a space weight,
  or at the end, the key has a space weight followed by a mark: 1 a run of spaces, then a weight less than space; 2 the end; 3 a run of
  spaces, then a greater weight. After mark 1 comes the run's length, after mark 3 its complement (255 means that more follows). This gives
  the same order as endless padding: of the runs followed by a lesser weight the shorter is less, of those followed by a greater weight the
  shorter is greater, and the end sorts between them. For the common short text the end costs one weight and one byte.

  A part of variable length, or of many bytes, may be cut (`Cut`): if a value's encoding is too long, the key has its first bytes and a
  digest of all its bytes. Look-ups and uniqueness work as for a complete value. But values with the same first bytes are in the order of their
  digests, and reads in index order correct that (ha_cut.cc). So whatever a row's columns hold, its keys fit into a page.

  Columns that can't be decoded from the key (floats, texts) are stored in the entry's value: it has the bytes of each such column that is whole
  in the index, then of each such column of the primary key. So an index-only read never visits the primary tree. An entry without room for
  these bytes is bare: its value is empty, and the row is read instead.
*/
#ifndef TERRACE_KEY_CODEC_H
#define TERRACE_KEY_CODEC_H

#include "server.h"
#include "bytes.h"
#include <algorithm>
#include <string>
#include <vector>

namespace terrace {

/** Whether texts that exist in both character sets compare the same in both, so that their keys have the same bytes. */
bool sort_same(CHARSET_INFO *one, CHARSET_INFO *other);

/** Whether long values are cut, as in keys, or encoded in full. */
enum Cut { CUT, IN_FULL };

/** One column of a key. */
class KeyPart
{
public:
  /** `fields` are the table's, with their places in `record`. */
  void prepare(Field *const *fields, const uchar *record, const KEY_PART_INFO *info);
  /** A part that reads this column and writes what `other`, a part of another table's index for a column of a comparable type, writes of an equal value. */
  KeyPart written_as(const KeyPart &other) const;
  /** Of a part from written_as(): whether the other column can have the record's value. Bytes of another number never equal those of a BINARY, DECIMAL or time. */
  bool may_be_there(const uchar *record) const
  {
    if (!only_bytes || (nullable && record[null_offset] & null_bit))
      return true;
    const uchar *bytes;
    size_t count;
    text_of(record, &bytes, &count);
    return count == only_bytes;
  }
  /** Whether its values may need so much space that other parts should get theirs first. A type whose length may change in place counts at any length. */
  bool may_be_long() const { return kind == TEXT || kind == VARBINARY || (kind == FIXED && length > LONG_FIXED); }
  /** Values of more than `bytes` bytes are cut to `bytes`. */
  void cut_at(uint bytes)
  {
    cut= bytes;
    cuts= kind == TEXT || (kind == VARBINARY ? 2U * length + 2 > bytes : length > bytes);
  }
  bool may_cut() const { return cuts; }
  uint bytes_before_cut() const { return cut; }
  /** The part's greatest length in bytes, with its null mark. */
  uint longest() const { return nullable + (cut == UNCUT ? length : cut + DIGEST); }
  static const uint DIGEST= 16;         // bytes after the cut
  /** Moves past the part; sets `*was_cut` if the part is cut. */
  bool pass(const uchar **key, const uchar *end, bool *was_cut) const;
  bool is_cut(const uchar *key, const uchar *end) const
  {
    bool was_cut;
    return cuts && pass(&key, end, &was_cut) && was_cut;
  }

  /** Encodes the column of a record. Sets `*is_null` to whether it is NULL. */
  void encode_record(const uchar *record, Bytes *out, bool *is_null, Cut cutting= CUT) const;
  /** Encodes the part of the server's key image (key_copy). Moves `*key` past the part. */
  void encode_image(const uchar **key, Bytes *out, bool *is_null, Cut cutting= CUT) const;
  /**
    Compares two key images of the part, of a column that is never NULL, in the order of their encoded bytes. The buffers hold those bytes, if
    they must be encoded.
  */
  int compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const;
  /** Whether equal columns have equal bytes in this part and in `other`. `moved` maps this table's columns to the other's. */
  bool makes_same(const KeyPart &other, const std::vector<uint16> &moved) const
  {
    const bool text= kind == TEXT, has_spaces= text && is_char() && cs->state & MY_CS_NOPAD;
    return kind == other.kind && storage == other.storage && nullable == other.nullable && cut == other.cut &&
           descending == other.descending && whole == other.whole && moved[number] == other.number &&
           (!text || sort_same(cs, other.cs)) &&
           ((whole && !has_spaces) || (text ? length / cs->mbmaxlen == other.length / other.cs->mbmaxlen : length == other.length)) &&
           (text || storage != PLAIN || field_length == other.field_length);
  }
  /** Whether the column's bytes are the same in both records. */
  bool same(const uchar *one, const uchar *other) const;

  bool invertible() const { return whole && kind != FLOAT && kind != DOUBLE && kind != TEXT; }
  bool is_whole() const { return whole; }
  bool may_be_null() const { return nullable; }
  uint column() const { return number; }
  /** Bytes of the part in the server's key image. */
  uint image_length() const { return store_length; }

  /**
    Reads the part at `*key` into the record (if it is invertible) and moves past it; `*is_null` tells whether it was
    NULL. A part that isn't invertible is only skipped.
    @return false if the bytes aren't a valid part
  */
  bool decode(const uchar **key, const uchar *end, uchar *record, bool *is_null) const
  {
    const uchar *at= *key + nullable;
    if (!is_int || !record || end - at < 4 || (nullable && **key == null_mark))
      return decode_any(key, end, record, is_null);
    if (nullable)
      record[null_offset]&= (uchar) ~null_bit;
    int4store(record + offset, mi_uint4korr(at) ^ flip);
    *key= at + 4;
    *is_null= false;
    return true;
  }
  /** As decode(), but only as far as the value: decodes whether it is NULL. */
  bool decode_null(const uchar **key, const uchar *end, uchar *record, bool *is_null) const;
  /** Only moves past the part. */
  bool skip(const uchar **key, const uchar *end) const { bool n; return decode(key, end, nullptr, &n); }

  /** Formats the part as SQL text (key_words.h). */
  bool in_words(const uchar **key, const uchar *end, const TABLE *of, TABLE *like, uchar *record, MEM_ROOT *root, std::string *out) const;

  /** The column's own bytes, for an entry's value. Not called for NULL. */
  void append_original(const uchar *record, Bytes *out) const;
  bool restore_original(const uchar **value, const uchar *end, uchar *record) const;

private:
  enum Kind { SIGNED, UNSIGNED, FLOAT, DOUBLE, FIXED, VARBINARY, TEXT };
  enum Storage { PLAIN, VAR, BLOB };
  static const uint LEVELS= 6;
  static const uint WEIGHT_MAX= 4;

  bool decode_any(const uchar **key, const uchar *end, uchar *record, bool *is_null) const;
  void encode_value(const uchar *bytes, size_t length, Bytes *out) const;
  void put(const uchar *bytes, size_t length, Bytes *out, Cut cutting) const;
  bool skip_value(const uchar **key, const uchar *end, uchar invert) const;
  void encode_text(const uchar *text, size_t length, Bytes *out) const;
  void text_of(const uchar *record, const uchar **text, size_t *length) const;
  bool skip_text(const uchar **key, const uchar *end, uchar invert) const;
  bool is_char() const { return storage == PLAIN; }
  bool pads_at(uint level) const { return level ? rest_pads : pads; }

  static const uint UNCUT= UINT_MAX32, LONG_FIXED= 64;

  Kind kind;
  Storage storage;
  uint8 length_bytes;           // VAR and BLOB: size of the length in the record, in bytes
  bool nullable, descending, whole;
  bool marks;                   // keys have a null mark: as nullable says, except after written_as()
  bool pads;                    // TEXT: compares as if padded with spaces
  bool rest_pads;               // TEXT: the same, from the second level on
  bool is_int;                  // the column is a four-byte integer
  uint32 flip;                  // the bits of it that are inverted in the key
  bool by_code;                 // TEXT: compares characters by their codes, not by the weights of strnxfrm
  bool cuts= false;             // values may be cut
  uint cut= UNCUT;              // the most bytes of a value in a key
  uint only_bytes= 0;           // after written_as(): the other column's values have this many bytes; 0: any
  uchar null_bit;
  uchar null_mark;              // the null mark of NULL in the key
  uint16 length;                // bytes of the part in the server's key image
  uint16 store_length;          // the same, with its null and length bytes
  uint32 offset, null_offset, field_length;
  uint16 number;
  CHARSET_INFO *cs;
  uint levels;                  // TEXT: the number of levels
  uint level_flags[LEVELS];
  uint8 weight;                 // TEXT that pads on some level: bytes of one weight
  uchar space[LEVELS][WEIGHT_MAX];
};

/** One index of a table. */
class KeyCodec
{
public:
  /** `primary` is the codec of the table's primary key; null for the primary key itself and for tables without one. */
  /** `cuts`: whether the table's properties have the flag Properties::CUTS. */
  void prepare(TABLE *table, uint key_number, const KeyCodec *primary, bool cuts)
  {
    prepare(table->s, table->field, table->key_info, table->record[0], key_number, primary, cuts);
  }
  /** Of a table that is not open, by its definition. */
  void prepare(const TABLE_SHARE *share, uint key_number, const KeyCodec *primary, bool cuts)
  {
    prepare(share, share->field, share->key_info, share->default_values, key_number, primary, cuts);
  }
  /**
    The parts of an entry that its first `columns` columns fill, as the server counts them: of the index, then of the primary key without those that the
    index has. `each(part, column)` is called for each; a column of the primary key that the index has, too, comes twice.
  */
  template <typename Each> void each_part(uint columns, const Each &each) const
  {
    uint next= 0;
    for (; next < parts.size() && next < columns; next++)
      each(parts[next], next);
    for (size_t at= 0; at < tail.size() && next < columns; at++)
    {
      const uint column= extension[at] >= 0 ? (uint) extension[at] : next++;
      each(tail[at], column);
    }
  }

  /** Encodes the index's columns. Sets `*has_null` to whether one of them is NULL. */
  void encode_record(const uchar *record, Bytes *out, bool *has_null) const;
  /** Encodes the first parts of a key image; with extended keys parts of the primary key may follow the index's own. */
  void encode_image(const uchar *key, key_part_map parts, Bytes *out) const { encode_image(key, parts, out, CUT, UINT_MAX32); }
  /** As encode_image, up to part `last`, without cutting. */
  void encode_image_in_full(const uchar *key, key_part_map parts, uint last, Bytes *out) const { encode_image(key, parts, out, IN_FULL, last); }
  /** Encodes part `number` of a row (the index's own parts come first, then the primary key's), without cutting. */
  void encode_part_in_full(const uchar *record, uint number, Bytes *out) const
  {
    bool is_null;
    part(number).encode_record(record, out, &is_null, IN_FULL);
  }
  /** The length of such a part, if it is cut, up to the cut. */
  size_t bytes_before_cut(uint number) const { return part(number).may_be_null() + part(number).bytes_before_cut(); }
  /** As encode_image, for an image of `length` bytes. */
  void encode_image_bytes(const uchar *key, uint length, Bytes *out) const;
  /** Whether equal rows have equal entries in this index and in `other`. `moved` maps this table's columns to the other's. */
  bool makes_same(const KeyCodec &other, const std::vector<uint16> &moved) const
  {
    const auto same= [&](const KeyPart &one, const KeyPart &another) { return one.makes_same(another, moved); };
    return unique == other.unique && extension == other.extension &&
           std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(), same) &&
           std::equal(tail.begin(), tail.end(), other.tail.begin(), other.tail.end(), same);
  }
  /** Whether the index's columns have the same bytes in both records. */
  bool same(const uchar *one, const uchar *other) const;
  /** Appends the bytes that a covering read needs and can't decode from the key; nothing if they don't fit beside a key of `key_length` bytes. */
  void originals(const uchar *record, size_t key_length, Bytes *out) const;
  /** Compares two key images of this index, which has no nullable columns. The buffers are as for a part. */
  int compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const;
  enum Decoded { DAMAGED, WHOLE, BARE };
  /** How far an entry is decoded. Columns that can't be decoded from the key are in the entry's value, so the key is parsed only as far as needed. */
  struct Extent
  {
    uint parts= 0;                     // number of parts, of the index and then of the primary key
    uint walked= 0;                    // number of parts of the key that are parsed
    bool walks_last= true;             // the last of them is parsed whole, not only its null mark
  };
  /** The extent up to the last of these columns. */
  Extent extent(const MY_BITMAP *columns) const;
  const Extent &all() const { return whole; }
  /** Decodes the index's and the primary key's columns into `record`, up to `extent`. Returns BARE if the entry lacks values, which must be read from the row. */
  Decoded decode_entry(const uchar *key, size_t key_length, const uchar *value, size_t value_length, uchar *record,
                       Extent extent) const;
  /** Whether these columns can be decoded from the key alone. */
  bool gives_back(const MY_BITMAP *columns) const;
  /** Decodes into `record` the columns that can be decoded from the key alone. */
  bool decode_key(const uchar *key, size_t length, uchar *record) const;
  /** Formats the column values decoded from a key of this index, or from a prefix of a key; returns false if they can't be decoded (key_words.h). */
  bool in_words(const uchar *key, size_t length, const TABLE *of, TABLE *like, std::string *out) const;
  /** The length of the first `parts` parts of an entry's key, extended by the primary key's as the server counts them; 0 if the bytes aren't a
      valid key. */
  size_t prefix_length(const uchar *key, size_t length, uint parts) const;

  /** Whether some part of a key may be cut. */
  bool may_cut() const { return cuts_from < UINT_MAX32; }
  struct CutPart
  {
    size_t before, end;                // length of the key up to the cut, and up to the end of the digest
    uint part;
  };
  /** Finds the first cut part that ends after the first `covered` bytes of a key or of a prefix of whole parts. */
  bool find_cut(const uchar *key, size_t length, size_t covered, CutPart *found) const;
  /** The end of the last cut part up to which both bounds are the same, as are all keys between them. */
  size_t shared_cuts(const Bytes &one, const Bytes &other) const
  {
    size_t shared= 0;
    for (CutPart cut; find_cut(one.data(), one.size(), shared, &cut) && other.size() >= cut.end && !memcmp(one.data(), other.data(), cut.end);)
      shared= cut.end;
    return shared;
  }
  /** Removes from a bound the first cut part that ends after `shared` bytes, and all that follows: keys may not be ordered by it. @return whether anything was removed */
  bool widen(Bytes *bound, size_t shared) const
  {
    CutPart found;
    if (!find_cut(bound->data(), bound->size(), shared, &found))
      return false;
    bound->shrink(found.before);
    return true;
  }

  uint own_parts() const { return (uint) parts.size(); }
  bool is_unique() const { return unique; }
  /** Whether no two rows have the same values in all columns: a unique index may have any number of NULLs. */
  bool is_distinct() const
  {
    return unique && std::none_of(parts.begin(), parts.end(), [](const KeyPart &part) { return part.may_be_null(); });
  }
  /** Whether one of the index's columns is not stored. */
  bool has_virtual() const { return on_virtual; }
  /** Whether every part is a column's complete value, not a prefix. */
  bool is_whole() const { return all_whole; }

private:
  void prepare(const TABLE_SHARE *share, Field *const *fields, const KEY *keys, const uchar *record, uint key_number, const KeyCodec *primary, bool cuts);
  void encode_image(const uchar *key, key_part_map parts, Bytes *out, Cut cutting, uint last) const;
  void share_room(uint bytes);
  const KeyPart &part(uint at) const { return at < parts.size() ? parts[at] : tail[at - parts.size()]; }
  /** Whether the part's column is also one of the index's own, which precede it. */
  bool is_again(uint at) const { return at >= parts.size() && extension[at - parts.size()] >= 0; }

  std::vector<KeyPart> parts;          // the index's own parts
  std::vector<KeyPart> tail;           // the primary key's parts
  std::vector<int> extension;          // for each part of the tail: the own part that has the column whole, or -1
  Extent whole;
  bool unique= false, on_virtual= false, all_whole= true;
  uint cuts_from= UINT_MAX32;          // shorter keys have no cut part
};

/** Changes the bytes to the smallest ones greater than all that start with them; returns false if there are none. */
bool successor(Bytes *bytes);

} // namespace terrace
#endif
