/* The names of Gopher's client interface, as programs use them that were written for it, on terrace_files.h.
 *
 * Differences: the store is the daemon's, so a configuration names the socket only and where the store is, to be checked; block sizes are the daemon's;
 * gopherCloseFile of a file that was written waits until the store has it, whatever `sync` says. Files that are written asynchronously are opened in a
 * group (gopherBegin, gopherOpenFileIn); gopherCommit waits for all of them, and makes them visible together. */
#ifndef TERRACE_GOPHER_H
#define TERRACE_GOPHER_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "terrace_files.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef terrace_files *gopherFS;
typedef terrace_files_file *gopherFile;
typedef terrace_files_group *gopherGroup;
typedef int32_t tSize;
typedef int64_t tOffset;

typedef struct gopherConfig {
  /* The daemon's socket; null: where it listens by default. */
  const char *connect_path;
  /* The store, as s3://bucket; null: any. */
  const char *target;
} gopherConfig;

typedef struct gopherFileInfo {
  int64_t mLength;
} gopherFileInfo;

/* Flags of gopherOpenFile. */
enum { GOPHER_READ = 0, GOPHER_WRITE = 1, GOPHER_EXCLUSIVE = 2 };

/* Keys of a store have no slash in front. */
static inline const char *gopherKey(const char *path) {
  while (path != NULL && *path == '/') path++;
  return path;
}

static inline const char *gopherGetLastError(void) { return terrace_files_error(); }

static inline gopherFS gopherConnect(gopherConfig config) {
  gopherFS fs = NULL;
  return terrace_files_connect(config.connect_path, config.target, &fs) == TERRACE_FILES_OK ? fs : NULL;
}

static inline int gopherDisconnect(gopherFS fs) {
  terrace_files_disconnect(fs);
  return 0;
}

static inline gopherFile gopherOpenFile(gopherFS fs, const char *path, int flag, tOffset block_size) {
  gopherFile file = NULL;
  (void)block_size;
  return terrace_files_open(fs, gopherKey(path), flag, &file) == TERRACE_FILES_OK ? file : NULL;
}

static inline int gopherCloseFile(gopherFS fs, gopherFile file, bool sync) {
  (void)fs;
  (void)sync;
  return terrace_files_close(file) == TERRACE_FILES_OK ? 0 : -1;
}

/* A group of files that are written asynchronously: closing one does not wait for the store. */
static inline gopherGroup gopherBegin(gopherFS fs) {
  gopherGroup group = NULL;
  return terrace_files_group_begin(fs, &group) == TERRACE_FILES_OK ? group : NULL;
}

static inline gopherFile gopherOpenFileIn(gopherGroup group, const char *path, int flag) {
  gopherFile file = NULL;
  return terrace_files_group_open(group, gopherKey(path), flag, &file) == TERRACE_FILES_OK ? file : NULL;
}

/* Waits until the store has all files of the group, which become visible together; after a failure none is. The group is freed. */
static inline int gopherCommit(gopherGroup group) {
  int code = terrace_files_group_commit(group, NULL);
  terrace_files_group_free(group);
  return code == TERRACE_FILES_OK ? 0 : -1;
}

/* Gives the files of the group up, and frees it. */
static inline int gopherAbort(gopherGroup group) {
  int code = terrace_files_group_abort(group);
  terrace_files_group_free(group);
  return code == TERRACE_FILES_OK ? 0 : -1;
}

static inline tSize gopherRead(gopherFS fs, gopherFile file, void *buffer, tSize length) {
  int64_t got;
  (void)fs;
  if (length < 0) return -1;
  got = terrace_files_read(file, buffer, (size_t)length);
  return got < 0 ? -1 : (tSize)got;
}

static inline tSize gopherWrite(gopherFS fs, gopherFile file, const void *buffer, tSize length) {
  (void)fs;
  if (length < 0) return -1;
  return terrace_files_write(file, buffer, (size_t)length) == TERRACE_FILES_OK ? length : -1;
}

static inline int gopherSeek(gopherFS fs, gopherFile file, tOffset position) {
  (void)fs;
  if (position < 0) return -1;
  return terrace_files_seek(file, (uint64_t)position) == TERRACE_FILES_OK ? 0 : -1;
}

static inline tOffset gopherTell(gopherFS fs, gopherFile file) {
  (void)fs;
  return (tOffset)terrace_files_tell(file);
}

static inline int gopherPrefetch(gopherFS fs, int num, const char **fileList) {
  return num >= 0 && terrace_files_prefetch(fs, fileList, (size_t)num, NULL) == TERRACE_FILES_OK ? 0 : -1;
}

/* The files one behind the other in the order of the list. Returns their bytes, or -1 if any cannot be read or does not fit into `size` bytes. */
static inline int64_t gopherBatchRead(gopherFS fs, int num, const char **fileList, void *buffer, size_t size) {
  size_t at = 0;
  int i;
  if (num < 0 || gopherPrefetch(fs, num, fileList) != 0) return -1;
  for (i = 0; i < num; i++) {
    uint64_t length = 0;
    int64_t got = terrace_files_get(fs, gopherKey(fileList[i]), 0, (char *)buffer + at, size - at, &length);
    if (got < 0 || (uint64_t)got != length) return -1;
    at += (size_t)got;
  }
  return (int64_t)at;
}

static inline gopherFileInfo *gopherGetFileInfo(gopherFS fs, const char *path) {
  terrace_files_info info;
  gopherFileInfo *found;
  if (terrace_files_stat(fs, gopherKey(path), &info) != TERRACE_FILES_OK) return NULL;
  found = (gopherFileInfo *)malloc(sizeof *found);
  if (found != NULL) found->mLength = (int64_t)info.length;
  return found;
}

static inline void gopherFreeFileInfo(gopherFileInfo *info) { free(info); }

static inline int gopherDeletePath(gopherFS fs, const char *path, int recursive) {
  path = gopherKey(path);
  return (recursive ? terrace_files_delete_prefix(fs, path, NULL) : terrace_files_delete(fs, path)) == TERRACE_FILES_OK ? 0 : -1;
}

static inline int gopherCreateObject(gopherFS fs, const char *object_id, int64_t data_size, char **data) {
  uint8_t *bytes = NULL;
  if (data_size < 0 || terrace_files_create_object(fs, object_id, (size_t)data_size, 1, &bytes) != TERRACE_FILES_OK) return -1;
  *data = (char *)bytes;
  return 0;
}

static inline int gopherSealObject(gopherFS fs, const char *object_id) {
  return terrace_files_seal_object(fs, object_id) == TERRACE_FILES_OK ? 0 : -1;
}

static inline int gopherGetObject(gopherFS fs, const char *object_id, int64_t timeout_ms, const char **data) {
  const uint8_t *bytes = NULL;
  uint64_t wait = timeout_ms < 0 ? 0 : (uint64_t)timeout_ms;
  if (terrace_files_get_object(fs, object_id, wait, &bytes, NULL) != TERRACE_FILES_OK) return -1;
  *data = (const char *)bytes;
  return 0;
}

static inline int gopherReleaseObject(gopherFS fs, const char *object_id) {
  return terrace_files_release_object(fs, object_id) == TERRACE_FILES_OK ? 0 : -1;
}

static inline int gopherDeleteObject(gopherFS fs, const char *object_id) {
  return terrace_files_delete_object(fs, object_id) == TERRACE_FILES_OK ? 0 : -1;
}

#ifdef __cplusplus
}
#endif

#endif
