/* SPDX-License-Identifier: GPL-2.0-only */
/*
  CASCADE and SET NULL: rows of a child that are deleted or updated because their parent's row is.

  The children come first, then the parent's row: a cascade that comes back finds the parent's entries in their place, as in InnoDB, and the chain
  (cascade.h) tells it which rows are being changed. Children are changed as the statement's own rows are: they are locked, checked against their other
  foreign keys, cascade further, and are undone with the statement. No trigger runs, no constraint of the server's is checked, and the binary log has no
  events of them: a replica cascades by itself. All that is as in InnoDB.

  Rows of a child that has no children itself are gathered (gather.cc). Where a cascade may come back to the child's table, its rows are read one by one,
  because each one's change may change the next.
*/
#include "ha_terrace.h"
#include "errors.h"
#include "foreign.h"
#include "globals.h"
#include "planted.h"
#include "sql_cache.h"

using namespace terrace;

/** A change of a parent's row. */
struct ha_terrace::Cause
{
  const Link &link;
  const uchar *old, *record;            // the parent's row; `record` is null if it is deleted
  uchar option() const { return record ? link.key.on_update : link.key.on_delete; }
  bool deletes() const { return !record && link.key.on_delete == FK_OPTION_CASCADE; }
};

/** Changes the children of a row as their foreign key says. The row is the chain's last, and the children's key is in m_foreign->bytes. */
int ha_terrace::cascade(Link &link, const uchar *old, const uchar *record)
{
  THD *thd= ha_thd();
  Cascades &all= m_session->cascades;
  const Bytes &key= m_foreign->bytes;
  // A table is opened only if there is a row.
  if (!all.is_open(thd, link.name))
    if (const int32_t code= link.find(*m_session, key, false))
      return code == TERRACE_NO_ROW ? 0 : map(code);
  int error;
  TABLE *child= all.take(thd, link.name, &error);
  if (!child)
    return error ? error : foreign_error(HA_ERR_ROW_IS_REFERENCED, link.name, link.key);
  ha_terrace *handler= static_cast<ha_terrace *>(child->file);
  handler->enter_cascade(m_session);
  error= handler->follow({link, old, record}, key);
  if (error)
    m_foreign_said= handler->m_foreign_said;
  query_cache_invalidate3(thd, child, true);
  all.give_back(child);
  m_cascaded= true;
  return error;
}

/** Called on a child's handler before it changes rows; the server may have locked its table for less. */
void ha_terrace::enter_cascade(Session *session)
{
  m_session= session;
  m_lock= TERRACE_LOCK_EXCLUSIVE;
  m_lock_type_write= true;
  m_skip_locked= false;
  session->locks(ha_thd(), m_writers, true);
  table->use_all_columns();
}

/** Called between two cascades of a statement. The cursor stays open, because as a rule the next one seeks in the same index. */
void ha_terrace::rest_cursor()
{
  count_reads();
  free_retired();
  m_batch_left= m_steps= 0;
  m_direction= NOWHERE;
  m_at_cursor= m_prefix_set= m_semi_read= m_bare= false;
  m_gap= ON_ROW;
  m_current= Row();
  m_cut_runs.clear();
  m_cut_kept.reset();
}

/** Called at the end of the statement, while its transaction is open. */
void ha_terrace::leave_cascades()
{
  close_cursor();
  free_retired();
}

/** Whether a column of the foreign key is in the primary key. */
bool ha_terrace::changes_position(const Link &link) const
{
  for (uint part= 0; !m_hidden && part < table->key_info[0].user_defined_key_parts; part++)
    for (const std::string &column : link.other)
      if (same_name(table->key_info[0].key_part[part].field->field_name.str, column))
        return true;
  return false;
}

/** Whether there is a current row with the key in the link's index; it is locked, shared. Rows that a cascade is deleting don't count. Handler error. */
int ha_terrace::has_current(const Link &link, const Bytes &key, bool *found)
{
  close_cursor();
  m_lock= TERRACE_LOCK_SHARED;
  active_index= link.other_index;
  uchar *const row= table->record[0];
  int end= open_cursor(tree_of(active_index), false);
  if (!end)
    end= seek(row, TERRACE_SEEK_AT_LEAST, &key, &key);
  for (; !end && !*found; end= *found ? 0 : step(row, FORWARD, &key))
  {
    encode_primary(row, &m_primary_bytes);
    *found= is_current(row) && !m_session->cascades.deletes(m_name, active_index, m_primary_bytes.data(), m_primary_bytes.size());
  }
  rest_cursor();
  close_cursor();
  active_index= MAX_KEY;
  return end == HA_ERR_END_OF_FILE || end == HA_ERR_KEY_NOT_FOUND ? 0 : end;
}

