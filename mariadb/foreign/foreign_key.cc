/* SPDX-License-Identifier: GPL-2.0-only */
#include "foreign_key.h"
#include "sql_table.h"

namespace terrace {

static void put(std::string *bytes, const std::string &text)
{
  *bytes+= (char) text.size();
  *bytes+= (char) (text.size() >> 8);
  *bytes+= text;
}

std::string ForeignKey::bytes() const
{
  std::string bytes;
  for (const std::string *text : {&name, &parent_database, &parent_table, &parent_index})
    put(&bytes, *text);
  bytes+= (char) on_delete;
  bytes+= (char) on_update;
  bytes+= (char) columns.size();
  bytes+= (char) (columns.size() >> 8);
  for (const auto *list : {&columns, &parent_columns})
    for (const std::string &column : *list)
      put(&bytes, column);
  return bytes;
}

bool ForeignKey::parse(const std::string &bytes)
{
  const uchar *at= reinterpret_cast<const uchar *>(bytes.data()), *end= at + bytes.size();
  const auto number= [&](uint *to, uint size) {
    if (end - at < (ptrdiff_t) size)
      return false;
    *to= size == 1 ? *at : uint2korr(at);
    at+= size;
    return true;
  };
  const auto take= [&](std::string *text) {
    uint length;
    if (!number(&length, 2) || end - at < (ptrdiff_t) length)
      return false;
    text->assign(reinterpret_cast<const char *>(at), length);
    at+= length;
    return true;
  };
  uint deleted, updated, count;
  if (!take(&name) || !take(&parent_database) || !take(&parent_table) || !take(&parent_index) || !number(&deleted, 1) ||
      !number(&updated, 1) || !number(&count, 2))
    return false;
  on_delete= (uchar) deleted;
  on_update= (uchar) updated;
  for (auto *list : {&columns, &parent_columns})
    for (uint one= 0; one < count; one++)
    {
      list->emplace_back();
      if (!take(&list->back()))
        return false;
    }
  return at == end;
}

std::string ForeignKey::parent() const { return engine_name_of(parent_database, parent_table); }

std::string quoted(THD *thd, const std::string &name)
{
  String text;
  append_identifier(thd, &text, name.data(), name.size());
  return std::string(text.ptr(), text.length());
}

std::string quoted(THD *thd, const TableName &name)
{
  // The copy that an ALTER makes has a name that isn't encoded.
  const bool as_it_is= is_prefix(name.table.c_str(), MYSQL50_TABLE_NAME_PREFIX tmp_file_prefix);
  return quoted(thd, name.database) + "." + quoted(thd, as_it_is ? name.table.substr(MYSQL50_TABLE_NAME_PREFIX_LENGTH) : name.table);
}

std::string ForeignKey::text(THD *thd, const std::string &database) const
{
  const auto list= [&](const std::vector<std::string> &names) {
    std::string text;
    for (const std::string &one : names)
      text+= (text.empty() ? "(" : ", ") + quoted(thd, one);
    return text + ")";
  };
  std::string text= "CONSTRAINT " + quoted(thd, name) + " FOREIGN KEY " + list(columns) + " REFERENCES ";
  if (parent_database != database)
    text+= quoted(thd, parent_database) + ".";
  text+= quoted(thd, parent_table) + " " + list(parent_columns);
  const auto action= [&](const char *event, uchar option) {
    if (option > FK_OPTION_RESTRICT)
      text+= event + std::string(fk_option_name((enum_fk_option) option)->str);
  };
  action(" ON DELETE ", on_delete);
  action(" ON UPDATE ", on_update);
  return text;
}

TableName::TableName(const std::string &engine_name)
{
  const size_t slash= engine_name.find(FN_LIBCHAR);
  const auto shown= [](const std::string &name) {
    char text[NAME_LEN + 1];
    const uint length= filename_to_tablename(name.c_str(), text, sizeof text, true);
    return std::string(text, length);
  };
  database= shown(engine_name.substr(0, slash));
  table= slash == std::string::npos ? "" : shown(engine_name.substr(slash + 1));
}

std::string engine_name_of(const std::string &database, const std::string &table)
{
  char path[FN_REFLEN + 1], file[FN_REFLEN + 1];
  const uint length= tablename_to_filename(database.c_str(), path, sizeof path), more= tablename_to_filename(table.c_str(), file, sizeof file);
  return std::string(path, length) + FN_LIBCHAR + std::string(file, more);
}

} // namespace terrace
