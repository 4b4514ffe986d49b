/* SPDX-License-Identifier: GPL-2.0-only */
#include "row_codec.h"
#include <algorithm>

namespace terrace {

void RowCodec::prepare(TABLE *table)
{
  runs.clear();
  variables.clear();
  absent.clear();
  nullables.clear();
  earlier.clear();
  added.clear();
  written= {1, 0, {}};
  defaults= table->s->default_values;
  record_length= table->s->reclength;
  places.assign(table->s->fields, Place());
  fixed_length= 0;
  const uchar *record= table->record[0];
  // Marks the bytes of the record that belong neither to a column of variable length nor to a virtual one.
  std::vector<bool> mine(table->s->reclength, false);
  for (uint32 at= 0; at < table->s->null_bytes; at++)
    mine[at]= true;
  for (Field **at= table->field; *at; at++)
  {
    Field *field= *at;
    if (!field->stored_in_db())
    {
      if (field->null_ptr)
        absent.push_back({(uint32) (field->null_ptr - record), field->null_bit});
      continue;
    }
    uint32 offset= (uint32) (field->ptr - record);
    Variable variable= {};
    variable.kind= FIXED;
    variable.number= (uint16) field->field_index;
    variable.offset= offset;
    variable.null_bit= field->null_bit;
    variable.null_offset= field->null_ptr ? (uint32) (field->null_ptr - record) : 0;
    variable.field_length= field->pack_length();
    variable.cs= field->charset();
    variable.default_bytes= field->flags & BLOB_FLAG ? nullptr : table->s->default_values + offset;
    enum_field_types type= field->real_type();
    if (field->flags & BLOB_FLAG)
    {
      variable.kind= BLOB;
      variable.length_bytes= (uint8) static_cast<Field_blob *>(field)->pack_length_no_ptr();
    }
    else if (type == MYSQL_TYPE_VARCHAR || type == MYSQL_TYPE_VARCHAR_COMPRESSED)
    {
      variable.kind= VARCHAR;
      variable.length_bytes= (uint8) static_cast<Field_varstring *>(field)->length_bytes;
      variable.default_length= variable.length_bytes + (uint32) read_length(variable.default_bytes, variable.length_bytes);
    }
    const bool pads= type == MYSQL_TYPE_STRING && field->key_type() == HA_KEYTYPE_TEXT && variable.cs->mbminlen == 1;
    if (pads && variable.field_length > 4)
    {
      variable.kind= CHAR;
      variable.length_bytes= 2;
      variable.default_length= variable.field_length;
    }
    variable.part= (uint16) written.columns.size();
    places[variable.number]= {variable.kind, true, pads, variable.length_bytes, variable.null_bit, offset,
                              variable.null_offset, variable.field_length};
    written.columns.push_back({variable.number, (uint8) variable.kind, variable.length_bytes, variable.null_bit,
                               (uint16) variable.null_offset, offset, variable.field_length});
    if (variable.kind == FIXED)
    {
      for (uint32 byte= 0; byte < field->pack_length(); byte++)
        mine[offset + byte]= true;
      if (field->null_ptr)
        nullables.push_back({(uint32) (field->null_ptr - record), offset, field->pack_length_in_rec(), field->null_bit,
                             table->s->default_values + offset});
      continue;
    }
    variables.push_back(variable);
  }
  std::vector<uint32> stored_at(mine.size() + 1, 0);   // one more, as a column may have no bytes
  for (uint32 at= 0; at < mine.size(); at++)
  {
    if (!mine[at])
      continue;
    if (runs.empty() || runs.back().offset + runs.back().length != at)
      runs.push_back({at, 0});
    runs.back().length++;
    stored_at[at]= (uint32) fixed_length++;
  }
  for (Nullable &nullable : nullables)
    nullable.at= stored_at[nullable.at];
  written.fixed_length= (uint32) fixed_length;
  for (RowLayouts::Column &column : written.columns)
    column.at= column.kind == FIXED ? stored_at[column.at] : 0;
  ends.assign(places.size(), 0);
  for (size_t at= 0; at < places.size(); at++)
    if (!places[at].stored)
      ends[at]= ALL;
  longest_row= 0;
  measure(written);
}

/** Computes how far into a row each column may reach. A value's length precedes its bytes, so a column's end depends only on itself and earlier ones. */
void RowCodec::measure(const RowLayouts::Layout &layout)
{
  const uint64 fixed= 1 + (uint64) layout.fixed_length;
  uint64 at= fixed;
  for (const RowLayouts::Column &column : layout.columns)
  {
    switch (column.kind) {
    case FIXED:
      break;
    case VARCHAR:
      at+= column.length;               // includes the length bytes
      break;
    case CHAR:
      at+= column.length_bytes + column.length;
      break;
    case BLOB:
      at+= column.length_bytes + ((uint64) 1 << 8 * column.length_bytes) - 1;
      break;
    }
    if (column.number != RowLayouts::DROPPED)
      ends[column.number]= (uint32) MY_MAX(ends[column.number], MY_MIN(column.kind == FIXED ? fixed : at, (uint64) ALL));
  }
  longest_row= MY_MAX(longest_row, at);
}

uint32 RowCodec::bytes_for(const MY_BITMAP *columns) const
{
  uint32 bytes= 0;
  for (uint at= bitmap_get_first_set(columns); at != MY_BIT_NONE && bytes < ALL; at= bitmap_get_next_set(columns, at))
    bytes= MY_MAX(bytes, ends[at]);
  return bytes;
}

/** Values shorter than this are never stored off-page. */
static const size_t SPAN_MIN= 256;

void RowCodec::encode(const uchar *record, Bytes *out, std::vector<terrace_span> *spans) const
{
  out->clear();
  if (spans)
    spans->clear();
  uchar *to= out->reserve(1 + fixed_length);
  *to++= written.number;
  uchar *fixed= to;                     // starts with the null bits, as the record does
  for (const Run &run : runs)
  {
    memcpy(to, record + run.offset, run.length);
    to+= run.length;
  }
  for (const NullBit &bit : absent)
    fixed[bit.offset]&= (uchar) ~bit.mask;
  for (const Nullable &nullable : nullables)
    if (record[nullable.null_offset] & nullable.null_bit)
      memcpy(fixed + nullable.at, nullable.default_bytes, nullable.length);
  out->take(1 + fixed_length);
  for (const Variable &variable : variables)
  {
    if (variable.null_bit && record[variable.null_offset] & variable.null_bit)
      continue;
    const uchar *at= record + variable.offset;
    const size_t begin= out->size();
    switch (variable.kind) {
    case FIXED:
      break;                            // stored in the fixed part
    case VARCHAR:
      out->append(at, variable.length_bytes + read_length(at, variable.length_bytes));
      break;
    case BLOB:
      out->append(at, variable.length_bytes);
      out->append(blob_pointer(at, variable.length_bytes), read_length(at, variable.length_bytes));
      break;
    case CHAR:
      size_t length= variable.cs->lengthsp((const char *) at, variable.field_length);
      int2store(out->reserve(2), length);
      out->take(2);
      out->append(at, length);
      break;
    }
    const size_t bytes= out->size() - begin - variable.length_bytes;
    if (spans && bytes >= SPAN_MIN && out->size() <= UINT_MAX32)
      spans->push_back({(uint32) (begin + variable.length_bytes), (uint32) bytes, variable.part});
  }
}

const RowLayouts::Layout *RowCodec::layout_of(const uchar *row, size_t length) const
{
  if (!length || *row == written.number)
    return &written;
  const auto is_its= [row](const Earlier &one) { return one.layout.number == *row; };
  const auto found= std::find_if(earlier.begin(), earlier.end(), is_its);
  return found == earlier.end() ? nullptr : &found->layout;
}

bool RowCodec::wants_part(const uchar *row, size_t length, uint32 name, const MY_BITMAP *wanted) const
{
  const RowLayouts::Layout *layout= layout_of(row, length);
  if (!wanted || !layout || name >= layout->columns.size())
    return true;                        // decoding the row detects the damage
  const uint16 number= layout->columns[name].number;
  return number != RowLayouts::DROPPED && bitmap_is_set(wanted, number);
}

/** Whether the value whose length is at `at` is missing, as a hole follows the length. If so, moves past the hole. */
static bool is_hole(const uchar *row, const uchar *at, const uchar *end, uint length_bytes, Holes *holes)
{
  const terrace_hole *hole= holes->first;
  if (!holes->count || hole->at != (size_t) (at - row) + length_bytes || (size_t) (end - at) < length_bytes ||
      read_length(at, length_bytes) != hole->len)
    return false;
  holes->first++;
  holes->count--;
  return true;
}

/** Whether a length, and as many bytes as it says, fit before the end. */
static bool has_value(const uchar *at, const uchar *end, uint length_bytes)
{
  const size_t left= (size_t) (end - at);
  return left >= length_bytes && left - length_bytes >= read_length(at, length_bytes);
}

bool RowCodec::decode(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted, bool cut, Holes holes) const
{
  if (length && *row != written.number)
    return decode_earlier(row, length, record, wanted, cut, holes);
  if (length < 1 + fixed_length)
    return false;
  const uchar *start= row, *end= row + length;
  row++;
  for (const Run &run : runs)
  {
    memcpy(record + run.offset, row, run.length);
    row+= run.length;
  }
  for (const NullBit &bit : absent)     // NULL until they are computed, as decode_earlier() leaves them
    record[bit.offset]|= bit.mask;
  for (const Variable &variable : variables)
  {
    uchar *to= record + variable.offset;
    if (variable.null_bit && record[variable.null_offset] & variable.null_bit)
    {
      // The bytes of a NULL are the default or an empty string, not those of an earlier row.
      if (variable.default_bytes)
        memcpy(to, variable.default_bytes, variable.default_length);
      else
        memset(to, 0, variable.length_bytes + sizeof(uchar *));
      continue;
    }
    if (is_hole(start, row, end, variable.length_bytes, &holes))
    {
      if (!wanted || bitmap_is_set(wanted, variable.number))
        return false;
      row+= variable.length_bytes;
      continue;
    }
    if (!has_value(row, end, variable.length_bytes))
    {
      if (!cut || !wanted || bitmap_is_set(wanted, variable.number))
        return false;
      row= end;                         // the following values are missing, too
      continue;
    }
    const size_t bytes= read_length(row, variable.length_bytes);
    const uchar *from= row + variable.length_bytes;
    row= from + bytes;
    if (wanted && !bitmap_is_set(wanted, variable.number))
      continue;
    switch (variable.kind) {
    case FIXED:
      break;
    case VARCHAR:
      if (variable.length_bytes + bytes > variable.field_length)
        return false;
      memcpy(to, from - variable.length_bytes, variable.length_bytes + bytes);
      break;
    case BLOB:
      memcpy(to, from - variable.length_bytes, variable.length_bytes);
      memcpy(to + variable.length_bytes, &from, sizeof from);
      break;
    case CHAR:
      if (bytes > variable.field_length)
        return false;
      memcpy(to, from, bytes);
      memset(to + bytes, ' ', variable.field_length - bytes);
      break;
    }
  }
  return row == end && !holes.count;
}

bool RowCodec::know(const RowLayouts &layouts)
{
  written.number= layouts.current;
  earlier.clear();
  added= layouts.added;
  // A short CHAR is in the fixed part in its layout, but may be a longer text now.
  const auto is_mine= [this](uint16 number, uint8 kind) {
    return number < places.size() && places[number].stored && (places[number].kind != FIXED || kind == FIXED);
  };
  for (const RowLayouts::Added &one : added)
    if (one.number >= places.size() || !places[one.number].stored)
      return false;
  for (const RowLayouts::Layout &layout : layouts.earlier)
  {
    Earlier one= {layout, {}};
    std::vector<bool> has(places.size(), false);
    for (const RowLayouts::Column &column : layout.columns)
    {
      if (column.number == RowLayouts::DROPPED)
        continue;
      if (!is_mine(column.number, column.kind))
        return false;
      has[column.number]= true;
    }
    for (uint at= 0; at < added.size(); at++)
      if (!has[added[at].number])
      {
        one.lacks.push_back(at);
        has[added[at].number]= true;
      }
    for (const RowLayouts::Column &column : written.columns)
      if (!has[column.number])
        return false;
    measure(layout);
    earlier.push_back(std::move(one));
  }
  return true;
}

RowLayouts::Added RowCodec::value_of(uint16 number, const uchar *record) const
{
  const Place &place= places[number];
  if (place.null_bit && record[place.null_offset] & place.null_bit)
    return {number, true, ""};
  const uchar *at= record + place.offset;
  size_t bytes= place.length;
  switch (place.kind) {
  case FIXED:
  case CHAR:                            // may include trailing spaces: put() pads with them anyway
    break;
  case VARCHAR:
    bytes= read_length(at, place.length_bytes);
    at+= place.length_bytes;
    break;
  case BLOB:
    bytes= read_length(at, place.length_bytes);
    at= blob_pointer(at, place.length_bytes);
    break;
  }
  return {number, false, bytes ? std::string(reinterpret_cast<const char *>(at), bytes) : ""};
}

/** Stores a column's value, from a row of an earlier layout, in a record that has the defaults. */
bool RowCodec::put(uint16 number, bool null, const uchar *from, size_t bytes, uchar *record) const
{
  const Place &place= places[number];
  if (null && !place.null_bit)
  {
    if (!lost_nulls)
      return false;
    lost_nulls->push_back(number);
    return true;
  }
  if (place.null_bit)
    record[place.null_offset]= (uchar) (null ? record[place.null_offset] | place.null_bit
                                             : record[place.null_offset] & ~place.null_bit);
  if (null)
    return true;
  uchar *to= record + place.offset;
  switch (place.kind) {
  case FIXED:
    if (bytes > place.length || (bytes < place.length && !place.pads))
      return false;
    memcpy(to, from, bytes);
    memset(to + bytes, ' ', place.length - bytes);
    return true;
  case VARCHAR:
    if (place.length_bytes + bytes > place.length)
      return false;
    break;
  case BLOB:
    break;
  case CHAR:
    if (bytes > place.length)
      return false;
    memcpy(to, from, bytes);
    memset(to + bytes, ' ', place.length - bytes);
    return true;
  }
  if (place.length_bytes < sizeof bytes && bytes >> 8 * place.length_bytes)
    return false;
  for (uint at= 0; at < place.length_bytes; at++)
    to[at]= (uchar) (bytes >> 8 * at);
  if (place.kind == BLOB)
    memcpy(to + place.length_bytes, &from, sizeof from);
  else
    memcpy(to + place.length_bytes, from, bytes);
  return true;
}

bool RowCodec::decode_earlier(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted, bool cut,
                              Holes holes) const
{
  const auto is_its= [row](const Earlier &one) { return one.layout.number == *row; };
  const auto found= std::find_if(earlier.begin(), earlier.end(), is_its);
  if (found == earlier.end() || length < 1 + found->layout.fixed_length)
    return false;
  const uchar *fixed= row + 1, *at= fixed + found->layout.fixed_length, *end= row + length;
  memcpy(record, defaults, record_length);
  for (const RowLayouts::Column &column : found->layout.columns)
  {
    const bool null= column.null_bit && fixed[column.null_at] & column.null_bit;
    const uchar *from= fixed + column.at;
    size_t bytes= column.length;
    if (column.kind != FIXED && !null)
    {
      if (is_hole(row, at, end, column.length_bytes, &holes))
      {
        if (!wanted || (column.number != RowLayouts::DROPPED && bitmap_is_set(wanted, column.number)))
          return false;
        at+= column.length_bytes;
        continue;
      }
      if (!has_value(at, end, column.length_bytes))
      {
        const bool is_wanted= !wanted || (column.number != RowLayouts::DROPPED && bitmap_is_set(wanted, column.number));
        if (!cut || is_wanted)
          return false;
        at= end;
        continue;
      }
      bytes= read_length(at, column.length_bytes);
      from= at + column.length_bytes;
      at= from + bytes;
    }
    if (column.number == RowLayouts::DROPPED)
      continue;
    if (column.kind == FIXED && places[column.number].kind != FIXED)
      while (bytes && from[bytes - 1] == ' ')
        bytes--;
    if (!put(column.number, null, from, bytes, record))
      return false;
  }
  for (uint number : found->lacks)
  {
    const RowLayouts::Added &one= added[number];
    if (!put(one.number, one.null, reinterpret_cast<const uchar *>(one.value.data()), one.value.size(), record))
      return false;
  }
  return at == end && !holes.count;
}

} // namespace terrace
