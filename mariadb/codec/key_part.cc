/* SPDX-License-Identifier: GPL-2.0-only */
/* One column of a key; the format is described in key_codec.h. */
#include "key_codec.h"
#include "row_codec.h"

namespace terrace {

void KeyPart::prepare(Field *const *fields, const uchar *record, const KEY_PART_INFO *info)
{
  Field *field= fields[info->fieldnr - 1];
  number= (uint16) field->field_index;
  offset= (uint32) (field->ptr - record);
  nullable= marks= field->real_maybe_null();
  null_bit= field->null_bit;
  null_offset= nullable ? (uint32) (field->null_ptr - record) : 0;
  field_length= field->pack_length();
  length= info->length;
  store_length= info->store_length;
  descending= info->key_part_flag & HA_REVERSE_SORT;
  null_mark= descending ? 0xFF : 0;
  cs= field->charset();
  length_bytes= 0;
  storage= PLAIN;
  enum_field_types type= field->real_type();
  if (field->flags & BLOB_FLAG)
  {
    storage= BLOB;
    length_bytes= (uint8) static_cast<Field_blob *>(field)->pack_length_no_ptr();
    whole= false;
  }
  else if (type == MYSQL_TYPE_VARCHAR || type == MYSQL_TYPE_VARCHAR_COMPRESSED)
  {
    storage= VAR;
    length_bytes= (uint8) static_cast<Field_varstring *>(field)->length_bytes;
    whole= length == field_length - length_bytes;
  }
  else
    whole= length == field_length;

  switch (field->key_type()) {
  case HA_KEYTYPE_INT8:
  case HA_KEYTYPE_SHORT_INT:
  case HA_KEYTYPE_INT24:
  case HA_KEYTYPE_LONG_INT:
  case HA_KEYTYPE_LONGLONG:
    kind= SIGNED;
    break;
  case HA_KEYTYPE_USHORT_INT:
  case HA_KEYTYPE_UINT24:
  case HA_KEYTYPE_ULONG_INT:
  case HA_KEYTYPE_ULONGLONG:
    kind= UNSIGNED;
    break;
  case HA_KEYTYPE_FLOAT:
    kind= FLOAT;
    break;
  case HA_KEYTYPE_DOUBLE:
    kind= DOUBLE;
    break;
  case HA_KEYTYPE_TEXT:
  case HA_KEYTYPE_VARTEXT1:
  case HA_KEYTYPE_VARTEXT2:
    kind= cs == &my_charset_bin ? VARBINARY : TEXT;
    break;
  case HA_KEYTYPE_VARBINARY1:
  case HA_KEYTYPE_VARBINARY2:
    kind= VARBINARY;
    break;
  default:
    kind= storage == PLAIN ? FIXED : VARBINARY;
  }
  is_int= (kind == SIGNED || kind == UNSIGNED) && length == 4 && whole;
  flip= (kind == SIGNED ? 0x80000000U : 0) ^ (descending ? 0xFFFFFFFFU : 0);
  levels= 0;
  if (kind != TEXT)
    return;
  pads= !(cs->state & MY_CS_NOPAD);
  // big5_chinese_ci compares by code, but strnxfrm weighs by strokes.
  by_code= !strcmp(cs->coll_name.str, "big5_chinese_ci") || !strcmp(cs->coll_name.str, "big5_chinese_nopad_ci");
  for (uint level= 0; level < LEVELS; level++)
    if (cs->levels_for_order & (1U << level))
      level_flags[levels++]= MY_STRXFRM_LEVEL1 << level;
  if (levels <= 1)
  {
    levels= 1;
    level_flags[0]= 0;
  }
  // A CHAR under NO PAD is not padded on any level.
  rest_pads= levels > 1 && (pads || !is_char());
  weight= 0;
  if (!pads && !rest_pads)
    return;
  // The weight of a space, in the character set's encoding.
  uchar blank[8];
  int blank_length= cs->cset->wc_mb(cs, (my_wc_t) ' ', blank, blank + sizeof blank);
  for (uint level= pads ? 0 : 1; level < levels; level++)
  {
    uchar weights[64];
    size_t got= cs->coll->strnxfrm(cs, weights, sizeof weights, 1, blank, blank_length > 0 ? blank_length : 1,
                                   level_flags[level]);
    // Collations with several passes over one text (latin2_czech_cs) have no such weight: trailing spaces of their texts are removed, and the
    // weights are escaped.
    if (cs->state & MY_CS_STRNXFRM_BAD_NWEIGHTS || got < 1 || got > WEIGHT_MAX || (weight && got != weight))
    {
      pads= rest_pads= false;
      return;
    }
    weight= (uint8) got;
    memcpy(space[level], weights, got);
  }
}

KeyPart KeyPart::written_as(const KeyPart &other) const
{
  KeyPart made= *this;
  made.marks= other.marks;
  made.descending= other.descending;
  made.cut= other.cut;
  made.cuts= other.cuts;
  const auto is_binary= [](Kind kind) { return kind == FIXED || kind == VARBINARY; };
  if (is_binary(kind) && is_binary(other.kind))
  {
    made.kind= other.kind;
    if (other.kind == FIXED)
    {
      made.only_bytes= other.length;
      // What is written has as many bytes.
      if (storage == VAR)
        made.length= other.length;
    }
  }
  return made;
}

void KeyPart::encode_record(const uchar *record, Bytes *out, bool *is_null, Cut cutting) const
{
  size_t start= out->size();
  *is_null= nullable && record[null_offset] & null_bit;
  if (marks)
    out->push(*is_null ? 0 : 1);
  if (!*is_null)
  {
    const uchar *bytes;
    size_t count;
    text_of(record, &bytes, &count);
    put(bytes, count, out, cutting);
  }
  if (descending)
    for (size_t at= start; at < out->size(); at++)
      out->data()[at]^= 0xFF;
}

void KeyPart::encode_image(const uchar **key, Bytes *out, bool *is_null, Cut cutting) const
{
  size_t start= out->size();
  const uchar *image= *key;
  *key+= store_length;
  *is_null= nullable && *image;
  if (nullable)
  {
    out->push(*is_null ? 0 : 1);
    image++;
  }
  if (!*is_null)
  {
    if (storage == PLAIN)
      put(image, length, out, cutting);
    else
      put(image + HA_KEY_BLOB_LENGTH, uint2korr(image), out, cutting);
  }
  if (descending)
    for (size_t at= start; at < out->size(); at++)
      out->data()[at]^= 0xFF;
}

static ulonglong whole_number(const uchar *at, uint length)
{
  if (length == 4)
    return uint4korr(at);
  if (length == 8)
    return uint8korr(at);
  ulonglong number= 0;
  while (length--)
    number= number << 8 | at[length];
  return number;
}

int KeyPart::compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const
{
  int order;
  if (kind == SIGNED || kind == UNSIGNED)
  {
    const ulonglong sign= kind == SIGNED ? 1ULL << (8 * length - 1) : 0;
    const ulonglong here= whole_number(one, length) ^ sign, there= whole_number(other, length) ^ sign;
    order= here < there ? -1 : here > there;
  }
  else if (kind == FIXED)
    order= memcmp(one, other, length);
  else
  {
    const size_t head= storage == PLAIN ? 0 : HA_KEY_BLOB_LENGTH;
    const size_t count= head ? uint2korr(one) : length, other_count= head ? uint2korr(other) : length;
    const int bytes= memcmp(one + head, other + head, MY_MIN(count, other_count));
    if (!bytes && count == other_count)
      return 0;
    if (kind == VARBINARY)
      order= bytes ? bytes : count < other_count ? -1 : 1;
    else
    {
      first->clear();
      second->clear();
      encode_value(one + head, count, first);
      encode_value(other + head, other_count, second);
      // Neither encoding is a prefix of the other.
      order= memcmp(first->data(), second->data(), MY_MIN(first->size(), second->size()));
    }
  }
  return order && descending ? (order < 0 ? 1 : -1) : order;
}

/** The column's bytes in a record, limited to what the part holds. */
void KeyPart::text_of(const uchar *record, const uchar **bytes, size_t *count) const
{
  const uchar *at= record + offset;
  switch (storage) {
  case PLAIN:
    *bytes= at;
    *count= length;
    return;
  case VAR:
    *bytes= at + length_bytes;
    break;
  case BLOB:
    *bytes= blob_pointer(at, length_bytes);
    break;
  }
  *count= read_length(at, length_bytes);
  if (!whole && kind != TEXT)
    set_if_smaller(*count, length);
}

bool KeyPart::same(const uchar *one, const uchar *other) const
{
  if (nullable)
  {
    bool null_one= one[null_offset] & null_bit, null_other= other[null_offset] & null_bit;
    if (null_one || null_other)
      return null_one == null_other;
  }
  const uchar *bytes, *other_bytes;
  size_t count, other_count;
  text_of(one, &bytes, &count);
  text_of(other, &other_bytes, &other_count);
  return count == other_count && (!count || !memcmp(bytes, other_bytes, count));
}

void KeyPart::encode_value(const uchar *bytes, size_t count, Bytes *out) const
{
  switch (kind) {
  case SIGNED:
  case UNSIGNED:
  {
    uchar *to= out->reserve(length);
    for (uint at= 0; at < length; at++)
      to[at]= bytes[length - 1 - at];
    if (kind == SIGNED)
      to[0]^= 0x80;
    out->take(length);
    return;
  }
  case FLOAT:
  {
    float number;
    float4get(number, bytes);
    if (number == 0)
      number= 0;                        // -0 is 0
    uint32 bits;
    memcpy(&bits, &number, sizeof bits);
    bits= bits & 0x80000000U ? ~bits : bits | 0x80000000U;
    mi_int4store(out->reserve(4), bits);
    out->take(4);
    return;
  }
  case DOUBLE:
  {
    double number;
    float8get(number, bytes);
    if (number == 0)
      number= 0;
    ulonglong bits;
    memcpy(&bits, &number, sizeof bits);
    bits= bits >> 63 ? ~bits : bits | (1ULL << 63);
    mi_int8store(out->reserve(8), bits);
    out->take(8);
    return;
  }
  case FIXED:
    out->append(bytes, length);
    return;
  case VARBINARY:
  {
    uchar *start= out->reserve(count * 2 + 2), *to= start;
    for (size_t at= 0; at < count; at++)
      if (!(*to++= bytes[at]))
        *to++= 0xFF;
    *to++= 0;
    *to++= 0;
    out->take((size_t) (to - start));
    return;
  }
  case TEXT:
    encode_text(bytes, count, out);
  }
}

bool KeyPart::decode_null(const uchar **key, const uchar *end, uchar *record, bool *is_null) const
{
  *is_null= false;
  if (!nullable)
    return true;
  if (*key >= end)
    return false;
  *is_null= *(*key)++ == null_mark;
  if (!record)
    return true;
  if (*is_null)
    record[null_offset]|= null_bit;
  else
    record[null_offset]&= (uchar) ~null_bit;
  return true;
}

bool KeyPart::decode_any(const uchar **key, const uchar *end, uchar *record, bool *is_null) const
{
  const uchar invert= descending ? 0xFF : 0;
  bool was_cut;
  if (cuts && (!record || is_cut(*key, end)))
  {
    // A cut value can't be decoded.
    const uchar *value= *key;
    return decode_null(&value, end, record, is_null) && pass(key, end, &was_cut);
  }
  if (!decode_null(key, end, record, is_null))
    return false;
  if (*is_null)
    return true;
  const uchar *at= *key;
  if (!whole)
    record= nullptr;
  uchar *to= record ? record + offset : nullptr;
  size_t room= (size_t) (end - at);
  switch (kind) {
  case SIGNED:
  case UNSIGNED:
    if (room < length)
      return false;
    for (uint byte= 0; to && byte < length; byte++)
      to[length - 1 - byte]= at[byte] ^ invert ^ (kind == SIGNED && !byte ? 0x80 : 0);
    at+= length;
    break;
  case FIXED:
    if (room < length)
      return false;
    for (uint byte= 0; to && byte < length; byte++)
      to[byte]= at[byte] ^ invert;
    at+= length;
    break;
  case FLOAT:
  case DOUBLE:
    if (room < length)
      return false;
    at+= length;
    break;
  case VARBINARY:
  {
    size_t count= 0;
    for (;; count++)
    {
      if (end - at < 2 && (end == at || !(uchar) (*at ^ invert)))
        return false;
      uchar byte= *at++ ^ invert;
      if (!byte)
      {
        uchar next= *at++ ^ invert;
        if (!next)
          break;
        if (next != 0xFF)
          return false;
      }
      if (to)
      {
        if (length_bytes + count >= field_length)
          return false;
        to[length_bytes + count]= byte;
      }
    }
    if (to && length_bytes == 1)
      to[0]= (uchar) count;
    else if (to)
      int2store(to, count);
    break;
  }
  case TEXT:
    if (!skip_text(&at, end, invert))
      return false;
  }
  *key= at;
  return true;
}

void KeyPart::append_original(const uchar *record, Bytes *out) const
{
  if (nullable && record[null_offset] & null_bit)
    return;
  const uchar *bytes;
  size_t count;
  text_of(record, &bytes, &count);
  if (kind == TEXT)
  {
    if (is_char())
      count= cs->lengthsp((const char *) bytes, count);
    int2store(out->reserve(2), count);
    out->take(2);
  }
  out->append(bytes, count);
}

bool KeyPart::restore_original(const uchar **value, const uchar *end, uchar *record) const
{
  if (nullable && record[null_offset] & null_bit)
    return true;
  uchar *to= record + offset;
  size_t count= length;
  if (kind == TEXT)
  {
    if (end - *value < 2)
      return false;
    count= uint2korr(*value);
    *value+= 2;
  }
  if ((size_t) (end - *value) < count || count + length_bytes > field_length)
    return false;
  memcpy(to + length_bytes, *value, count);
  *value+= count;
  if (length_bytes == 1)
    to[0]= (uchar) count;
  else if (length_bytes)
    int2store(to, count);
  else if (kind == TEXT && count < field_length)
    cs->fill((char *) to + count, field_length - count, ' ');
  return true;
}

} // namespace terrace
