/* SPDX-License-Identifier: GPL-2.0-only */
#include "key_codec.h"
#include "row_codec.h"

namespace terrace {

/** The longest key that the engine accepts, and the longest primary key, which is part of each entry of the other indexes. */
static const uint KEY_BYTES_MAX= 3490, PRIMARY_BYTES_MAX= 2300;

void KeyCodec::prepare(const TABLE_SHARE *share, Field *const *fields, const KEY *keys, const uchar *record, uint key_number, const KeyCodec *primary, bool cuts)
{
  parts.clear();
  tail.clear();
  extension.clear();
  on_virtual= false;
  all_whole= true;
  const KEY *key= keys + key_number;
  unique= (key->flags & HA_NOSAME) && key->algorithm != HA_KEY_ALG_LONG_HASH;
  for (uint at= 0; at < key->user_defined_key_parts; at++)
  {
    parts.emplace_back();
    parts.back().prepare(fields, record, key->key_part + at);
    all_whole&= parts.back().is_whole();
    on_virtual|= !fields[key->key_part[at].fieldnr - 1]->stored_in_db();
  }
  const std::vector<KeyPart> nothing;
  for (const KeyPart &part : primary ? primary->parts : nothing)
  {
    tail.push_back(part);
    int own= -1;
    for (uint at= 0; at < parts.size(); at++)
      if (parts[at].is_whole() && part.is_whole() && parts[at].column() == part.column())
        own= (int) at;
    extension.push_back(own);
  }
  whole= extent(nullptr);
  cuts_from= UINT_MAX32;
  if (!cuts)
    return;
  uint beside= 8;                       // the length of a hidden row id
  for (uint at= 0; at < tail.size(); at++)
    beside= (at ? beside : 0) + tail[at].longest();
  share_room(share->primary_key == 0 && key_number == 0 ? PRIMARY_BYTES_MAX : KEY_BYTES_MAX - beside);
}

void KeyCodec::encode_record(const uchar *record, Bytes *out, bool *has_null) const
{
  *has_null= false;
  for (const KeyPart &part : parts)
  {
    bool is_null;
    part.encode_record(record, out, &is_null);
    *has_null|= is_null;
  }
}

void KeyCodec::encode_image(const uchar *key, key_part_map map, Bytes *out, Cut cutting, uint last) const
{
  const uchar *own[MAX_REF_PARTS];
  bool is_null;
  if (map == HA_WHOLE_KEY)
    map= ((key_part_map) 1 << parts.size()) - 1;        // the index's own parts, as key_copy writes them
  for (uint at= 0; at < parts.size(); at++, map>>= 1)
  {
    if (!(map & 1) || at > last)
      return;
    own[at]= key;
    parts[at].encode_image(&key, out, &is_null, cutting);
  }
  // Extended keys: the server's image leaves out primary key columns that the index already has; the entry's key repeats them.
  for (uint at= 0; at < tail.size() && at + parts.size() <= last; at++)
  {
    if (extension[at] >= 0)
    {
      const uchar *again= own[extension[at]];
      if (!map)
        return;                         // no further part is given: a shorter prefix bounds the same keys
      // The index's part is nullable only if the column is, which a primary key column isn't: so both parts have the same image.
      tail[at].encode_image(&again, out, &is_null, cutting);
      continue;
    }
    if (!(map & 1))
      return;
    tail[at].encode_image(&key, out, &is_null, cutting);
    map>>= 1;
  }
}

void KeyCodec::encode_image_bytes(const uchar *key, uint length, Bytes *out) const
{
  const uchar *end= key + length;
  key_part_map map= 0;
  // Finds the given parts by their lengths, then encodes as for a map.
  const uchar *at= key;
  uint bit= 0;
  for (const KeyPart &part : parts)
  {
    if (at + part.image_length() > end)
      break;
    at+= part.image_length();
    map|= (key_part_map) 1 << bit++;
  }
  for (size_t part= 0; bit >= parts.size() && part < tail.size() && at < end; part++)
    if (extension[part] < 0)
    {
      at+= tail[part].image_length();
      map|= (key_part_map) 1 << bit++;
    }
  encode_image(key, map, out);
}

bool KeyCodec::same(const uchar *one, const uchar *other) const
{
  for (const KeyPart &part : parts)
    if (!part.same(one, other))
      return false;
  return true;
}

int KeyCodec::compare_images(const uchar *one, const uchar *other, Bytes *first, Bytes *second) const
{
  for (const KeyPart &part : parts)
  {
    if (int order= part.compare_images(one, other, first, second))
      return order;
    one+= part.image_length();
    other+= part.image_length();
  }
  return 0;
}

/** The length of key and originals that an entry can always hold (the engine's limit is 4000, including its own data about the entry). */
static const size_t ENTRY_BYTES_MAX= 3950;

void KeyCodec::originals(const uchar *record, size_t key_length, Bytes *out) const
{
  const size_t before= out->size();
  for (const KeyPart &part : parts)
    if (part.is_whole() && !part.invertible())
      part.append_original(record, out);
  for (uint at= 0; at < tail.size(); at++)
    if (extension[at] < 0 && tail[at].is_whole() && !tail[at].invertible())
      tail[at].append_original(record, out);
  if (key_length + out->size() - before > ENTRY_BYTES_MAX)
    out->shrink(before);
}

KeyCodec::Extent KeyCodec::extent(const MY_BITMAP *columns) const
{
  Extent found;
  found.parts= (uint) (parts.size() + tail.size());
  while (columns && found.parts && (is_again(found.parts - 1) || !bitmap_is_set(columns, part(found.parts - 1).column())))
    found.parts--;
  const auto is_in_key= [this](uint at) { return !is_again(at) && (part(at).invertible() || part(at).may_be_null()); };
  found.walked= found.parts;
  while (found.walked && !is_in_key(found.walked - 1))
    found.walked--;
  found.walks_last= !found.walked || part(found.walked - 1).invertible();
  return found;
}

KeyCodec::Decoded KeyCodec::decode_entry(const uchar *key, size_t key_length, const uchar *value, size_t value_length,
                                         uchar *record, Extent extent) const
{
  const uchar *end= key + key_length, *value_end= value + value_length;
  const uint own= (uint) parts.size(), all= own + (uint) tail.size();
  const uint decoded= extent.walked - !extent.walks_last;
  const auto take= [&](const KeyPart &one, uint at, uchar *to) {
    bool is_null;
    if (to && at < decoded && one.invertible() && one.is_cut(key, end))
      return BARE;
    if (at < extent.walked && !(at < decoded ? one.decode(&key, end, to, &is_null) : one.decode_null(&key, end, to, &is_null)))
      return DAMAGED;
    if (to && one.is_whole() && !one.invertible() && !one.restore_original(&value, value_end, to))
      return value_length ? DAMAGED : BARE;
    return WHOLE;
  };
  const KeyPart *one= parts.data();
  for (uint at= 0; at < MY_MIN(own, extent.parts); at++, one++)
    if (const Decoded taken= take(*one, at, record); taken != WHOLE)
      return taken;
  one= tail.data();
  for (uint at= own; at < extent.parts; at++, one++)
    if (const Decoded taken= take(*one, at, extension[at - own] < 0 ? record : nullptr); taken != WHOLE)
      return taken;
  return extent.parts < all || value == value_end ? WHOLE : DAMAGED;
}

bool KeyCodec::gives_back(const MY_BITMAP *columns) const
{
  const auto has= [this](uint column) {
    return std::any_of(parts.begin(), parts.end(),
                       [=](const KeyPart &part) { return part.column() == column && part.invertible() && !part.may_cut(); });
  };
  uint at= bitmap_get_first_set(columns);
  while (at != MY_BIT_NONE && has(at))
    at= bitmap_get_next_set(columns, at);
  return at == MY_BIT_NONE;
}

bool KeyCodec::decode_key(const uchar *key, size_t length, uchar *record) const
{
  const uchar *end= key + length;
  bool is_null;
  for (const KeyPart &part : parts)
    if (!part.decode(&key, end, record, &is_null))
      return false;
  return key == end;
}

size_t KeyCodec::prefix_length(const uchar *key, size_t length, uint count) const
{
  const uchar *at= key, *end= key + length;
  for (const KeyPart &part : parts)
  {
    if (!count)
      return (size_t) (at - key);
    count--;
    if (!part.skip(&at, end))
      return 0;
  }
  for (uint one= 0; one < tail.size() && count; one++)
  {
    count-= extension[one] < 0;
    if (!tail[one].skip(&at, end))
      return 0;
  }
  return (size_t) (at - key);
}

bool successor(Bytes *bytes)
{
  size_t length= bytes->size();
  while (length && bytes->data()[length - 1] == 0xFF)
    length--;
  bytes->shrink(length);
  if (!length)
    return false;
  bytes->data()[length - 1]++;
  return true;
}

} // namespace terrace
