/* SPDX-License-Identifier: GPL-2.0-only */
/* The handler: open, close, capabilities, locks and statements, costs. ha_terrace.h has the map of the handler. */
#include "ha_terrace.h"
#include "partition_info.h"
#include "convert.h"
#include "definition_files.h"
#include "xid.h"
#include "errors.h"
#include "globals.h"
#include "alter.h"
#include "ddl.h"
#include "kill_scope.h"
#include "key_words.h"
#include "table_options.h"

/* The server exports these functions, but declares them in no header. */
extern "C" int thd_binlog_format(const MYSQL_THD thd);
extern "C" bool thd_binlog_filter_ok(const MYSQL_THD thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const MYSQL_THD thd);

using namespace terrace;

handler::Table_flags ha_terrace::table_flags() const
{
  Table_flags flags= HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_SQL_HANDLER | HA_CAN_GEOMETRY |
                     HA_CAN_VIRTUAL_COLUMNS | HA_PARTIAL_COLUMN_READ | HA_TABLE_SCAN_ON_INDEX |
                     HA_PRIMARY_KEY_IN_READ_INDEX | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
                     HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_BINLOG_ROW_CAPABLE | HA_ONLINE_ANALYZE |
                     HA_CAN_SKIP_LOCKED | HA_CAN_TABLES_WITHOUT_ROLLBACK | HA_CAN_ONLINE_BACKUPS |
                     HA_CAN_FORCE_BULK_UPDATE | HA_CAN_FORCE_BULK_DELETE;
  // Below REPEATABLE READ statements don't lock what they read, so only row-based logging is possible.
  THD *thd= current_thd;
  if (thd && isolation_of(thd) > ISO_READ_COMMITTED)
    flags|= HA_BINLOG_STMT_CAPABLE;
  // Nor do they lock gaps: of two sessions that check for a duplicate hash or an overlap and then write, neither would see the other's row.
  else if (thd)
    flags|= HA_CHECK_UNIQUE_AFTER_WRITE;
  return flags;
}

ulong ha_terrace::index_flags(uint number, uint, bool) const
{
  ulong flags= HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY | HA_DO_INDEX_COND_PUSHDOWN;
  // A filter needs positions, which must be part of the index's entries.
  if (m_entry_has_position)
    flags|= HA_DO_RANGE_FILTER_PUSHDOWN;
  if (table_share && number == table_share->primary_key)
    flags|= HA_CLUSTERED_INDEX;
  return flags;
}

int ha_terrace::map(int32_t code)
{
  return code == TERRACE_OK ? 0 : map_error(ha_thd(), code);
}

/** The length of the shortest row in InnoDB's compact format, which its costs are based on. */
static uint shortest_row(const TABLE *table)
{
  uint bytes= 5 + 6 + 7, nullable= 0;   // the record header, the transaction id and the roll pointer
  for (Field **at= table->field; *at; at++)
  {
    const Field *field= *at;
    if (!field->stored_in_db())
      continue;
    nullable+= field->real_maybe_null();
    const enum_field_types type= field->real_type();
    const bool varies= field->flags & BLOB_FLAG || type == MYSQL_TYPE_VARCHAR || type == MYSQL_TYPE_VARCHAR_COMPRESSED ||
                       (type == MYSQL_TYPE_STRING && field->charset()->mbmaxlen > field->charset()->mbminlen);
    bytes+= !varies ? field->pack_length() : field->pack_length() < 128 ? 1 : 2;
  }
  return bytes + (nullable + 7) / 8;
}

/** Prepares the codecs for this table's columns and indexes. */
void ha_terrace::lay_out()
{
  m_row.prepare(table);
  m_row_length_min= shortest_row(table);
  m_indexes.clear();
  m_indexes.resize(table->s->keys);
  if (!m_hidden)
    m_primary.prepare(table, 0, nullptr, m_cuts);
  for (uint at= 0; at < table->s->keys; at++)
    m_indexes[at].prepare(table, at, m_hidden || at == 0 ? nullptr : &m_primary, m_cuts);
  m_entry_has_position= m_hidden || m_primary.is_whole();
  key_used_on_scan= m_hidden ? MAX_KEY : 0;
  ref_length= m_hidden ? 8 : table->key_info[0].key_length;
}


