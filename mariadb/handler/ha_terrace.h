/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The handler: one open table in one connection, as the server drives it.

    ha_terrace.cc   open, close, what the engine can do, locks and statements, costs and statistics
    ha_scan.cc      scans, index reads, positions
    ha_read.cc      what they read with: a cursor, its batches, the rows in them
    ha_cut.cc       index reads in order past parts of keys that are cut
    ha_push.cc      what the optimizer hands down: index conditions, rowid filters, ranges, multi-range reads
    ha_write.cc     insert, update, delete, auto-increment
    gather.cc       rows of one UPDATE or DELETE, changed together
    versions.cc     rows versioned by transaction
    semi_read.cc    semi-consistent reads
    sequence.cc     sequences: changes and reads outside of the session's transaction
    ddl.cc          create, drop, rename
    truncate.cc     TRUNCATE, of all partitions at once
    alter.cc        ALTER TABLE in place; alter_rows.cc: its new indexes, or all rows anew; computed.cc: what it means for computed columns
    ha_foreign.cc   foreign keys: checks of rows, and what the server asks; ha_cascade.cc: children that are changed with their parents
    query_cache.h   what the server's query cache may keep and give
    load.cc         tables filled in bulk, by ALTER by copy, CREATE … SELECT, LOAD DATA, INSERT of many rows

  Indexes. Number 0 in the engine is the tree of the rows. It is the server's primary key (number 0 there too) or, for
  a table without one, a hidden row id of 8 bytes; then the server's index n is the engine's n + 1.

  Reads. A cursor belongs to a scan, from index_init or rnd_init to its end. Rows come in batches (see terrace_cursor_fetch_rows)
  and lie in the cursor's memory; `m_batch` walks over them, so most calls of next() don't leave this library. The first
  batches of an index scan are small, so a short look-up reads no more than it needs.
  A change of direction, or whatever leaves the cursor elsewhere than the row last returned, positions again by its key.

  Locks. No server-side table lock (lock_count is 0); metadata locks protect definitions. What a read locks is settled in
  store_lock and external_lock, as InnoDB settles it.
*/
#ifndef HA_TERRACE_H
#define HA_TERRACE_H

#include "server.h"
#include "globals.h"
#include "kill_scope.h"
#include "row_codec.h"
#include "awaited.h"
#include "key_codec.h"
#include "query_cache.h"
#include "session.h"
#include "statistics.h"
#include <memory>
#include <optional>

namespace terrace
{
struct Alter_context;
struct ColumnChange;
struct Foreign;
struct ForeignKey;
class Link;
ulonglong relations_generation();
struct ForeignDeleter
{
  void operator()(Foreign *one) const;
};
}

class ha_terrace final : public handler
{
public:
  ha_terrace(handlerton *hton, TABLE_SHARE *share) : handler(hton, share) {}
  ~ha_terrace() override= default;

