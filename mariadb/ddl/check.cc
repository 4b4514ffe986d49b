/* SPDX-License-Identifier: GPL-2.0-only */
/*
  CHECK TABLE: checks each tree's structure, then the trees against each other. Under one read view it reads every row, makes the entries
  that the row should have, and sums up their hashes for each index. Then it reads each index and sums up the hashes of its entries.
  Equal sums and counts mean that each row has its entries and no entry lacks its row.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"
#include "kill_scope.h"
#include "walk.h"
#include <set>
#include <string>

using namespace terrace;

namespace {

struct Sum
{
  ulonglong count= 0, hash= 0;
  void add(const uchar *bytes, size_t length)
  {
    ulonglong state= 0xcbf29ce484222325ULL;
    for (size_t at= 0; at < length; at++)
      state= (state ^ bytes[at]) * 0x100000001b3ULL;
    state^= state >> 29;
    hash+= state * 0xbf58476d1ce4e5b9ULL;
    count++;
  }
  bool operator!=(const Sum &other) const { return count != other.count || hash != other.hash; }
};

/** Reports each warning once, as InnoDB does, although the values of virtual columns are computed for each index. */
class HeardOnce : public Internal_error_handler
{
public:
  explicit HeardOnce(THD *thd) : thd(thd) { thd->push_internal_handler(this); }
  ~HeardOnce() override { thd->pop_internal_handler(); }
  bool handle_condition(THD *, uint, const char *, Sql_condition::enum_warning_level *level, const char *message, Sql_condition **) override
  {
    if (*level == Sql_condition::WARN_LEVEL_ERROR)
      return false;
    if (heard.size() == WARNINGS_MAX)
      return true;
    return !heard.insert(message).second;
  }

private:
  static constexpr size_t WARNINGS_MAX= 1000;
  THD *thd;
  std::set<std::string> heard;
};

} // namespace

int ha_terrace::compare_trees(THD *thd)
{
  terrace_txn *txn= m_session->transaction();
  const uint first= m_hidden ? 0 : 1, keys= table->s->keys;
  std::vector<Sum> expected(keys), found(keys);
  // Reads all stored columns, and of the virtual ones only those that indexes need: evaluating a virtual column may warn.
  MY_BITMAP *before= table->read_set;
  table->read_set= &table->tmp_set;
  bitmap_clear_all(&table->tmp_set);
  for (Field **field= table->field; *field; field++)
    if ((*field)->stored_in_db())
      bitmap_set_bit(&table->tmp_set, (*field)->field_index);
  for (uint at= 0; at < keys; at++)
    for (uint part= 0; part < table->key_info[at].user_defined_key_parts; part++)
      table->mark_virtual_column_with_deps(table->key_info[at].key_part[part].field);
  HeardOnce heard(thd);
  int32_t code= walk(txn, m_table, 0, thd,
                     [&](const uchar *key, size_t key_length, const uchar *value, size_t value_length) {
    if (!m_row.decode(value, value_length, table->record[0], nullptr))
      return false;
    if (table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ))
      return false;
    m_position.assign(key, key_length);
    encode_primary(table->record[0], &m_primary_bytes);
    if (!m_primary_bytes.equals(key, key_length))
      return false;
    make_entries(table->record[0], m_primary_bytes, nullptr, 0);
    for (uint at= first; at < keys; at++)
    {
      const terrace_entry &entry= m_entries[0].list[at - first];
      expected[at].add(entry.key.data, entry.key.len);
    }
    return true;
  });
  table->read_set= before;
  if (code == TERRACE_CORRUPT)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "Terrace: a row of %s can't be read",
                        m_name.c_str());
  for (uint at= first; at < keys && !code; at++)
  {
    code= walk(txn, m_table, tree_of(at), thd, [&](const uchar *key, size_t length, const uchar *, size_t) {
      found[at].add(key, length);
      return true;
    });
    if (!code && found[at] != expected[at])
    {
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE,
                          "Terrace: index %s has %llu entries where the rows want %llu, or others",
                          table->key_info[at].name.str, found[at].count, expected[at].count);
      code= TERRACE_CORRUPT;
    }
  }
  return code;
}

static int admin_result(int32_t code)
{
  if (code == TERRACE_OK)
    return HA_ADMIN_OK;
  return code == TERRACE_CORRUPT || code == TERRACE_MISSING ? HA_ADMIN_CORRUPT : HA_ADMIN_FAILED;
}

static int killed(THD *thd)
{
  thd->send_kill_message();
  return HA_ADMIN_FAILED;
}

int ha_terrace::check(THD *thd, HA_CHECK_OPT *options)
{
  if (!m_session || !m_session->transaction())
    return HA_ADMIN_INTERNAL_ERROR;
  for (uint tree= 0; tree < table->s->keys + (m_hidden ? 1 : 0); tree++)
  {
    uint64_t entries;
    int32_t code;
    {
      Heard heard;
      code= terrace_table_check(m_table, tree, &entries);
    }
    if (code == TERRACE_CANCELLED)
      return killed(thd);
    if (code)
    {
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "Terrace: %s",
                          last_message().c_str());
      return admin_result(code);
    }
  }
  if (options->flags & T_QUICK)
    return HA_ADMIN_OK;
  int code= compare_trees(thd);
  return code == TERRACE_CANCELLED ? killed(thd) : admin_result(code);
}
