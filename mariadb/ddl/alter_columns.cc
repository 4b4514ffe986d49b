/* SPDX-License-Identifier: GPL-2.0-only */
/* Changes of columns that leave the stored rows as they are. */
#include "ha_terrace.h"
#include "alter.h"

namespace terrace {

namespace {

/** ENUM and SET: stored as numbers, which stay valid if the server's is_equal or same_members finds the members in the same positions. */
bool is_list(const Field *field)
{
  return field->real_type() == MYSQL_TYPE_ENUM || field->real_type() == MYSQL_TYPE_SET;
}

/**
  Numbers that differ only in display width, ZEROFILL or digits (FLOAT and DOUBLE) have the same bytes, as in InnoDB. Not so in tables with
  computed columns: an expression could depend on how the number is shown.
*/
bool same_numbers(const Field *one, const Field *other)
{
  switch (one->real_type()) {
  case MYSQL_TYPE_TINY:
  case MYSQL_TYPE_SHORT:
  case MYSQL_TYPE_INT24:
  case MYSQL_TYPE_LONG:
  case MYSQL_TYPE_LONGLONG:
  case MYSQL_TYPE_FLOAT:
  case MYSQL_TYPE_DOUBLE:
    return one->real_type() == other->real_type() && !((one->flags ^ other->flags) & UNSIGNED_FLAG) && !one->table->vfield;
  default:
    return false;
  }
}

/** Whether a column's stored bytes mean the same in both tables. */
bool same_column(const TABLE *before, const Field *one, const TABLE *after, const Field *other)
{
  if (one->real_type() != other->real_type() || one->stored_in_db() != other->stored_in_db() ||
      one->charset() != other->charset() || one->compression_method() != other->compression_method() ||
      (one->flags ^ other->flags) & UNSIGNED_FLAG || one->real_maybe_null() != other->real_maybe_null())
    return false;
  if (one->null_ptr && (one->null_bit != other->null_bit || one->null_ptr - before->record[0] !=
                                                            other->null_ptr - after->record[0]))
    return false;
  if (one->real_type() == MYSQL_TYPE_VARCHAR)
    return one->field_length <= other->field_length && static_cast<const Field_varstring *>(one)->length_bytes ==
                                                       static_cast<const Field_varstring *>(other)->length_bytes;
  if (same_numbers(one, other))
    return true;
  // The server's is_equal compares decimals and fractions of seconds. A list's field length depends on its members.
  return one->pack_length() == other->pack_length() && (is_list(one) || one->field_length == other->field_length) &&
         one->decimals() == other->decimals() && !((one->flags ^ other->flags) & ZEROFILL_FLAG);
}

/** The next stored column; null if there is no other. */
const Field *stored_from(Field **&at)
{
  while (*at && !(*at)->stored_in_db())
    at++;
  return *at ? *at++ : nullptr;
}

} // namespace

TextKind text_kind(const Type_handler *type)
{
  // JSON is a text type with a constraint.
  if (const Type_handler *base= type->type_handler_base())
    type= base;
  if (type == &type_handler_string)
    return TextKind::CHAR;
  if (type == &type_handler_varchar || type == &type_handler_varchar_compressed)
    return TextKind::VARCHAR;
  if (type == &type_handler_tiny_blob || type == &type_handler_blob || type == &type_handler_medium_blob ||
      type == &type_handler_long_blob || type == &type_handler_blob_compressed)
    return TextKind::BLOB;
  return TextKind::NONE;
}

bool reads_as(CHARSET_INFO *one, CHARSET_INFO *other)
{
  return Charset(one).encoding_allows_reinterpret_as(other);
}

bool same_columns(const TABLE *before, const TABLE *after)
{
  if (before->s->null_bytes != after->s->null_bytes)
    return false;
  Field **ones= before->field, **others= after->field;
  for (;;)
  {
    const Field *one= stored_from(ones), *other= stored_from(others);
    if (!one || !other)
      return one == other;
    if (!same_column(before, one, after, other))
      return false;
  }
}

bool same_records(const TABLE *before, const TABLE *after)
{
  if (before->s->reclength != after->s->reclength || before->s->fields != after->s->fields)
    return false;
  for (uint at= 0; at < before->s->fields; at++)
    if (!same_column(before, before->field[at], after, after->field[at]))
      return false;
  return true;
}

/** Whether the members of `one` are the first members of `other`, byte for byte. */
static bool same_members(const Field *one, const Field *other)
{
  const TYPELIB *few= static_cast<const Field_enum *>(one)->typelib, *many= static_cast<const Field_enum *>(other)->typelib;
  if (few->count > many->count)
    return false;
  for (uint at= 0; at < few->count; at++)
    if (few->type_lengths[at] != many->type_lengths[at] ||
        memcmp(few->type_names[at], many->type_names[at], few->type_lengths[at]))
      return false;
  return true;
}

/** Whether the bytes of each text of `one`, without a CHAR's trailing spaces, are a valid text of `other`. */
static bool takes_texts(const Field *one, TextKind kind, const Field *other, TextKind other_kind)
{
  if (one->compression_method() || other->compression_method())
    return kind == other_kind && one->compression_method() == other->compression_method() && one->charset() == other->charset() &&
           (kind == TextKind::VARCHAR ? one->field_length <= other->field_length : one->pack_length() == other->pack_length());
  if (!reads_as(one->charset(), other->charset()))
    return false;
  // Such a CHAR is padded with one-byte spaces. A BINARY is padded with zeros, which are part of its value.
  const bool pads= one->charset() != &my_charset_bin && one->charset()->mbminlen == 1;
  switch (other_kind) {
  case TextKind::CHAR:
    return kind == other_kind && (pads ? one->char_length() <= other->char_length() : one->pack_length() == other->pack_length());
  case TextKind::VARCHAR:
    return (kind == other_kind || (kind == TextKind::CHAR && pads)) && one->field_length <= other->field_length &&
           one->char_length() <= other->char_length();
  case TextKind::BLOB:
    if (kind == other_kind)
      return one->pack_length() <= other->pack_length();
    return (kind == TextKind::VARCHAR || pads) && one->field_length <= static_cast<const Field_blob *>(other)->max_data_length();
  case TextKind::NONE:
    break;
  }
  return false;
}

/** Whether a column's values have the same bytes in both tables, and the new column can hold every value of the old one. */
static bool same_values(const Field *one, const Field *other)
{
  if (one->stored_in_db() != other->stored_in_db())
    return false;
  if (same_numbers(one, other))
    return true;
  if ((one->flags ^ other->flags) & (UNSIGNED_FLAG | ZEROFILL_FLAG))
    return false;
  const TextKind kind= text_kind(one->type_handler()), other_kind= text_kind(other->type_handler());
  if (kind != TextKind::NONE && other_kind != TextKind::NONE)
    return takes_texts(one, kind, other, other_kind);
  if (one->real_type() != other->real_type() || one->pack_length() != other->pack_length() ||
      one->compression_method() != other->compression_method())
    return false;
  if (is_list(one))
    return one->charset() == other->charset() || (reads_as(one->charset(), other->charset()) && same_members(one, other));
  return one->charset() == other->charset() && one->field_length == other->field_length && one->decimals() == other->decimals();
}

/**
  Whether a column's bytes are not where its description says: a BIT with some of its bits among the null bits. This engine's tables
  have no such column, as HA_CAN_BIT_FIELD is not among its flags.
*/
static bool has_hidden_places(const TABLE *table)
{
  for (Field **at= table->field; *at; at++)
    if (((*at)->real_type() == MYSQL_TYPE_BIT && static_cast<const Field_bit *>(*at)->bit_ptr) || (*at)->flags & LONG_UNIQUE_HASH_FIELD)
      return true;
  return false;
}

bool ColumnChange::follow(const TABLE *before, const TABLE *after, const Alter_inplace_info *info)
{
  List<Create_field> &columns= info->alter_info->create_list;
  moved.assign(before->s->fields, RowLayouts::DROPPED);
  added.clear();
  counts= loses_null= loses_timestamp_null= false;
  // A column may be dropped and a similar one added in its place.
  const alter_table_operations moves=
    COLUMNS | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER;
  if (same_records(before, after) && !(info->handler_flags & moves))
  {
    for (uint16 at= 0; at < before->s->fields; at++)
      moved[at]= at;
    return true;
  }
  if (columns.elements != after->s->fields ||
      (!same_columns(before, after) && (has_hidden_places(before) || has_hidden_places(after))))
    return false;
  List_iterator_fast<Create_field> it(columns);
  for (uint16 at= 0; at < after->s->fields; at++)
  {
    const Field *was= it++->field;
    if (was)
    {
      if (was->field_index >= before->s->fields || before->field[was->field_index] != was ||
          !same_values(was, after->field[at]))
        return false;
      const bool loses= was->real_maybe_null() && !after->field[at]->real_maybe_null();
      loses_null|= loses;
      loses_timestamp_null|= loses && was->type() == MYSQL_TYPE_TIMESTAMP;
      moved[was->field_index]= at;
    }
    else if (after->field[at]->stored_in_db())
    {
      added.push_back(at);
      counts|= after->field[at] == after->found_next_number_field;
    }
  }
  return !loses_null || info->handler_flags & (ALTER_COLUMN_NOT_NULLABLE | ALTER_ADD_PK_INDEX);
}

bool ColumnChange::values(TABLE *after, std::vector<RowLayouts::Added> *values) const
{
  RowCodec codec;
  codec.prepare(after);
  for (uint16 number : added)
  {
    Field *field= after->field[number];
    // Time and user are the same for the whole statement; other expressions may differ for each row.
    const uint of_statement= VCOL_SESSION_FUNC | VCOL_TIME_FUNC;
    if (field->vcol_info || (field->default_value && field->default_value->flags & ~of_statement))
      return false;
    const int stored= field->set_default();
    if (stored != 0 && stored != 3)     // 3: a DATETIME became a DATE or a TIME
      return false;
    values->push_back(codec.value_of(number, after->record[0]));
  }
  return true;
}

} // namespace terrace
