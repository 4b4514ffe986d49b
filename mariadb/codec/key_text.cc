/* SPDX-License-Identifier: GPL-2.0-only */
/* Texts in keys: a collation's weights with an end such that memcmp gives the collation's order. See key_codec.h. */
#include "key_codec.h"
#include <map>
#include <mutex>

namespace terrace {

static const uchar RUN_THEN_LESS= 1, END= 2, RUN_THEN_GREATER= 3;

static void put_count(size_t count, uchar invert, Bytes *out)
{
  for (; count >= 255; count-= 255)
    out->push(0xFF ^ invert);
  out->push((uchar) count ^ invert);
}

/** Appends the weights, of `width` bytes each, of a PAD SPACE collation. */
static void put_padded(const uchar *weights, size_t length, const uchar *space, size_t width, Bytes *out)
{
  // A weight usually differs from a space's in its last byte, so that is compared first.
  auto is_space= [&](size_t at) {
    return at + width <= length && weights[at + width - 1] == space[width - 1] && !memcmp(weights + at, space, width);
  };
  while (length >= width && is_space(length - width))
    length-= width;
  size_t at= 0;
  while (at < length)
  {
    size_t from= at;
    while (at < length && !is_space(at))
      at+= width;
    set_if_smaller(at, length);
    out->append(weights + from, at - from);
    if (at >= length)
      break;
    size_t count= 0;
    for (; is_space(at); at+= width)
      count++;
    bool greater= memcmp(weights + at, space, width) > 0;
    out->append(space, width);
    out->push(greater ? RUN_THEN_GREATER : RUN_THEN_LESS);
    put_count(count, greater ? 0xFF : 0, out);
  }
  out->append(space, width);
  out->push(END);
}

static void put_escaped(const uchar *bytes, size_t length, Bytes *out)
{
  uchar *start= out->reserve(length * 2 + 2), *to= start;
  for (size_t at= 0; at < length; at++)
    if (!(*to++= bytes[at]))
      *to++= 0xFF;
  *to++= 0;
  *to++= 0;
  out->take((size_t) (to - start));
}

/** Encodes single-byte characters by the collation's table, and longer ones as they are. */
static size_t codes_of(CHARSET_INFO *cs, const uchar *text, size_t count, uchar *out)
{
  const uchar *end= text + count;
  uchar *to= out;
  while (text < end)
  {
    uint bytes= my_ismbchar(cs, (const char *) text, (const char *) end);
    if (!bytes)
      *to++= cs->sort_order[*text++];
    for (; bytes; bytes--)
      *to++= *text++;
  }
  return (size_t) (to - out);
}

void KeyPart::encode_text(const uchar *text, size_t count, Bytes *out) const
{
  const bool no_pad= cs->state & MY_CS_NOPAD;
  // The part holds at most `characters` characters; a CHAR under NO PAD has exactly that number, as its padding is part of the value.
  if (!whole || (is_char() && no_pad))
  {
    size_t characters= length / cs->mbmaxlen;
    if (count > characters)
    {
      size_t bytes= cs->charpos((const char *) text, (const char *) text + count, characters);
      set_if_smaller(count, bytes);
    }
  }
  if (!no_pad)
    count= cs->lengthsp((const char *) text, count);
  uchar small[2048];
  size_t most= (count + 1) * MY_MAX(cs->strxfrm_multiply, 1) * WEIGHT_MAX;
  uchar *weights= most <= sizeof small ? small : static_cast<uchar *>(malloc(most));
  if (!weights)
    throw std::bad_alloc();
  for (uint level= 0; level < levels; level++)
  {
    size_t got= by_code ? codes_of(cs, text, count, weights)
                        : cs->coll->strnxfrm(cs, weights, most, (uint) most, text, count, level_flags[level]);
    if (pads_at(level))
      put_padded(weights, got, space[level], weight, out);
    else
      put_escaped(weights, got, out);
  }
  if (weights != small)
    free(weights);
}

/** Whether each character with a code up to 0xffff has the same weights in both collations, whose names say that they have the same rules. */
static bool weigh_same(CHARSET_INFO *one, CHARSET_INFO *other)
{
  std::vector<uint> levels;
  for (uint level= 0; level < 6; level++)
    if (one->levels_for_order & (1U << level))
      levels.push_back(MY_STRXFRM_LEVEL1 << level);
  if (levels.size() <= 1)
    levels.assign(1, 0);                // as in KeyPart::prepare
  for (my_wc_t code= 1; code <= 0xffff; code++)
  {
    uchar text[8], weights[128], other_weights[128];
    const int length= one->cset->wc_mb(one, code, text, text + sizeof text);
    if (length <= 0)
      continue;                         // a surrogate
    for (uint flags : levels)
    {
      const size_t got= one->coll->strnxfrm(one, weights, sizeof weights, sizeof weights, text, (size_t) length, flags);
      const size_t as= other->coll->strnxfrm(other, other_weights, sizeof other_weights, sizeof other_weights, text, (size_t) length, flags);
      if (got != as || memcmp(weights, other_weights, got))
        return false;
    }
  }
  return true;
}

bool sort_same(CHARSET_INFO *one, CHARSET_INFO *other)
{
  if (one == other)
    return true;
  if (!Charset(one).encoding_allows_reinterpret_as(other) || !Charset(one).eq_collation_specific_names(other) ||
      one->levels_for_order != other->levels_for_order || (one->state ^ other->state) & (MY_CS_NOPAD | MY_CS_STRNXFRM_BAD_NWEIGHTS))
    return false;
  static std::mutex lock;
  static std::map<std::pair<uint, uint>, bool> known;
  std::lock_guard<std::mutex> guard(lock);
  const auto found= known.find({one->number, other->number});
  if (found != known.end())
    return found->second;
  return known[{one->number, other->number}]= weigh_same(one, other);
}

bool KeyPart::skip_text(const uchar **key, const uchar *end, uchar invert) const
{
  const uchar *at= *key;
  for (uint level= 0; level < levels; level++)
  {
    for (;;)
    {
      if (!pads_at(level))
      {
        if (end - at < 1)
          return false;
        if (*at++ ^ invert)
          continue;
        if (end - at < 1)
          return false;
        if (!(uchar) (*at++ ^ invert))
          break;
        continue;
      }
      if (end - at < weight)
        return false;
      bool blank= true;
      for (uint byte= 0; byte < weight; byte++)
        blank&= (uchar) (at[byte] ^ invert) == space[level][byte];
      at+= weight;
      if (!blank)
        continue;
      if (end - at < 1)
        return false;
      uchar mark= *at++ ^ invert;
      if (mark == END)
        break;
      uchar more= (mark == RUN_THEN_GREATER ? 0 : 0xFF) ^ invert;
      while (at < end && *at == more)
        at++;
      if (at++ >= end)
        return false;
    }
  }
  *key= at;
  return true;
}

} // namespace terrace
