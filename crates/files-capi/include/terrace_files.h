/* The C client of `terrace files`: a cache of an object store's files, which the processes of one machine share.
 *
 *   terrace_files *fs;
 *   if (terrace_files_connect(NULL, "s3://bucket", &fs) != TERRACE_FILES_OK)
 *     fprintf(stderr, "%s\n", terrace_files_error());
 *   int64_t got = terrace_files_get(fs, "table/part-0.parquet", 0, buffer, sizeof buffer, NULL);
 *   terrace_files_disconnect(fs);
 *
 * What is cached and fresh is copied from memory that the daemon shares, without a question to it. A connection and its files are for one thread at
 * a time, and for the process that made them: after a fork, connect again.
 *
 * Paths are keys of the store, in UTF-8. A function that can fail returns a code, or a negative code where it otherwise returns a number;
 * terrace_files_error says why. Pointers that are passed in are borrowed for the call. */
#ifndef TERRACE_FILES_H
#define TERRACE_FILES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TERRACE_FILES_OK 0
/* There is no such file. */
#define TERRACE_FILES_ABSENT 1
/* The file changed while it was read, or since it was opened. */
#define TERRACE_FILES_CHANGED 2
/* The store, or the daemon, does not answer. */
#define TERRACE_FILES_UNAVAILABLE 3
/* The store refuses. */
#define TERRACE_FILES_REFUSED 4
/* A limit of the daemon: try later. */
#define TERRACE_FILES_BUSY 5
/* Fix the call. */
#define TERRACE_FILES_INVALID 6
/* The file exists already. */
#define TERRACE_FILES_EXISTS 7
/* The buffer has no room for the file. */
#define TERRACE_FILES_FULL 8
/* A bug in this library. */
#define TERRACE_FILES_PANIC 9

/* Flags of terrace_files_open. */
#define TERRACE_FILES_READ 0
#define TERRACE_FILES_WRITE 1
/* With WRITE: the close fails if the file exists. */
#define TERRACE_FILES_EXCLUSIVE 2

/* A connection. */
typedef struct terrace_files terrace_files;
/* An open file. */
typedef struct terrace_files_file terrace_files_file;

/* What is known of a file. */
typedef struct terrace_files_info {
  uint64_t length;
  /* Ends with a zero byte, and is cut if it is longer. */
  char version[128];
} terrace_files_info;

/* A file of a batch. */
typedef struct terrace_files_item {
  /* TERRACE_FILES_OK, or why it is not in the buffer. */
  int code;
  /* Where it begins in the buffer. */
  size_t offset;
  /* Its length. With TERRACE_FILES_FULL that is the room it needs. */
  size_t size;
} terrace_files_item;

/* Bytes that stay in the shared memory while they are leased. */
typedef struct terrace_files_piece {
  const uint8_t *data;
  size_t size;
} terrace_files_piece;

/* Leased bytes of a file. */
typedef struct terrace_files_lease terrace_files_lease;
/* Files that become visible together. */
typedef struct terrace_files_group terrace_files_group;

/* Text of this thread's last error, which its next failure replaces. Empty if there was none. */
const char *terrace_files_error(void);

/* Connects to the daemon at the socket, or where daemons listen by default if that is null. `target` is the store that it must serve; null: any. */
int terrace_files_connect(const char *socket, const char *target, terrace_files **fs);
/* Ends the connection: files that were not closed are given up, leases end. Null is nothing. Files, leases and groups of it must be closed, released and freed before. */
void terrace_files_disconnect(terrace_files *fs);

/* Opens a file. One that is read stays at the version that it has now; one that is written is visible when it is closed. */
int terrace_files_open(terrace_files *fs, const char *path, int flags, terrace_files_file **file);
/* Reads the next bytes. Returns how many, 0 at the end, or a negative code. */
int64_t terrace_files_read(terrace_files_file *file, void *buffer, size_t size);
/* Reads from an offset, and leaves the position as it is. */
int64_t terrace_files_pread(terrace_files_file *file, void *buffer, size_t size, uint64_t offset);
/* Sets the position of the next read. */
int terrace_files_seek(terrace_files_file *file, uint64_t offset);
/* The position: bytes read or written so far. */
uint64_t terrace_files_tell(const terrace_files_file *file);
/* Appends to a file that is written. */
int terrace_files_write(terrace_files_file *file, const void *buffer, size_t size);
/* Closes a file. One that is written is in the store when this returns TERRACE_FILES_OK; after a failure nothing of it is visible. */
int terrace_files_close(terrace_files_file *file);
/* Closes a file. One that is written is given up: nothing of it is visible. */
void terrace_files_abandon(terrace_files_file *file);