  /* What it can do. */
  Table_flags table_flags() const override;
  ulong index_flags(uint number, uint part, bool all_parts) const override;
  const char *index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_parts() const override { return MAX_REF_PARTS; }
  uint max_supported_key_length() const override { return 3072; }
  uint max_supported_key_part_length() const override { return 3072; }
  enum row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_ASKTRANSACT; }
  my_bool register_query_cache_table(THD *thd, const char *path, uint length, qc_engine_callback *ask,
                                     ulonglong *data) override
  {
    return terrace::register_answer(thd, path, length, ask, data);
  }
  const key_map *keys_to_use_for_scanning() override { return &key_map_full; }

  /* Open and close, locks and statements. */
  int open(const char *name, int mode, uint test_if_locked) override;
  int close() override;
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA **store_lock(THD *thd, THR_LOCK_DATA **to, enum thr_lock_type type) override;
  int external_lock(THD *thd, int type) override;
  int start_stmt(THD *thd, thr_lock_type type) override;
  int extra(enum ha_extra_function operation) override;
  int reset() override;
  void leave_cascades();
  void free_retired()
  {
    if (m_retired)
      terrace_cursor_close(m_retired);
    m_retired= nullptr;
  }
  bool get_error_message(int error, String *text) override;
  void print_error(int error, myf flags) override;

  /* Costs and statistics. */
  int info(uint flags) override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  ha_rows estimate_rows_upper_bound() override;
  ha_rows records_in_range(uint index, const key_range *low, const key_range *high, page_range *pages) override;

  /* Reads. */
  int index_init(uint number, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar *buf, const uchar *key, key_part_map parts, enum ha_rkey_function flag) override;
  int index_read_last_map(uchar *buf, const uchar *key, key_part_map parts) override;
  int index_next(uchar *buf) override;
  int index_prev(uchar *buf) override;
  int index_first(uchar *buf) override;
  int index_last(uchar *buf) override;
  int index_next_same(uchar *buf, const uchar *key, uint length) override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar *buf) override;
  int rnd_pos(uchar *buf, uchar *position) override;
  void position(const uchar *record) override;
  int cmp_ref(const uchar *one, const uchar *other) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool wanted) override;
  bool was_semi_consistent_read() override { return m_semi_read; }

  /* What the optimizer hands down. */
  Item *idx_cond_push(uint number, Item *condition) override;
  bool rowid_filter_push(Rowid_filter *filter) override;
  int read_range_first(const key_range *start, const key_range *end, bool equal, bool sorted) override;
  int multi_range_read_init(RANGE_SEQ_IF *ranges, void *context, uint count, uint mode, HANDLER_BUFFER *buffer) override;
  int multi_range_read_next(range_id_t *range) override;
  ha_rows multi_range_read_info_const(uint number, RANGE_SEQ_IF *ranges, void *context, uint count, uint *size,
                                      uint *flags, Cost_estimate *cost) override;
  ha_rows multi_range_read_info(uint number, uint count, uint keys, uint parts, uint *size, uint *flags,
                                Cost_estimate *cost) override;
  int multi_range_read_explain_info(uint mode, char *text, size_t size) override;
  handler *clone(const char *name, MEM_ROOT *root) override;

  /* Writes. */
  int write_row(const uchar *buf) override;
  int update_row(const uchar *old_data, const uchar *new_data) override;
  int delete_row(const uchar *buf) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong *first,
                          ulonglong *taken) override;
  int reset_auto_increment(ulonglong value) override;
  bool start_bulk_update() override;
  int bulk_update_row(const uchar *old_data, const uchar *new_data, ha_rows *duplicates) override;
  int exec_bulk_update(ha_rows *duplicates) override;
  int end_bulk_update() override;
  bool start_bulk_delete() override;
  int end_bulk_delete() override;
  void start_bulk_insert(ha_rows rows, uint flags) override;
  int end_bulk_insert() override;
  void update_create_info(HA_CREATE_INFO *info) override;

  /* Definitions and administration. */
  int create(const char *name, TABLE *form, HA_CREATE_INFO *info) override;
  int delete_table(const char *name) override;
  int rename_table(const char *from, const char *to) override;
  int truncate() override;
  int delete_all_rows() override { return HA_ERR_WRONG_COMMAND; }
  int check(THD *thd, HA_CHECK_OPT *options) override;
  int analyze(THD *thd, HA_CHECK_OPT *options) override;
  int optimize(THD *thd, HA_CHECK_OPT *options) override;
  bool check_if_incompatible_data(HA_CREATE_INFO *info, uint changes) override;
  bool can_convert_nocopy(const Field &field, const Column_definition &changed) const override;
  Compare_keys compare_key_parts(const Field &field, const Column_definition &changed, const KEY_PART_INFO &old_part,
                                 const KEY_PART_INFO &new_part) const override;
  int get_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  int get_parent_foreign_key_list(THD *thd, List<FOREIGN_KEY_INFO> *keys) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool get_foreign_dup_key(char *table_name, uint table_length, char *key_name, uint key_length) override;
  bool can_switch_engines() override;
  char *get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char *text) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE *altered, Alter_inplace_info *info) override;
  bool prepare_inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool inplace_alter_table(TABLE *altered, Alter_inplace_info *info) override;
  bool commit_inplace_alter_table(TABLE *altered, Alter_inplace_info *info, bool commit) override;

  /** The index of a table without a primary key that its rows are in. */
  static constexpr const char *ROWS_INDEX= "(rows)";
  /** A key of an index in words (key_words.h). Called by other threads while the table is known to be open. */
  bool key_in_words(const std::string &index, const std::string &key, TABLE *like, std::string *out) const;

