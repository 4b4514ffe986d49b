/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Bulk loads: rows are sorted and built into trees, without an undo record for each.

  A table that no other session knows of is loaded by a copying ALTER and by CREATE … SELECT: if the statement fails, the server drops the
  table. The same holds for the partitions that a change of partitions makes (REORGANIZE, ADD and COALESCE of hash partitions, REBUILD). There
  the server takes no error after the last row, so they are built when the last partition has been read to its end.

  An empty table is loaded by LOAD DATA, INSERT … SELECT and INSERT of many rows. To other sessions and to later statements it looks as if the
  rows were inserted one by one. A duplicate key may be found only at the end, so this is for statements that end with the first duplicate, and
  whose rows are not read before the end.

  A table that has rows is loaded by the same statements, from their thousandth row on: rows that come out of order are sorted before they
  are inserted.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "globals.h"
#include "performance.h"
#include "planted.h"
#include "ha_partition.h"
#include "partition_info.h"
#include <algorithm>

using namespace terrace;

/** Decodes a row of a batch, which starts with its head, into record[0], and computes its virtual columns. */
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
  // As in InnoDB, the copy is entered in the transaction registry even if there are no rows.
  ulonglong number;
  if ((operation == HA_EXTRA_BEGIN_COPY || operation == HA_EXTRA_BEGIN_ALTER_IGNORE_COPY) && table->versioned(VERS_TRX_ID))
    if (int error= m_session->version_number(ha_thd(), &number))
      return error;
  switch (operation) {
  case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY:
    m_copies= true;
    return 0;
  case HA_EXTRA_BEGIN_COPY:
    m_copies= true;
    begin_load();
    return 0;
  case HA_EXTRA_END_COPY:
    // INSERT … SELECT ends a copy that it hasn't begun.
    return m_copies ? end_copy() : 0;
  case HA_EXTRA_ABORT_COPY:
    m_copies= m_load_waits= false;
    if (m_session)
      m_session->refill= Refill();
    end_load();
    return 0;
  default:
    return 0;
  }
}

/** Whether the server looks up other rows before each write, as for some kinds of keys. */
bool ha_terrace::looks_before_writes() const
{
  bool looks= table->s->long_unique_table || table->s->table_type == TABLE_TYPE_SEQUENCE;
  for (uint at= 0; at < table->s->keys; at++)
    looks|= table->key_info[at].without_overlaps;
  return looks;
}

/** If the number of rows is known, fewer rows than this are inserted one by one. */
static const ha_rows LOAD_ROWS_MIN= 1000;

void ha_terrace::start_bulk_insert(ha_rows rows, uint)
{
  THD *thd= ha_thd();
  const LEX *lex= thd->lex;
  const int command= thd_sql_command(thd);
  if (m_load || (rows && rows < LOAD_ROWS_MIN) || looks_before_writes() || refers_to_itself() || !m_session || !m_session->transaction())
    return;
  if (command != SQLCOM_LOAD && command != SQLCOM_INSERT_SELECT && command != SQLCOM_INSERT)
    return;
  // LOCAL: the client can't be stopped from sending, so the server continues after a duplicate.
  if (command == SQLCOM_LOAD && lex->local_file)
    return;
  if (lex->duplicates != DUP_ERROR || lex->ignore || thd->lex->has_returning() || thd->in_sub_stmt || table->triggers)
    return;
  partition_info *parts= table->part_info;
  m_load_share= parts ? parts->get_tot_partitions() : 1;
  if (terrace_load_begin_within(engine, m_table, m_session->transaction(), m_load_share, false, &m_load))
  {
    // A table that is not empty takes the first LOAD_ROWS_MIN rows one by one, as they come.
    m_load= nullptr;
    m_load_after= LOAD_ROWS_MIN;
    return;
  }
  m_load_within= true;
  m_session->loads.push_back(this);
}

