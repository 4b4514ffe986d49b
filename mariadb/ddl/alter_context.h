/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_ALTER_CONTEXT_H
#define TERRACE_ALTER_CONTEXT_H

#include "ha_terrace.h"
#include "alter.h"
#include "relations.h"

namespace terrace {

/** The values of a new column with AUTO_INCREMENT, in the order in which rows are read. */
struct Numbering
{
  /** `start`: the statement's AUTO_INCREMENT option, or 0. */
  void begin(THD *thd, const TABLE *altered, ulonglong start);
  /** Numbers the row in the altered table's record[0]. Returns false, with the error raised, if no number is left. */
  bool number(TABLE *altered);

  bool begun= false;
  ulonglong next= 1, step= 1, largest= 0;
};

} // namespace terrace

/** The state that the server passes from one call of the handler to the next. */
struct terrace::Alter_context : public inplace_alter_handler_ctx
{
  ~Alter_context() override { give_up(); }
  /** In a partitioned table a partition's rows are numbered after those of the partition before it. */
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
  /* Stored rows are read as rows of the altered table: a new index may use a new virtual column. */
  TABLE *altered= nullptr;
  RowCodec row;
  RowLayouts layouts;
  std::vector<std::string> foreign;     // the foreign keys after the change, as properties have them
  Redefinitions others;                 // tables whose foreign keys refer to a column that gets another name
  KeyCodec primary;
  /* rebuilds: all rows are stored in new trees, encoded by `made`. Their key is encoded by `primary`; a hidden key stays the same. */
  bool rebuilds= false, hidden= false;
  bool cuts= false;                     // the new keys truncate long values
  ColumnChange columns;
  Numbering numbering;
  /* Columns of the current row whose NULL becomes a zero or an empty value; each raises a warning. */
  std::vector<uint16> lost_nulls;
  bool warns= true;
  RowCodec made;
  Bytes key, stored;
  std::vector<terrace_span> spans;
  ulonglong rows_read= 0;               // the row number in warnings and errors
  bool reads() const { return rebuilds || !codecs.empty(); }
  /* The new indexes: their codecs, and their numbers in the altered table. */
  std::vector<KeyCodec> codecs;
  std::vector<uint> numbers;
  /* The virtual columns of the new indexes: a read ignores errors in computing their values, an index build does not. */
  std::vector<uint> computed;
  Bytes bytes;
};

#endif
