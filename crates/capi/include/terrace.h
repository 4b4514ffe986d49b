/*
 * Terrace, embedded: ordered trees of bytes with transactions, in one process, without a server.
 *
 *   terrace_db *db;
 *   terrace_db_tree *users;
 *   if (terrace_db_open("/srv/app.db", &db) || terrace_db_tree_open(db, "users", &users)) {
 *     fprintf(stderr, "%s\n", terrace_db_error());
 *     ...
 *   }
 *   terrace_db_put(users, TERRACE_DB_TEXT("ada"), TERRACE_DB_TEXT("1815"));
 *
 * Codes. Every function that returns `int` returns a code: TERRACE_DB_OK, TERRACE_DB_NONE (no error: the key or pair does not exist, or the key to insert
 * exists), or an error, whose text terrace_db_error() returns. A call that fails changes nothing, except where its comment says so.
 *
 * Handles. Each kind of handle has one function that frees it, to be called once; that function accepts a null pointer. A function that makes a handle sets
 * the caller's pointer to null if it fails. Handles may be freed in any order: each keeps the instance open. Any other function that is given a null
 * handle returns TERRACE_DB_INVALID.
 *
 * Bytes. A terrace_db_bytes that is passed in is read during the call and not kept. A value is copied into a terrace_db_buffer, which the caller owns.
 * Keys have at most 3,500 bytes, values at most 4 GiB; both may be empty and contain any byte.
 *
 * Threads. Instances, trees and snapshots may be used by several threads at the same time. A transaction with its ranges, any other range, a batch and a
 * buffer are used by one thread at a time, any thread.
 *
 * Processes. One process at a time has an instance open. After fork(), the child must not use or free handles of its parent: it calls exec() or _exit(). It
 * inherits the lock of the instance, which stays locked until the child calls exec() or ends, too.
 *
 * No C++ exception and no Rust panic leaves a function: a bug in the library is reported as TERRACE_DB_PANIC.
 */
#ifndef TERRACE_DB_H
#define TERRACE_DB_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Codes ---- */

#define TERRACE_DB_OK 0
/* No error: there is no such key or tree, the range has no further pair, or the key to insert exists. */
#define TERRACE_DB_NONE 1
/* Another transaction was first, a deadlock was resolved, or a lock wait timed out: roll back and run the transaction again. */
#define TERRACE_DB_CONFLICT 2
/* The object store does not answer, or too many locks are held: try later. */
#define TERRACE_DB_UNAVAILABLE 3
/* The log or the volume has no room. */
#define TERRACE_DB_FULL 4
/* Another process has the instance, or a handle is in use. */
#define TERRACE_DB_BUSY 5
/* There is no such tree. */
#define TERRACE_DB_NOT_FOUND 6
/* The call is wrong: the text says what. */
#define TERRACE_DB_INVALID 7
/* Bytes on a device or in the object store are not what was written: run `terrace check`. */
#define TERRACE_DB_CORRUPT 8
/* A write or sync failed: close and open the instance again. */
#define TERRACE_DB_POISONED 9
/* A bug in this library. */
#define TERRACE_DB_PANIC 10

/*
 * The text of this thread's last error, empty if there was none. It is valid until the next call of this library on this thread. A call that
 * succeeds does not clear it.
 */
const char *terrace_db_error(void);

/* ---- Bytes ---- */

typedef struct terrace_db_bytes {
  const uint8_t *data; /* may be null if size is 0 */
  size_t size;
} terrace_db_bytes;

static inline terrace_db_bytes terrace_db_bytes_of(const void *data, size_t size) {
  terrace_db_bytes bytes;
  bytes.data = (const uint8_t *)data;
  bytes.size = size;
  return bytes;
}

/* The characters of a C string, without the zero byte at its end. */
#define TERRACE_DB_TEXT(text) terrace_db_bytes_of((text), strlen(text))

/*
 * A value. Start with a zeroed one: `terrace_db_buffer value = {0};`. Each read reuses its memory. The caller owns it and frees it with
 * terrace_db_buffer_free(), not with free(); it changes no field. `data` may be null if size is 0.
 */
typedef struct terrace_db_buffer {
  uint8_t *data;
  size_t size;
  size_t capacity;
} terrace_db_buffer;

/* Frees the memory and zeroes the buffer, which may then be used again. */
void terrace_db_buffer_free(terrace_db_buffer *buffer);

/* ---- Instances ---- */

typedef struct terrace_db terrace_db;
typedef struct terrace_db_tree terrace_db_tree;
typedef struct terrace_db_txn terrace_db_txn;
typedef struct terrace_db_snapshot terrace_db_snapshot;
typedef struct terrace_db_batch terrace_db_batch;
typedef struct terrace_db_range terrace_db_range;

