/* SPDX-License-Identifier: GPL-2.0-only */
/*
  ALTER TABLE without the server's copy: changes of definitions only, indexes dropped and renamed, indexes added, or the whole table
  rebuilt, while other sessions read and write.

  Whatever the server's flags say, a table is altered in place only if its stored rows mean the same before and after
  (same_columns), or can be read by the layout that they were written in (ColumnChange). An index is kept only if its entries mean
  the same (KeyCodec::makes_same). A table is rebuilt if the statement asks for it, if its rows get another primary key or an
  AUTO_INCREMENT number, if a column becomes NOT NULL, or if there are too many layouts. A rebuild reads the rows by their earlier
  layouts and stores them in the new one.

  prepare   exclusive access to the table: the engine begins to record which rows change
  inplace   concurrent with readers and writers (with readers only, if rows are numbered): reads the rows of one read view, makes their
            entries, sorts them and builds the trees; then runs rounds over the rows that changed meanwhile
  commit    exclusive access again: the last round, then one change of the engine's catalog for all of a table's partitions at once,
            which includes their options

  Reading the rows of the inplace phase is in alter_rows.cc.
*/
#include "ha_terrace.h"
#include <algorithm>
#include "alter_context.h"
#include "computed.h"
#include "declared.h"
#include "in_doubt.h"
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "kept_statistics.h"
#include "table_options.h"
#include "xid.h"
#include "ha_partition.h"

using namespace terrace;

namespace {

/* Operations that change definitions only. */
const alter_table_operations INSTANT=
  ALTER_DROP_NON_UNIQUE_NON_PRIM_INDEX | ALTER_DROP_UNIQUE_INDEX | ALTER_RENAME_INDEX | ALTER_INDEX_IGNORABILITY |
  ALTER_INDEX_ORDER | ALTER_CHANGE_INDEX_COMMENT | ALTER_COLUMN_NAME | ALTER_RENAME_COLUMN | ALTER_COLUMN_DEFAULT |
  ALTER_COLUMN_OPTION | ALTER_COLUMN_COLUMN_FORMAT | ALTER_CHANGE_CREATE_OPTION | ALTER_DROP_CHECK_CONSTRAINT |
  ALTER_PARTITIONED | ALTER_ADD_VIRTUAL_COLUMN | ALTER_DROP_VIRTUAL_COLUMN | ALTER_VIRTUAL_COLUMN_ORDER | ALTER_VIRTUAL_GCOL_EXPR | ALTER_RENAME | ALTER_COLUMN_TYPE_CHANGE_BY_ENGINE |
  ALTER_COLUMN_INDEX_LENGTH | ALTER_COLUMN_UNVERSIONED | ALTER_ADD_FOREIGN_KEY | ALTER_DROP_FOREIGN_KEY | ALTER_CONVERT_TO;
const alter_table_operations BUILT= ALTER_ADD_NON_UNIQUE_NON_PRIM_INDEX | ALTER_ADD_UNIQUE_INDEX;
/* Operations that need new rows. */
const alter_table_operations REBUILT= ALTER_RECREATE_TABLE | ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX | ALTER_COLUMN_NOT_NULLABLE;

bool has_virtual_parts(const KEY *key)
{
  for (uint part= 0; part < key->user_defined_key_parts; part++)
    if (!key->key_part[part].field->stored_in_db())
      return true;
  return false;
}

} // namespace

typedef Alter_context Context;