int ha_terrace::open(const char *name, int, uint)
{
  if (!engine)
    return HA_ERR_NO_CONNECTION;
  m_name= table_name(name);
  m_hidden= table->s->primary_key == MAX_KEY;
  if (!m_hidden && table->s->primary_key != 0)
    return HA_ERR_UNSUPPORTED;
  if (!fits_definition(table, this, m_name))
  {
    my_error(ER_PARTITION_WRONG_NO_PART_ERROR, MYF(0));
    return HA_ERR_CRASHED;
  }
  int32_t code;
  {
    Heard heard;
    code= terrace_table_open(engine, bytes_of(m_name), &m_table);
  }
  if (code)
    return map_error(ha_thd(), code);
  m_cuts= Properties(terrace_table_properties(m_table)).has(Properties::CUTS);
  lay_out();
  RowLayouts layouts;
  if (!read_layouts(m_table, &layouts) || !m_row.know(layouts))
  {
    close();
    return HA_ERR_CRASHED;
  }
  if (!attach_statistics())
  {
    close();
    return HA_ERR_OUT_OF_MEM;
  }
  m_writers= Writers::of(m_name);
  m_shared_options= table->s->option_struct;
  m_shared_list= table->s->option_list;
  log_options(table);
  const int error= info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  if (error)
    close();
  else
    note_open(m_name, this);
  return error;
}

int ha_terrace::close()
{
  forget_open(m_name, this);
  m_batch_at= 0;                        // the batch has been counted, and its session may have ended
  m_multi_range.dsmrr_close();
  close_cursor();
  free_retired();
  end_own_read();
  end_load();
  free_retired_load();
  m_foreign.reset();
  m_foreign_generation= 0;
  terrace_table_close(m_table);
  m_table= nullptr;
  return 0;
}

int ha_terrace::reopen()
{
  close_cursor();
  free_retired();
  terrace_table_close(m_table);
  m_table= nullptr;
  return map(terrace_table_open(engine, bytes_of(m_name), &m_table));
}

/*
  Which locks reads take, as in InnoDB: consistent reads take none. LOCK IN SHARE MODE takes shared locks, as does a writing statement that
  reads from other tables, the latter not below REPEATABLE READ. FOR UPDATE, UPDATE and DELETE take exclusive locks (external_lock recognizes
  them by F_WRLCK).
*/
THR_LOCK_DATA **ha_terrace::store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type)
{
  if (type == TL_IGNORE)
    return to;
  const int command= command_of(thd);
  const bool reads_for_write= command != SQLCOM_SELECT;
  m_skip_locked= type == TL_READ_SKIP_LOCKED || type == TL_WRITE_SKIP_LOCKED;
  if (type == TL_READ_WITH_SHARED_LOCKS || type == TL_READ_SKIP_LOCKED || type == TL_READ_NO_INSERT || (type == TL_READ && thd->in_lock_tables) ||
      reads_for_write)
  {
    const bool plain= type == TL_READ || type == TL_READ_NO_INSERT;
    const bool by_rows= isolation_of(thd) <= ISO_READ_COMMITTED && plain &&
                        (command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT || command == SQLCOM_UPDATE || command == SQLCOM_CREATE_TABLE);
    const bool looks_only= command == SQLCOM_CHECKSUM || command == SQLCOM_ANALYZE || command == SQLCOM_CHECK ||
                           command == SQLCOM_HA_READ || command == SQLCOM_HA_OPEN;
    m_stored_lock= by_rows || looks_only ? TERRACE_LOCK_NONE : TERRACE_LOCK_SHARED;
  }
  else
    m_stored_lock= TERRACE_LOCK_NONE;
  return to;
}

/** Refuses a statement that is about to change the table or its partitions but can't. Returns a handler error. */
int ha_terrace::refuse_lock(THD *thd, int type)
{
  // The server refuses it, too, but without the reason.
  if (type == F_WRLCK && !(table_flags() & HA_BINLOG_STMT_CAPABLE) && thd_binlog_format(thd) == BINLOG_FORMAT_STMT &&
      thd_binlog_filter_ok(thd) && thd_sqlcom_can_generate_row_events(thd))
  {
    my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
             " Terrace is limited to row-logging when transaction isolation level is READ COMMITTED or READ UNCOMMITTED.");
    return HA_ERR_LOGGING_IMPOSSIBLE;
  }
  // The server finds that a partition can't be dropped only when it is too late, in the middle of changing the partitions.
  const ulonglong flags= thd->lex->alter_info.partition_flags;
  if (command_of(thd) == SQLCOM_ALTER_TABLE && flags && !(flags & ALTER_PARTITION_ADMIN) && is_partition(m_name))
  {
    if (refuse_converted_to_itself(thd, table_share))
      return HA_ERR_TABLE_EXIST;
    // Adding a partition leaves existing range and list partitions as they are.
    if (flags == ALTER_PARTITION_ADD && table->part_info && table->part_info->part_type != HASH_PARTITION)
      return 0;
    if (int error= wait_for_prepared(thd, m_name))
      return error;
  }
  return 0;
}

