/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Cuts long values in keys (key_codec.h): where they are cut, and how a cut value is told from a complete one.

  A page of the engine holds keys of up to 3500 bytes. A collation's weights for one text may be many times that, so each part is limited to
  its share of the available bytes. The shares depend only on how many parts may be long, not on their lengths, which may change in place.

  A value is cut if it is longer than the part's share; a complete value ends within the share. So a parser of the key need not know which it
  is: the part ends within the share, or with the digest after it. The digest is the first half of SHA-256 over all of the value's bytes.
*/
#include "key_codec.h"
#include <mysql/service_sha2.h>

namespace terrace {

void KeyCodec::share_room(uint bytes)
{
  uint sharers= 0;
  for (const KeyPart &part : parts)
  {
    sharers+= part.may_be_long();
    bytes-= part.may_be_long() ? part.may_be_null() + KeyPart::DIGEST : part.longest();
  }
  for (KeyPart &part : parts)
    if (part.may_be_long())
      part.cut_at(bytes / sharers);
  for (uint at= 0; at < parts.size() + tail.size(); at++)
    if (part(at).may_cut())
      set_if_smaller(cuts_from, part(at).bytes_before_cut() + KeyPart::DIGEST);
}

bool KeyCodec::find_cut(const uchar *key, size_t length, size_t covered, CutPart *found) const
{
  if (length < cuts_from)
    return false;
  const uchar *at= key, *end= key + length;
  for (uint number= 0; number < parts.size() + tail.size() && at < end; number++)
  {
    bool was_cut;
    if (!part(number).pass(&at, end, &was_cut))
      return false;
    const size_t so_far= (size_t) (at - key);
    if (was_cut && so_far > covered)
    {
      *found= {so_far - KeyPart::DIGEST, so_far, number};
      return true;
    }
  }
  return false;
}

void KeyPart::put(const uchar *bytes, size_t count, Bytes *out, Cut cutting) const
{
  const size_t start= out->size();
  encode_value(bytes, count, out);
  if (cutting != CUT || out->size() - start <= cut)
    return;
  uchar digest[32];
  my_sha256(digest, reinterpret_cast<const char *>(out->data() + start), out->size() - start);
  out->shrink(start + cut);
  out->append(digest, DIGEST);
}

/** Moves past a complete value. */
bool KeyPart::skip_value(const uchar **key, const uchar *end, uchar invert) const
{
  const uchar *at= *key;
  switch (kind) {
  case TEXT:
    return skip_text(key, end, invert);
  case VARBINARY:
    for (;;)
    {
      if (at >= end)
        return false;
      if (*at++ ^ invert)
        continue;
      if (at >= end)
        return false;
      if (*at++ == invert)
        break;
    }
    break;
  default:
    if ((size_t) (end - at) < length)
      return false;
    at+= length;
  }
  *key= at;
  return true;
}

bool KeyPart::pass(const uchar **key, const uchar *end, bool *was_cut) const
{
  *was_cut= false;
  const uchar *at= *key;
  if (nullable)
  {
    if (at >= end)
      return false;
    if (*at++ == null_mark)
    {
      *key= at;
      return true;
    }
  }
  const uchar invert= descending ? 0xFF : 0;
  const uchar *within= cuts && (size_t) (end - at) > cut ? at + cut : end;
  if (!skip_value(&at, within, invert))
  {
    if (!cuts || (size_t) (end - at) < cut + DIGEST)
      return false;
    *was_cut= true;
    at+= cut + DIGEST;
  }
  *key= at;
  return true;
}

} // namespace terrace
