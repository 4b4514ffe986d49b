/* SPDX-License-Identifier: GPL-2.0-only */
/*
  From a row of one table to the rows of another that a foreign key relates it to: from a child to its parent, or from a parent to its children.

  The columns of this table's row are encoded as the other table's index encodes its own, so that a look-up is one descent by a prefix of keys. The other
  table is not open in the statement. Its definition is read under a metadata lock, and the engine's handle is open until the statement ends.
*/
#ifndef TERRACE_LINK_H
#define TERRACE_LINK_H

#include "cascade.h"
#include "relations.h"
#include "key_codec.h"

namespace terrace {

/** The index whose first parts are these whole columns, in this order, those of the primary key that follow its own included; MAX_KEY if there is none. */
uint index_over(const KEY *keys, uint count, const std::vector<std::string> &columns);
/** Whether a foreign key may have columns of these types. The same as InnoDB's: also types of which no two values are equal, as BINARY of two lengths. */
bool is_comparable(const Field *one, const Field *other);

/** The definition of a table that may be not open, while the session has a metadata lock on it. */
class Definition
{
public:
  /** `name` is the engine's. Waits for DDL on the table; the lock lasts until the transaction ends. */
  Definition(THD *thd, const std::string &name);
  ~Definition();
  /** Handler error of the wait, which is raised; else 0. */
  int error= 0;
  /** Null if this engine has no such table. */
  TABLE_SHARE *share= nullptr;
};

/** Locks the metadata of the table against changes. Raises an error and returns a handler error if that fails. */
int lock_definition(THD *thd, const std::string &name, enum_mdl_type type= MDL_SHARED_READ);

class Session;

class Link
{
public:
  /** `own` are the columns of the table at hand; `other` those of the table `name` (the engine's). */
  Link(const ForeignKey &key, const std::string &name, const std::vector<std::string> &own, const std::vector<std::string> &other)
    : key(key), name(name), own(own), other(other) {}
  ~Link() { close(); }
  Link(const Link &)= delete;
  /** Prepares look-ups for rows of `table`, in this statement. Raises an error, if it is the metadata lock's. Handler error. */
  int prepare(THD *thd, TABLE *table);
  void close()
  {
    close_cursor();
    terrace_table_close(handle);
    handle= nullptr;
    locked= false;
  }
  /** Whether these columns have the same bytes in both rows. The table's own columns must be resolved. */
  bool is_same(const uchar *one, const uchar *row) const;
  /** A column of the table at hand. */
  const Field *own_field(size_t column) const { return fields[column]; }
  bool is_same_in(size_t column, const uchar *one, const uchar *row) const { return reads[column].same(one, row); }
  /** Encodes the row's columns for find(); returns false if one is NULL. */
  bool encode(const uchar *record, Bytes *out);
  /** Whether the other table can have the key that was encoded last. */
  bool may_find() const { return !is_nowhere; }
  /** Finds the own columns, and the index over them, which foreign_key_checks=0 lets be dropped. Returns false if a column is missing. */
  bool resolve_own(TABLE *table);
  /**
    Looks for a row with the key that was encoded last, and locks it, shared, until the transaction ends; if it `releases`, only until the call ends. Rows that a cascade is deleting don't
    count. An engine code.
  */
  int32_t find(Session &session, const Bytes &bytes, bool releases);
  /** As find(), for a key that was encoded at any time in the statement. */
  int32_t find_encoded(Session &session, terrace_bytes key, bool releases);
  /** Has what find_encoded() of these keys reads fetched, side by side, if it is not in memory. */
  void fetch_soon(Session &session, const std::vector<terrace_bytes> &keys) const;

  const ForeignKey key;
  const std::string name;               // of the other table
  const std::vector<std::string> own, other;
  uint own_index= MAX_KEY, other_index= MAX_KEY;   // the server's numbers; MAX_KEY: there is none
  bool usable= false;                   // the other table and its index are there
  /** Whether the other table's rows themselves are in the index. */
  bool is_row= false;
  /** Whether the other table keeps former rows, which don't count: find() doesn't know them. */
  bool has_history= false;

private:
  int resolve(THD *thd, TABLE *table);
  void close_cursor()
  {
    if (cursor)
      terrace_cursor_close(cursor);
    cursor= nullptr;
  }
  bool locked= false;
  /* Of look-ups in the statement at hand, and the transaction that it is of (Session::begun). */
  terrace_cursor *cursor= nullptr;
  ulonglong begun= 0;
  ulonglong generation= 0;
  std::vector<KeyPart> reads, writes;
  std::vector<const Field *> fields;    // the own columns
  bool is_nowhere= false;               // the key that was encoded last is one that the other table can't have
  uint tree= 0;
  terrace_table *handle= nullptr;
};

} // namespace terrace
#endif