/**
  The old table's key that becomes key `number` of the new table; MAX_KEY: the key is new. A key that the server drops and adds only because
  its options changed counts as the old key if its entries stay the same.
*/
uint ha_terrace::kept_key(TABLE *altered, const Alter_inplace_info *info, uint number, const ColumnChange &columns,
                          const KeyCodec *primary) const
{
  const KEY *key= altered->key_info + number;
  const auto is_named= [](const KEY *one, const LEX_CSTRING &name) {
    return !my_strcasecmp(system_charset_info, one->name.str, name.str);
  };
  const KEY *const *dropped= info->index_drop_buffer, *const *end= dropped + info->index_drop_count;
  for (uint at= 0; at < info->index_add_count; at++)
  {
    if (info->index_add_buffer[at] != number)
      continue;
    const KEY *const *was= std::find_if(dropped, end, [&](const KEY *one) { return is_named(one, key->name); });
    const uint old= was == end ? 0 : (uint) (*was - table->key_info);
    if (was == end || (!m_hidden && (number == 0 || old == 0)) || info->handler_flags & ALTER_VIRTUAL_GCOL_EXPR ||
        (*was)->algorithm != key->algorithm || (*was)->without_overlaps != key->without_overlaps)
      return MAX_KEY;
    KeyCodec codec;
    codec.prepare(altered, number, primary, m_cuts);
    return m_indexes[old].makes_same(codec, columns.moved) ? old : MAX_KEY;
  }
  const LEX_CSTRING *name= &key->name;
  for (const Alter_inplace_info::Rename_key_pair &pair : info->rename_keys)
    if (is_named(pair.new_key, key->name))
      name= &pair.old_key->name;
  for (uint at= 0; at < table->s->keys; at++)
  {
    if (!is_named(table->key_info + at, *name))
      continue;
    // The server treats a key as unchanged if one of its parts becomes nullable, but entries of a nullable part encode whether it is NULL.
    const bool is_rows= !m_hidden && (number == 0 || at == 0), is_plain= !key->without_overlaps && key->algorithm != HA_KEY_ALG_LONG_HASH;
    KeyCodec codec;
    codec.prepare(altered, number, primary, m_cuts);
    return is_rows || !is_plain || m_indexes[at].makes_same(codec, columns.moved) ? at : MAX_KEY;
  }
  return MAX_KEY;
}

/** Whether a text's bytes mean the same in the changed column. ColumnChange then checks that the new column can hold all values. */
bool ha_terrace::can_convert_nocopy(const Field &field, const Column_definition &changed) const
{
  const TextKind kind= text_kind(field.type_handler()), other= text_kind(changed.type_handler());
  const bool list= field.real_type() == MYSQL_TYPE_ENUM || field.real_type() == MYSQL_TYPE_SET;
  // If a list (ENUM, SET) keeps its character set, is_equal has already found that a member differs.
  if (field.vcol_info || (list ? changed.type_handler() != field.type_handler() || changed.charset == field.charset()
                               : kind == TextKind::NONE || other == TextKind::NONE))
    return false;
  // A new constraint applies to existing rows, too.
  if (changed.check_constraint && changed.check_constraint != field.check_constraint &&
      !(wants_json(changed.check_constraint) && wants_json(field.check_constraint)))
    return false;
  // A longer VARCHAR stays the same for every expression that reads it.
  if (kind == TextKind::VARCHAR && other == kind && changed.charset == field.charset())
    return changed.length >= field.field_length && changed.compression_method() == field.compression_method();
  if (field.compression_method() || changed.compression_method())
    return false;
  // In this SQL mode the server's copy would store the padding spaces.
  if (kind != other && ha_thd()->variables.sql_mode & MODE_PAD_CHAR_TO_FULL_LENGTH)
    return false;
  const bool compares_same= kind == other && sort_same(field.charset(), changed.charset);
  return reads_as(field.charset(), changed.charset) && !(field.flags & FIELD_IN_PART_FUNC_FLAG) && !feeds_stored(field) &&
         (compares_same || !feeds_constraint(field));
}

/** Key parts of a text that is longer now, or has another character set; KeyCodec::makes_same has the last word. */
Compare_keys ha_terrace::compare_key_parts(const Field &field, const Column_definition &changed,
                                           const KEY_PART_INFO &old_part, const KEY_PART_INFO &new_part) const
{
  const bool equal= field.is_equal(changed), converts= !equal && can_convert_nocopy(field, changed);
  if (!equal && !converts)
    return Compare_keys::NotEqual;
  uint length= old_part.length, changed_length= new_part.length;
  if (converts && text_kind(field.type_handler()) != TextKind::NONE)
  {
    const bool is_char= text_kind(field.type_handler()) == TextKind::CHAR;
    if (text_kind(field.type_handler()) != text_kind(changed.type_handler()) || !sort_same(field.charset(), changed.charset))
      return Compare_keys::NotEqual;
    // The key includes a CHAR's spaces if its collation is NO PAD.
    if (is_char && field.charset()->state & MY_CS_NOPAD && field.char_length() != changed.char_length)
      return Compare_keys::NotEqual;
    length/= field.charset()->mbmaxlen;
    changed_length/= changed.charset->mbmaxlen;
  }
  if (length == changed_length)
    return Compare_keys::Equal;
  const bool longer= old_part.length == field.key_length() && length < changed_length;
  return converts && longer ? Compare_keys::EqualButKeyPartLength : Compare_keys::NotEqual;
}

