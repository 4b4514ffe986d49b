/* SPDX-License-Identifier: GPL-2.0-only */
#include "properties.h"
#include "globals.h"

namespace terrace {

static const uchar PROPERTIES_VERSION= 2, PROPERTIES_VERSION_FOREIGN= 3;

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
  flags= bytes.data[1] & ~FOREIGN;
  if (bytes.data[0] == 1)
    version.assign(reinterpret_cast<const char *>(at), end - at);
  const bool has_foreign= bytes.data[0] == PROPERTIES_VERSION_FOREIGN && bytes.data[1] & FOREIGN;
  if ((bytes.data[0] != PROPERTIES_VERSION && !has_foreign) || !take(&at, end, &version) || (has(REPLACED | RENAMED) && !take(&at, end, &origin)) ||
      (has(RENAMED) && !take(&at, end, &statement)))
    return;
  if (has_foreign && !take_foreign(&at, end))
    return;
  layouts.assign(reinterpret_cast<const char *>(at), end - at);
}

bool Properties::take_foreign(const uchar **at, const uchar *end)
{
  if (end - *at < 2)
    return false;
  const uint count= uint2korr(*at);
  *at+= 2;
  for (uint one= 0; one < count; one++)
  {
    foreign.emplace_back();
    if (!take(at, end, &foreign.back()))
      return false;
  }
  return true;
}

std::string Properties::bytes() const
{
  std::string bytes(1, (char) (foreign.empty() ? PROPERTIES_VERSION : PROPERTIES_VERSION_FOREIGN));
  bytes+= (char) (foreign.empty() ? flags : flags | FOREIGN);
  put(&bytes, version);
  if (has(REPLACED | RENAMED))
    put(&bytes, origin);
  if (has(RENAMED))
    put(&bytes, statement);
  if (!foreign.empty())
  {
    bytes+= (char) foreign.size();
    bytes+= (char) (foreign.size() >> 8);
  }
  for (const std::string &one : foreign)
    put(&bytes, one);
  return bytes + layouts;
}

} // namespace terrace
