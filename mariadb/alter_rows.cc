/* SPDX-License-Identifier: GPL-2.0-only */
/* ALTER TABLE in place: the entries of new indexes, of all rows and of those that change meanwhile. */
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

} // namespace

/** A row of a batch, its head first, to the altered table's record[0], with its virtual columns. */
bool ha_terrace::read_altered(Context *context, const uchar *at)
{
  TABLE *altered= context->altered;
  terrace_row_head head;
  memcpy(&head, at, sizeof head);
  at+= sizeof head;
  m_position.assign(at, head.key_len);
  return context->row.decode(at + head.key_len, head.value_len, altered->record[0], nullptr) &&
         !(altered->vfield && altered->update_virtual_fields(this, VCOL_UPDATE_FOR_READ));
}

/** Calls `each` for every row of the batch, with its entries in the new indexes. */
template <class Each> int32_t ha_terrace::for_each_new_entry(Context *context, const terrace_batch &batch, Each each)
{
  const uchar *at= batch.data.data;
  std::vector<terrace_entry> &list= m_entries[0].list;
  for (uint row= 0; row < batch.rows; row++)
  {
    terrace_row_head head;
    memcpy(&head, at, sizeof head);
    if (!read_altered(context, at))
      return TERRACE_CORRUPT;
    for (uint column : context->computed)
      if (context->altered->update_virtual_field(context->altered->field[column], false))
        return TERRACE_CORRUPT;         // the server has the error
    at+= sizeof head + head.key_len + head.value_len;
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
      codec.encode_record(context->altered->record[0], &bytes, &has_null);
      span.primary_at= bytes.size();
      span.unique= codec.is_unique() && !has_null;
      bytes.append(m_position.data(), m_position.size());
      span.value= bytes.size();
      codec.originals(context->altered->record[0], span.value - span.key, &bytes);
      span.end= bytes.size();
    }
    for (uint index= 0; index < context->codecs.size(); index++)
    {
      const Span &span= spans[index];
      terrace_entry entry= {};
      entry.size= sizeof entry;
      entry.index= index;
      entry.key= bytes_of(bytes.data() + span.key, span.value - span.key);
      entry.unique_len= span.unique ? span.primary_at - span.key : SIZE_MAX;
      entry.primary_at= span.primary_at - span.key;
      entry.value= bytes_of(bytes.data() + span.value, span.end - span.value);
      list.push_back(entry);
    }
    if (int32_t code= each(list.data(), list.size()))
      return code;
  }
  return TERRACE_OK;
}

/** One round over the rows that changed. */
int32_t ha_terrace::alter_round(Context *context, bool last)
{
  THD *thd= ha_thd();
  const Stage stage(thd, Stage::FOLLOW_CHANGES);
  if (int32_t code= terrace_alter_round(context->alter, last))
    return code;
  terrace_batch batch= {};
  batch.size= sizeof batch;
  for (bool after : {false, true})
  {
    int32_t code;
    while (!(code= terrace_alter_round_rows(context->alter, after, BATCH_BYTES, &batch)))
    {
      code= for_each_new_entry(context, batch, [&](const terrace_entry *list, size_t count) {
        return terrace_alter_change(context->alter, after, list, count);
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
  if (context->codecs.empty())
    return false;
  THD *thd= ha_thd();
  const Progress progress(thd, (uint) context->codecs.size());
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
        return terrace_alter_add(context->alter, list, count);
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
  for (uint index= 0; index < context->codecs.size() && !code; index++)
  {
    thd_progress_next_stage(thd);
    Stage stage(thd, Stage::BUILD_INDEX);
    code= terrace_alter_load(context->alter, index, Stage::told, &stage);
  }
  // What comes while a round goes on is the next one's; each is shorter, unless writers are faster.
  for (uint round= 0; !code && round < ROUNDS_MAX && (round == 0 || terrace_alter_behind(context->alter) > FEW_ROWS); round++)
    code= alter_round(context, false);
  tmp_restore_column_map(&table->read_set, before);
  return code ? alter_failed(code, altered, info) : false;
}