/** Whether all rows are stored in new trees; each of the altered table's keys is built then. `layouts`: the row layouts after the change. */
bool ha_terrace::rebuilds(TABLE *altered, const Alter_inplace_info *info, const ColumnChange &columns, const RowLayouts &layouts) const
{
  static const size_t BYTES_MAX= 65536;
  if (info->handler_flags & REBUILT || columns.counts || layouts.current > RowLayouts::LAYOUTS_MAX || layouts.bytes().size() > BYTES_MAX)
    return true;
  if (m_hidden || altered->s->primary_key != 0)
    return m_hidden != (altered->s->primary_key == MAX_KEY);
  KeyCodec primary;
  primary.prepare(altered, 0, nullptr, m_cuts);
  return kept_key(altered, info, 0, columns, nullptr) != 0 || !m_indexes[0].makes_same(primary, columns.moved);
}

/** Whether a column with AUTO_INCREMENT is added. */
static bool adds_numbers(const TABLE *altered, const Alter_inplace_info *info)
{
  List_iterator_fast<Create_field> it(info->alter_info->create_list);
  while (const Create_field *one= it++)
    if (!one->field && one->flags & AUTO_INCREMENT_FLAG)
      return altered->found_next_number_field;
  return false;
}

static bool stores_computed(const TABLE *table)
{
  for (Field **field= table->vfield; field && *field; field++)
    if ((*field)->stored_in_db())
      return true;
  return false;
}

/** Whether the primary key determines a row's partition: PARTITION BY KEY (). */
static bool is_placed_by_key(partition_info *by)
{
  return (by->part_type == HASH_PARTITION && by->list_of_part_fields && !by->part_field_list.elements) ||
         (by->is_sub_partitioned() && by->list_of_subpart_fields && !by->subpart_field_list.elements);
}

/** Whether the table can be rebuilt while sessions write: each new row must depend on its old row alone, and be the same at each conversion. */
bool ha_terrace::can_rebuild(TABLE *altered, Alter_inplace_info *info, const ColumnChange &columns) const
{
  const alter_table_operations flags= info->handler_flags;
  const auto number= [](const TABLE *of) { return of->found_next_number_field; };
  const bool counts_anew= number(altered) && !columns.counts && (!number(table) || columns.moved[number(table)->field_index] != number(altered)->field_index);
  // As in InnoDB: the server's copy turns a NULL into another value.
  if (columns.loses_timestamp_null)
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOT_NULL);
  // A row's partition may depend on a virtual column, or on a value that was NULL.
  const bool makes_values= columns.loses_null && (info->ignore || !ha_thd()->is_strict_mode());
  const bool changes_key= flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX);
  const bool moves= table->part_info && (makes_values || (changes_key && is_placed_by_key(table->part_info)) || flags & ALTER_COLUMN_VCOL);
  // A stored value that was computed from a NULL differs once that NULL is a zero.
  const bool recomputes= makes_values && stores_computed(altered);
  // History rows of tables versioned by timestamp are rebuilt as any row. Tables versioned by transaction, and versioned tables whose rows
  // get numbers, are copied by the server.
  const bool timed= table->versioned(VERS_TIMESTAMP) && altered->versioned(VERS_TIMESTAMP) && !columns.counts;
  return !counts_anew && !moves && !recomputes && (timed || (!table->versioned() && !altered->versioned())) && !columns.loses_timestamp_null &&
         !(flags & ALTER_VIRTUAL_GCOL_EXPR) && (m_hidden || altered->s->primary_key == 0);
}

/** Sets `counter` to the new AUTO_INCREMENT value: as in InnoDB, always past the largest stored value. Needs exclusive access to the table. Returns a handler error. */
int ha_terrace::counter_after(ulonglong wanted, uint64_t *counter)
{
  uint64_t now= 0, past= 0;
  if (int error= map(terrace_table_auto_increment(m_table, &now)))
    return error;
  *counter= MY_MAX(wanted, 1);
  if (*counter >= now)
    return 0;
  const int error= past_largest(&past);
  *counter= MY_MAX(*counter, past);
  return error;
}