/* Begins a group: its files are written without waiting for the store, and a commit makes all of them visible, or none. Groups need a daemon with flash. */
int terrace_files_group_begin(terrace_files *fs, terrace_files_group **group);
/* Goes on with a group after the daemon was started again, by its name. */
int terrace_files_group_resume(terrace_files *fs, const char *name, terrace_files_group **group);
/* The name, by which a group is resumed; the group's, as long as that is not freed. */
const char *terrace_files_group_name(const terrace_files_group *group);
/* Opens a file of the group; the flags are WRITE, or WRITE and EXCLUSIVE. Its close returns when the daemon keeps the file, and makes nothing visible. */
int terrace_files_group_open(terrace_files_group *group, const char *path, int flags, terrace_files_file **file);
/* Makes all files visible, and waits until the store has them. If one fails, all are taken back, and the error says why. `count` is null, or is given their
 * number. Fails with TERRACE_FILES_INVALID, and the group goes on, while files of it are open. */
int terrace_files_group_commit(terrace_files_group *group, uint64_t *count);
/* Removes what is kept of the group. */
int terrace_files_group_abort(terrace_files_group *group);
/* Frees the handle; a group that was neither committed nor aborted is aborted. Null is nothing. */
void terrace_files_group_free(terrace_files_group *group);

/* Copies bytes of a file into the buffer, all of one version. Returns how many: fewer than `size` only at the file's end; or a negative code. `length`
 * is null, or is given the file's length. */
int64_t terrace_files_get(terrace_files *fs, const char *path, uint64_t offset, void *buffer, size_t size, uint64_t *length);
/* Leases bytes of a file where they are, in `*count` pieces: at most `size` bytes from `offset`, and at most as many as the daemon leases at a time. The
 * pieces are the lease's and hold until it is released. */
int terrace_files_lease_get(terrace_files *fs, const char *path, uint64_t offset, uint64_t size, terrace_files_lease **lease,
                            const terrace_files_piece **pieces, size_t *count);
/* Ends a lease. Null is nothing. */
void terrace_files_lease_release(terrace_files_lease *lease);

/* Brings whole files into the daemon's memory. `codes` is null, or is given a code for each. Fails only if the daemon cannot be asked. */
int terrace_files_prefetch(terrace_files *fs, const char *const *paths, size_t count, int *codes);
/* Copies whole files into the buffer, one behind the other in the order in which they come: what is cached first, then the others, fetched in parallel.
 * `items` has `count` entries, which say where each file is. Fails only if the daemon cannot be asked. */
int terrace_files_batch_read(terrace_files *fs, const char *const *paths, size_t count, void *buffer, size_t size, terrace_files_item *items);

/* What is known of a file. */
int terrace_files_stat(terrace_files *fs, const char *path, terrace_files_info *info);
/* Calls `each` for every file below the folder, which may be empty, until it returns something else than 0. */
int terrace_files_list(terrace_files *fs, const char *folder, int (*each)(void *context, const char *path, uint64_t length), void *context);
/* Deletes a file; one that does not exist is no error. */
int terrace_files_delete(terrace_files *fs, const char *path);
/* Deletes every file below the folder. `count` is null, or is given their number. */
int terrace_files_delete_prefix(terrace_files *fs, const char *folder, uint64_t *count);

/* Memory objects: results that programs of this machine hand to each other, written once and read by many where they are. */

/* A new object of `size` bytes, which are written at `*data` until it is sealed. Up to 8 MiB, or if `at_once` is not 0 as it will be read soon, it is made
 * in memory; a larger one on flash, if the daemon has some. Given up if the connection ends before it is sealed. */
int terrace_files_create_object(terrace_files *fs, const char *name, size_t size, int at_once, uint8_t **data);
/* From now on the bytes do not change, may not be written, and all may get them. */
int terrace_files_seal_object(terrace_files *fs, const char *name);
/* A sealed object, whose bytes stay at `*data` until it is released; waits for it for at most `timeout_ms`, then fails with TERRACE_FILES_ABSENT. `size` is
 * null, or is given its length. */
int terrace_files_get_object(terrace_files *fs, const char *name, uint64_t timeout_ms, const uint8_t **data, size_t *size);
/* Ends one get of that name. */
int terrace_files_release_object(terrace_files *fs, const char *name);
/* The name is free at once; readers keep the bytes until they release them. */
int terrace_files_delete_object(terrace_files *fs, const char *name);

#ifdef __cplusplus
}
#endif

#endif
