/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE in place: the entries of new indexes, or new rows and theirs, of all rows and of those that change meanwhile. */
#include "alter_context.h"
#include "errors.h"
#include "globals.h"
#include "performance.h"

using namespace terrace;

typedef Alter_context Context;

namespace {

const uint32 BATCH_BYTES= 65536;
/* Rounds beside writers that never stop; what is left then is the last round's. */
const uint ROUNDS_MAX= 20;
const uint64_t FEW_ROWS= 1000;

/** How far ALTER is, for SHOW PROCESSLIST: rows read, then each index built. */
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

/** As InnoDB: if something is said of it, the first one is of the next step after the start. */
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

/** A row of a batch, its head first, to the altered table's record[0], with its virtual columns. */
bool ha_terrace::read_altered(Context *context, const RowCodec &row, const uchar *at)
{
  TABLE *altered= context->altered;
  terrace_row_head head;
  memcpy(&head, at, sizeof head);
  at+= sizeof head;
  m_position.assign(at, head.key_len);
  return row.decode(at + head.key_len, head.value_len, altered->record[0], nullptr) &&
         !(altered->vfield && altered->update_virtual_fields(this, VCOL_UPDATE_FOR_READ));
}

/** Raises the error if the row, which the altered table can't have, has a NULL in a column that is no longer to have one. */
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
    my_error(WARN_DATA_TRUNCATED, MYF(0), field->field_name.str, (ulong) context->rows_read);
    return true;
  }
  return false;
}

/** Makes the entries of the altered table's record[0] in the new indexes. They go to m_entries[0]. */
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

/** Calls `each` for every row of the batch, with its entries in the new indexes; where rows are built, `context` has the row. */
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
    if (context->numbering.begun && !context->numbering.number(altered))
      return TERRACE_CANCELLED;
    for (uint column : context->computed)
      if (altered->update_virtual_field(altered->field[column], false))
        return TERRACE_CORRUPT;         // the server has the error
    at+= sizeof head + head.key_len + head.value_len;
    if (context->rebuilds)
      make_new_row(context);
    make_new_entries(context, context->rebuilds ? context->key : m_position);
    if (int32_t code= each(list.data(), list.size()))
      return code;
  }
  return TERRACE_OK;
}

/** Makes the row of the altered table's record[0], and its key. */
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
  // Nobody writes beside. What a crash has left and is rolled back was in no view, and the last round has waited for it.
  if (context->numbering.begun)
    return terrace_alter_round_end(context->alter);
  terrace_batch batch= {};
  batch.size= sizeof batch;
  for (bool after : {false, true})
  {
    int32_t code;
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
  const uint trees= context->rebuilds ? 1 : (uint) context->codecs.size();      // those of a table are built in one go
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
  // What comes while a round goes on is the next one's; each is shorter, unless writers are faster.
  for (uint round= 0; !code && round < ROUNDS_MAX && (round == 0 || terrace_alter_behind(context->alter) > FEW_ROWS); round++)
    code= alter_round(context, false);
  tmp_restore_column_map(&table->read_set, before);
  return code ? alter_failed(code, altered, info) : false;
}
