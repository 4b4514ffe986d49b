/* SPDX-License-Identifier: GPL-2.0-only */
#include "row_codec.h"

namespace terrace {

void RowCodec::prepare(TABLE *table)
{
  runs.clear();
  variables.clear();
  absent.clear();
  nullables.clear();
  fixed_length= 0;
  const uchar *record= table->record[0];
  // What of the record is neither a column of variable length nor virtual, in order of place.
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
    else if (type == MYSQL_TYPE_STRING && field->key_type() == HA_KEYTYPE_TEXT && variable.cs->mbminlen == 1 &&
             variable.field_length > 4)
    {
      variable.kind= CHAR;
      variable.length_bytes= 2;
      variable.default_length= variable.field_length;
    }
    else
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
  std::vector<uint32> places(mine.size(), 0);
  for (uint32 at= 0; at < mine.size(); at++)
  {
    if (!mine[at])
      continue;
    if (runs.empty() || runs.back().offset + runs.back().length != at)
      runs.push_back({at, 0});
    runs.back().length++;
    places[at]= (uint32) fixed_length++;
  }
  for (Nullable &nullable : nullables)
    nullable.at= places[nullable.at];
}

void RowCodec::encode(const uchar *record, Bytes *out) const
{
  uchar *to= out->reserve(1 + fixed_length);
  *to++= LAYOUT;
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
    switch (variable.kind) {
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
  }
}

bool RowCodec::decode(const uchar *row, size_t length, uchar *record, const MY_BITMAP *wanted) const
{
  if (length < 1 + fixed_length || *row != LAYOUT)
    return false;
  const uchar *end= row + length;
  row++;
  for (const Run &run : runs)
  {
    memcpy(record + run.offset, row, run.length);
    row+= run.length;
  }
  for (const Variable &variable : variables)
  {
    uchar *to= record + variable.offset;
    if (variable.null_bit && record[variable.null_offset] & variable.null_bit)
    {
      // Whoever looks at the bytes of a NULL sees the default or an empty string, not what an earlier row left.
      if (variable.default_bytes)
        memcpy(to, variable.default_bytes, variable.default_length);
      else
        memset(to, 0, variable.length_bytes + sizeof(uchar *));
      continue;
    }
    if ((size_t) (end - row) < variable.length_bytes)
      return false;
    size_t bytes= read_length(row, variable.length_bytes);
    if ((size_t) (end - row) - variable.length_bytes < bytes)
      return false;
    const uchar *from= row + variable.length_bytes;
    row= from + bytes;
    if (wanted && !bitmap_is_set(wanted, variable.number))
      continue;
    switch (variable.kind) {
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
  return row == end;
}

} // namespace terrace