/** Called once there are enough rows that sorting the remaining ones pays. If the load can't be begun, they are inserted one by one. */
void ha_terrace::begin_load_beside()
{
  if (terrace_load_begin_within(engine, m_table, m_session->transaction(), m_load_share, true, &m_load))
  {
    m_load= nullptr;
    return;
  }
  m_load_within= true;
  m_session->loads.push_back(this);
}

int ha_terrace::end_bulk_insert()
{
  m_load_after= 0;
  if (!m_load || !m_load_within)
    return 0;
  // The statement is rolled back: release the load's resources at once.
  if (ha_thd()->is_error())
  {
    end_load();
    return 0;
  }
  const int error= finish_load();
  if (error)
  {
    my_errno= error;
    // The rows of other partitions would be inserted only to be rolled back.
    for (ha_terrace *other : std::vector<ha_terrace *>(m_session->loads))
      other->end_load();
  }
  return error;
}

/** Called before the table is read: finishes this session's other loads of the table first, so that their rows are in it. */
int ha_terrace::finish_other_loads()
{
  for (ha_terrace *other : std::vector<ha_terrace *>(m_session->loads))
    if (other->m_name == m_name)
      if (int error= other->finish_load())
        return error;
  return 0;
}

/** The number of partitions in these states, during a change of partitions. */
static uint count_parts(partition_info *parts, std::initializer_list<partition_state> states)
{
  uint count= 0;
  List_iterator<partition_element> all(parts->partitions);
  while (const partition_element *one= all++)
    count+= std::find(states.begin(), states.end(), one->part_state) != states.end();
  return count * (parts->is_sub_partitioned() ? parts->num_subparts : 1);
}

/** Whether this is a new partition of the open table, in a change of partitions; the others belong to the table already. */
bool ha_terrace::is_new_partition() const
{
  if (!table->part_info)
    return false;
  for (handler **part= static_cast<ha_partition *>(table->file)->get_child_handlers(); *part; part++)
    if (*part == this)
      return false;
  return true;
}

void ha_terrace::begin_load()
{
  THD *thd= ha_thd();
  m_refilled= is_new_partition();
  if (looks_before_writes() || !m_session || !m_session->transaction() || (refers_to_itself() && !is_passing_name(m_name)))
    return;
  m_load_counter= 0;
  m_load_within= false;
  m_load_scattered= false;
  m_load_share= 1;
  partition_info *parts= table->part_info;
  const ulonglong flags= thd->lex->alter_info.partition_flags;
  if (m_refilled)
  {
    // The states are those after the change.
    const uint temporary= parts->temp_partitions.elements * (parts->is_sub_partitioned() ? parts->num_subparts : 1);
    Refill &refill= m_session->refill;
    refill.table= table;
    refill.parts.clear();
    refill.sources= temporary ? temporary : count_parts(parts, {PART_IS_CHANGED, PART_TO_BE_DROPPED});
    m_load_share= count_parts(parts, {PART_IS_CHANGED, PART_IS_ADDED});
    // Each source is read in order. A new partition may get rows from several sources; in REBUILD it gets them from one only.
    m_load_scattered= refill.sources > 1 && !(flags & ALTER_PARTITION_REBUILD);
  }
  else
  {
    const TABLE_LIST *from= thd_sql_command(thd) == SQLCOM_ALTER_TABLE ? thd->lex->query_tables : nullptr;
    m_load_scattered= flags & (ALTER_PARTITION_INFO | ALTER_PARTITION_REMOVE) && from && from->table && from->table->part_info;
    if (parts)
      m_load_share= parts->get_tot_partitions();
  }
  // A partition's load begins with its first row, so that a partition without rows takes no resources.
  if (parts)
    m_load_waits= true;
  else
    begin_waiting_load();
}

/** Begins the load. Without one, rows are inserted as usual: if the table isn't empty, or if memory doesn't suffice for loads of many partitions. */
void ha_terrace::begin_waiting_load()
{
  m_load_waits= false;
  if (terrace_load_begin(engine, m_table, m_session->transaction(), m_load_share, m_load_scattered, &m_load))
    m_load= nullptr;
  else if (m_refilled)
    m_session->refill.parts.push_back(this);
}

