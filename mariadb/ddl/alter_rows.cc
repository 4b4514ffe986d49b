/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE in place: makes the entries of new indexes, or new rows and their entries, for all rows and for those that change meanwhile. */
#include "alter_context.h"
#include "errors.h"
#include "globals.h"
#include "performance.h"
#include <algorithm>

using namespace terrace;

typedef Alter_context Context;

namespace {

const uint32 BATCH_BYTES= 65536;
/* At most this many rounds run while sessions write, as the writers may never stop; the last round does the rest. */
const uint ROUNDS_MAX= 20;
const uint64_t FEW_ROWS= 1000;

/** The progress of ALTER for SHOW PROCESSLIST: one stage for reading rows, then one for each index build. */
struct Progress
{
  Progress(THD *thd, uint indexes) : thd(thd) { thd_progress_init(thd, 1 + indexes); }
  ~Progress() { thd_progress_end(thd); }
  THD *thd;
};

terrace_bytes all_of(const Bytes &bytes)
{
  return bytes_of(bytes.data(), bytes.size());
}

} // namespace

/** As in InnoDB: if auto_increment_increment or auto_increment_offset is set, the first number is one step past `start`. */
void Numbering::begin(THD *thd, const TABLE *altered, ulonglong start)
{
  const auto &of= thd->variables;
  begun= true;
  largest= altered->found_next_number_field->get_max_int_value();
  step= MY_MAX(of.auto_increment_increment, 1);
  next= MY_MAX(start, 1);
  if (step == 1 && of.auto_increment_offset <= 1)
    return;
  const ulonglong offset= of.auto_increment_offset > step ? 0 : of.auto_increment_offset;
  const ulonglong steps= (start > offset ? start - offset : offset - start) / step;
  if (__builtin_mul_overflow(steps + 1, step, &next) || __builtin_add_overflow(next, offset, &next))
    next= ULONGLONG_MAX;
}

bool Numbering::number(TABLE *altered)
{
  if (next > largest || next == ULONGLONG_MAX)
  {
    my_error(ER_AUTOINC_READ_FAILED, MYF(0));
    return false;
  }
  altered->found_next_number_field->store(static_cast<longlong>(next), true);
  if (__builtin_add_overflow(next, step, &next))
    next= ULONGLONG_MAX;
  return true;
}

/** Decodes a row of a batch, which starts with its head, into the altered table's record[0], and computes its virtual columns. */
bool ha_terrace::read_altered(Context *context, const RowCodec &row, const uchar *at)
{
  TABLE *altered= context->altered;
  terrace_row_head head;
  memcpy(&head, at, sizeof head);
  at+= sizeof head;
  m_position.assign(at, head.key_len);
  context->lost_nulls.clear();
  if (!row.decode(at + head.key_len, head.value_len, altered->record[0], nullptr))
    return false;
  // Zero or empty, whatever the column's default is.
  for (uint16 number : context->lost_nulls)
    altered->field[number]->reset();
  return !(altered->vfield && altered->update_virtual_fields(this, VCOL_UPDATE_FOR_READ));
}

static void warn_of_lost_nulls(Context *context)
{
  std::sort(context->lost_nulls.begin(), context->lost_nulls.end());
  for (uint16 number : context->lost_nulls)
    context->altered->field[number]->set_warning(Sql_condition::WARN_LEVEL_WARN, WARN_DATA_TRUNCATED, 1, (ulong) context->rows_read);
}

/** For a row that the altered table can't hold: raises the error if it has a NULL in a column that becomes NOT NULL. */
bool ha_terrace::has_null_that_goes(Context *context, const uchar *at)
{
  terrace_row_head head;
  memcpy(&head, at, sizeof head);
  if (!m_row.decode(at + sizeof head + head.key_len, head.value_len, table->record[0], nullptr))
    return false;
  for (uint number= 0; number < table->s->fields; number++)
  {
    const uint16 moved= context->columns.moved[number];
    const Field *field= table->field[number];
    if (moved == RowLayouts::DROPPED || !field->stored_in_db() || context->altered->field[moved]->real_maybe_null() || !field->is_null())
      continue;
    // As in InnoDB: the warning is an error here, as the statement is strict; a second error follows.
    context->altered->field[moved]->set_warning(Sql_condition::WARN_LEVEL_WARN, WARN_DATA_TRUNCATED, 1, (ulong) context->rows_read);
    my_error(ER_INVALID_USE_OF_NULL, MYF(0));
    return true;
  }
  return false;
}

/** Makes the entries of the altered table's record[0] in the new indexes, into m_entries[0]. */
void ha_terrace::make_new_entries(Context *context, const Bytes &primary)
{
  std::vector<terrace_entry> &list= m_entries[0].list;
  const uchar *record= context->altered->record[0];
  Bytes &bytes= context->bytes;
  bytes.clear();
  list.clear();
  struct Span { size_t key, primary_at, value, end; bool unique; };
  Span spans[MAX_KEY];
  for (uint index= 0; index < context->codecs.size(); index++)
  {
    const KeyCodec &codec= context->codecs[index];
    Span &span= spans[index];
    bool has_null;
    span.key= bytes.size();
    codec.encode_record(record, &bytes, &has_null);
    span.primary_at= bytes.size();
    span.unique= codec.is_unique() && !has_null;
    bytes.append(primary.data(), primary.size());
    span.value= bytes.size();
    codec.originals(record, span.value - span.key, &bytes);
    span.end= bytes.size();
  }
  for (uint index= 0; index < context->codecs.size(); index++)
  {
    const Span &span= spans[index];
    terrace_entry entry= {};
    entry.size= sizeof entry;
    entry.index= context->rebuilds ? context->numbers[index] + context->hidden : index;
    entry.key= bytes_of(bytes.data() + span.key, span.value - span.key);
    entry.unique_len= span.unique ? span.primary_at - span.key : SIZE_MAX;
    entry.primary_at= span.primary_at - span.key;
    entry.value= bytes_of(bytes.data() + span.value, span.end - span.value);
    list.push_back(entry);
  }
}