/* A setting by its name (docs/settings.md; `terrace config` prints all). Sizes may have units: {"memory", "1G"}. */
typedef struct terrace_db_setting {
  const char *name;
  const char *value;
} terrace_db_setting;

/*
 * Opens the instance in a directory, with default settings. It is made if it does not exist, and recovered if it crashed. `path` is UTF-8.
 * BUSY: another process, or another handle of this one, has it open.
 */
int terrace_db_open(const char *path, terrace_db **db);

/* Opens it with settings. INVALID names everything that is wrong with them. */
int terrace_db_open_with(const char *path, const terrace_db_setting *settings, size_t count, terrace_db **db);

/*
 * Frees the handle and closes the instance: every commit is durable, and the next open has nothing to recover. BUSY: the handle is freed, but other
 * handles (trees, transactions, ranges, snapshots, batches with changes) exist; the instance closes when the last of them is freed.
 */
int terrace_db_close(terrace_db *db);

/* Makes all commits so far durable. */
int terrace_db_sync(const terrace_db *db);

/* Is called with the name of a tree, which is valid during the call. Another return value than 0 ends the listing. */
typedef int (*terrace_db_name_fn)(void *context, const char *name);

/* Calls `each` with the name of each tree, in order, on this thread. */
int terrace_db_trees(const terrace_db *db, terrace_db_name_fn each, void *context);

/* Drops a tree and all its pairs, durably. BUSY: a handle of the tree exists, or a transaction that has changed it. NOT_FOUND: there is no such tree. */
int terrace_db_drop_tree(const terrace_db *db, const char *name);

/* ---- Trees ---- */

/* Opens the tree of this name, which is made if it does not exist, durably and outside of any transaction. */
int terrace_db_tree_open(const terrace_db *db, const char *name, terrace_db_tree **tree);

/* Opens the tree of this name. NONE: it does not exist. */
int terrace_db_find_tree(const terrace_db *db, const char *name, terrace_db_tree **tree);

/* Frees a tree's handle. Its data stays. */
void terrace_db_tree_close(terrace_db_tree *tree);

/* An estimate of how many keys the tree has. 0 for a null handle. */
uint64_t terrace_db_approximate_len(const terrace_db_tree *tree);

/* Each of the following calls is a transaction of its own: a change is durable when the call returns. */

/* Copies the value of a key into the buffer. NONE: there is no such key, and the buffer is empty, as after an error. */
int terrace_db_get(const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_buffer *value);

/* Sets a key, whether it exists or not. */
int terrace_db_put(const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_bytes value);

/* Sets a key that does not exist. NONE: it exists and keeps its value. */
int terrace_db_insert(const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_bytes value);

/* Deletes a key. NONE: it did not exist. */
int terrace_db_delete(const terrace_db_tree *tree, terrace_db_bytes key);

/* ---- Ranges ---- */

#define TERRACE_DB_LOW_EXCLUDED 1
#define TERRACE_DB_HIGH_INCLUDED 2

/* The keys from `low` up to, but without, `high`. Null `data`: no bound on that side. `flags` excludes the low key or includes the high key. */
typedef struct terrace_db_bounds {
  terrace_db_bytes low;
  terrace_db_bytes high;
  uint32_t flags;
} terrace_db_bounds;

/* Deletes all keys within the bounds (null: all keys) and stores their number in `deleted`, which may be null. */
int terrace_db_delete_range(const terrace_db_tree *tree, const terrace_db_bounds *bounds, uint64_t *deleted);

/* Opens a range over the keys within the bounds (null: all keys). It sees one state: that of its first step. */
int terrace_db_range_open(const terrace_db_tree *tree, const terrace_db_bounds *bounds, terrace_db_range **range);

/* Opens a range over the keys that start with a prefix. */
int terrace_db_prefix(const terrace_db_tree *tree, terrace_db_bytes prefix, terrace_db_range **range);

/*
 * The next pair from the front of a range, or from its back. Both may be mixed: the ends meet. `key` and `value` may be null; what they point to is valid
 * until the next call with this range. NONE: there is no further pair. After an error the range has ended.
 */
int terrace_db_range_next(terrace_db_range *range, terrace_db_bytes *key, terrace_db_bytes *value);
int terrace_db_range_prev(terrace_db_range *range, terrace_db_bytes *key, terrace_db_bytes *value);

/* Frees a range. An open range keeps the old versions that it sees. */
void terrace_db_range_close(terrace_db_range *range);

/* ---- Durability, chosen at each commit ---- */

/* The call returns when the commit survives a loss of power. Commits at the same time share a sync. */
#define TERRACE_DB_WAIT 0
/* The call returns when the commit survives the end of the process; it survives a loss of power about a second later. */
#define TERRACE_DB_WRITTEN 1
/* The call waits for nothing; the commit survives a loss of power about a second later. */
#define TERRACE_DB_NO_WAIT 2