/**
  Whether the table is empty; for a partition, whether all partitions are, because the server goes by the partition that allows the most.
  The server asks the first partition first; the others return its answer.
*/
bool ha_terrace::is_surely_empty()
{
  handler *own[]= {this, nullptr};
  handler **parts= table->part_info ? static_cast<ha_partition *>(table->file)->get_child_handlers() : own;
  ha_terrace *first= static_cast<ha_terrace *>(*parts);
  if (first != this)
    return first->m_all_empty;
  m_all_empty= true;
  for (; m_all_empty && *parts; parts++)
  {
    bool found= false;
    m_all_empty= !static_cast<ha_terrace *>(*parts)->has_rows(&found) && !found;
  }
  return m_all_empty;
}

/**
  As in InnoDB, which rebuilds the table for it: changing ROW_FORMAT or KEY_BLOCK_SIZE is refused under ALGORITHM=INSTANT or NOCOPY. InnoDB
  gives the reason only if nothing else is changed.
*/
static bool may_change_options(THD *thd, Alter_inplace_info *info)
{
  static const alter_table_operations BESIDE= ALTER_COLUMN_DEFAULT | ALTER_PARTITIONED | ALTER_COLUMN_COLUMN_FORMAT | ALTER_CONVERT_TO |
    ALTER_DROP_CHECK_CONSTRAINT | ALTER_RENAME | ALTER_INDEX_ORDER | ALTER_COLUMN_INDEX_LENGTH | ALTER_CHANGE_INDEX_COMMENT | ALTER_INDEX_IGNORABILITY;
  if (!(info->create_info->used_fields & (HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE)) ||
      info->alter_info->algorithm(thd) < Alter_info::ALTER_TABLE_ALGORITHM_NOCOPY)
    return true;
  const bool alone= (info->handler_flags & ~BESIDE) == ALTER_CHANGE_CREATE_OPTION;
  info->unsupported_reason= alone ? my_get_err_msg(ER_ALTER_OPERATION_TABLE_OPTIONS_NEED_REBUILD) : nullptr;
  return false;
}