/** Changes all rows of this table that have the key. */
int ha_terrace::follow(const Cause &cause, const Bytes &key)
{
  const uint index= index_over(table->key_info, table->s->keys, cause.link.other);
  if (index == MAX_KEY)
    return foreign_error(HA_ERR_ROW_IS_REFERENCED, m_name, cause.link.key);
  const Foreign *foreign= this->foreign();
  const bool is_last= !foreign || foreign->children.empty();
  m_follows= &cause.link.key;
  m_one_by_one= !is_last && foreign->comes_back;
  m_any_order= true;
  active_index= index;
  uchar *const row= table->record[0];
  int error= m_cursor && m_tree == tree_of(index) ? 0 : open_cursor(tree_of(index), false);
  if (!error)
  {
    if (is_last && !table->versioned() && (cause.deletes() || !changes_position(cause.link)))
      m_gathers= GATHERS;
    m_range_ahead_next= is_last;
    int end= seek(row, TERRACE_SEEK_AT_LEAST, &key, &key);
    for (bool first= true; !end && !error; end= error ? 0 : step(row, FORWARD, &key), first= false)
      if (is_current(row) && (first || !is_planted(PlantedBug::CHILD_PASSED)))
        error= change_child(cause, index);
    if (!error && end != HA_ERR_END_OF_FILE && end != HA_ERR_KEY_NOT_FOUND)
      error= end;
    if (!error)
      error= change_gathered();
  }
  end_gathering();
  rest_cursor();
  active_index= MAX_KEY;
  m_any_order= m_one_by_one= false;
  m_follows= nullptr;
  return error;
}

/** Changes the row in record[0]. The rules about chains and their order are InnoDB's. */
int ha_terrace::change_child(const Cause &cause, uint index)
{
  Cascades &all= m_session->cascades;
  encode_primary(table->record[0], &m_primary_bytes);
  if (all.deletes(m_name, index, m_primary_bytes.data(), m_primary_bytes.size()))
    return 0;
  if (!cause.deletes() && all.updates(m_name))
    return foreign_error(HA_ERR_ROW_IS_REFERENCED, m_name, cause.link.key);
  if (all.chain.size() >= Cascades::DEPTH_MAX)
  {
    push_warning_printf(ha_thd(), Sql_condition::WARN_LEVEL_WARN, HA_ERR_ROW_IS_REFERENCED,
                        "Terrace: Cannot delete/update rows with cascading foreign key constraints that exceed max depth of %u. Please drop extra "
                        "constraints and try again", (uint) Cascades::DEPTH_MAX);
    return foreign_error(HA_ERR_FK_DEPTH_EXCEEDED, m_name, cause.link.key);
  }
  if (all.deletes(m_name, 0, m_primary_bytes.data(), m_primary_bytes.size()))
    return 0;
  if (table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ))
    return HA_ERR_INTERNAL_ERROR;
  if (!all.savepoint)
    if (const int32_t code= terrace_txn_savepoint(m_session->transaction(), &all.savepoint))
      return map(code);
  const int error= cause.deletes() ? end_row() : change_columns(cause, index);
  if (error == HA_ERR_RECORD_IS_THE_SAME)
    return 0;
  // The statement's own duplicates are another error.
  if (error == HA_ERR_FOUND_DUPP_KEY)
  {
    const uint number= m_session->duplicate_index;
    all.duplicate_table= TableName(m_name).table;
    all.duplicate_key= number < table->s->keys ? table->key_info[number].name.str : "";
    return HA_ERR_FOREIGN_DUPLICATE_KEY;
  }
  return error;
}

/** Deletes the row in record[0]; the table may keep it as history. */
int ha_terrace::end_row()
{
  if (!table->versioned(VERS_TIMESTAMP))
    return table->versioned() ? end_version(table->record[0]) : erase_row(table->record[0]);
  store_record(table, record[1]);
  table->vers_update_end();
  const int error= change_row(table->record[1], table->record[0]);
  // As the server: one former row of a key and a time is enough.
  return error == HA_ERR_FOUND_DUPP_KEY ? erase_row(table->record[1]) : error;
}

