/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Keys: columns → bytes whose memcmp order is the index's order, and back where that is possible.

  A key is the concatenation of its parts. No part's bytes are a prefix of another value's bytes of the same part, so
  a key's first parts are a prefix of the key's bytes, and a range of keys is a range of bytes.

  A part is
    null mark   only if the column may be NULL: 0 for NULL (nothing follows), 1 otherwise
    value       by kind:
      SIGNED, UNSIGNED   big-endian; signed with the sign bit flipped
      FLOAT, DOUBLE      big-endian IEEE; the sign bit flipped if positive, all bits if negative; -0 as 0
      FIXED              the column's own bytes, which sort already (DECIMAL, new temporal types, BINARY, UUID, INET6)
      VARBINARY          escaped: 00 → 00 FF; end 00 00
      TEXT               for each level of the collation the weights strnxfrm makes, then their end (see below)
  and all its bytes are inverted if the index's part is DESC.

  The end of a text. NO PAD collations: escaped as VARBINARY; but of several levels they pad on all but the first. PAD SPACE
  collations compare as if the shorter text went on with spaces for ever. So trailing space weights are dropped, and where a space weight stands, or the end, a mark
  follows the space weight: 1 a run of spaces, then a weight less than space; 2 the end; 3 a run of spaces, then a
  greater weight. After mark 1 comes the run's length, after 3 its complement (255 means that more follows). That
  orders as endless padding does: among runs that are followed by less the shorter is less, among those followed by
  greater the shorter is greater, and the end lies between. The common short text costs one weight and one byte.

  A part of variable length, or of many bytes, may be cut (`Cut`): of a value that is longer as bytes the key has the first ones and a
  digest of all. It is found, and is unique, as if it were whole; but what agrees in the first bytes is in the digests' order, and
  who reads in order puts that right (ha_cut.cc). So whatever a row's columns hold, its keys have room in a page.

  What can't be inverted (floats, texts) is carried beside the key: an entry's value has, for each column of the index and
  then of the primary key that is whole in it and can't be inverted, its bytes; so an index-only read never visits the
  primary tree. An entry that has no room for them is bare, its value is empty: for that one the row is read.
*/
#ifndef TERRACE_KEY_CODEC_H
#define TERRACE_KEY_CODEC_H

#include "server.h"
#include "bytes.h"
#include <algorithm>
#include <string>
#include <vector>

namespace terrace {

/** Whether texts that both have are ordered, and are equal, in both alike: whether keys made of them are the same bytes. */
bool sort_same(CHARSET_INFO *one, CHARSET_INFO *other);

/** Whether long values are cut, as they are in keys. */
enum Cut { CUT, IN_FULL };

/** One column of a key. */
class KeyPart
{
public:
  void prepare(TABLE *table, const KEY_PART_INFO *info);
  /** Whether its values may need more bytes than others should wait for. Its length does not matter where it may change in place. */
  bool may_be_long() const { return kind == TEXT || kind == VARBINARY || (kind == FIXED && length > LONG_FIXED); }
  /** Values of more bytes are cut to so many. */
  void cut_at(uint bytes)
  {
    cut= bytes;
    cuts= kind == TEXT || (kind == VARBINARY ? 2U * length + 2 > bytes : length > bytes);
  }
  bool may_cut() const { return cuts; }
  uint bytes_before_cut() const { return cut; }
  /** Bytes of the part at the most, with its null mark. */
  uint longest() const { return nullable + (cut == UNCUT ? length : cut + DIGEST); }
  static const uint DIGEST= 16;         // bytes behind the cut
  /** Moves past the part; `*was_cut` tells whether its bytes are not all there. */
  bool pass(const uchar **key, const uchar *end, bool *was_cut) const;
  bool is_cut(const uchar *key, const uchar *end) const
  {
    bool was_cut;
    return cuts && pass(&key, end, &was_cut) && was_cut;
  }

