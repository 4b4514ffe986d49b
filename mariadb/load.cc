/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The first filling of a table that nobody else knows of, by ALTER by copy and CREATE … SELECT: rows are sorted and built into
  trees, without undo. If the statement fails, the server drops the table.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"

using namespace terrace;

/** A row of a batch, its head first, to record[0], with its virtual columns. */
bool ha_terrace::read_into_record(const uchar *at)
{
  terrace_row_head head;
  memcpy(&head, at, sizeof head);
  at+= sizeof head;
  m_position.assign(at, head.key_len);
  return m_row.decode(at + head.key_len, head.value_len, table->record[0], nullptr) &&
         !(table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ));
}

int ha_terrace::extra(enum ha_extra_function operation)
{
  switch (operation) {
  case HA_EXTRA_BEGIN_COPY:
    begin_load();
    return 0;
  case HA_EXTRA_END_COPY:
    return finish_load();
  case HA_EXTRA_ABORT_COPY:
    end_load();
    return 0;
  default:
    return 0;
  }
}

void ha_terrace::begin_load()
{
  THD *thd= ha_thd();
  // Who reorganizes partitions doesn't hear of an error at the end. Some keys look for others' rows before each write.
  bool looks= table->s->long_unique_table || table->s->table_type == TABLE_TYPE_SEQUENCE;
  for (uint at= 0; at < table->s->keys; at++)
    looks|= table->key_info[at].without_overlaps;
  if (looks || thd->lex->alter_info.partition_flags || !m_session || !m_session->transaction())
    return;
  m_load_counter= 0;
  // A table that is not empty is filled as any other.
  if (terrace_load_begin(engine, m_table, m_session->transaction(), &m_load))
    m_load= nullptr;
}

int ha_terrace::finish_load()
{
  if (!m_load)
    return 0;
  const char *before= thd_proc_info(ha_thd(), "Building the table");
  int32_t code= terrace_load_finish(m_load);
  thd_proc_info(ha_thd(), before);
  int error= 0;
  if (code == TERRACE_DUPLICATE)
  {
    error= write_failed(code);
    terrace_batch batch= {};
    batch.size= sizeof batch;
    MY_BITMAP *map= tmp_use_all_columns(table, &table->read_set);
    if (!terrace_load_duplicate(m_load, &batch))
      read_into_record(batch.data.data);        // the error's text is made of it
    tmp_restore_column_map(&table->read_set, map);
    // Its BLOBs lie in the load's buffer until the table is closed.
    return error;
  }
  if (!code && m_load_counter)
    code= terrace_table_auto_increment_raise(m_table, m_load_counter);
  error= map(code);
  end_load();
  return error;
}

void ha_terrace::end_load()
{
  terrace_load_close(m_load);
  m_load= nullptr;
}