/** Makes one row of another; the table may keep the old one as history. */
int ha_terrace::change_to(uchar *old_data, uchar *new_data)
{
  if (!table->versioned(VERS_TIMESTAMP))
    return table->versioned() ? update_version(old_data, new_data) : change_row(old_data, new_data);
  table->vers_update_fields();
  if (int error= change_row(old_data, new_data))
    return error;
  const std::vector<uchar> position(m_position.data(), m_position.data() + m_position.size());
  restore_record(table, record[1]);
  table->vers_update_end();
  const Field *start= table->vers_start_field(), *end= table->vers_end_field();
  if (start->cmp(start->ptr, end->ptr) >= 0)
    return 0;                           // the row is of this very time
  const int error= insert_row(table->record[0]);
  m_position.assign(position.data(), position.size());
  return error == HA_ERR_FOUND_DUPP_KEY ? 0 : error;
}

/** Stores the value that a parent's column has in its new row. Returns false if the column has no room for it. */
static bool store_value(Field *to, const Field *from, const uchar *record)
{
  const uchar *at= from->ptr_in_record(record);
  if (from->is_null_in_record(record))
  {
    if (!to->real_maybe_null())
      return false;
    to->set_null();
    return true;
  }
  to->set_notnull();
  const auto is_varchar= [](const Field *field) { return field->real_type() == MYSQL_TYPE_VARCHAR; };
  CHARSET_INFO *cs= from->charset();
  const bool is_text= (is_varchar(from) || from->real_type() == MYSQL_TYPE_STRING) && cs != &my_charset_bin;
  if (is_text && !is_varchar(from) && !is_varchar(to) && from->pack_length() == to->pack_length())
  {
    memcpy(to->ptr, at, to->pack_length());
    return true;
  }
  const uint before= is_varchar(from) ? static_cast<const Field_varstring *>(from)->length_bytes : 0;
  const char *text= reinterpret_cast<const char *>(at + before);
  size_t length= is_varchar(from) ? (before == 1 ? *at : uint2korr(at)) : from->pack_length();
  if (!is_text)
  {
    // Bytes are not padded, and not cut.
    if (is_varchar(to) ? length > to->field_length : length != to->pack_length())
      return false;
    if (is_varchar(to))
      to->store(text, length, &my_charset_bin);
    else
      memcpy(to->ptr, text, length);
    return true;
  }
  // A CHAR keeps spaces as far as InnoDB stores them.
  if (!is_varchar(from))
    length= MY_MAX(cs->cset->lengthsp(cs, text, length), (size_t) from->char_length() * cs->mbminlen);
  if (cs->cset->numchars(cs, text, text + length) > to->char_length())
    return false;
  to->store(text, length, cs);
  return true;
}

/** Updates the row in record[0]: the foreign key's columns become NULL, or those that change in the parent have its new values. */
int ha_terrace::change_columns(const Cause &cause, uint index)
{
  store_record(table, record[1]);
  for (size_t at= 0; at < cause.link.own.size(); at++)
  {
    Field *to= table->key_info[index].key_part[at].field;
    if (cause.option() == FK_OPTION_SET_NULL)
      to->set_null();
    else if (!cause.link.is_same_in(at, cause.old, cause.record) &&
             !store_value(to, cause.link.own_field(at), cause.record))
      return foreign_error(HA_ERR_ROW_IS_REFERENCED, m_name, cause.link.key);
  }
  if (table->vfield && table->update_virtual_fields(this, VCOL_UPDATE_FOR_READ))
    return HA_ERR_INTERNAL_ERROR;
  return m_gathers == GATHERS ? gather_update(table->record[1], table->record[0]) : change_to(table->record[1], table->record[0]);
}

/** Called after each row whose change has cascaded: if it has failed, so have all changes of other rows that it caused. Returns a handler error. */
int ha_terrace::end_cascades(int error)
{
  m_cascaded= false;
  Cascades &all= m_session->cascades;
  if (!all.chain.empty() || !all.savepoint)
    return error;
  if (error && error != HA_ERR_RECORD_IS_THE_SAME && !is_planted(PlantedBug::CASCADE_KEPT))
    if (const int32_t failed= terrace_txn_rollback_to(m_session->transaction(), all.savepoint))
    {
      // What is undone in part can only be undone whole.
      ha_thd()->mark_transaction_to_rollback(true);
      error= map(failed);
    }
  terrace_savepoint_close(all.savepoint);
  all.savepoint= nullptr;
  return error;
}

bool ha_terrace::get_foreign_dup_key(char *table_name, uint table_length, char *key_name, uint key_length)
{
  if (!m_session || m_session->cascades.duplicate_key.empty())
    return false;
  strmake(table_name, m_session->cascades.duplicate_table.c_str(), table_length - 1);
  strmake(key_name, m_session->cascades.duplicate_key.c_str(), key_length - 1);
  return true;
}