/** Releases the table. The rows read are counted at the end of the statement. */
void ha_terrace::unlock(THD *thd)
{
  park_cursor();
  end_own_read();
  if (m_foreign)
  {
    close_links();
    Session::of(thd)->cascades.close_tables();
  }
  if (m_in_use)
    Session::of(thd)->uses_table(-1);
  m_in_use= false;
}

int ha_terrace::external_lock(THD *thd, int type)
{
  if (type == F_UNLCK)
  {
    unlock(thd);
    return 0;
  }
  if (type == F_WRLCK || command_of(thd) == SQLCOM_ALTER_TABLE)
    if (int error= refuse_lock(thd, type))
      return error;
  m_lock= m_stored_lock;
  m_one_by_one= foreign() && may_change_under_scan(thd);
  m_lock_type_write= type == F_WRLCK;
  if (m_lock_type_write)
    m_lock= TERRACE_LOCK_EXCLUSIVE;
  // As in InnoDB: HANDLER locks nothing at any isolation level.
  else if (m_lock == TERRACE_LOCK_NONE && isolation_of(thd) == ISO_SERIALIZABLE && command_of(thd) != SQLCOM_HA_READ && goes_on(thd))
    m_lock= TERRACE_LOCK_SHARED;
  // Later statements that begin without this call (start_stmt) use the same lock.
  m_stored_lock= m_lock;
  const int error= enter(thd);
  if (!error && !m_in_use)
  {
    m_session->uses_table(1);
    m_in_use= true;
  }
  return error;
}

/** Called when a statement starts to use this table. */
int ha_terrace::enter(THD *thd)
{
  m_session= Session::of(thd);
  const int error= m_session->enter(thd);
  m_changed= false;
  if (!error && m_lock != TERRACE_LOCK_NONE)
    m_session->locks(thd, m_writers, m_lock_type_write);
  return error;
}

/* Under LOCK TABLES, and in triggers and functions, a statement starts here. */
int ha_terrace::start_stmt(THD *thd, thr_lock_type type)
{
  m_lock_type_write= type >= TL_FIRST_WRITE;
  m_one_by_one= foreign() && may_change_under_scan(thd);
  m_lock= m_lock_type_write ? TERRACE_LOCK_EXCLUSIVE : m_stored_lock;
  // As in InnoDB: a plain SELECT is a consistent read here, too.
  if (type == TL_READ && command_of(thd) == SQLCOM_SELECT && isolation_of(thd) != ISO_SERIALIZABLE)
    m_lock= TERRACE_LOCK_NONE;
  // No earlier external_lock has locked a temporary table: its first statement in a transaction starts here.
  if (table->s->tmp_table != NO_TMP_TABLE && type != TL_READ)
    m_lock= TERRACE_LOCK_EXCLUSIVE, m_lock_type_write= true;
  // Under LOCK TABLES external_lock is not called for the statement, so the check is done here.
  if (command_of(thd) == SQLCOM_ALTER_TABLE)
    if (int error= refuse_lock(thd, m_lock_type_write ? F_WRLCK : F_RDLCK))
      return error;
  return enter(thd);
}


int ha_terrace::reset()
{
  m_counter_past= 0;
  m_one_by_one= false;
  end_gathering();      // a failed statement may leave gathered rows
  m_load_after= 0;
  m_copies= m_load_waits= false;
  if (m_load_within)
    end_load();
  free_retired_load();
  park_cursor();
  free_retired();
  end_own_read();
  if (m_foreign)
    close_links();
  m_semi_wanted= false;
  m_auto_rows= 0;
  m_multi_range.dsmrr_close();
  return 0;
}

bool ha_terrace::get_error_message(int error, String *text)
{
  if (error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_FK_DEPTH_EXCEEDED)
    text->copy(m_foreign_said.data(), (uint32) m_foreign_said.size(), system_charset_info);
  else if (is_own_error(error))
  {
    const std::string message= shortened(last_message(), HANDLER_TEXT_MAX);
    text->copy(message.data(), (uint32) message.size(), system_charset_info);
  }
  return error == OWN_ERROR + TERRACE_UNAVAILABLE;
}