  /** From a record. Whether it is NULL goes to `*is_null`. */
  void encode_record(const uchar *record, Bytes *out, bool *is_null, Cut cutting= CUT) const;
  /** From the server's key image (key_copy). Moves `*key` past the part. */
  void encode_image(const uchar **key, Bytes *out, bool *is_null, Cut cutting= CUT) const;
  /**
    The order of two key images of the part, of a column that is never NULL: that of the bytes made of them. The buffers are for those, if they
    must be made.
  */
  int compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const;
  /** Whether equal columns have equal bytes in a key of this part and of the other, whose columns are `moved`. */
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
    @return false if the bytes are no such part
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
  /** As decode(), up to the value alone: whether it is NULL. */
  bool decode_null(const uchar **key, const uchar *end, uchar *record, bool *is_null) const;
  /** Only moves past it. */
  bool skip(const uchar **key, const uchar *end) const { bool n; return decode(key, end, nullptr, &n); }

  /** As SQL writes it (key_words.h). */
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
  uint8 length_bytes;           // VAR and BLOB: bytes of the length in the record
  bool nullable, descending, whole;
  bool pads;                    // TEXT: compares as if padded with spaces
  bool rest_pads;               // TEXT: compares so from the second level on
  bool is_int;                  // the column is one of four bytes
  uint32 flip;                  // its bits that differ in the key
  bool by_code;                 // TEXT: compares characters by their codes, not by what strnxfrm makes of them
  bool cuts= false;             // there may be values that are cut
  uint cut= UNCUT;              // bytes of a value
  uchar null_bit;
  uchar null_mark;              // in the key, of NULL
  uint16 length;                // bytes of the part, by the server's key image
  uint16 store_length;          // with its null and length bytes
  uint32 offset, null_offset, field_length;
  uint16 number;
  CHARSET_INFO *cs;
  uint levels;                  // TEXT: how many levels
  uint level_flags[LEVELS];
  uint8 weight;                 // TEXT that pads on some level: bytes of one weight
  uchar space[LEVELS][WEIGHT_MAX];
};

/** One index of a table. */
class KeyCodec
{
public:
  /** `primary` is the table's primary key's codec, or null for itself and for tables without one. */
  /** `cuts`: as properties of a table tell (Properties::CUTS). */
  void prepare(TABLE *table, uint key_number, const KeyCodec *primary, bool cuts);

  /** The index's columns. `*has_null` tells whether one of them is NULL. */
  void encode_record(const uchar *record, Bytes *out, bool *has_null) const;
  /** The first parts, from a key image; with extended keys parts of the primary key may follow the index's own. */
  void encode_image(const uchar *key, key_part_map parts, Bytes *out) const { encode_image(key, parts, out, CUT, UINT_MAX32); }
  /** As encode_image, up to part `last`, nothing cut. */
  void encode_image_in_full(const uchar *key, key_part_map parts, uint last, Bytes *out) const { encode_image(key, parts, out, IN_FULL, last); }
  /** A part (of the index's own, then the primary key's) of a row, nothing cut. */
  void encode_part_in_full(const uchar *record, uint number, Bytes *out) const
  {
    bool is_null;
    part(number).encode_record(record, out, &is_null, IN_FULL);
  }
  /** How many bytes such a part has that is cut. */
  size_t bytes_before_cut(uint number) const { return part(number).may_be_null() + part(number).bytes_before_cut(); }
  /** As encode_image, for an image of so many bytes. */
  void encode_image_bytes(const uchar *key, uint length, Bytes *out) const;
  /** Whether equal rows have equal entries in this index and in the other, whose columns are `moved`. */
  bool makes_same(const KeyCodec &other, const std::vector<uint16> &moved) const
  {
    const auto same= [&](const KeyPart &one, const KeyPart &another) { return one.makes_same(another, moved); };
    return unique == other.unique && extension == other.extension &&
           std::equal(parts.begin(), parts.end(), other.parts.begin(), other.parts.end(), same) &&
           std::equal(tail.begin(), tail.end(), other.tail.begin(), other.tail.end(), same);
  }
  /** Whether anything of the index differs between the records. */
  bool same(const uchar *one, const uchar *other) const;
  /** What a covering read needs and the key, of so many bytes, doesn't tell; nothing if an entry has no room for both. */
  void originals(const uchar *record, size_t key_length, Bytes *out) const;
  /** The order of two rows by the images of their keys of this index, which has no columns that may be NULL. The buffers are as a part's. */
  int compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const;
  enum Decoded { DAMAGED, WHOLE, BARE };
  /** How far an entry is decoded. What can't be inverted lies beside its key, which is walked over only as far as it tells something. */
  struct Extent
  {
    uint parts= 0;                     // of the index and then of the primary key
    uint walked= 0;                    // those of the key that are walked over,
    bool walks_last= true;             // of the last of them all, or only whether it is NULL
  };
  /** Up to the last of these columns. */
  Extent extent(const MY_BITMAP *columns) const;
  const Extent &all() const { return whole; }
  /** Fills the index's columns, and the primary key's, into `record`, as far as is said. BARE: the row has them, and the entry has not. */
  Decoded decode_entry(const uchar *key, size_t key_length, const uchar *value, size_t value_length, uchar *record,
                       Extent extent) const;
  /** Whether the key alone gives back these columns. */
  bool gives_back(const MY_BITMAP *columns) const;
  /** Fills into `record` what the key alone gives back. */
  bool decode_key(const uchar *key, size_t length, uchar *record) const;
  /** The columns' values that a key of this index gives back, which may have its first ones only; false: it doesn't (key_words.h). */
  bool in_words(const uchar *key, size_t length, const TABLE *of, TABLE *like, std::string *out) const;
  /** Bytes of the first `parts` parts of an entry's key, extended by the primary key's as the server counts them; 0 if it is
      none. */
  size_t prefix_length(const uchar *key, size_t length, uint parts) const;

