/* SPDX-License-Identifier: GPL-2.0-only */
#include "cascade.h"
#include "globals.h"
#include "ha_terrace.h"
#include "link.h"
#include "sql_base.h"
#include "table_cache.h"

/* The server exports it for InnoDB, which declares it itself. */
TABLE *find_fk_open_table(THD *thd, const char *db, size_t db_length, const char *table, size_t table_length);

namespace terrace {

/** A table that nobody has taken: one that is here already, or the server's. */
Cascades::Open *Cascades::find(THD *thd, const std::string &name)
{
  bool is_known= false;
  for (const auto &one : all)
    if (one->name == name)
    {
      if (!one->taken)
        return one.get();
      is_known|= !one->list;
    }
  // Under LOCK TABLES a table's element is that of an earlier statement.
  if (is_known || (thd->locked_tables_mode != LTM_NONE && thd->locked_tables_mode != LTM_PRELOCKED))
    return nullptr;
  const TableName names(name);
  TABLE *table= find_fk_open_table(thd, names.database.data(), names.database.size(), names.table.data(), names.table.size());
  if (!table || !table->file || table->file->ht != hton || table->pos_in_table_list->lock_type < TL_FIRST_WRITE)
    return nullptr;
  all.emplace_back(new Open{name, table, false, nullptr});
  return all.back().get();
}

TABLE *Cascades::take(THD *thd, const std::string &name, int *error)
{
  *error= 0;
  if (Open *found= find(thd, name))
  {
    found->taken= true;
    return found->table;
  }
  if ((*error= lock_definition(thd, name, MDL_SHARED_WRITE)))
    return nullptr;
  Definition definition(thd, name);
  if (definition.error || !definition.share)
  {
    *error= definition.error;
    return nullptr;
  }
  TABLE_SHARE *share= definition.share;
  std::unique_ptr<Open> one(new Open{name, nullptr, true, std::unique_ptr<TABLE_LIST>(new TABLE_LIST())});
  TABLE *table= static_cast<TABLE *>(my_malloc(PSI_INSTRUMENT_ME, sizeof(TABLE), MYF(MY_WME | MY_ZEROFILL)));
  if (!table)
  {
    *error= HA_ERR_OUT_OF_MEM;
    return nullptr;
  }
  one->table= table;
  one->list->init_one_table(&share->db, &share->table_name, nullptr, TL_WRITE);
  one->list->table= table;
  if (open_table_from_share(thd, share, &share->table_name, HA_OPEN_KEYFILE | HA_TRY_READ_ONLY, EXTRA_RECORD, thd->open_options, table, false))
  {
    my_free(table);
    *error= HA_ERR_NO_SUCH_TABLE;
    return nullptr;
  }
  definition.share= nullptr;            // released when the table is closed
  table->pos_in_table_list= one->list.get();
  table->reginfo.lock_type= TL_WRITE;
  all.push_back(std::move(one));
  if (table->vcol_fix_expr(thd))
  {
    give_back(table);
    *error= HA_ERR_INTERNAL_ERROR;
    return nullptr;
  }
  return table;
}

void Cascades::give_back(TABLE *table)
{
  for (const auto &one : all)
    if (one->table == table)
      one->taken= false;
}

void Cascades::close_tables()
{
  for (const auto &one : all)
  {
    static_cast<ha_terrace *>(one->table->file)->leave_cascades();
    if (!one->list)
      continue;
    TABLE_SHARE *share= one->table->s;
    one->table->vcol_cleanup_expr(one->table->in_use);
    closefrm(one->table);
    my_free(one->table);
    tdc_release_share(share);
  }
  all.clear();
}

} // namespace terrace