enum_alter_inplace_result ha_terrace::check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info)
{
  const HA_CREATE_INFO *create= info->create_info;
  const alter_table_operations flags= info->handler_flags;
  if (info->online && adds_numbers(altered, info))
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_AUTOINC);
  if (flags & ALTER_STORED_COLUMN_TYPE)
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_COLUMN_TYPE);
  // A table becomes a sequence, or a sequence a table.
  const bool sequence= create->used_fields & HA_CREATE_USED_SEQUENCE;
  if (sequence)
    info->unsupported_reason= "SEQUENCE";
  // The texts are InnoDB's.
  if (flags & (ALTER_ADD_SYSTEM_VERSIONING | ALTER_DROP_SYSTEM_VERSIONING))
    info->unsupported_reason= altered->versioned(VERS_TIMESTAMP) ? "Not implemented for system-versioned timestamp tables"
                                                                 : "Not implemented for system-versioned operations";
  if ((flags & (ALTER_ADD_PK_INDEX | ALTER_DROP_PK_INDEX)) == ALTER_DROP_PK_INDEX)
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_NOPK);
  if (info->ignore && flags & (ALTER_ADD_UNIQUE_INDEX | ALTER_ADD_PK_INDEX))
  {
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_IGNORE);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  // InnoDB's reason, too: rows are checked as they are copied.
  if (flags & ALTER_ADD_FOREIGN_KEY && foreign_keys(ha_thd()) == FOREIGN_KEYS_ENFORCED && !thd_test_options(ha_thd(), OPTION_NO_FOREIGN_KEY_CHECKS))
  {
    info->unsupported_reason= my_get_err_msg(ER_ALTER_OPERATION_NOT_SUPPORTED_REASON_FK_CHECK);
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  if (!m_table || sequence || flags & ~(INSTANT | COLUMNS | BUILT | REBUILT | ALTER_COLUMN_VCOL))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  ColumnChange columns;
  RowLayouts layouts;
  // A new date column would be zero in existing rows, which the session does not allow.
  if (info->error_if_not_empty && !is_surely_empty())
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (!columns.follow(table, altered, info) ||
      table->s->versioned != altered->s->versioned || !layouts_after(columns, altered, &layouts) ||
      leaves_stale(table, columns.moved, flags & ALTER_VIRTUAL_GCOL_EXPR))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (altered->s->primary_key != MAX_KEY && altered->s->primary_key != 0)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  const bool rebuilt= rebuilds(altered, info, columns, layouts);
  if (rebuilt ? !can_rebuild(altered, info, columns) : (bool) (flags & ALTER_COLUMN_VCOL))
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  // Without a rebuild the rows stay where they are, under the same key.
  KeyCodec primary;
  if (altered->s->primary_key == 0)
    primary.prepare(altered, 0, nullptr, m_cuts);
  bool builds= false;
  for (uint at= 0; at < altered->s->keys; at++)
  {
    const KEY *key= altered->key_info + at;
    const bool is_plain= !key->without_overlaps && key->algorithm != HA_KEY_ALG_LONG_HASH;
    if (rebuilt && is_plain)
      continue;
    const uint kept= kept_key(altered, info, at, columns, m_hidden || at == 0 ? nullptr : &primary);
    if (kept == MAX_KEY)
    {
      // The server compares periods (and hashes of long unique keys) only when rows are written, not those of existing rows.
      if (!is_plain || (!m_hidden && at == 0))
        return HA_ALTER_INPLACE_NOT_SUPPORTED;
      builds= true;
      continue;
    }
    KeyCodec codec;
    codec.prepare(altered, at, m_hidden || at == 0 ? nullptr : &primary, m_cuts);
    if (!m_indexes[kept].makes_same(codec, columns.moved) || (!m_hidden && (at == 0) != (kept == 0)) ||
        table->key_info[kept].without_overlaps != key->without_overlaps)
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
    if (flags & ALTER_VIRTUAL_GCOL_EXPR && has_virtual_parts(key))
      return HA_ALTER_INPLACE_NOT_SUPPORTED;
  }
  // Numbering excludes writers: rows inserted, deleted or changed meanwhile would already have been numbered.
  if (rebuilt || !may_change_options(ha_thd(), info))
    return columns.counts ? HA_ALTER_INPLACE_COPY_LOCK : HA_ALTER_INPLACE_COPY_NO_LOCK;
  if (!builds)
    return HA_ALTER_INPLACE_INSTANT;
  if (flags & ALTER_VIRTUAL_GCOL_EXPR)
    return HA_ALTER_INPLACE_NOT_SUPPORTED;
  if (flags & BUILT && !info->unsupported_reason)
    info->unsupported_reason= "ADD INDEX";
  return HA_ALTER_INPLACE_NOCOPY_NO_LOCK;
}

/** Raises an error that the engine returned. Always returns true. */
bool ha_terrace::alter_failed(int32_t code, TABLE *altered, Alter_inplace_info *info)
{
  THD *thd= ha_thd();
  Context *context= static_cast<Context *>(info->handler_ctx);
  if (thd->killed)
    thd->send_kill_message();
  if (thd->is_error())
    return true;
  if (code == TERRACE_DUPLICATE && context)
  {
    const uint32_t index= terrace_error_index();
    KEY *key= altered->key_info + (context->rebuilds ? index - context->hidden : context->numbers[index]);
    terrace_batch batch= {};
    batch.size= sizeof batch;
    const RowCodec &row= context->rebuilds ? context->made : context->row;
    if (!terrace_alter_duplicate(context->alter, &batch) && read_altered(context, row, batch.data.data))
    {
      print_keydup_error(altered, key, MYF(0));
      return true;
    }
  }
  print_error(map(code), MYF(0));
  return true;
}

/** Fills `layouts` with the layouts of the table's rows after the change. Returns false if rows must be copied. */
bool ha_terrace::layouts_after(const ColumnChange &columns, TABLE *altered, RowLayouts *layouts) const
{
  std::vector<RowLayouts::Added> values;
  if (!read_layouts(m_table, layouts) || !columns.values(altered, &values))
    return false;
  // Layouts keep a CHAR's value with its padding spaces; a VARCHAR or BLOB would have them as part of the text.
  for (const RowLayouts::Added &one : layouts->added)
    if (one.number < table->s->fields && columns.moved[one.number] != RowLayouts::DROPPED &&
        text_kind(table->field[one.number]->type_handler()) == TextKind::CHAR &&
        text_kind(altered->field[columns.moved[one.number]]->type_handler()) != TextKind::CHAR)
      return false;
  RowCodec codec;
  codec.prepare(altered);
  layouts->change(m_row.layout(), codec.layout(), columns.moved, std::move(values));
  return true;
}