  /** Whether a key's part may be cut. */
  bool may_cut() const { return cuts_from < UINT_MAX32; }
  struct CutPart
  {
    size_t before, end;                // bytes of the key up to the cut, and with the digest behind it
    uint part;
  };
  /** The first part of these bytes, a key's or its first parts', that ends behind `covered` bytes and is cut. */
  bool find_cut(const uchar *key, size_t length, size_t covered, CutPart *found) const;
  /** Up to the end of which cut part both bounds are the same: between them all keys are. */
  size_t shared_cuts(const Bytes &one, const Bytes &other) const
  {
    size_t shared= 0;
    for (CutPart cut; find_cut(one.data(), one.size(), shared, &cut) && other.size() >= cut.end && !memcmp(one.data(), other.data(), cut.end);)
      shared= cut.end;
    return shared;
  }
  /** Takes from a bound what keys that agree in more than `shared` bytes may not be ordered by. @return whether that was something */
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
  /** Whether no two rows agree in all columns: a unique index has NULL as often as it comes. */
  bool is_distinct() const
  {
    return unique && std::none_of(parts.begin(), parts.end(), [](const KeyPart &part) { return part.may_be_null(); });
  }
  /** Whether one of the index's columns is not stored. */
  bool has_virtual() const { return on_virtual; }
  /** Whether every part is a column's whole value. */
  bool is_whole() const { return all_whole; }

private:
  void encode_image(const uchar *key, key_part_map parts, Bytes *out, Cut cutting, uint last) const;
  void share_room(uint bytes);
  const KeyPart &part(uint at) const { return at < parts.size() ? parts[at] : tail[at - parts.size()]; }
  /** Whether the part's column is one of the index's own, which has been there before. */
  bool is_again(uint at) const { return at >= parts.size() && extension[at - parts.size()] >= 0; }

  std::vector<KeyPart> parts;          // the index's own
  std::vector<KeyPart> tail;           // the primary key's
  std::vector<int> extension;          // for each of the tail's: which own part has the column whole, or -1
  Extent whole;
  bool unique= false, on_virtual= false, all_whole= true;
  uint cuts_from= UINT_MAX32;          // shorter keys have no part that is cut
};

/** The smallest bytes greater than all that start with these; false if there are none. */
bool successor(Bytes *bytes);

} // namespace terrace
#endif
