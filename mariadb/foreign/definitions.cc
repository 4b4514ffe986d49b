/* SPDX-License-Identifier: GPL-2.0-only */
#include "definitions.h"
#include "globals.h"
#include "link.h"

namespace terrace {

static const char GENERATED[]= "_ibfk_";

int refuse_by_name(const std::string &what)
{
  my_error(ER_CHECK_NOT_IMPLEMENTED, MYF(0), what.c_str());
  return HA_ERR_UNSUPPORTED;
}

const char *unequal(const KEY *one, const KEY *other, size_t columns)
{
  for (size_t part= 0; part < columns; part++)
    if (!is_comparable(one->key_part[part].field, other->key_part[part].field))
      return one->key_part[part].field->field_name.str;
  return nullptr;
}

bool copies_null(THD *thd, const ForeignKey &key, const Field *column, const Field *parents)
{
  return key.on_update == FK_OPTION_CASCADE && key.on_delete == FK_OPTION_RESTRICT && !column->real_maybe_null() && parents->real_maybe_null() &&
         thd->is_strict_mode();
}

std::string generated_name(const std::string &table, ulong number) { return table + GENERATED + std::to_string(number); }

ulong generated_number(const std::string &table, const std::string &name)
{
  const std::string start= table + GENERATED;
  if (name.size() <= start.size() || !same_name(name.substr(0, start.size()), start))
    return 0;
  char *end;
  const ulong number= strtoul(name.c_str() + start.size(), &end, 10);
  return *end ? 0 : number;
}

ulong generated_number(const std::string &table, const Relations *relations)
{
  ulong number= 0;
  if (relations)
    for (const ForeignKey &key : relations->own)
      number= MY_MAX(number, generated_number(table, key.name));
  return number;
}

static std::vector<std::string> names_of(List<Key_part_spec> &parts)
{
  std::vector<std::string> names;
  List_iterator<Key_part_spec> each(parts);
  while (Key_part_spec *part= each++)
    names.emplace_back(part->field_name.str, part->field_name.length);
  return names;
}

static std::string lowered(const std::string &name)
{
  std::string text= name;
  if (lower_case_table_names)
  {
    text.resize(text.size() * 4 + 1);
    strcpy(&text[0], name.c_str());
    my_casedn_str(system_charset_info, &text[0]);
    text.resize(strlen(text.c_str()));
  }
  return text;
}

ForeignKey read_declared(const std::string &table, Foreign_key *from)
{
  ForeignKey key;
  if (from->constraint_name.str)
    key.name.assign(from->constraint_name.str, from->constraint_name.length);
  key.parent_database= from->ref_db.str ? lowered(from->ref_db.str) : TableName(table).database;
  key.parent_table= lowered(from->ref_table.str);
  key.columns= names_of(from->columns);
  key.parent_columns= names_of(from->ref_columns);
  // As in InnoDB: SET DEFAULT is RESTRICT.
  const auto option= [](enum_fk_option one) {
    return (uchar) (one == FK_OPTION_UNDEF || one == FK_OPTION_SET_DEFAULT ? FK_OPTION_RESTRICT : one);
  };
  key.on_delete= option(from->delete_opt);
  key.on_update= option(from->update_opt);
  return key;
}


} // namespace terrace