bool ha_terrace::prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  if (refuse_options(ha_thd(), altered, table) || refuse_foreign_keys(ha_thd()))
    return true;
  if (refuse_block_size(ha_thd(), altered, table))
  {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "Terrace", "KEY_BLOCK_SIZE");
    return true;
  }
  if (refuse_row_format(ha_thd(), info->create_info))
  {
    my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), "Terrace", "ROW_TYPE");
    return true;
  }
  Context *context= new Context;
  if (!context)
    return true;
  info->handler_ctx= context;
  if (keep_foreign_keys(ha_thd(), m_name, table, altered, info, &context->foreign, &context->others))
    return true;
  context->owner= this;
  context->altered= altered;
  context->row.prepare(altered);
  info->handler_ctx= context;
  ColumnChange columns;
  if (!columns.follow(table, altered, info) || !layouts_after(columns, altered, &context->layouts) ||
      !context->row.know(context->layouts))
    return alter_failed(TERRACE_CORRUPT, altered, info);
  context->rebuilds= rebuilds(altered, info, columns, context->layouts);
  context->cuts= m_cuts || context->rebuilds;
  context->hidden= altered->s->primary_key == MAX_KEY;
  context->columns= columns;
  if (info->ignore || !ha_thd()->is_strict_mode())
    context->row.lost_nulls= &context->lost_nulls;
  if (columns.counts)
    context->numbering.begin(ha_thd(), altered, info->create_info->auto_increment_value);
  if (context->rebuilds)
  {
    if (table->s->tmp_table == NO_TMP_TABLE)
      if (int error= wait_for_prepared(ha_thd(), m_name))
      {
        print_error(error, MYF(0));
        return true;
      }
    context->made.prepare(altered);
    context->layouts= RowLayouts();
  }
  std::vector<terrace_new_index> indexes;
  if (context->hidden)
    indexes.push_back({sizeof(terrace_new_index), bytes_of(ROWS_INDEX, strlen(ROWS_INDEX)), true, context->rebuilds ? UINT32_MAX : 0});
  else
    context->primary.prepare(altered, 0, nullptr, context->cuts);
  const KeyCodec *primary= context->hidden ? nullptr : &context->primary;
  for (uint at= 0; at < altered->s->keys; at++)
  {
    const KEY *key= altered->key_info + at;
    const uint kept= context->rebuilds ? MAX_KEY : kept_key(altered, info, at, columns, at == 0 ? nullptr : primary);
    const bool unique= key->flags & HA_NOSAME && key->algorithm != HA_KEY_ALG_LONG_HASH;
    indexes.push_back({sizeof(terrace_new_index), bytes_of(key->name.str, key->name.length), unique,
                       kept == MAX_KEY ? UINT32_MAX : tree_of(kept)});
    if (kept != MAX_KEY || (at == 0 && primary))
      continue;
    context->codecs.emplace_back();
    context->codecs.back().prepare(altered, at, primary, context->cuts);
    context->numbers.push_back(at);
    for (uint part= 0; part < key->user_defined_key_parts; part++)
      if (!key->key_part[part].field->stored_in_db())
        context->computed.push_back(key->key_part[part].fieldnr - 1);
  }
  int32_t code= terrace_alter_begin(engine, bytes_of(m_name), indexes.data(), indexes.size(),
                                    m_session->transaction(), &context->alter);
  return code ? alter_failed(code, altered, info) : false;
}

