/* SPDX-License-Identifier: GPL-2.0-only */
/* Reads all rows of a tree. */
#ifndef TERRACE_WALK_H
#define TERRACE_WALK_H

#include "session.h"
#include "terrace.h"

namespace terrace {

/** Calls `each` with every row of a tree that is visible to the transaction, until `thd` (may be null) is killed. */
template <class Each> int32_t walk(terrace_txn *txn, terrace_table *table, uint tree, THD *thd, Each each)
{
  terrace_cursor_options options= {};
  options.size= sizeof options;
  options.index= tree;
  options.scan= true;
  terrace_cursor *cursor= nullptr;
  if (int32_t code= terrace_cursor_open(txn, table, &options, &cursor))
    return code;
  terrace_fetch fetch= {};
  fetch.size= sizeof fetch;
  fetch.seek= TERRACE_SEEK_FIRST;
  fetch.want= TERRACE_WANT_ENTRY;
  fetch.max_rows= 256;
  fetch.max_bytes= 65536;
  terrace_batch batch= {};
  batch.size= sizeof batch;
  int32_t code;
  while (!(code= terrace_cursor_fetch(cursor, &fetch, &batch)))
  {
    const uchar *at= batch.data.data;
    for (uint row= 0; row < batch.rows && !code; row++)
    {
      terrace_row_head head;
      memcpy(&head, at, sizeof head);
      at+= sizeof head;
      if (!each(at, head.key_len, at + head.key_len, head.value_len))
        code= TERRACE_CORRUPT;
      at+= head.key_len + head.value_len;
    }
    if (code || batch.ended)
      break;
    if (thd && is_killed(thd))
      code= TERRACE_CANCELLED;
    if (code)
      break;
    fetch.seek= TERRACE_SEEK_NEXT;
  }
  terrace_cursor_close(cursor);
  return code == TERRACE_NO_ROW ? TERRACE_OK : code;
}

} // namespace terrace
#endif