/** Calls `each` for every row of the batch, with its entries in the new indexes; in a rebuild, `context` holds the new row. */
template <class Each> int32_t ha_terrace::for_each_new_entry(Context *context, const terrace_batch &batch, Each each)
{
  TABLE *altered= context->altered;
  const uchar *at= batch.data.data;
  const std::vector<terrace_entry> &list= m_entries[0].list;
  for (uint row= 0; row < batch.rows; row++)
  {
    terrace_row_head head;
    memcpy(&head, at, sizeof head);
    context->rows_read++;
    if (!read_altered(context, context->row, at))
      return context->rebuilds && has_null_that_goes(context, at) ? TERRACE_CANCELLED : TERRACE_CORRUPT;
    if (!context->lost_nulls.empty() && context->warns)
      warn_of_lost_nulls(context);
    if (context->numbering.begun && !context->numbering.number(altered))
      return TERRACE_CANCELLED;
    for (uint column : context->computed)
      if (altered->update_virtual_field(altered->field[column], false))
        return TERRACE_CORRUPT;         // the server has raised the error
    at+= sizeof head + head.key_len + head.value_len;
    if (context->rebuilds)
      make_new_row(context);
    make_new_entries(context, context->rebuilds ? context->key : m_position);
    if (int32_t code= each(list.data(), list.size()))
      return code;
  }
  return TERRACE_OK;
}

/** Encodes the row in the altered table's record[0], and its key. */
void ha_terrace::make_new_row(Context *context)
{
  const uchar *record= context->altered->record[0];
  bool has_null;
  context->key.clear();
  if (context->hidden)
    context->key.append(m_position.data(), m_position.size());
  else
    context->primary.encode_record(record, &context->key, &has_null);
  encode_row(context->made, record, context->key, &context->stored, &context->spans);
}

/** One round over the rows that changed. */
int32_t ha_terrace::alter_round(Context *context, bool last)
{
  THD *thd= ha_thd();
  const Stage stage(thd, Stage::FOLLOW_CHANGES);
  if (int32_t code= terrace_alter_round(context->alter, last))
    return code;
  // No session writes meanwhile. Orphaned transactions that are being rolled back were in no read view, and the last round has waited for them.
  if (context->numbering.begun)
    return terrace_alter_round_end(context->alter);
  terrace_batch batch= {};
  batch.size= sizeof batch;
  for (bool after : {false, true})
  {
    int32_t code;
    context->warns= after;
    while (!(code= terrace_alter_round_rows(context->alter, after, BATCH_BYTES, &batch)))
    {
      code= for_each_new_entry(context, batch, [&](const terrace_entry *list, size_t count) {
        return context->rebuilds ? terrace_alter_change_row(context->alter, after, all_of(context->key), all_of(context->stored),
                                                            context->spans.data(), context->spans.size(), list, count)
                                 : terrace_alter_change(context->alter, after, list, count);
      });
      if (!code && is_killed(thd))
        code= TERRACE_CANCELLED;
      if (code)
        return code;
    }
    if (code != TERRACE_NO_ROW)
      return code;
  }
  return terrace_alter_round_end(context->alter);
}

bool ha_terrace::inplace_alter_table(TABLE *altered, Alter_inplace_info *info)
{
  Context *context= static_cast<Context *>(info->handler_ctx);
  if (!context->reads())
    return false;
  THD *thd= ha_thd();
  const uint trees= context->rebuilds ? 1 : (uint) context->codecs.size();      // a rebuild builds all trees of the table in one call
  const Progress progress(thd, trees);
  MY_BITMAP *before= tmp_use_all_columns(table, &table->read_set);
  terrace_batch batch= {};
  batch.size= sizeof batch;
  int32_t code;
  {
    Stage stage(thd, Stage::READ_ROWS);
    ulonglong rows= 0;
    while (!(code= terrace_alter_rows(context->alter, BATCH_BYTES, &batch)))
    {
      code= for_each_new_entry(context, batch, [&](const terrace_entry *list, size_t count) {
        return context->rebuilds ? terrace_alter_add_row(context->alter, all_of(context->key), all_of(context->stored),
                                                         context->spans.data(), context->spans.size(), list, count)
                                 : terrace_alter_add(context->alter, list, count);
      });
      rows+= batch.rows;
      if (!code && !Stage::told(&stage, rows, MY_MAX(stats.records, rows)))
        code= TERRACE_CANCELLED;
      if (code)
        break;
    }
  }
  if (code == TERRACE_NO_ROW)
    code= TERRACE_OK;
  for (uint index= 0; index < trees && !code; index++)
  {
    thd_progress_next_stage(thd);
    Stage stage(thd, context->rebuilds ? Stage::BUILD_TABLE : Stage::BUILD_INDEX);
    code= context->rebuilds ? terrace_alter_build(context->alter, Stage::told, &stage)
                            : terrace_alter_load(context->alter, index, Stage::told, &stage);
  }
  // Changes made during a round belong to the next one; each round is shorter, unless writers are faster.
  for (uint round= 0; !code && round < ROUNDS_MAX && (round == 0 || terrace_alter_behind(context->alter) > FEW_ROWS); round++)
    code= alter_round(context, false);
  tmp_restore_column_map(&table->read_set, before);
  return code ? alter_failed(code, altered, info) : false;
}