private:
  /* One row of the batch. */
  struct Row
  {
    const uchar *key= nullptr, *value= nullptr;
    uint32 key_length= 0, primary_at= 0, value_length= 0;
    terrace::Holes holes;
  };
  enum Direction { NOWHERE, FORWARD, BACKWARD };
  /* Where a read that found nothing has left the scan: at the key `m_prefix`, behind all that begin with it, or outside of all rows. */
  enum Gap { ON_ROW, AT_PREFIX, BEHIND_PREFIX, BEHIND_LAST, BEFORE_FIRST };

  int map(int32_t code);
  int enter(THD *thd);
  int refuse_lock(THD *thd, int type);
  void unlock(THD *thd);
  uint tree_of(uint index) const { return m_hidden ? index + 1 : index; }
  void lay_out();
  double innodb_rows_in_pages(uint index, uint pages) const;

  int open_cursor(uint tree, bool scan);
  void close_cursor();
  /** A scan outlives the statement (HANDLER … READ): the cursor goes, the place is kept by its key. */
  void park_cursor()
  {
    if (m_cursor || m_current.key || m_direction != NOWHERE)
      park_open_cursor();
  }
  void park_open_cursor();
  int unpark_cursor();
  int fetch(uint32_t seek, const terrace::Bytes *key, const terrace::Bytes *prefix, uint max_rows);
  int step(uchar *buf, Direction direction, const terrace::Bytes *prefix);
  int step_once(uchar *buf, Direction direction, const terrace::Bytes *prefix);
  int step_beyond(uchar *buf, Direction direction, const terrace::Bytes *prefix);
  int came_to_gap(Gap gap, int error);
  int leave_gap(uchar *buf, Direction direction, const terrace::Bytes *prefix);
  /** Of rows that were rejected the next one; else `error`. */
  int past_rejected(uchar *buf, const terrace::Bytes *prefix, int error);
  int seek(uchar *buf, uint32_t seek, const terrace::Bytes *key, const terrace::Bytes *prefix);
  void begin_seek(Direction direction);
  int go(uchar *buf, uint32_t where, const terrace::Bytes *key, const terrace::Bytes *prefix);

  /* Entries that agree up to where a part is cut, in the order of what is whole (ha_cut.cc). */
  struct CutRun
  {
    struct Unit
    {
      std::string digest;
      std::string value;                // what is cut off
      bool operator<(const Unit &other) const { return value < other.value; }
    };
    std::string begins;                 // bytes before the cut
    uint part= 0;                       // which is cut
    std::shared_ptr<const std::vector<Unit>> units; // in order, once they are known
    Unit now;                           // the one that the scan is in
  };
  bool meets_cuts() const { return inited == INDEX && active_index != MAX_KEY && m_indexes[active_index].may_cut() && !m_any_order; }
  const terrace::Bytes *within(const terrace::Bytes *prefix) const
  {
    return m_cut_runs.empty() || (prefix && prefix->size() > m_cut_unit.size()) ? prefix : &m_cut_unit;
  }
  int put_in_order(uchar *buf, int error, Direction direction, const terrace::Bytes *prefix);
  int gather_cut_run(uchar *buf, CutRun *run);
  int look_at_cut(uchar *buf, const terrace::Bytes &from, const terrace::Bytes &run);
  void stay_in_cut_unit();
  void enter_units_of_bound(size_t covered);
  std::unique_ptr<CutRun> run_of_bound(const terrace::KeyCodec::CutPart &cut);
  int read_cut_unit(uchar *buf, size_t at);
  int read_next_cut_unit(uchar *buf, const terrace::Bytes *prefix);
  int leave_cut_run(uchar *buf, const terrace::Bytes *prefix);
  int seek_cut_bound(uchar *buf, enum ha_rkey_function flag);
  int go_to_cut_bound(uchar *buf, enum ha_rkey_function flag, size_t covered);
  void forget_cut_units();
  bool needs_no_order() const;
  bool is_alone(size_t bytes) const;
  /** Whether the entry is of a run that the scan is not in, or will have to leave. */
  bool is_cut_within(const terrace_bytes &key) const
  {
    terrace::KeyCodec::CutPart cut;
    const size_t covered= m_cut_runs.empty() ? 0 : m_cut_unit.size();
    return m_indexes[active_index].find_cut(key.data, key.len, covered, &cut);
  }
  uint batch_rows() const;
  bool next_in_batch()
  {
    if (!m_batch_left)
      return false;
    const terrace_row &row= m_batch.first[m_batch_at++];
    m_current.key= row.key.data;
    m_current.key_length= (uint32) row.key.len;
    m_current.primary_at= row.primary_at;
    m_current.value= row.value.data;
    m_current.value_length= (uint32) row.value.len;
    m_current.holes= {m_batch_hole, row.holes};
    m_batch_hole+= row.holes;
    m_batch_left--;
    return true;
  }
  /** The rows of the batch that the server was given are counted. */
  void count_reads()
  {
    if (m_batch_at && m_session)
      m_session->count(&terrace_row_counts::read, m_batch_at);
    m_batch_at= 0;
  }
  void count_row(uint64_t terrace_row_counts::*what)
  {
    if (m_session)
      m_session->count(what);
  }
  bool judges_entries() const;
  bool filters_rowids() const { return pushed_rowid_filter && rowid_filter_is_active; }
  bool reads_to_the_end() const;
  static int32_t judge_entry(void *context, terrace_bytes key, uint32_t primary_at, terrace_bytes value);
  bool encode_end(const key_range *end, size_t shared, terrace::Bytes *out) const;
  int unpack(uchar *buf, const terrace::Bytes *prefix);
  int unpack_current(uchar *buf, const terrace::Bytes *prefix);
  int read_row_of_entry(uchar *buf, const terrace::Bytes *prefix);
  int judge_row();
  bool unpack_row(uchar *buf);
  /*
    A merge of indexes switches this on for its first index and means all of them. Not if entries lack what position()
    makes of the row: a primary key over a column's prefix.
  */
  bool only_index()
  {
    return inited == INDEX && active_index != MAX_KEY && m_tree != 0 && m_entry_has_position && !m_bare && !needs_row() &&
           (keyread_enabled() || is_covered_beside_locks());
  }
  bool is_covered_beside_locks() const;
  /**
    An entry doesn't give back a column of which it has a prefix, and the server may compare that: with the end of a range, in a
    merge of indexes; of another row, for WITHOUT OVERLAPS.
  */
  bool needs_row() const { return !m_indexes[active_index].is_whole(); }
  /** The columns that the server asks for; null: all. An index-only read that gets the row makes use of what it gets. */
  const MY_BITMAP *wanted()
  {
    return m_lock_type_write || (keyread_enabled() && m_tree != 0) ? nullptr : table->read_set;
  }
  /** How much of an entry has the columns that the server asks for. */
  terrace::KeyCodec::Extent extent()
  {
    if (m_lock_type_write)
      return m_indexes[active_index].all();
    const MY_BITMAP *columns= table->read_set;
    const uchar *bits= reinterpret_cast<const uchar *>(columns->bitmap);
    if (m_extent_index != active_index || !m_extent_of.equals(bits, bitmap_buffer_size(columns->n_bits)))
      set_extent();
    return m_extent;
  }
  void set_extent();
  uint32 first_bytes();
  static bool wants_part(void *context, terrace_bytes row, uint32_t name);
  bool may_lack_parts();
  /** Whether the server asks for more of the current row than when it was fetched. */
  bool lacks_wanted()
  {
    return (m_current.holes.count || m_batch_want == TERRACE_WANT_START) && lacks_wanted_of_lacking();
  }
  bool lacks_wanted_of_lacking();
  void encode_row(const uchar *record, const terrace::Bytes &primary);
  static void encode_row(const terrace::RowCodec &codec, const uchar *record, const terrace::Bytes &primary, terrace::Bytes *row,
                         std::vector<terrace_span> *spans);
  /** Whether there is perhaps more of the current row than was fetched. */
  bool is_cut() const { return m_batch_want == TERRACE_WANT_START && m_current.value_length == m_batch_first; }
  /** Only a hidden row id is not in the server's record. */
  void remember_position()
  {
    if (m_hidden)
      m_position.assign(m_current.key + m_current.primary_at, m_current.key_length - m_current.primary_at);
  }
  void encode_primary(const uchar *record, terrace::Bytes *out);
  void encode_reference(const uchar *position, terrace::Bytes *out);

  /** A row was changed. What ALTER copies is no change of the table. */
  void note_change()
  {
    if (m_changed || !m_session)
      return;
    m_changed= true;
    if (!terrace::is_passing_name(m_name))
      m_session->changed(m_writers);
  }
  bool is_sequence() const { return table_share->table_type == TABLE_TYPE_SEQUENCE; }
  bool is_whole_key(key_part_map parts) const
  {
    const key_part_map whole= make_prev_keypart_map(table->key_info[active_index].user_defined_key_parts);
    return (parts & whole) == whole;
  }
  int read_again(uchar *buf, Direction direction, const terrace::Bytes *prefix);
  int begin_own_read();
  void end_own_read()
  {
    if (m_own_read)
      close_own_read();
  }
  void close_own_read();
  int write_sequence(const uchar *old_data, const uchar *new_data);

  /* Which system column of a version gets the transaction's number. The other one's end is open, or it stays. */
  enum Version { VERSION_BEGINS, VERSION_GOES_ON, VERSION_ENDS };
  bool is_versioned_write() const { return table->versioned_write(VERS_TRX_ID); }
  void follow_versions();
  int make_version(const uchar *record, Version what, const uchar **version);
  int update_version(const uchar *old_data, const uchar *new_data);
  int end_version(const uchar *buf);
  int insert_row(const uchar *record);
  int find_duplicate(terrace_bytes key, terrace_bytes row, int missing);
  int change_row(const uchar *old_data, const uchar *new_data)
  {
    const int error= exchange_row(old_data, new_data);
    return m_cascaded ? end_cascades(error) : error;
  }
  int exchange_row(const uchar *old_data, const uchar *new_data);
  int erase_row(const uchar *buf)
  {
    const int error= remove_row(buf);
    return m_cascaded ? end_cascades(error) : error;
  }
  int remove_row(const uchar *buf);
  /** Whether the rows are those of an event of a source's binary log, which is of no statement. */
  bool applies_rows() const { return terrace::command_of(ha_thd()) == SQLCOM_END; }
  void unlock_applied();
  bool may_gather() const;
  bool gathers();
  void begin_gathering();
  void end_gathering()
  {
    m_gathers= NOT;
    m_locks_ahead= false;
    m_gathered.free_all();
    m_gathered_rows= 0;
  }
  int change_gathered();
  int change_gathered_before_seek();
  int gathered_row();
  int gather_update(const uchar *old_data, const uchar *new_data)
  {
    const int error= gather_changed(old_data, new_data);
    return m_cascaded ? end_cascades(error) : error;
  }
  int gather_changed(const uchar *old_data, const uchar *new_data);
  int gather_delete(const uchar *buf);
  void gather_change(uint tree, const uchar *key, size_t length, size_t primary_at, const uchar *value, size_t value_length);
  void gather_entries(uint set, bool put);
  int make_entries(const uchar *record, const terrace::Bytes &primary, const uchar *other, uint set);
  int write_failed(int32_t code);
  int lock_duplicate(const terrace::Bytes &primary, uint set, bool goes_on, bool *gone);
  int32_t lock_duplicate_entry(uint tree, uint set, uint32_t lock, bool keeps);
  bool looks_before_writes() const;
  void begin_load_beside();
  int finish_other_loads();
  bool keeps_counter() const;
  int32_t take_auto_increment(ulonglong offset, ulonglong increment, ulonglong limit, uint64_t *start, uint64_t *count);
  int lock_duplicate_of_load();
  void leave_loads();
  void free_retired_load()
  {
    if (m_retired_load)
      terrace_load_close(m_retired_load);
    m_retired_load= nullptr;
  }
  bool is_new_partition() const;
  void begin_load();
  void begin_waiting_load();
  int source_ended();
  int end_copy();
  int finish_load();
  int32_t build_loaded();
  void end_load();
  ulonglong past_value(Field *field, bool zero_counts);
  int raise_auto_increment(const uchar *record, Field *field);
  int next_row_id(uint64_t *id);
  int past_largest(uint64_t *next);
  int has_rows(bool *found);
  bool is_surely_empty();
  int past_largest(uint32_t isolation, uint64_t *next);
  int reopen();
  int make(const char *name, TABLE *form, HA_CREATE_INFO *info);
  static void put_back_options(const TABLE *form);
  bool attach_statistics();
  std::string statistics_key() const;
  int sample_statistics(bool durable);
  int refresh_statistics(bool fill);
  int compare_trees(THD *thd);
  bool alter_failed(int32_t code, TABLE *altered, Alter_inplace_info *info);
  bool read_into_record(const uchar *at);
  bool read_altered(terrace::Alter_context *context, const terrace::RowCodec &row, const uchar *at);
  bool has_null_that_goes(terrace::Alter_context *context, const uchar *at);
  void make_new_row(terrace::Alter_context *context);
  void make_new_entries(terrace::Alter_context *context, const terrace::Bytes &primary);
  /** The relations of the table by foreign keys, as they are now; null if there are none. */
  terrace::Foreign *foreign() const
  {
    return m_foreign_generation == terrace::relations_generation() ? m_foreign.get() : read_relations_again();
  }
  terrace::Foreign *read_relations_again() const;
  bool refers_to_itself() const;
  bool cascades_come_back() const;
  bool may_change_under_scan(THD *thd) const;
  bool cascades_update() const;
  void close_links();
  int cascade(terrace::Link &link, const uchar *old, const uchar *record);
  void rest_cursor();
  void enter_cascade(terrace::Session *session);
  struct Cause;
  int follow(const Cause &cause, const terrace::Bytes &key);
  bool changes_position(const terrace::Link &link) const;
  int change_child(const Cause &cause, uint index);
  int change_columns(const Cause &cause, uint index);
  int end_row();
  int change_to(uchar *old_data, uchar *new_data);
  bool leaves_own_key(const terrace::Link &link, const uchar *record, const uchar *old);
  bool is_current(const uchar *record) const;
  int look_up(terrace::Link *link, const terrace::Bytes &key, bool releases, bool *found);
  int has_current(const terrace::Link &link, const terrace::Bytes &key, bool *found);
  int end_cascades(int error);
  int foreign_error(int error, const std::string &child, const terrace::ForeignKey &key);
  int finish_loads_of(const std::string &name);
  int check_parents(const uchar *record, const uchar *old, bool *primary= nullptr);
  int check_awaited();
  int check_children(const uchar *old, const uchar *record);
  bool is_null_in(const terrace::Link &link, const uchar *record) const;
  bool is_own_parent(const terrace::Link &link, const uchar *record);
  bool rebuilds(TABLE *altered, const Alter_inplace_info *info, const terrace::ColumnChange &columns,
                const terrace::RowLayouts &layouts) const;
  int counter_after(ulonglong wanted, uint64_t *counter);
  bool can_rebuild(TABLE *altered, Alter_inplace_info *info, const terrace::ColumnChange &columns) const;
  template <class Each>
  int32_t for_each_new_entry(terrace::Alter_context *context, const terrace_batch &batch, Each each);
  bool layouts_after(const terrace::ColumnChange &columns, TABLE *altered, terrace::RowLayouts *layouts) const;
  uint kept_key(TABLE *altered, const Alter_inplace_info *info, uint number, const terrace::ColumnChange &columns,
                const terrace::KeyCodec *primary) const;
  int32_t alter_round(terrace::Alter_context *context, bool last);

  terrace_table *m_table= nullptr;
  std::shared_ptr<terrace::Writers> m_writers;
  ha_table_option_struct *m_shared_options= nullptr;    // those of the definition that all share who open the table
  engine_option_value *m_shared_list= nullptr;
  mutable std::unique_ptr<terrace::Foreign, terrace::ForeignDeleter> m_foreign;
  mutable ulonglong m_foreign_generation= 0;
  terrace::AwaitedParents m_awaited;    // of rows of m_load
  std::string m_foreign_said;           // what the last error of a foreign key is about
  const terrace::ForeignKey *m_follows= nullptr; // the rows at hand are changed because of their parent, by this foreign key
  bool m_cascaded= false;               // the row at hand has changed rows of other tables
  bool m_one_by_one= false;             // cascades may change rows that the scan comes to: none is read ahead
  bool m_all_empty= false;              // of a table's first partition: none had rows when ALTER asked
  bool m_changed= false;                // the statement has changed a row
  bool m_in_use= false;                 // the session counts it among its tables
  terrace_load *m_load= nullptr;        // the table is being filled in bulk
  terrace_load *m_retired_load= nullptr; // it has failed, and the error's text is made of its row
  ha_rows m_load_after= 0;              // rows until those that come then are sorted before they are inserted; 0: never
  size_t m_load_share= 1;               // loads that the statement may have
  bool m_load_within= false;            // by the session's transaction; otherwise no other session knows the table
  bool m_copies= false;                 // the table is a copy that no other session knows, and is being filled
  bool m_load_waits= false;             // it begins with the first row
  bool m_load_scattered= false;         // rows come in several orders, one after the other
  bool m_refilled= false;               // the table is a new partition, in a change of partitions
  ulonglong m_load_counter= 0;          // where the auto-increment counter will be after it
  std::string m_name;
  bool m_hidden= false;                 // no primary key
  bool m_cuts= false;                   // long values are cut in keys
  bool m_entry_has_position= true;
  uint m_row_length_min= 1;
  terrace::RowCodec m_row;
  terrace::KeyCodec m_primary;          // if there is a primary key
  std::vector<terrace::KeyCodec> m_indexes;

  terrace::Statistics *m_statistics= nullptr;
  terrace::Session *m_session= nullptr;
  uint32_t m_lock= TERRACE_LOCK_NONE, m_stored_lock= TERRACE_LOCK_NONE;
  bool m_lock_type_write= false, m_skip_locked= false;
  bool m_semi_wanted= false, m_semi_read= false; // the row last returned is a committed version, not locked
  terrace_txn *m_own_read= nullptr;     // of a sequence's reads: it sees what is committed now
  std::optional<terrace::Heard> m_own_read_heard;

  terrace_cursor *m_cursor= nullptr;
  /* Closed, but the BLOBs of the last row read point into its buffer until the next row or the statement's end. */
  terrace_cursor *m_retired= nullptr;
  uint m_tree= 0;
  bool m_scan= false;
  bool m_scan_ended= false;             // a table scan came to its end
  terrace_rows m_batch= {};
  const terrace_hole *m_batch_hole= nullptr;    // those of the next row of the batch
  size_t m_batch_at= 0;
  uint m_batch_left= 0, m_steps= 0;
  uint32_t m_batch_want= TERRACE_WANT_ROW;
  uint32 m_batch_first= 0;              // with TERRACE_WANT_START
  Direction m_direction= NOWHERE;
  static const int REJECTED= -1;        // no error of the server's
  std::vector<std::unique_ptr<CutRun>> m_cut_runs; // those that the scan is in, each within one of the one before
  terrace::Bytes m_cut_unit;            // what all entries of the innermost one's current unit begin with
  std::unique_ptr<CutRun> m_cut_kept;   // the outermost that was gathered last, while nothing can have changed
  terrace::Bytes m_cut_image;           // the last read's bound, of which a part is cut, as the server gave it
  key_part_map m_cut_parts= 0;
  size_t m_cut_confined= 0, m_cut_confined_next= 0; // bytes of the range's start, up to a cut part's end, that its end has, too
  bool m_any_order= false;              // the statement takes them in any
  bool m_looks= false;                  // a row is read to see what its entry's cut parts are
  bool m_bare= false;                   // the scan has met an entry that lacks texts: from there on it reads rows
  bool m_judges_rows= false;            // one of the batch's entries was too bare to be judged
  bool m_at_cursor= false;              // the row last unpacked is where the cursor stands, or in the batch before it
  Row m_current;
  terrace::KeyCodec::Extent m_judged;   // how much of an entry is decoded to judge it
  terrace::KeyCodec::Extent m_extent;   // of the index's entries, for the columns that were last asked for
  terrace::Bytes m_extent_of;           // these columns
  uint m_extent_index= MAX_KEY;
  terrace::Bytes m_prefix;              // of the last exact read
  terrace::Bytes m_key;
  terrace::Bytes m_position;            // primary key of the row last returned
  terrace::Bytes m_compared[2];         // of two positions, what their keys' order is told by
  bool m_prefix_set= false;
  Gap m_gap= ON_ROW;
  terrace::Bytes m_end;                 // where the range being read ends: the first key that isn't in it
  bool m_ends= false;                   // there is such an end
  bool m_in_range= false;               // what is read is of the range that m_end is of, whether it ends the engine's read or not
  bool m_ends_next= false, m_in_range_next= false;  // the next read is the first of the range that has it
  DsMrr_impl m_multi_range;

  ulonglong m_auto_rows= 0;             // rows of this statement for which numbers were last asked, not yet written
  int m_auto_error= 0;                  // why get_auto_increment has none, if the server has no error of its own for it
  ulonglong m_series_offset= 0, m_series_step= 1;   // with which values were last taken through this handler
  ulonglong m_counter_past= 0;          // auto-increment values below were taken by this statement, or before it
  uint m_duplicate_index= MAX_KEY;      // of the last HA_ERR_FOUND_DUPP_KEY
  std::vector<terrace_span> m_spans;    // of m_row_bytes, if it may have no room in its leaf
  terrace::Bytes m_row_bytes, m_old_row_bytes, m_primary_bytes, m_new_primary_bytes;
  /* The entries of a row, before and after an update. */
  struct Entries
  {
    std::vector<terrace_entry> list;
    terrace::Bytes bytes;
  };
  Entries m_entries[2];
  /* Whether rows are gathered, to be changed together. */
  enum Gathers { NOT, FROM_NEXT_BUT_ONE, FROM_NEXT_ROW, GATHERS } m_gathers= NOT;
  terrace::Bytes m_gathered;            // of terrace_rows_change
  size_t m_gathered_rows= 0;
  bool m_locks_ahead= false;            // the cursor was told that all rows of what is scanned are read
  bool m_range_ahead= false, m_range_ahead_next= false;  // the same, of the range at hand alone
  std::vector<uchar> m_version;         // a record with the transaction's number
  std::vector<Field *> m_of_versions;   // virtual columns that are of the system columns
  bool m_versions_followed= false;      // m_of_versions is known
};

#endif