int ha_terrace::info(uint flags)
{
  if (!m_table)
    return HA_ERR_NO_CONNECTION;
  if (flags & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
  {
    terrace_estimate estimate= {};
    estimate.size= sizeof estimate;
    if (int error= map(terrace_table_estimate(m_table, &estimate)))
      return error;
    stats.records= estimate.rows;
    // With 0 the optimizer would assume that the table is certainly empty.
    if (!stats.records && !(flags & (HA_STATUS_TIME | HA_STATUS_OPEN)))
      stats.records= 1;
    stats.deleted= 0;
    stats.data_file_length= estimate.data_bytes;
    stats.index_file_length= estimate.index_bytes;
    stats.mean_rec_length= estimate.rows ? (ulong) (estimate.data_bytes / estimate.rows) : 0;
    stats.mrr_length_per_rec= ref_length + sizeof(void *);
  }
  if (flags & HA_STATUS_CONST)
  {
    stats.block_size= 16384;
    stats.max_data_file_length= 0;          // no limit; reported as InnoDB does
  }
  if (flags & (HA_STATUS_VARIABLE | HA_STATUS_CONST))
    if (int error= refresh_statistics(flags & HA_STATUS_CONST))
      return error;
  // As in InnoDB: when the definition was last changed, and when rows were last changed since the server's start.
  if (flags & (HA_STATUS_CONST | HA_STATUS_TIME))
  {
    struct stat definition;
    const std::string frm= std::string(table->s->normalized_path.str, table->s->normalized_path.length) + ".frm";
    if (!stat(frm.c_str(), &definition))
      stats.create_time= definition.st_ctime;
    stats.update_time= m_writers ? m_writers->updated() : 0;
  }
  if (flags & HA_STATUS_ERRKEY)
    errkey= m_session ? m_session->duplicate_index : MAX_KEY;
  if (flags & HA_STATUS_AUTO && table->found_next_number_field)
  {
    uint64_t next= 0;
    if (int error= map(terrace_table_auto_increment(m_table, &next)))
      return error;
    stats.auto_increment_value= next;
  }
  return 0;
}

/*
  Costs are computed as in InnoDB, so that plans are the same. The unit is pages; the first page of a tree is its header.
*/
double ha_terrace::scan_time()
{
  return MY_MAX(1.0, (double) stats.data_file_length / stats.block_size - 1);
}

double ha_terrace::read_time(uint index, uint ranges, ha_rows rows)
{
  if (index != table->s->primary_key)
    return handler::read_time(index, ranges, rows);
  // Rows of the primary tree are adjacent: the cost is a proportion of a scan's.
  const double scan= scan_time();
  const ha_rows all= estimate_rows_upper_bound();
  return all < rows ? scan : ranges + (double) rows / (double) all * scan;
}

/** Twice the number of rows that would fit into the tree's pages if all rows were as short as possible. */
ha_rows ha_terrace::estimate_rows_upper_bound()
{
  return 2 * (ha_rows) (scan_time() * stats.block_size) / m_row_length_min;
}

/** The number of entries of a secondary index that InnoDB would have in `pages` pages, as full as splits leave them; 0 (unknown) for the primary key. */
double ha_terrace::innodb_rows_in_pages(uint index, uint pages) const
{
  if (index == table->s->primary_key)
    return 0;
  auto bytes_of_parts= [](const KEY *key) {
    uint bytes= 0;
    for (uint part= 0; part < key->user_defined_key_parts; part++)
      bytes+= key->key_part[part].length;
    return bytes;
  };
  const uint primary= m_hidden ? 6 : bytes_of_parts(table->key_info + table->s->primary_key);
  const double head= 5, full= 0.69;
  return pages * full * 16384 / (head + bytes_of_parts(table->key_info + index) + primary);
}

ha_rows ha_terrace::records_in_range(uint index, const key_range *low, const key_range *high, page_range *)
{
  Bytes from, to;
  bool no_low= !low, no_high= !high;
  const KeyCodec &codec= m_indexes[index];
  if (low)
    codec.encode_image(low->key, low->keypart_map, &from);
  if (high)
    codec.encode_image(high->key, high->keypart_map, &to);
  const size_t shared= low && high ? codec.shared_cuts(from, to) : 0;
  if (low && !codec.widen(&from, shared) && low->flag == HA_READ_AFTER_KEY && !successor(&from))
    return 1;
  if (high && (codec.widen(&to, shared) || high->flag == HA_READ_AFTER_KEY) && !successor(&to))
    no_high= true;
  uint64_t count= 0;
  bool near= false;
  static const uchar nothing= 0;        // an empty key still has an address, which makes it a bound
  terrace_bytes from_bytes= no_low ? bytes_of(nullptr, 0) : bytes_of(from.size() ? from.data() : &nothing, from.size());
  terrace_bytes to_bytes= no_high ? bytes_of(nullptr, 0) : bytes_of(to.size() ? to.data() : &nothing, to.size());
  Heard heard;
  if (terrace_table_records_in_range(m_table, tree_of(index), from_bytes, to_bytes, &count, &near))
    return HA_POS_ERROR;
  // InnoDB counts ten pages. It doubles an estimate that it hasn't counted, up to half of the table, and the optimizer's costs expect that.
  if (!near && count > innodb_rows_in_pages(index, 9))
    count= MY_MIN(count * 2, stats.records / 2);
  return MY_MAX(count, 1);
}
