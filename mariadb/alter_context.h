/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_ALTER_CONTEXT_H
#define TERRACE_ALTER_CONTEXT_H

#include "ha_terrace.h"
#include "alter.h"

namespace terrace {

/** The values of a new column with AUTO_INCREMENT, in the order in which rows are read. */
struct Numbering
{
  /** `start`: AUTO_INCREMENT of the statement, or 0. */
  void begin(THD *thd, const TABLE *altered, ulonglong start);
  /** Numbers the row in the altered table's record[0]. False: none is left, which is raised. */
  bool number(TABLE *altered);

  bool begun= false;
  ulonglong next= 1, step= 1, largest= 0;
};

} // namespace terrace

/** What the server passes from one call to the next. */
struct terrace::Alter_context : public inplace_alter_handler_ctx
{
  ~Alter_context() override { give_up(); }
  /** Of a partitioned table: one partition's rows are numbered after those of the one before. */
  void set_shared_data(const inplace_alter_handler_ctx &before) override
  {
    numbering= static_cast<const Alter_context &>(before).numbering;
  }
  void give_up()
  {
    terrace_alter_close(alter);
    alter= nullptr;
  }

  ha_terrace *owner= nullptr;
  terrace_alter *alter= nullptr;
  /* Stored rows are read as rows of the altered table: a new index may be of a new virtual column. */
  TABLE *altered= nullptr;
  RowCodec row;
  RowLayouts layouts;
  KeyCodec primary;
  /* All rows come into new trees, as `made` stores them; their key is `primary`'s, or stays what it is if it is hidden. */
  bool rebuilds= false, hidden= false;
  bool cuts= false;                     // long values are cut in the keys that there will be
  ColumnChange columns;
  Numbering numbering;
  /* Columns of the row at hand that had NULL and have a zero, or nothing, now; each is warned of. */
  std::vector<uint16> lost_nulls;
  bool warns= true;
  RowCodec made;
  Bytes key, stored;
  std::vector<terrace_span> spans;
  ulonglong rows_read= 0;               // what errors call a row
  bool reads() const { return rebuilds || !codecs.empty(); }
  /* The new indexes: their codecs, and their numbers in the altered table. */
  std::vector<KeyCodec> codecs;
  std::vector<uint> numbers;
  /* Their virtual columns: reads ignore what is wrong with a value, an index does not. */
  std::vector<uint> computed;
  Bytes bytes;
};

#endif