/* ---- Transactions ---- */

/*
 * Reads see the state of the first read, and the transaction's own changes. To write a key that another transaction has changed since is a CONFLICT. Two
 * transactions may commit that each read what the other writes.
 */
#define TERRACE_DB_SNAPSHOT 0
/* Reads see the newest state and lock what they return, and the gaps between: the result is that of some serial order. */
#define TERRACE_DB_SERIALIZABLE 1

/*
 * Begins a transaction. It is freed by terrace_db_txn_commit() or terrace_db_txn_rollback(). After a CONFLICT, other than a lock wait that timed out, all
 * that can be done is to roll back; run it again from its beginning then.
 */
int terrace_db_begin(const terrace_db *db, int isolation, terrace_db_txn **txn);

/* As terrace_db_get(), in the transaction. */
int terrace_db_txn_get(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_buffer *value);

/* Reads the newest committed value and locks the key, existing or not, until the transaction ends. */
int terrace_db_txn_get_for_update(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_buffer *value);

/* As the functions of trees, in the transaction. They wait for other transactions that have changed the key, up to lock_wait_timeout_ms. */
int terrace_db_txn_put(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_bytes value);
int terrace_db_txn_insert(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_bytes value);
int terrace_db_txn_delete(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes key);
int terrace_db_txn_delete_range(terrace_db_txn *txn, const terrace_db_tree *tree, const terrace_db_bounds *bounds, uint64_t *deleted);

/* Ranges in the transaction. After it has ended, their steps return INVALID; they are still to be freed. */
int terrace_db_txn_range(terrace_db_txn *txn, const terrace_db_tree *tree, const terrace_db_bounds *bounds, terrace_db_range **range);
int terrace_db_txn_prefix(terrace_db_txn *txn, const terrace_db_tree *tree, terrace_db_bytes prefix, terrace_db_range **range);

/* Stores the number of a new savepoint. Numbers of a transaction count from 1. */
int terrace_db_txn_savepoint(terrace_db_txn *txn, size_t *savepoint);

/* Undoes what was changed since the savepoint, which stays; later ones are gone. Locks stay. INVALID: there is no such savepoint. */
int terrace_db_txn_rollback_to(terrace_db_txn *txn, size_t savepoint);

/*
 * Commits, and frees the handle in any case. CONFLICT, INVALID, UNAVAILABLE, FULL: the transaction was rolled back. POISONED: it may be durable or not; the
 * next open decides.
 */
int terrace_db_txn_commit(terrace_db_txn *txn, int durability);

/*
 * Rolls back, and frees the handle in any case. UNAVAILABLE: what is needed to undo a change cannot be read now; it is undone in the background, and its
 * keys stay locked until then.
 */
int terrace_db_txn_rollback(terrace_db_txn *txn);

/* ---- Snapshots ---- */

/* A consistent state of all trees, to read. An open snapshot keeps the old versions that it sees. */
int terrace_db_snapshot_open(const terrace_db *db, terrace_db_snapshot **snapshot);

/* As the functions of trees. A range may outlive its snapshot's handle. */
int terrace_db_snapshot_get(const terrace_db_snapshot *snapshot, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_buffer *value);
int terrace_db_snapshot_range(const terrace_db_snapshot *snapshot, const terrace_db_tree *tree, const terrace_db_bounds *bounds, terrace_db_range **range);
int terrace_db_snapshot_prefix(const terrace_db_snapshot *snapshot, const terrace_db_tree *tree, terrace_db_bytes prefix, terrace_db_range **range);

void terrace_db_snapshot_close(terrace_db_snapshot *snapshot);

/* ---- Write batches ---- */

/* An empty batch: puts and deletes that are written together or not at all, in their order. A batch holds copies of its keys and values. */
int terrace_db_batch_new(terrace_db_batch **batch);

int terrace_db_batch_put(terrace_db_batch *batch, const terrace_db_tree *tree, terrace_db_bytes key, terrace_db_bytes value);
int terrace_db_batch_delete(terrace_db_batch *batch, const terrace_db_tree *tree, terrace_db_bytes key);
int terrace_db_batch_delete_range(terrace_db_batch *batch, const terrace_db_tree *tree, const terrace_db_bounds *bounds);

/* How many changes the batch has. 0 for a null handle. */
size_t terrace_db_batch_len(const terrace_db_batch *batch);

/* Empties the batch; its memory is used again. */
void terrace_db_batch_clear(terrace_db_batch *batch);

void terrace_db_batch_free(terrace_db_batch *batch);

/* Writes a batch, which stays as it is. Conflicts are resolved by trying again. INVALID: a tree of it belongs to another instance. */
int terrace_db_write(const terrace_db *db, const terrace_db_batch *batch, int durability);

#ifdef __cplusplus
}
#endif

#endif
