/* SPDX-License-Identifier: GPL-2.0-only */
#include "row_layouts.h"
#include <algorithm>

namespace terrace {

namespace {

/* Reads numbers. Past the end it returns zeros and sets `fits` to false. */
struct Reader
{
  const uchar *at, *end;
  bool fits= true;

  const uchar *take(size_t bytes)
  {
    static const uchar zeroes[4]= {};
    if ((size_t) (end - at) < bytes)
    {
      fits= false;
      return bytes <= sizeof zeroes ? zeroes : nullptr;
    }
    at+= bytes;
    return at - bytes;
  }
  uint8 u8() { return *take(1); }
  uint16 u16() { return uint2korr(take(2)); }
  uint32 u32() { return uint4korr(take(4)); }
};

void put(std::string *out, uint64_t number, uint bytes)
{
  for (uint at= 0; at < bytes; at++)
    out->push_back((char) (number >> 8 * at));
}

} // namespace

bool RowLayouts::parse(const uchar *bytes, size_t length)
{
  earlier.clear();
  added.clear();
  current= 1;
  if (!length)
    return true;                        // no column was ever added or dropped
  Reader in= {bytes, bytes + length};
  current= in.u8();
  for (uint left= in.u16(); left && in.fits; left--)
  {
    Layout layout= {};
    layout.number= in.u8();
    layout.fixed_length= in.u32();
    for (uint columns= in.u16(); columns && in.fits; columns--)
    {
      Column column= {};
      column.number= in.u16();
      column.kind= in.u8();
      column.length_bytes= in.u8();
      column.null_bit= in.u8();
      column.null_at= in.u16();
      column.at= in.u32();
      column.length= in.u32();
      const bool is_inside= (!column.null_bit || column.null_at < layout.fixed_length) &&
                            (column.kind != FIXED || (uint64_t) column.at + column.length <= layout.fixed_length);
      if (column.kind > BLOB || (column.kind != FIXED && (!column.length_bytes || column.length_bytes > 4)) || !is_inside)
        return false;
      layout.columns.push_back(column);
    }
    earlier.push_back(std::move(layout));
  }
  for (uint left= in.u16(); left && in.fits; left--)
  {
    Added one= {};
    one.number= in.u16();
    one.null= in.u8() != 0;
    const uint32 bytes_of_value= in.u32();
    if (const uchar *value= in.take(bytes_of_value))
      if (in.fits)
        one.value.assign(reinterpret_cast<const char *>(value), bytes_of_value);
    added.push_back(std::move(one));
  }
  return in.fits && in.at == in.end;
}

std::string RowLayouts::bytes() const
{
  std::string out;
  if (current == 1)
    return out;
  put(&out, current, 1);
  put(&out, earlier.size(), 2);
  for (const Layout &layout : earlier)
  {
    put(&out, layout.number, 1);
    put(&out, layout.fixed_length, 4);
    put(&out, layout.columns.size(), 2);
    for (const Column &column : layout.columns)
    {
      put(&out, column.number, 2);
      put(&out, column.kind, 1);
      put(&out, column.length_bytes, 1);
      put(&out, column.null_bit, 1);
      put(&out, column.null_at, 2);
      put(&out, column.at, 4);
      put(&out, column.length, 4);
    }
  }
  put(&out, added.size(), 2);
  for (const Added &one : added)
  {
    put(&out, one.number, 2);
    put(&out, one.null, 1);
    put(&out, one.value.size(), 4);
    out+= one.value;
  }
  return out;
}

void RowLayouts::change(const Layout &was, const Layout &is, const std::vector<uint16> &moved, std::vector<Added> &&more)
{
  const auto renumber= [&](uint16 number) { return number == DROPPED ? DROPPED : moved[number]; };
  for (Layout &layout : earlier)
    for (Column &column : layout.columns)
      column.number= renumber(column.number);
  for (Added &one : added)
    one.number= renumber(one.number);
  added.erase(std::remove_if(added.begin(), added.end(), [](const Added &one) { return one.number == DROPPED; }),
              added.end());

  Layout before= was;
  for (Column &column : before.columns)
    column.number= renumber(column.number);
  const bool same= before.fixed_length == is.fixed_length &&
                   std::equal(before.columns.begin(), before.columns.end(), is.columns.begin(), is.columns.end(),
                              [](const Column &one, const Column &other) {
                                return one.number == other.number && one.stored_as(other);
                              });
  if (same)
    return;
  before.number= current++;
  earlier.push_back(std::move(before));
  for (Added &one : more)
    added.push_back(std::move(one));
}

} // namespace terrace
