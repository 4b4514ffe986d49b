#ifndef TERRACE_H
#define TERRACE_H

/* Generated from crates/sql by its test `header`. Don't edit. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#define TERRACE_VALUE_NULL 0

#define TERRACE_VALUE_NUMBER 1

#define TERRACE_VALUE_REAL 2

#define TERRACE_VALUE_TEXT 3

// A table's name as it was given when the table was created.
#define TERRACE_VALUE_TABLE 4

// Milliseconds since 1970, in `number`.
#define TERRACE_VALUE_TIME 5

// At most this many rows of `locks` are shown.
#define TERRACE_LOCKS_SEEN_MAX 100000

// What is numbered, by `terrace_observed_name`: places that bytes go to and come from; what is waited for beside them; what memory
// is for; mutexes and read-write locks.
#define TERRACE_OBSERVED_PLACES 0

#define TERRACE_OBSERVED_WAITS 1

#define TERRACE_OBSERVED_MEMORY 2

#define TERRACE_OBSERVED_MUTEXES 3

#define TERRACE_OBSERVED_RWLOCKS 4

// There are no more of a kind.
#define TERRACE_OBSERVED_MAX 64

// What a thread waits for: a mutex, or a read-write lock to share it or to have it alone.
#define TERRACE_WANTED_MUTEX 0

#define TERRACE_WANTED_SHARED 1

#define TERRACE_WANTED_EXCLUSIVE 2

// Operations of a transfer; deletions and lists are the object store's.
#define TERRACE_OPERATION_READ 0

#define TERRACE_OPERATION_WRITE 1

#define TERRACE_OPERATION_SYNC 2

#define TERRACE_OPERATION_DELETE 3

#define TERRACE_OPERATION_LIST 4

// What an observer keeps of an event from its begin to its end, in bytes; aligned to 16.
#define TERRACE_NOTE_BYTES 128

// What a call returns. 0 and 1 are no errors.
enum TERRACE
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  TERRACE_OK = 0,
  // No such row, or no further row. Not an error.
  TERRACE_NO_ROW = 1,
  // A unique index has the key already; `terrace_error_index` tells which index.
  TERRACE_DUPLICATE = 2,
  TERRACE_LOCK_TIMEOUT = 3,
  // The transaction was chosen to end a deadlock; it must be rolled back.
  TERRACE_DEADLOCK = 4,
  // No such table, transaction or savepoint.
  TERRACE_ABSENT = 5,
  TERRACE_EXISTS = 6,
  // A key or row is larger than the engine stores.
  TERRACE_TOO_LARGE = 7,
  // A tier is unreachable for now; the call may be tried later.
  TERRACE_UNAVAILABLE = 8,
  // Out of room on the volume or in the object buffer.
  TERRACE_FULL = 9,
  // Bytes on a tier are not what was written; the message names tier, space and page.
  TERRACE_CORRUPT = 10,
  // An earlier failure (a sync that failed) forbids further writing; close and open again.
  TERRACE_POISONED = 11,
  // The call itself is wrong.
  TERRACE_INVALID = 12,
  // `terrace_txn_cancel` ended the wait.
  TERRACE_CANCELLED = 13,
  TERRACE_TOO_MANY_LOCKS = 14,
  // A bug: the library panicked. The message says where.
  TERRACE_PANIC = 15,
  // The volume or the table is in use by another process or session.
  TERRACE_BUSY = 16,
  // The transaction's view is older than an index of the table: it must be started again to use it.
  TERRACE_CHANGED = 17,
  // An object is not in the object store, where it should be; the message names page and object.
  TERRACE_MISSING = 18,
  // Strict snapshots: a row to lock is newer than what the transaction sees; it must be rolled back.
  TERRACE_ROW_CHANGED = 19,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE TERRACE;
#else
typedef int32_t TERRACE;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

enum TERRACE_ISOLATION
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  TERRACE_ISOLATION_READ_UNCOMMITTED = 0,
  TERRACE_ISOLATION_READ_COMMITTED = 1,
  TERRACE_ISOLATION_REPEATABLE_READ = 2,
  TERRACE_ISOLATION_SERIALIZABLE = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE_ISOLATION TERRACE_ISOLATION;
#else
typedef uint32_t TERRACE_ISOLATION;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// How rows are locked that a read returns.
enum TERRACE_LOCK
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Not at all: a consistent read.
  TERRACE_LOCK_NONE = 0,
  TERRACE_LOCK_SHARED = 1,
  TERRACE_LOCK_EXCLUSIVE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE_LOCK TERRACE_LOCK;
#else
typedef uint32_t TERRACE_LOCK;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Where to go.
enum TERRACE_SEEK
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The first key ≥ the given one.
  TERRACE_SEEK_AT_LEAST = 0,
  // The first key > the given one.
  TERRACE_SEEK_AFTER = 1,
  // The last key ≤ the given one.
  TERRACE_SEEK_AT_MOST = 2,
  // The last key < the given one.
  TERRACE_SEEK_BEFORE = 3,
  TERRACE_SEEK_FIRST = 4,
  TERRACE_SEEK_LAST = 5,
  // The next row after the cursor's.
  TERRACE_SEEK_NEXT = 6,
  // The row before the cursor's.
  TERRACE_SEEK_PREVIOUS = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE_SEEK TERRACE_SEEK;
#else
typedef uint32_t TERRACE_SEEK;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a batch holds beside each entry's key.
enum TERRACE_WANT
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // The row, whichever index the cursor is in.
  TERRACE_WANT_ROW = 0,
  // What the index itself holds: the entry's own value; in the primary index the row.
  TERRACE_WANT_ENTRY = 1,
  // As `Row`; but of a row that has no room in its leaf only the first bytes (`terrace_fetch.first_bytes`), or nothing.
  // Every other row is whole, and none of these is empty.
  TERRACE_WANT_START = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE_WANT TERRACE_WANT;
#else
typedef uint32_t TERRACE_WANT;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a filter says of an entry.
enum TERRACE_VERDICT
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Not this one; on to the next.
  TERRACE_VERDICT_SKIP = 0,
  // Its row is wanted.
  TERRACE_VERDICT_KEEP = 1,
  // Nothing is wanted from here on.
  TERRACE_VERDICT_END = 2,
  // The call ends with `TERRACE_CANCELLED`.
  TERRACE_VERDICT_CANCEL = 3,
  // It is no entry of this index; the call ends with `TERRACE_CORRUPT`.
  TERRACE_VERDICT_DAMAGED = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum TERRACE_VERDICT TERRACE_VERDICT;
#else
typedef int32_t TERRACE_VERDICT;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A table's change under way. Freed by `terrace_alter_close`; without a commit the table stays as it was.
typedef struct terrace_alter terrace_alter;

// Ends waits from another thread: a transaction's, or those of a thread that says for how long. Freed by `terrace_cancel_close`.
typedef struct terrace_cancel terrace_cancel;

// A copy that is being made in the background. Freed by `terrace_copy_finish` or `terrace_copy_discard`.
typedef struct terrace_copy terrace_copy;

// A position in one index. Freed by `terrace_cursor_close`, before its transaction.
typedef struct terrace_cursor terrace_cursor;

// An open engine. Freed by `terrace_engine_close`.
typedef struct terrace_engine terrace_engine;

// A table under its first filling. Freed by `terrace_load_close`.
typedef struct terrace_load terrace_load;

// A savepoint. Freed by `terrace_savepoint_close`.
typedef struct terrace_savepoint terrace_savepoint;

// A time in which a thread's waits can be cancelled. Ended by `terrace_scope_end`, on that thread.
typedef struct terrace_scope terrace_scope;

// An open table. Freed by `terrace_table_close`.
typedef struct terrace_table terrace_table;

// A commit on its way to the volume. Freed by `terrace_ticket_wait` or `terrace_ticket_close`.
typedef struct terrace_ticket terrace_ticket;

// A transaction. Ended by `terrace_txn_commit` or `terrace_txn_rollback`, then freed by `terrace_txn_close`.
typedef struct terrace_txn terrace_txn;

// Borrowed bytes. `data` may be null when `len` is 0.
typedef struct {
  const uint8_t *data;
  size_t len;
} terrace_bytes;

// How to open an engine.
typedef struct {
  // Size of this struct.
  size_t size;
  // The configuration file's text (TOML); may be empty.
  terrace_bytes config;
  // TOML too; what stands here goes before what stands in `config`.
  terrace_bytes overrides;
} terrace_open_options;

// One counter of `terrace_engine_status`.
typedef void (*terrace_status_fn)(void *context, terrace_bytes name, uint64_t value);

// Whether to give up; asked every few milliseconds.
typedef bool (*terrace_stop_fn)(void *context);

// A lock wait: the waiting owner, and the owner it waits for.
typedef void (*terrace_wait_fn)(void *waiter, void *holder);

// One note of `terrace_engine_notes`. Both texts are borrowed for the callback.
typedef void (*terrace_note_fn)(void *context, terrace_bytes name, terrace_bytes text);

// One state of `terrace_engine_troubles`. `severity`: 1: the instance does with less for a while; 2: a person must act. The texts are borrowed for
// the callback.
typedef void (*terrace_trouble_fn)(void *context,
                                   terrace_bytes name,
                                   uint8_t severity,
                                   terrace_bytes text);

// Where the pages of one space live. `table` and `index` are borrowed for the callback.
typedef struct {
  size_t size;
  uint32_t space;
  terrace_bytes table;
  terrace_bytes index;
  uint64_t pages;
  uint64_t memory;
  uint64_t flash;
  uint64_t volume;
  uint64_t object;
} terrace_space;

typedef void (*terrace_space_fn)(void *context, const terrace_space *space);

// The requests of one purpose to one tier, since the start. The texts are borrowed for the callback; latencies are
// in microseconds, queueing included.
typedef struct {
  size_t size;
  // `volume`, `flash` or `object`.
  terrace_bytes tier;
  terrace_bytes purpose;
  uint64_t requests;
  // Bytes of the requests that succeeded.
  uint64_t bytes;
  uint64_t errors;
  // Attempts beyond a request's first.
  uint64_t retries;
  uint64_t mean;
  // Known to about an eighth.
  uint64_t p50;
  uint64_t p99;
} terrace_requests;

typedef void (*terrace_requests_fn)(void *context, const terrace_requests *requests);

// Rows that a session has read and changed.
typedef struct {
  uint64_t read;
  uint64_t inserted;
  uint64_t updated;
  uint64_t deleted;
} terrace_row_counts;

// How many entries of how many are built, or bytes are copied; false ends it with `TERRACE_CANCELLED`.
typedef bool (*terrace_progress_fn)(void *context, uint64_t entries, uint64_t all);

// One index of a definition. The first is the primary one: it holds the rows.
typedef struct {
  size_t size;
  terrace_bytes name;
  bool unique;
} terrace_index_definition;

// A table to be created.
typedef struct {
  size_t size;
  terrace_bytes name;
  const terrace_index_definition *indexes;
  size_t index_count;
  // Kept for the caller, never looked at.
  terrace_bytes properties;
  // It ends with the process: unlogged, and in no tier that lasts. It is not listed by `terrace_table_list`.
  bool temporary;
} terrace_table_definition;

// What becomes of a table. The names may be the same.
typedef struct {
  terrace_bytes from;
  terrace_bytes to;
  terrace_bytes properties;
} terrace_redefined;

typedef void (*terrace_table_fn)(void *context, terrace_bytes name, terrace_bytes properties);

// What is roughly true of a table.
typedef struct {
  size_t size;
  uint64_t rows;
  // Bytes of the primary tree.
  uint64_t data_bytes;
  // Bytes of all secondary trees.
  uint64_t index_bytes;
  uint64_t pages;
} terrace_estimate;

typedef void (*terrace_key_fn)(void *context, terrace_bytes key);

// A run of a row's bytes that may be kept apart from the row, if its leaf has no room for all of it.
typedef struct {
  uint32_t at;
  uint32_t len;
  // What the caller calls it; below 65536.
  uint32_t name;
} terrace_span;

// An entry of a secondary index.
typedef struct {
  size_t size;
  // The index's place in the table's definition.
  uint32_t index;
  // The index's columns, then the primary key.
  terrace_bytes key;
  // How many bytes of `key` must be unique; all ones if none (not a unique index, or a column is NULL).
  size_t unique_len;
  // Where in `key` the primary key starts.
  size_t primary_at;
  // Returned by reads of this index alone.
  terrace_bytes value;
} terrace_entry;

typedef void (*terrace_xid_fn)(void *context, terrace_bytes xid);

// How to open a cursor.
typedef struct {
  size_t size;
  uint32_t index;
  // A `terrace_lock`.
  uint32_t lock;
  // A long scan: it doesn't push other pages out of memory.
  bool scan;
  // Rows that others have locked are left out instead of waited for.
  bool skip_locked;
  // A locking reader reads all rows up to the end: they may be locked some at a time.
  bool reads_all;
  // Only rows are locked, whatever the isolation level keeps free between them.
  bool rows_alone;
} terrace_cursor_options;

// Judges an entry before its row is read: a `terrace_verdict`. All that is passed is borrowed for the callback, which
// must not use the cursor. `primary_at` is where in the key the primary key starts.
typedef int32_t (*terrace_filter_fn)(void *context,
                                     terrace_bytes key,
                                     uint32_t primary_at,
                                     terrace_bytes value);

// Whether a part of a row that is kept apart from it is wanted. `row` is what is left of the row, `name` what the part's span was
// called. All that is passed is borrowed for the callback, which must not use the cursor.
typedef bool (*terrace_part_fn)(void *context, terrace_bytes row, uint32_t name);

// What to fetch.
typedef struct {
  size_t size;
  // A `terrace_seek`. Further rows of the batch follow in the same direction.
  uint32_t seek;
  // A `terrace_want`.
  uint32_t want;
  terrace_bytes key;
  // Stop after the first row whose key doesn't start with these bytes (that row is not handed over). Empty: never.
  terrace_bytes prefix;
  // As with `prefix`, the first key that is not below these bytes ends a read upward that locks nothing. Empty: none does. For a read
  // that locks: rows from there on are locked when they are asked for, not before.
  terrace_bytes end;
  // Null: every entry is wanted.
  terrace_filter_fn filter;
  // Null: all parts of rows are wanted. Else where others are missing `terrace_rows.first_hole` says.
  terrace_part_fn parts;
  // For the filter, and for `parts`.
  void *context;
  // The maximum number of rows (at least one is tried); a cursor that locks hands over one, or those that were locked with it.
  uint32_t max_rows;
  // No further row is begun once the batch is so large.
  uint32_t max_bytes;
  // With `TERRACE_WANT_START`: this many bytes, or all if the row has fewer. A row with parts that are kept apart is whole except for
  // those parts, unless this is 0.
  uint32_t first_bytes;
} terrace_fetch;

// One of the rows fetched.
typedef struct {
  terrace_bytes key;
  terrace_bytes value;
  // Where in the key the primary key starts.
  uint32_t primary_at;
  // The number of places in which bytes of the value are missing.
  uint32_t holes;
} terrace_row;

// Where a part is missing in a value.
typedef struct {
  uint32_t at;
  // The number of bytes that belong there.
  uint32_t len;
  // What the part's span was called.
  uint32_t name;
} terrace_hole;

// The rows fetched, where they lie.
typedef struct {
  size_t size;
  uint32_t count;
  // As in `terrace_batch`.
  bool ended;
  const terrace_row *first;
  // Those of all rows, one behind the other: see `terrace_row.holes`.
  const terrace_hole *first_hole;
} terrace_rows;

// The rows fetched.
typedef struct {
  size_t size;
  uint32_t rows;
  // Nothing follows: the index ended, or the prefix did. (False doesn't mean that something follows.)
  bool ended;
  terrace_bytes data;
} terrace_batch;

// An index of the table as it is to be.
typedef struct {
  size_t size;
  terrace_bytes name;
  bool unique;
  // The place of the table's index that it is; all ones: it is built. New indexes are counted in their order, from 0.
  uint32_t from;
} terrace_new_index;

// Placement of one index.
typedef struct {
  size_t size;
  terrace_bytes index;
  uint8_t placement;
} terrace_placement;

// Rules of a table. Numbers that are 0 say nothing.
typedef struct {
  size_t size;
  // Bytes of flash that are reserved for the table, and that it may have at most.
  uint64_t flash_min;
  uint64_t flash_max;
  // The same of the object buffer.
  uint64_t buffer_min;
  uint64_t buffer_max;
  // Reads from each tier in a second, and bytes.
  uint64_t flash_iops;
  uint64_t flash_bandwidth;
  uint64_t volume_iops;
  uint64_t volume_bandwidth;
  uint64_t object_iops;
  uint64_t object_bandwidth;
  // The same of writes.
  uint64_t flash_write_iops;
  uint64_t flash_write_bandwidth;
  uint64_t volume_write_iops;
  uint64_t volume_write_bandwidth;
  uint64_t object_write_iops;
  uint64_t object_write_bandwidth;
  // The rule of the table's rows, and of its indexes that have none of their own: 0 default, 1 keep, 2 none.
  uint8_t placement;
  // What its flushes do to flash: 0 as the instance's, 1 auto, 2 clean, 3 dual.
  uint8_t write_policy;
  // Indexes that have one of their own.
  const terrace_placement *indexes;
  size_t index_count;
} terrace_rules;

// What tables have from a commit on: as `terrace_table_set_compression` and `terrace_table_set_rules` say.
typedef struct {
  size_t size;
  terrace_bytes compression;
  terrace_rules rules;
} terrace_table_options;

// One column's value. The text is borrowed for the callback.
typedef struct {
  // One of `TERRACE_VALUE_…`: which of the others counts.
  uint32_t kind;
  uint64_t number;
  double real;
  terrace_bytes text;
} terrace_value;

typedef void (*terrace_row_fn)(void *context, const terrace_value *values, size_t count);

// Writes the beginning of the statement that a connection runs to `text`, up to `max` bytes; returns how many. 0: it is not known.
typedef size_t (*terrace_statement_fn)(uint64_t connection, uint8_t *text, size_t max);

// Called with the rows of a deadlock, `columns` values each, one row behind the other.
typedef void (*terrace_deadlock_fn)(const terrace_value *values, size_t columns, size_t rows);

// Pages that a thread read, and the time until they were in memory, in nanoseconds: see `docs/observability.md`.
typedef struct {
  uint64_t pages_memory;
  uint64_t pages_flash;
  uint64_t pages_volume;
  uint64_t pages_object;
  uint64_t pages_log;
  uint64_t pages_ahead_flash;
  uint64_t pages_ahead_volume;
  uint64_t pages_ahead_object;
  uint64_t pages_ahead_log;
  uint64_t nanos_wait;
  uint64_t nanos_flash;
  uint64_t nanos_volume;
  uint64_t nanos_object;
  uint64_t nanos_log;
} terrace_reads;

typedef void (*terrace_thread_begins_fn)(terrace_bytes name);

typedef void (*terrace_thread_ends_fn)(void);

typedef bool (*terrace_transfer_begins_fn)(uint32_t place,
                                           uint32_t operation,
                                           uint64_t bytes,
                                           void *note);

typedef void (*terrace_transfer_ends_fn)(void *note, uint64_t bytes);

typedef bool (*terrace_wait_begins_fn)(uint32_t wait, void *note);

typedef void (*terrace_wait_ends_fn)(void *note);

typedef bool (*terrace_lock_begins_fn)(uint32_t wanted, uint32_t number, void *note);

typedef void (*terrace_lock_ends_fn)(uint32_t wanted, void *note);

typedef void (*terrace_memory_fn)(uint32_t what, int64_t change);

// Functions that are told of threads, waits and memory; none is null. Each is called on the thread that it is about: one of the
// library's, or one that is in a call. It must not wait, nor call the library.
typedef struct {
  size_t size;
  // A thread of the library's begins, and ends. Names have letters, digits and `_`; several threads may have the same.
  terrace_thread_begins_fn thread_begins;
  terrace_thread_ends_fn thread_ends;
  // Bytes begin to go to a place, or to come: a request, or a batch. `bytes` is 0 if it is not known yet. True: the end is
  // told, on the same thread, with the same note and with the bytes that went or came, 0 if that failed.
  terrace_transfer_begins_fn transfer_begins;
  terrace_transfer_ends_fn transfer_ends;
  // The same for other waits.
  terrace_wait_begins_fn wait_begins;
  terrace_wait_ends_fn wait_ends;
  // The same for the lock `number` that another thread has: one of the names that `wanted` says, `TERRACE_WANTED_…`. It is not
  // told of a lock that is free. Many locks may have one name.
  terrace_lock_begins_fn lock_begins;
  terrace_lock_ends_fn lock_ends;
  // That many bytes more, or fewer if the number is negative.
  terrace_memory_fn memory;
} terrace_observer;

// What holds for one index of a table that has rules, or a compression of its own. The texts are borrowed for the callback.
typedef struct {
  size_t size;
  terrace_bytes table;
  terrace_bytes index;
  uint8_t placement;
  // The table's, as `terrace_table_set_compression` has it; empty: as the instance's.
  terrace_bytes compression;
  // The table's, without its indexes.
  terrace_rules rules;
  // Pages that the table has on flash, as far as they are known to be its.
  uint64_t flash_pages;
  // Slots of the object buffer that it has.
  uint64_t buffer_pages;
  // Reads of the table that waited for their turn, and how long, in microseconds.
  uint64_t waits;
  uint64_t wait_microseconds;
  // The same of changes, builds and large values, for the limits of writes.
  uint64_t write_waits;
  uint64_t write_wait_microseconds;
  // Changed pages that wait for the volume now, and blocks for the store.
  uint64_t pages_held;
  uint64_t blocks_held;
  // Pages and objects written beyond the limit, and pages that flash did not get.
  uint64_t writes_over;
  uint64_t fills_refused;
} terrace_rule_line;

typedef void (*terrace_rule_fn)(void *context, const terrace_rule_line *line);

// Stands before each row of a batch, in the machine's byte order.
typedef struct {
  uint32_t key_len;
  // Where in the key the primary key starts.
  uint32_t primary_at;
  uint32_t value_len;
  uint32_t reserved;
} terrace_row_head;

// Stands before each change of `terrace_rows_change`, in the machine's byte order.
typedef struct {
  // 0 for a row, else the index's place in the table's definition.
  uint32_t index;
  uint32_t key_len;
  // Where in the key the primary key starts.
  uint32_t primary_at;
  // All ones: what is at the key goes, and no value follows.
  uint32_t value_len;
} terrace_change_head;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Copies the text of this thread's last error into `buffer` (at most `capacity` bytes, the last one 0) and returns
// the text's full length. With `capacity` 0 nothing is copied.
size_t terrace_error_message(uint8_t *buffer,
                             size_t capacity);

// The index (its place in the table's definition) that this thread's last `TERRACE_DUPLICATE` was about; all ones if
// the last error was another.
uint32_t terrace_error_index(void);

// Opens the engine: takes the volume's lock, recovers, starts the workers. On an error (every fault of the
// configuration at once) nothing is open and `*out` is null.
int32_t terrace_engine_open(const terrace_open_options *options,
                            terrace_engine **out);

// Shuts down: ends the workers, writes a checkpoint, marks the volume clean. The handle is freed, whatever is
// returned. Transactions that are open are rolled back at the next start.
int32_t terrace_engine_close(terrace_engine *engine);

// Calls `each` with every counter, by name.
int32_t terrace_engine_status(const terrace_engine *engine, terrace_status_fn each, void *context);

// Calls `each` with every setting that is a number, as it is in force; sizes in bytes.
int32_t terrace_engine_settings(const terrace_engine *engine,
                                terrace_status_fn each,
                                void *context);

// Gives `memory`, `flash` or `object_buffer` (a name of `terrace_engine_settings`) another size, in bytes (0: its default), and waits until it has it. After an
// error the old size is in force: the new one is impossible, another resize is under way, nothing has moved for
// `resize_wait_timeout_ms`, or `stop` (may be null) said so.
int32_t terrace_engine_resize(const terrace_engine *engine,
                              terrace_bytes name,
                              uint64_t bytes,
                              terrace_stop_fn stop,
                              void *context);

// Whether from here on reads are answered with durable commits only, and a commit is visible to others when its ticket says so. Not so at the
// start. With `on`, everything committed so far is durable when it returns.
int32_t terrace_engine_set_durable_reads(const terrace_engine *engine,
                                         bool on);

// Whether pages that are built in bulk pass by the log and memory, straight to the volume (they do at the start). It counts for
// what begins from here on.
int32_t terrace_engine_set_bypass(const terrace_engine *engine,
                                  bool on);

// Rows of at least this many bytes bypass the log, too, if bypass is on (64 KiB at the start). Applies to rows from here on.
int32_t terrace_engine_set_bypass_from(const terrace_engine *engine,
                                       uint64_t bytes);

// What becomes of flash copies of pages that are flushed, in tables that do not say it themselves: 1 auto (at the start), 2 clean, 3 dual.
int32_t terrace_engine_set_write_policy(const terrace_engine *engine,
                                        uint8_t policy);

// Calls `on_wait` before each lock wait with the owners (`terrace_txn_set_owner`) of the waiting transaction and of the one it waits for, if both
// have one; the two live as long as the call lasts. It must not call this library. The first call of this function counts.
int32_t terrace_engine_tell_lock_waits(const terrace_engine *engine,
                                       terrace_wait_fn on_wait);

// Calls `each` with what counters can't say: instance, places, and what is wrong. A name that ends in `_trouble`
// is there only while there is trouble.
int32_t terrace_engine_notes(const terrace_engine *engine,
                             terrace_note_fn each,
                             void *context);

// Calls `each` with every state of trouble that lasts: those of `terrace_engine_notes` whose names end in `_trouble`. Of one name there may be several,
// of different severity.
int32_t terrace_engine_troubles(const terrace_engine *engine,
                                terrace_trouble_fn each,
                                void *context);

// Calls `each` with every setting that is a text, as it is in force; of places those that are given.
int32_t terrace_engine_texts(const terrace_engine *engine,
                             terrace_note_fn each,
                             void *context);

// Calls `each` with the sections of a report for people, by name: what the engine does a second since the last call, its history, its log,
// its tiers.
int32_t terrace_engine_report(const terrace_engine *engine,
                              terrace_note_fn each,
                              void *context);

// Calls `each` with every space.
int32_t terrace_engine_spaces(const terrace_engine *engine, terrace_space_fn each, void *context);

// Calls `each` with every purpose of every tier there is.
int32_t terrace_engine_requests(const terrace_engine *engine,
                                terrace_requests_fn each,
                                void *context);

// Adds to the counters of `terrace_engine_status` what a session has counted since it was here last. `session` is any number
// that sessions have for themselves.
int32_t terrace_engine_count_rows(const terrace_engine *engine,
                                  uint64_t session,
                                  const terrace_row_counts *rows);

// Makes every commit so far durable; returns when it is.
int32_t terrace_engine_sync(const terrace_engine *engine);

// Copies the volume into a directory, which is made, or is there and empty. An engine opened there goes on from a moment between the
// call and its return, as after a crash. Commits go on meanwhile. `progress` (may be null) is told of bytes; after an error, `TERRACE_CANCELLED` by
// `progress` among them, what was made is removed. With an object store, a snapshot is recorded there that keeps the objects which the copy names.
int32_t terrace_engine_copy(const terrace_engine *engine,
                            terrace_bytes path,
                            terrace_progress_fn progress,
                            void *context);

// Begins a copy as `terrace_engine_copy` makes one, and goes on with it in the background until its end is asked for. What fails there, `terrace_copy_finish` tells.
int32_t terrace_copy_begin(const terrace_engine *engine,
                           terrace_bytes path,
                           terrace_copy **out);

// Ends the copy: it is of a moment in this call, and durable when it returns. After an error what was made is removed. Frees the handle in any case.
int32_t terrace_copy_finish(terrace_copy *copy,
                            terrace_progress_fn progress,
                            void *context);

// Ends the copy and removes what was made. Null is fine.
void terrace_copy_discard(terrace_copy *copy);

// Creates a table and its empty indexes, durably; opens it if `out` is not null.
int32_t terrace_table_create(const terrace_engine *engine,
                             const terrace_table_definition *definition,
                             terrace_table **out);

int32_t terrace_table_open(const terrace_engine *engine, terrace_bytes name, terrace_table **out);

// Frees the handle; null is fine.
void terrace_table_close(terrace_table *table);

// Drops the table, durably. Handles that are open stay valid to close.
int32_t terrace_table_drop(const terrace_engine *engine, terrace_bytes name);

// As `terrace_table_drop`, and waits for no log: after a crash the table may be there, as it was, to be dropped again.
int32_t terrace_table_drop_unwaited(const terrace_engine *engine,
                                    terrace_bytes name);

int32_t terrace_table_rename(const terrace_engine *engine, terrace_bytes from, terrace_bytes to);

// Gives the table a name, which may be the one that it has, and other properties, in one change. Durable when it returns. What
// handles that are open say of the properties stays.
int32_t terrace_table_redefine(const terrace_engine *engine,
                               terrace_bytes from,
                               terrace_bytes to,
                               terrace_bytes properties);

// Gives tables other names and properties, all of them or none after a crash, as `terrace_table_redefine` does with one.
int32_t terrace_tables_redefine(const terrace_engine *engine,
                                const terrace_redefined *all,
                                size_t count);

// Empties tables, all of them or none after a crash, durably, and sets their counters back. Handles opened before must be closed
// and opened again. Temporary tables are emptied one by one.
int32_t terrace_tables_truncate(const terrace_engine *engine,
                                const terrace_bytes *names,
                                size_t count);

// Views that are open now are too old for the table, whose consistent reads are an error (`TERRACE_CHANGED`): it was made, or emptied, after
// them.
int32_t terrace_table_outdate_views(const terrace_engine *engine,
                                    const terrace_table *table);

// How the table's pages are compressed in objects from now on: `none`, `lz4`, `zstd`, or empty: as the instance's are.
// Durable when it returns.
int32_t terrace_table_set_compression(const terrace_engine *engine,
                                      terrace_bytes name,
                                      terrace_bytes compression);

// Calls `each` with every table's name and properties, temporary ones left out.
int32_t terrace_table_list(const terrace_engine *engine,
                           terrace_table_fn each,
                           void *context);

// Calls `each` with the table's name and properties, without opening it: what it holds may be damaged, or out of reach.
int32_t terrace_table_defined(const terrace_engine *engine,
                              terrace_bytes name,
                              terrace_table_fn each,
                              void *context);

// The properties given at creation; they live as long as the handle.
terrace_bytes terrace_table_properties(const terrace_table *table);

// A number for a row without a key of its own: unique for ever in this table, ascending.
int32_t terrace_table_next_row_id(const terrace_table *table, uint64_t *out);

// The next value of the auto-increment counter (at least 1).
int32_t terrace_table_auto_increment(const terrace_table *table, uint64_t *out);

// Takes `wanted` values `first, first + increment, …` of the form `offset + k × increment` that were not taken before, and moves the
// counter past them, as InnoDB does. Near the end of the type's range `first` may not have this form, and values may be
// above `limit`: the caller checks. Where the counter is above `limit`, `*first` is the counter and `*taken` 0. Values taken and
// not used are gaps.
int32_t terrace_table_auto_increment_take(const terrace_table *table,
                                          uint64_t offset,
                                          uint64_t increment,
                                          uint64_t wanted,
                                          uint64_t limit,
                                          uint64_t *first,
                                          uint64_t *taken);

// Where the auto-increment counter stands when `value` and the `count` - 1 after it in the series are taken; the largest number of all:
// behind the end.
uint64_t terrace_auto_increment_after(uint64_t value,
                                      uint64_t count,
                                      uint64_t offset,
                                      uint64_t increment,
                                      uint64_t limit);

// Moves the auto-increment counter up to `next` at least. Never down.
int32_t terrace_table_auto_increment_raise(const terrace_table *table, uint64_t next);

// What is roughly true now. Cheap; takes no lock.
int32_t terrace_table_estimate(const terrace_table *table, terrace_estimate *out);

// About how many entries of `index` have keys in [`low`, `high`). A null `data` is no bound. `*near` tells whether the
// range is so short that the entries were counted, or nearly so.
int32_t terrace_table_records_in_range(const terrace_table *table,
                                       uint32_t index,
                                       terrace_bytes low,
                                       terrace_bytes high,
                                       uint64_t *out,
                                       bool *near);

// Counts the table's rows anew, or, of a large one, those of some pages: what crashes took of the count is put right.
int32_t terrace_table_recount(const terrace_table *table);

// Hands over the keys, in order, of the entries in one leaf of `index`: the leaf that lies at this fraction (0 to 1) of
// the tree.
int32_t terrace_table_sample(const terrace_table *table,
                             uint32_t index,
                             double fraction,
                             terrace_key_fn each,
                             void *context);

// Walks one index of the table, which others may change meanwhile, from end to end and checks its structure. `TERRACE_CORRUPT` says what is wrong;
// `*entries` is the number of entries that count.
int32_t terrace_table_check(const terrace_table *table,
                            uint32_t index,
                            uint64_t *entries);

// Inserts a row and its entries in secondary indexes. On an error the row is not there. `spans` (null if there are none) are in
// order, and don't touch.
int32_t terrace_row_insert(terrace_txn *txn,
                           const terrace_table *table,
                           terrace_bytes key,
                           terrace_bytes row,
                           const terrace_span *spans,
                           size_t span_count,
                           const terrace_entry *entries,
                           size_t entry_count);

// Replaces the row with this key. `old_entries` and `new_entries` are only those that change. Bytes of a span that the row
// has apart already are not written again.
int32_t terrace_row_update(terrace_txn *txn,
                           const terrace_table *table,
                           terrace_bytes key,
                           terrace_bytes row,
                           const terrace_span *spans,
                           size_t span_count,
                           const terrace_entry *old_entries,
                           size_t old_count,
                           const terrace_entry *new_entries,
                           size_t new_count);

// Deletes the row with this key and its entries.
int32_t terrace_row_delete(terrace_txn *txn,
                           const terrace_table *table,
                           terrace_bytes key,
                           const terrace_entry *entries,
                           size_t entry_count);

// Changes and deletes rows that the transaction has locked, with their entries, as if `terrace_row_update` and `terrace_row_delete` were
// called for each; no new entry must be unique. `changes` has, one behind the other, what becomes of each row and of each of its entries that
// changes: a `terrace_change_head`, the key, then the row or the entry's value, if one is put. On an error nothing is changed.
int32_t terrace_rows_change(terrace_txn *txn,
                            const terrace_table *table,
                            terrace_bytes changes);

// Locks the row with this key as it is now, without reading what it has: `TERRACE_NO_ROW` if there is none, and from REPEATABLE READ on none
// comes then.
int32_t terrace_row_lock(terrace_txn *txn,
                         const terrace_table *table,
                         terrace_bytes key,
                         uint32_t lock);

// Has the pages of an index fetched, side by side, that reads of these keys need and that are not in memory. Advice: it neither waits nor fails. Keys in
// their order ask for no page twice. `index`: 0 is the rows' own.
void terrace_rows_fetch_soon(terrace_txn *txn,
                             const terrace_table *table,
                             uint32_t index,
                             const terrace_bytes *keys,
                             size_t count);

// The table's auto-increment counter is the transaction's until `terrace_row_counter_release`, which has to follow, whatever this returns: a session
// that takes values from it asks `terrace_row_counter_is_locked` and waits here, too.
int32_t terrace_row_counter_lock(terrace_txn *txn,
                                 const terrace_table *table);

void terrace_row_counter_release(terrace_txn *txn, const terrace_table *table);

// Whether a transaction has the table's counter for itself, or waits for it.
bool terrace_row_counter_is_locked(const terrace_table *table);

// Reads the row with this key. `*row` belongs to the transaction and lives until its next `terrace_row_get`.
int32_t terrace_row_get(terrace_txn *txn,
                        const terrace_table *table,
                        terrace_bytes key,
                        uint32_t lock,
                        terrace_bytes *row);

// Starts a transaction. It takes no number and no view before it needs one.
int32_t terrace_txn_begin(const terrace_engine *engine, uint32_t isolation, terrace_txn **out);

// As `terrace_txn_begin`, with the handle of a transaction that was committed or rolled back and whose cursors are closed. Its
// cancel handles are of this one, too, if `*same` is true; else they are of nothing any more.
int32_t terrace_txn_begin_again(terrace_txn *txn,
                                uint32_t isolation,
                                bool *same);

// Whether the transaction was committed or rolled back. If so, its waits are not reported any more.
bool terrace_txn_rest(terrace_txn *txn);

// Frees the handle; rolls back what was neither committed, rolled back nor prepared. What was prepared waits to be
// decided by name. Null is fine.
void terrace_txn_close(terrace_txn *txn);

// A statement starts: an implicit savepoint, and at READ COMMITTED a new view.
int32_t terrace_txn_statement_begin(terrace_txn *txn);

// A statement has ended: at READ COMMITTED its view goes. Cursors are used again after the next `terrace_txn_statement_begin` only.
int32_t terrace_txn_statement_end(terrace_txn *txn);

// Undoes what was done since `terrace_txn_statement_begin`.
int32_t terrace_txn_statement_rollback(terrace_txn *txn);

// Fixes the view of a REPEATABLE READ transaction now (START TRANSACTION WITH CONSISTENT SNAPSHOT).
int32_t terrace_txn_open_view(terrace_txn *txn);

// As `terrace_txn_open_view`, with all that is committed by now: with durable reads it waits until that is durable.
int32_t terrace_txn_open_view_of_all(terrace_txn *txn);

// Whether from now on views hold all that was committed before they are opened, for which they wait. For a replica, which applies what
// follows on it. Not so when the transaction begins.
void terrace_txn_set_views_of_all(terrace_txn *txn,
                                  bool on);

// Whether from now on what the transaction reads is told to the client before the transaction ends; so it is when the transaction begins. With
// durable reads a read under locks then returns when the commits that it has seen are durable. If not, `terrace_txn_settle` waits for them, or
// the commit.
void terrace_txn_set_tells(terrace_txn *txn,
                           bool on);

// With durable reads, waits until the commits that the transaction has seen under locks are durable. Also of one that has ended.
int32_t terrace_txn_settle(terrace_txn *txn);

// How long this transaction waits for a row lock, in milliseconds; 0 is not at all.
int32_t terrace_txn_set_lock_wait(terrace_txn *txn, uint64_t milliseconds);

// From now on, or no longer, the transaction has changed something that its rollback doesn't take back, such as a table of an engine without
// transactions: in a deadlock it is the victim only if all members of the cycle have. Not so when it begins.
void terrace_txn_set_one_way(terrace_txn *txn,
                             bool on);

// From now on, or no longer, the transaction is strict about its view: a row that was changed since the view was opened is not
// locked, `TERRACE_ROW_CHANGED` is returned, and the transaction must be rolled back. Not so when it begins.
void terrace_txn_set_strict(terrace_txn *txn,
                            bool on);

// The owner that the function of `terrace_engine_tell_lock_waits` gets, until `terrace_txn_close` returns.
int32_t terrace_txn_set_owner(terrace_txn *txn,
                              void *owner);

// The connection that runs the transaction, and those that follow in its handle as long as `terrace_txn_begin_again` says that it is the
// same one: by this number they are seen (`terrace_engine_seen`). 0: by none any more.
int32_t terrace_txn_set_connection(terrace_txn *txn,
                                   uint64_t connection);

int32_t terrace_txn_savepoint(terrace_txn *txn, terrace_savepoint **out);

// Undoes everything since the savepoint, which stays valid.
int32_t terrace_txn_rollback_to(terrace_txn *txn, const terrace_savepoint *savepoint);

// Frees the handle; null is fine.
void terrace_savepoint_close(terrace_savepoint *savepoint);

// Commits: others see the changes, with durable reads when the ticket says so. Durable when the ticket says so; `*out` may be null if there is
// nothing to wait for. With `out` null nothing is waited for. On an error the transaction is still open.
int32_t terrace_txn_commit(terrace_txn *txn,
                           terrace_ticket **out);

// As `terrace_txn_commit`, of a transaction that the binary log has, durably: a crash finds it prepared, and commits it. `terrace_ticket_close`
// has then no commit to wait for that is not durable, but those before it in the log.
int32_t terrace_txn_commit_decided(terrace_txn *txn,
                                   terrace_ticket **out);

// Waits until the commit is durable, and frees the ticket, whatever is returned. Null is fine.
int32_t terrace_ticket_wait(terrace_ticket *ticket);

// As `terrace_ticket_wait`, but waits until the operating system has the commit: it survives the end of the process, and the loss of power
// about a second later.
int32_t terrace_ticket_wait_written(terrace_ticket *ticket);

// Frees the ticket without waiting for the volume, but with durable reads until others see the commit; null is fine. A transaction that made changes while
// the object buffer was nearly full waits a moment, as `terrace_ticket_wait` does, too.
void terrace_ticket_close(terrace_ticket *ticket);

// Undoes everything and ends the transaction. After an error of the store, the volume or the log it has ended too, and is undone in the background.
int32_t terrace_txn_rollback(terrace_txn *txn);

// First phase of a two-phase commit, durable when it returns: the transaction outlives a crash under this name until it is
// committed or rolled back, through its handle or by name.
int32_t terrace_txn_prepare(terrace_txn *txn,
                            terrace_bytes xid);

// As `terrace_txn_prepare`, but when it returns the operating system has it, as after `terrace_ticket_wait_written`.
int32_t terrace_txn_prepare_written(terrace_txn *txn,
                                    terrace_bytes xid);

// Gives back what the prepared transaction has locked to read again: gaps between rows, and rows that it shares.
void terrace_txn_release_reads(terrace_txn *txn);

// Calls `each` with the name of every prepared transaction that no handle owns.
int32_t terrace_prepared(const terrace_engine *engine, terrace_xid_fn each, void *context);

// Calls `each` with the name of every table in which a prepared transaction that no handle owns has changes or locks. Those that a
// crash left hold no locks but on what they changed.
int32_t terrace_prepared_tables(const terrace_engine *engine,
                                terrace_xid_fn each,
                                void *context);

// The same of one that a handle owns, beside those that a crash left.
int32_t terrace_txn_tables(const terrace_engine *engine,
                           const terrace_txn *txn,
                           terrace_xid_fn each,
                           void *context);

// Commits a prepared transaction by name, durably. `TERRACE_ABSENT` if there is none. After another error it is prepared
// still, and can be decided again.
int32_t terrace_prepared_commit(const terrace_engine *engine,
                                terrace_bytes xid);

// Rolls a prepared transaction back by name. `TERRACE_ABSENT` if there is none. After another error it is rolled back in the background, and has no
// name any more; or, if none could be undone for the log's sake, it is named still.
int32_t terrace_prepared_rollback(const terrace_engine *engine,
                                  terrace_bytes xid);

// Whether the transaction changed anything so far.
bool terrace_txn_has_changes(const terrace_txn *txn);

// Whether the transaction may hold locks of rows or of gaps, which a rollback to a savepoint doesn't give back.
bool terrace_txn_has_locks(const terrace_txn *txn);

// The number by which the transaction's versions of rows are known; with it the transaction has changes. `*number` is below those
// of transactions that get theirs later, and is never given again. Not InnoDB's numbers, which are below 2^48: the server keeps both in
// one registry.
int32_t terrace_txn_number(const terrace_txn *txn,
                           uint64_t *number);

// As `terrace_txn_number` a number that no transaction has: above those given by now, below those to come. For the commit.
int32_t terrace_txn_number_after(const terrace_txn *txn,
                                 uint64_t *number);

// A handle by which another thread can end this transaction's waits.
int32_t terrace_txn_cancel_handle(const terrace_txn *txn, terrace_cancel **out);

// The wait the transaction is in, and every later one, ends with `TERRACE_CANCELLED`, until its next
// `terrace_txn_statement_begin`; or that which the thread is in, until `terrace_cancel_clear`. Safe beside everything else.
void terrace_txn_cancel(const terrace_cancel *cancel);

// Frees the handle; null is fine.
void terrace_cancel_close(terrace_cancel *cancel);

// A handle for waits that are no transaction's.
int32_t terrace_cancel_create(terrace_cancel **out);

// A former cancel is over.
void terrace_cancel_clear(const terrace_cancel *cancel);

// What this thread waits for from here on, but in calls for a transaction, can be cancelled.
terrace_scope *terrace_scope_begin(const terrace_cancel *cancel);

// Ends the scope; null is fine.
void terrace_scope_end(terrace_scope *scope);

int32_t terrace_cursor_open(terrace_txn *txn,
                            const terrace_table *table,
                            const terrace_cursor_options *options,
                            terrace_cursor **out);

// Frees the cursor; null is fine.
void terrace_cursor_close(terrace_cursor *cursor);

// Positions and fetches. A row that a filter skips in READ COMMITTED gives its lock back. `TERRACE_NO_ROW` if the first row
// is not there; fewer rows than asked for doesn't mean the end.
int32_t terrace_cursor_fetch_rows(terrace_cursor *cursor,
                                  const terrace_fetch *fetch,
                                  terrace_rows *rows);

// As `terrace_cursor_fetch_rows`, the rows one behind the other in one run of bytes. Their parts are wanted, all of them.
int32_t terrace_cursor_fetch(terrace_cursor *cursor,
                             const terrace_fetch *fetch,
                             terrace_batch *batch);

// From now on, or no longer, a row that another transaction has locked is fetched as it was last committed, and not locked
// (a semi-consistent read, below REPEATABLE READ and in the primary index).
int32_t terrace_cursor_set_semi_consistent(terrace_cursor *cursor,
                                           bool on);

// From now on, or no longer, who reads with locks reads all rows up to the end, or to that of each fetch, and changes none before it is
// fetched: they may be locked some at a time.
int32_t terrace_cursor_set_reads_all(terrace_cursor *cursor,
                                     bool on);

// Whether the row fetched last is a committed version that is not locked.
bool terrace_cursor_is_semi_consistent(const terrace_cursor *cursor);

// Gives back the lock on the row fetched last (READ COMMITTED: the row didn't match).
int32_t terrace_cursor_unlock_last(terrace_cursor *cursor);

// Begins to change a table's indexes. If the first is built, so is each other, of rows that `terrace_alter_add_row` takes. If there are indexes to build, no open
// transaction may have changed rows of the table. `owner` is the session that waits; its cancel handle ends the wait.
int32_t terrace_alter_begin(const terrace_engine *engine,
                            terrace_bytes name,
                            const terrace_new_index *indexes,
                            size_t count,
                            const terrace_txn *owner,
                            terrace_alter **out);

// Frees the handle; null is fine.
void terrace_alter_close(terrace_alter *alter);

// The next rows that are to get entries, about `max_bytes` of them. `TERRACE_NO_ROW` behind the last.
int32_t terrace_alter_rows(terrace_alter *alter,
                           uint32_t max_bytes,
                           terrace_batch *batch);

// Takes entries of a row. `index`: which of the new indexes. `TERRACE_TOO_LARGE` if one does not fit.
int32_t terrace_alter_add(terrace_alter *alter,
                          const terrace_entry *entries,
                          size_t count);

// Builds one of the new indexes of the entries it got. `TERRACE_DUPLICATE`: see `terrace_alter_duplicate`.
int32_t terrace_alter_load(terrace_alter *alter,
                           uint32_t which,
                           terrace_progress_fn progress,
                           void *context);

// Where rows are built: takes a row as it is to be, with its entries, whose `index` is the place of their index. `TERRACE_DUPLICATE`: see
// `terrace_alter_duplicate`.
int32_t terrace_alter_add_row(terrace_alter *alter,
                              terrace_bytes key,
                              terrace_bytes row,
                              const terrace_span *spans,
                              size_t span_count,
                              const terrace_entry *entries,
                              size_t entry_count);

// Where rows are built: builds the trees. `TERRACE_DUPLICATE`: see `terrace_alter_duplicate`.
int32_t terrace_alter_build(terrace_alter *alter, terrace_progress_fn progress, void *context);

// Where rows are built: as `terrace_alter_change`, of one of the round's rows with its entries.
int32_t terrace_alter_change_row(terrace_alter *alter,
                                 bool after,
                                 terrace_bytes key,
                                 terrace_bytes row,
                                 const terrace_span *spans,
                                 size_t span_count,
                                 const terrace_entry *entries,
                                 size_t entry_count);

// The row that the last `TERRACE_DUPLICATE` was about; where rows are built, as it was to be.
int32_t terrace_alter_duplicate(terrace_alter *alter, terrace_batch *batch);

// How many rows changed since the trees were built or the last round began.
uint64_t terrace_alter_behind(const terrace_alter *alter);

// Begins a round over the rows that changed. `last`: no other session uses the table any more.
int32_t terrace_alter_round(terrace_alter *alter, bool last);

// The round's next rows: first, with `after` false, all as they were, whose entries go; then, with `after` true, all as
// they are. `TERRACE_NO_ROW` behind the last of a kind.
int32_t terrace_alter_round_rows(terrace_alter *alter,
                                 bool after,
                                 uint32_t max_bytes,
                                 terrace_batch *batch);

// Takes the entries of one of the round's rows out of the new indexes or, with `after` true, puts them in.
int32_t terrace_alter_change(terrace_alter *alter,
                             bool after,
                             const terrace_entry *entries,
                             size_t count);

int32_t terrace_alter_round_end(terrace_alter *alter);

// The auto-increment counter is `next` from the commit on, down as well. It is past all values that rows have.
void terrace_alter_counter(terrace_alter *alter,
                           uint64_t next);

// Makes the tables what is prepared, all of them or none after a crash, each with its new properties and all with the same
// options (null: those that they have). No other session uses them, and each has had its last round. Durable when it returns. Options that
// `terrace_table_set_rules` would refuse are refused, and nothing has changed; but not for what the tables have already. Other tables
// become what `beside` says in the same change, and keep their names.
int32_t terrace_alter_commit(const terrace_engine *engine,
                             terrace_alter *const *all,
                             const terrace_bytes *properties,
                             size_t count,
                             const terrace_table_options *options,
                             const terrace_redefined *beside,
                             size_t beside_count);

// Begins to fill an empty table (`TERRACE_INVALID` if it is not empty) that no other session knows. It cannot be
// undone: if it fails, or `terrace_load_finish` is not reached, the table is to be dropped. `owner`'s cancel handle ends it.
// `share`: how many such tables the statement fills. If more than one, `TERRACE_INVALID` may say that there is no memory, too: insert
// row by row; and each ends with `terrace_table_filled`. `scattered`: rows in the order of their keys may be followed by ones before them.
int32_t terrace_load_begin(const terrace_engine *engine,
                           const terrace_table *table,
                           const terrace_txn *owner,
                           size_t share,
                           bool scattered,
                           terrace_load **out);

// Begins to fill a table within a transaction, as if `terrace_row_insert` were called for each row: others may use the table
// meanwhile, and see nothing of it before the commit; the transaction itself sees the rows from `terrace_load_finish` on.
// If a call fails, the statement is to be rolled back, after `terrace_load_close`. `share`: how many loads of the statement
// there may be, as of partitions. `TERRACE_INVALID`: the table is not empty, or is indexed anew; insert row by row. `beside`: the
// table may have rows; then rows that come in the order of their keys are inserted at once, all others, and all entries, are sorted
// and come in the end.
int32_t terrace_load_begin_within(const terrace_engine *engine,
                                  const terrace_table *table,
                                  const terrace_txn *txn,
                                  size_t share,
                                  bool beside,
                                  terrace_load **out);

// Takes a row with its entries in all indexes, as `terrace_row_insert` does. `TERRACE_DUPLICATE` may come here or in the end.
int32_t terrace_load_row(terrace_load *load,
                         terrace_bytes key,
                         terrace_bytes row,
                         const terrace_span *spans,
                         size_t span_count,
                         const terrace_entry *entries,
                         size_t count);

// Builds the table of its rows. `progress`, which may be null, is told how many entries of all indexes together are built. `part`: it is
// one of several, and durable by `terrace_table_filled`.
int32_t terrace_load_finish(terrace_load *load,
                            bool part,
                            terrace_progress_fn progress,
                            void *context);

// A table that no other session knew has all its rows, by a load or row by row: older views cannot read it. `durable`: everything
// that such tables were filled with is durable when it returns.
int32_t terrace_table_filled(const terrace_engine *engine,
                             const terrace_table *table,
                             bool durable);

// The row that the last `TERRACE_DUPLICATE` was about.
int32_t terrace_load_duplicate(terrace_load *load, terrace_batch *batch);

// Frees the handle; null is fine.
void terrace_load_close(terrace_load *load);

// Calls `each` with every row of one of these tables: `index_statistics`, `table_statistics`,
// `miss_ratio_curve`, `advice`, `metrics`, `transactions`, `locks`, `lock_waits`, `last_deadlock`.
int32_t terrace_engine_seen(const terrace_engine *engine,
                            terrace_bytes name,
                            terrace_row_fn each,
                            void *context);

// From now on `transactions` and `last_deadlock` have statements: `statement_of` is called with the connections of
// `terrace_txn_set_connection`, by a thread that looks at the tables or that has found a deadlock. It must not wait, nor call this library. The
// first call of this function counts.
int32_t terrace_engine_ask_statements(const terrace_engine *engine,
                                      terrace_statement_fn statement_of);

// From now on `on_deadlock` is called with each deadlock, in rows as those of `last_deadlock`; null: it is not any more. A thread that waits for a
// lock and has found the deadlock calls it: it must not call this library.
int32_t terrace_engine_tell_deadlocks(const terrace_engine *engine,
                                      terrace_deadlock_fn on_deadlock);

// What the calling thread has read since its last call of this function, through any engine.
terrace_reads terrace_reads_take(void);

// Sets the process's observer: once, before an engine is opened. Without one nothing is observed.
int32_t terrace_observe(const terrace_observer *observer);

// The name of what an observer is told by its number, `kind` being one of `TERRACE_OBSERVED_…`; empty behind the last. It lives for ever.
terrace_bytes terrace_observed_name(uint32_t kind,
                                    uint32_t number);

// The table has these rules from now on: durable when it returns, and in force. Rules that contradict one another, or that
// guarantee more than there is, are refused with words that name both, and nothing has changed; but not for what the table
// `instead_of` has already, whose place this one is to take (empty: none).
int32_t terrace_table_set_rules(const terrace_engine *engine,
                                terrace_bytes name,
                                const terrace_rules *rules,
                                terrace_bytes instead_of);

// Calls `each` with every index of every table that has rules, or a compression of its own.
int32_t terrace_engine_rules(const terrace_engine *engine, terrace_rule_fn each, void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TERRACE_H */