bool ha_terrace::commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit)
{
  if (!commit)
  {
    // The server frees the context (a partition's from a list that it keeps); only the engine's change is closed here.
    if (Context *context= static_cast<Context *>(info->handler_ctx))
      context->give_up();
    return false;
  }
  // All partitions of a partitioned table are committed here.
  inplace_alter_handler_ctx *mine[]= {info->handler_ctx, nullptr};
  inplace_alter_handler_ctx **all= info->group_commit_ctx ? info->group_commit_ctx : mine;
  std::vector<terrace_alter *> alters;
  for (uint at= 0; all[at]; at++)
  {
    Context *context= static_cast<Context *>(all[at]);
    ha_terrace *owner= context->owner;
    info->handler_ctx= context;
    bool has_rows= false;
    if (info->error_if_not_empty)
      if (int error= owner->has_rows(&has_rows))
      {
        print_error(error, MYF(0));
        return true;
      }
    if (has_rows)
    {
      my_error(ER_TABLE_DEF_CHANGED, MYF(0));  // rows were inserted after the check for an empty table; retrying the statement reports what is wrong
      return true;
    }
    MY_BITMAP *before= tmp_use_all_columns(table, &table->read_set);
    int32_t code= context->reads() ? owner->alter_round(context, true) : TERRACE_OK;
    tmp_restore_column_map(&table->read_set, before);
    if (code)
      return owner->alter_failed(code, altered, info);
    alters.push_back(context->alter);
  }
  const Numbering *numbering= nullptr;  // that of the last partition
  for (uint at= 0; all[at]; at++)
    numbering= &static_cast<Context *>(all[at])->numbering;
  if (numbering && numbering->begun)
    for (terrace_alter *alter : alters)
      terrace_alter_counter(alter, numbering->next);
  else if (info->create_info->used_fields & HA_CREATE_USED_AUTO && altered->found_next_number_field)
    for (uint at= 0; all[at]; at++)
    {
      const Context *context= static_cast<Context *>(all[at]);
      uint64_t counter= 0;
      if (int error= context->owner->counter_after(info->create_info->auto_increment_value, &counter))
      {
        print_error(error, MYF(0));
        return true;
      }
      terrace_alter_counter(context->alter, counter);
    }
  std::vector<std::string> properties;
  for (uint at= 0; all[at]; at++)
  {
    const Context *context= static_cast<Context *>(all[at]);
    const uchar flags= (table->s->tmp_table != NO_TMP_TABLE ? Properties::TEMPORARY : 0) | (context->cuts ? Properties::CUTS : 0);
    properties.push_back(make_properties(flags, altered, context->layouts.bytes(), context->foreign));
  }
  // Statistics samples of the old definition's indexes are dropped with it.
  std::vector<std::string> samples;
  for (uint at= 0; all[at]; at++)
    samples.push_back(static_cast<Context *>(all[at])->owner->statistics_key());
  std::vector<terrace_bytes> each;
  for (const std::string &one : properties)
    each.push_back(bytes_of(one));
  info->handler_ctx= all[0];
  const TableOptions options(altered);
  const Redefinitions &others= static_cast<Context *>(all[0])->others;
  std::vector<terrace_redefined> beside;
  for (const auto &one : others)
    beside.push_back({bytes_of(one.first), bytes_of(one.first), bytes_of(one.second)});
  int32_t code= terrace_alter_commit(engine, alters.data(), each.data(), alters.size(), options.get(), beside.data(), beside.size());
  // The engine changed nothing: the options can't be fulfilled.
  const bool refused= code == TERRACE_INVALID || code == TERRACE_TOO_LARGE;
  if (refused && !says_options(ha_thd()))
  {
    warn_without_rules(ha_thd(), m_name);
    code= terrace_alter_commit(engine, alters.data(), each.data(), alters.size(), nullptr, beside.data(), beside.size());
  }
  else if (refused)
  {
    my_printf_error(ER_ILLEGAL_HA_CREATE_OPTION, "Terrace: %s", MYF(0), last_message().c_str());
    return true;
  }
  if (code)
  {
    // The change may turn out to be committed when the volume is available again.
    const LEX_CUSTRING &version= altered->s->tabledef_version;
    keep_definition(m_name, std::string(reinterpret_cast<const char *>(version.str), version.length));
    return alter_failed(code, altered, info);
  }
  if (table->s->tmp_table != NO_TMP_TABLE && temporary_tables_are_unlogged())
    warn_of_rules(ha_thd(), altered);
  else if (table->s->tmp_table == NO_TMP_TABLE)
    note_absent_tiers(ha_thd(), altered);
  std::vector<std::string> changed= {m_name};
  for (const auto &one : others)
    changed.push_back(one.first);
  note_relations(changed);
  if (table->s->tmp_table == NO_TMP_TABLE)
    note_changed(ha_thd(), m_name);
  for (const std::string &sample : samples)
    if (!sample.empty())
      forget_statistics(sample);
  info->group_commit_ctx= nullptr;
  return false;
}