/** Called when a partition has been read to its end. If it is the last source of a change of partitions, builds the new partitions. */
int ha_terrace::source_ended()
{
  Refill &refill= m_session->refill;
  if (refill.table != table || !refill.sources || --refill.sources)
    return 0;
  int error= 0;
  for (ha_terrace *one : refill.parts)
    if (!error && (error= one->finish_load()) && one->m_load)
    {
      // The server closes the new partition before it reports the error; the BLOBs of the reported row are in the load's buffer.
      free_retired_load();
      m_retired_load= one->m_load;
      one->m_load= nullptr;
    }
  if (!error && !refill.parts.empty())
    error= map(terrace_table_filled(engine, refill.parts.back()->m_table, true));
  refill.parts.clear();
  return error;
}

int ha_terrace::end_copy()
{
  m_copies= m_load_waits= false;
  int error= finish_load();
  if (!table->part_info)
    return error;
  // The last partition makes the call for all that were loaded together.
  const uint count= table->part_info->get_tot_partitions();
  const bool is_last= !m_refilled && static_cast<ha_partition *>(table->file)->get_child_handlers()[count - 1] == this;
  if (!error)
    error= map(terrace_table_filled(engine, m_table, is_last));
  if (error && m_refilled)
  {
    // The server ignores the error here; only the commit that follows reports it.
    table->file->print_error(error, MYF(0));
    m_session->refused= true;
  }
  return error;
}

/** Builds the trees, which takes long after the last row. ALTER and LOAD DATA report their own progress until then: this is their last stage. */
int32_t ha_terrace::build_loaded()
{
  THD *thd= ha_thd();
  const bool is_first= !thd->progress.arena;
  if (is_first)
    thd_progress_init(thd, 1);
  int32_t code;
  {
    Stage stage(thd, Stage::BUILD_TABLE);
    code= terrace_load_finish(m_load, !m_load_within && table->part_info, Stage::told, &stage);
  }
  if (is_first)
    thd_progress_end(thd);
  return code;
}

int ha_terrace::finish_load()
{
  if (!m_load)
    return 0;
  if (int error= is_planted(PlantedBug::LAST_UNCHECKED) ? 0 : check_awaited())
  {
    end_load();
    return error;
  }
  int32_t code= build_loaded();
  int error= 0;
  if (code == TERRACE_DUPLICATE)
  {
    error= write_failed(code);
    terrace_batch batch= {};
    batch.size= sizeof batch;
    MY_BITMAP *map= tmp_use_all_columns(table, &table->read_set);
    // The error's text is made from the duplicate row.
    if (!terrace_load_duplicate(m_load, &batch) && read_into_record(batch.data.data) && m_load_within)
      if (int failed= lock_duplicate_of_load())
        error= failed;
    tmp_restore_column_map(&table->read_set, map);
    // The row's BLOBs are in the load's buffer, which is kept until the statement has ended or, if the server drops the table, until it is closed.
    if (m_load_within)
    {
      leave_loads();
      free_retired_load();
      m_retired_load= m_load;
      m_load= nullptr;
    }
    return error;
  }
  if (!code && !m_load_within && m_load_counter)
    code= terrace_table_auto_increment_raise(m_table, m_load_counter);
  error= map(code);
  end_load();
  return error;
}

/** Locks the duplicate, as after the insert of a single row: record[0] has the refused row, and m_position its key. */
int ha_terrace::lock_duplicate_of_load()
{
  m_primary_bytes.assign(m_position.data(), m_position.size());
  make_entries(table->record[0], m_primary_bytes, nullptr, 0);
  bool gone;
  return lock_duplicate(m_primary_bytes, 0, true, &gone);
}

void ha_terrace::leave_loads()
{
  if (!m_load_within || !m_session)
    return;
  std::vector<ha_terrace *> &all= m_session->loads;
  all.erase(std::remove(all.begin(), all.end(), this), all.end());
}

void ha_terrace::end_load()
{
  m_awaited.clear();
  if (m_load)
    leave_loads();
  terrace_load_close(m_load);
  m_load= nullptr;
}
