/* SPDX-License-Identifier: GPL-2.0-only */
#include "properties.h"
#include "globals.h"

namespace terrace {

static const uchar PROPERTIES_VERSION= 2;

/** Reads a text that is preceded by its length. */
static bool take(const uchar **at, const uchar *end, std::string *text)
{
  if (end - *at < 2 || end - *at - 2 < uint2korr(*at))
    return false;
  text->assign(reinterpret_cast<const char *>(*at + 2), uint2korr(*at));
  *at+= 2 + text->size();
  return true;
}

static void put(std::string *bytes, const std::string &text)
{
  *bytes+= (char) text.size();
  *bytes+= (char) (text.size() >> 8);
  *bytes+= text;
}

Properties::Properties(const terrace_bytes &bytes)
{
  if (bytes.len < 2)
    return;
  const uchar *at= bytes.data + 2, *end= bytes.data + bytes.len;
  flags= bytes.data[1];
  if (bytes.data[0] == 1)
    version.assign(reinterpret_cast<const char *>(at), end - at);
  if (bytes.data[0] != PROPERTIES_VERSION || !take(&at, end, &version) || (has(REPLACED | RENAMED) && !take(&at, end, &origin)) ||
      (has(RENAMED) && !take(&at, end, &statement)))
    return;
  layouts.assign(reinterpret_cast<const char *>(at), end - at);
}

std::string Properties::bytes() const
{
  std::string bytes(1, (char) PROPERTIES_VERSION);
  bytes+= (char) flags;
  put(&bytes, version);
  if (has(REPLACED | RENAMED))
    put(&bytes, origin);
  if (has(RENAMED))
    put(&bytes, statement);
  return bytes + layouts;
}

} // namespace terrace
