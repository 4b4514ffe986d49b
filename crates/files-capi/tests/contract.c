/* Uses every function of terrace_files.h and gopher.h against a daemon whose store is empty: `contract SOCKET`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gopher.h"
#include "terrace_files.h"

#define CHECK(what)                                                                              \
  do {                                                                                           \
    if (!(what)) {                                                                               \
      fprintf(stderr, "line %d: %s\n  last error: %s\n", __LINE__, #what, terrace_files_error()); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

enum { LARGE = 20 << 20, MANY = 250, SMALL = 10000 };

static unsigned char at(size_t seed, size_t position) { return (unsigned char)(seed * 31 + position * 7 + position / 256); }

static unsigned char *made(size_t seed, size_t size) {
  unsigned char *bytes = malloc(size + 1);
  size_t i;
  for (i = 0; i < size; i++) bytes[i] = at(seed, i);
  return bytes;
}

static void put(terrace_files *fs, const char *path, size_t seed, size_t size) {
  unsigned char *bytes = made(seed, size);
  terrace_files_file *file;
  CHECK(terrace_files_open(fs, path, TERRACE_FILES_WRITE, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_write(file, bytes, size / 3) == TERRACE_FILES_OK);
  CHECK(terrace_files_write(file, bytes + size / 3, size - size / 3) == TERRACE_FILES_OK);
  CHECK(terrace_files_tell(file) == size);
  CHECK(terrace_files_close(file) == TERRACE_FILES_OK);
  free(bytes);
}

static int same(const unsigned char *bytes, size_t seed, size_t from, size_t size) {
  size_t i;
  for (i = 0; i < size; i++)
    if (bytes[i] != at(seed, from + i)) return 0;
  return 1;
}

static int add(void *context, const char *path, uint64_t length) {
  uint64_t *sum = context;
  CHECK(path[0] != 0);
  *sum += length;
  return 0;
}

static int first(void *context, const char *path, uint64_t length) {
  (void)path;
  (void)length;
  ++*(int *)context;
  return 1;
}

static void files(terrace_files *fs) {
  unsigned char *buffer = malloc(LARGE);
  terrace_files_file *file = NULL;
  terrace_files_info info;
  uint64_t length = 0;
  int i;
  put(fs, "c/large", 1, LARGE);
  put(fs, "c/empty", 2, 0);
  put(fs, "c/small", 3, SMALL);
  CHECK(terrace_files_stat(fs, "c/large", &info) == TERRACE_FILES_OK && info.length == LARGE && info.version[0] != 0);
  for (i = 0; i < 3; i++) { /* First from the store, then from the shared memory. */
    CHECK(terrace_files_get(fs, "c/large", 0, buffer, LARGE, &length) == LARGE && length == LARGE && same(buffer, 1, 0, LARGE));
    CHECK(terrace_files_get(fs, "c/large", (8 << 20) - 5, buffer, 10, NULL) == 10 && same(buffer, 1, (8 << 20) - 5, 10));
    CHECK(terrace_files_get(fs, "c/large", LARGE - 3, buffer, 10, NULL) == 3 && same(buffer, 1, LARGE - 3, 3));
    CHECK(terrace_files_get(fs, "c/large", LARGE + 3, buffer, 10, NULL) == 0);
    CHECK(terrace_files_get(fs, "c/empty", 0, buffer, 10, &length) == 0 && length == 0);
    CHECK(terrace_files_get(fs, "c/small", 0, buffer, LARGE, &length) == SMALL && same(buffer, 3, 0, SMALL));
  }
  CHECK(terrace_files_get(fs, "c/none", 0, buffer, 10, NULL) == -TERRACE_FILES_ABSENT);
  CHECK(strstr(terrace_files_error(), "no such file") != NULL);
  CHECK(terrace_files_get(fs, "../etc/passwd", 0, buffer, 10, NULL) == -TERRACE_FILES_INVALID);
  CHECK(terrace_files_get(fs, NULL, 0, buffer, 10, NULL) == -TERRACE_FILES_INVALID);
  CHECK(terrace_files_get(NULL, "c/small", 0, buffer, 10, NULL) == -TERRACE_FILES_INVALID);
  CHECK(terrace_files_get(fs, "c/small", 0, NULL, 10, NULL) == -TERRACE_FILES_INVALID);

  CHECK(terrace_files_open(fs, "c/small", TERRACE_FILES_READ, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_read(file, buffer, 100) == 100 && terrace_files_tell(file) == 100 && same(buffer, 3, 0, 100));
  CHECK(terrace_files_read(file, buffer, SMALL) == SMALL - 100 && terrace_files_read(file, buffer, 1) == 0);
  CHECK(terrace_files_seek(file, 50) == TERRACE_FILES_OK && terrace_files_read(file, buffer, 5) == 5 && same(buffer, 3, 50, 5));
  CHECK(terrace_files_pread(file, buffer, 7, 1000) == 7 && same(buffer, 3, 1000, 7) && terrace_files_tell(file) == 55);
  CHECK(terrace_files_write(file, buffer, 1) == TERRACE_FILES_INVALID);
  put(fs, "c/small", 4, SMALL);
  CHECK(terrace_files_pread(file, buffer, 7, 0) == -TERRACE_FILES_CHANGED);
  CHECK(terrace_files_close(file) == TERRACE_FILES_OK);

  CHECK(terrace_files_open(fs, "c/none", TERRACE_FILES_READ, &file) == TERRACE_FILES_ABSENT && file == NULL);
  CHECK(terrace_files_open(fs, "c/none", 99, &file) == TERRACE_FILES_INVALID);
  CHECK(terrace_files_open(fs, "c/small", TERRACE_FILES_WRITE | TERRACE_FILES_EXCLUSIVE, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_read(file, buffer, 1) == -TERRACE_FILES_INVALID && terrace_files_seek(file, 1) == TERRACE_FILES_INVALID);
  CHECK(terrace_files_close(file) == TERRACE_FILES_EXISTS);
  CHECK(terrace_files_open(fs, "c/abandoned", TERRACE_FILES_WRITE, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_write(file, buffer, 1000) == TERRACE_FILES_OK);
  terrace_files_abandon(file);
  terrace_files_abandon(NULL);
  CHECK(terrace_files_stat(fs, "c/abandoned", &info) == TERRACE_FILES_ABSENT);
  CHECK(terrace_files_close(NULL) == TERRACE_FILES_INVALID);
  free(buffer);
}

static void leases(terrace_files *fs) {
  const terrace_files_piece *pieces;
  terrace_files_lease *lease;
  size_t count, i, position = 0;
  CHECK(terrace_files_lease_get(fs, "c/large", 5, LARGE, &lease, &pieces, &count) == TERRACE_FILES_OK && count == 3);
  put(fs, "c/large", 9, 100); /* The leased bytes stay what they were. */
  for (i = 0; i < count; i++) {
    CHECK(same(pieces[i].data, 1, 5 + position, pieces[i].size));
    position += pieces[i].size;
  }
  CHECK(position == LARGE - 5);
  terrace_files_lease_release(lease);
  terrace_files_lease_release(NULL);
  CHECK(terrace_files_lease_get(fs, "c/none", 0, 1, &lease, &pieces, &count) == TERRACE_FILES_ABSENT && lease == NULL);
}

static void batches(terrace_files *fs) {
  static char names[MANY][16];
  const char *paths[MANY];
  int codes[MANY];
  terrace_files_item items[MANY];
  size_t size = (size_t)MANY * SMALL;
  unsigned char *buffer = malloc(size);
  uint64_t sum = 0;
  int i, turn, count = 0;
  for (i = 0; i < MANY; i++) {
    sprintf(names[i], "m/%d", i);
    paths[i] = names[i];
    if (i != 7) put(fs, names[i], (size_t)i, SMALL);
  }
  for (turn = 0; turn < 3; turn++) { /* Cold, warm, and warm again after a prefetch. */
    memset(buffer, 0, size);
    CHECK(terrace_files_batch_read(fs, paths, MANY, buffer, size, items) == TERRACE_FILES_OK);
    for (i = 0; i < MANY; i++) {
      CHECK(items[i].code == (i == 7 ? TERRACE_FILES_ABSENT : TERRACE_FILES_OK));
      if (i != 7) CHECK(items[i].size == SMALL && same(buffer + items[i].offset, (size_t)i, 0, SMALL));
    }
    CHECK(terrace_files_prefetch(fs, paths, MANY, codes) == TERRACE_FILES_OK);
    for (i = 0; i < MANY; i++) CHECK(codes[i] == (i == 7 ? TERRACE_FILES_ABSENT : TERRACE_FILES_OK));
  }
  CHECK(terrace_files_batch_read(fs, paths, 5, buffer, 3 * SMALL, items) == TERRACE_FILES_OK);
  for (i = 0; i < 5; i++) {
    count += items[i].code == TERRACE_FILES_OK;
    CHECK(items[i].size == SMALL && (items[i].code == TERRACE_FILES_OK || items[i].code == TERRACE_FILES_FULL));
  }
  CHECK(count == 3);
  CHECK(terrace_files_batch_read(fs, NULL, 0, NULL, 0, NULL) == TERRACE_FILES_OK);
  CHECK(terrace_files_list(fs, "m", add, &sum) == TERRACE_FILES_OK && sum == (uint64_t)(MANY - 1) * SMALL);
  count = 0;
  CHECK(terrace_files_list(fs, "m", first, &count) == TERRACE_FILES_OK && count == 1);
  CHECK(terrace_files_delete(fs, "m/0") == TERRACE_FILES_OK && terrace_files_delete(fs, "m/0") == TERRACE_FILES_OK);
  CHECK(terrace_files_delete_prefix(fs, "m", &sum) == TERRACE_FILES_OK && sum == MANY - 2);
  CHECK(terrace_files_get(fs, "m/1", 0, buffer, 1, NULL) == -TERRACE_FILES_ABSENT);
  free(buffer);
}

static void objects(terrace_files *fs, const char *socket) {
  terrace_files *other;
  uint8_t *data;
  const uint8_t *found;
  size_t size;
  CHECK(terrace_files_connect(socket, NULL, &other) == TERRACE_FILES_OK);
  CHECK(terrace_files_create_object(fs, "o", 1000, 1, &data) == TERRACE_FILES_OK && data != NULL);
  CHECK(terrace_files_create_object(other, "o", 1, 1, &data) == TERRACE_FILES_EXISTS && data == NULL);
  CHECK(terrace_files_delete_object(fs, "o") == TERRACE_FILES_OK);
  CHECK(terrace_files_create_object(fs, "o", 1000, 1, &data) == TERRACE_FILES_OK);
  memset(data, 7, 1000);
  CHECK(terrace_files_get_object(other, "o", 10, &found, &size) == TERRACE_FILES_ABSENT && found == NULL);
  CHECK(terrace_files_seal_object(fs, "o") == TERRACE_FILES_OK && terrace_files_seal_object(fs, "o") == TERRACE_FILES_INVALID);
  CHECK(terrace_files_get_object(other, "o", 1000, &found, &size) == TERRACE_FILES_OK && size == 1000 && found[999] == 7);
  CHECK(terrace_files_delete_object(fs, "o") == TERRACE_FILES_OK && terrace_files_delete_object(fs, "o") == TERRACE_FILES_ABSENT);
  CHECK(found[0] == 7);
  CHECK(terrace_files_release_object(other, "o") == TERRACE_FILES_OK && terrace_files_release_object(other, "o") == TERRACE_FILES_INVALID);
  CHECK(terrace_files_create_object(NULL, "o", 1, 0, &data) == TERRACE_FILES_INVALID);
  CHECK(terrace_files_get_object(fs, NULL, 0, &found, NULL) == TERRACE_FILES_INVALID);
  /* What a connection holds ends with it. */
  CHECK(terrace_files_create_object(other, "p", 10, 0, &data) == TERRACE_FILES_OK);
  terrace_files_disconnect(other);
}

static void put_in(terrace_files_group *group, const char *path, int flags, size_t seed, size_t size) {
  unsigned char *bytes = made(seed, size);
  terrace_files_file *file;
  CHECK(terrace_files_group_open(group, path, flags, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_write(file, bytes, size) == TERRACE_FILES_OK && terrace_files_close(file) == TERRACE_FILES_OK);
  free(bytes);
}

static void groups(terrace_files *fs) {
  unsigned char *buffer = malloc(LARGE);
  terrace_files_group *group = NULL, *other = NULL;
  terrace_files_file *file = NULL;
  uint64_t count = 0, sum = 0;
  char path[32];
  int i;
  CHECK(terrace_files_group_begin(fs, &group) == TERRACE_FILES_OK && strlen(terrace_files_group_name(group)) > 0);
  for (i = 0; i < 100; i++) {
    sprintf(path, "t/%d", i);
    put_in(group, path, TERRACE_FILES_WRITE, (size_t)i, SMALL);
  }
  put_in(group, "t/large", TERRACE_FILES_WRITE | TERRACE_FILES_EXCLUSIVE, 5, LARGE);
  CHECK(terrace_files_list(fs, "t", add, &sum) == TERRACE_FILES_OK && sum == 0);
  CHECK(terrace_files_group_open(group, "t/x", TERRACE_FILES_READ, &file) == TERRACE_FILES_INVALID && file == NULL);
  CHECK(terrace_files_group_open(group, "t/open", TERRACE_FILES_WRITE, &file) == TERRACE_FILES_OK);
  CHECK(terrace_files_group_commit(group, NULL) == TERRACE_FILES_INVALID); /* A file of it is being written. */
  terrace_files_abandon(file);
  CHECK(terrace_files_group_resume(fs, terrace_files_group_name(group), &other) == TERRACE_FILES_OK);
  CHECK(terrace_files_group_commit(other, &count) == TERRACE_FILES_OK && count == 101);
  CHECK(terrace_files_group_commit(other, &count) == TERRACE_FILES_INVALID);
  terrace_files_group_free(other);
  CHECK(terrace_files_group_abort(group) == TERRACE_FILES_INVALID); /* The other handle has ended it. */
  terrace_files_group_free(group);
  terrace_files_group_free(NULL);
  CHECK(terrace_files_get(fs, "t/large", 0, buffer, LARGE, NULL) == LARGE && same(buffer, 5, 0, LARGE));
  CHECK(terrace_files_get(fs, "t/42", 0, buffer, SMALL, NULL) == SMALL && same(buffer, 42, 0, SMALL));
  /* One file of this group must not exist, and does: nothing of the group is visible. */
  CHECK(terrace_files_group_begin(fs, &group) == TERRACE_FILES_OK);
  put_in(group, "t/new", TERRACE_FILES_WRITE, 1, SMALL);
  put_in(group, "t/42", TERRACE_FILES_WRITE | TERRACE_FILES_EXCLUSIVE, 1, SMALL);
  CHECK(terrace_files_group_commit(group, &count) == TERRACE_FILES_EXISTS);
  terrace_files_group_free(group);
  CHECK(terrace_files_get(fs, "t/new", 0, buffer, SMALL, NULL) == -TERRACE_FILES_ABSENT);
  CHECK(terrace_files_get(fs, "t/42", 0, buffer, SMALL, NULL) == SMALL && same(buffer, 42, 0, SMALL));
  CHECK(terrace_files_group_begin(fs, &group) == TERRACE_FILES_OK);
  put_in(group, "t/aborted", TERRACE_FILES_WRITE, 1, SMALL);
  CHECK(terrace_files_group_abort(group) == TERRACE_FILES_OK);
  terrace_files_group_free(group);
  CHECK(terrace_files_group_resume(fs, "12345", &group) == TERRACE_FILES_INVALID && group == NULL);
  CHECK(terrace_files_get(fs, "t/aborted", 0, buffer, SMALL, NULL) == -TERRACE_FILES_ABSENT);
  CHECK(terrace_files_delete_prefix(fs, "t", &count) == TERRACE_FILES_OK && count == 101);
  free(buffer);
}

static void gopher(const char *socket) {
  char *data;
  const char *seen;
  gopherConfig config = {socket, NULL};
  const char *list[2] = {"/g/a", "/g/b"};
  gopherFS fs = gopherConnect(config);
  gopherFile file;
  gopherFileInfo *info;
  char buffer[64];
  int i;
  CHECK(fs != NULL);
  for (i = 0; i < 2; i++) {
    file = gopherOpenFile(fs, list[i], GOPHER_WRITE, 8 << 20);
    CHECK(file != NULL && gopherWrite(fs, file, i ? "second" : "first", i ? 6 : 5) == (i ? 6 : 5));
    CHECK(gopherCloseFile(fs, file, true) == 0);
  }
  file = gopherOpenFile(fs, "/g/b", GOPHER_READ, 8 << 20);
  CHECK(file != NULL && gopherRead(fs, file, buffer, 3) == 3 && memcmp(buffer, "sec", 3) == 0 && gopherTell(fs, file) == 3);
  CHECK(gopherSeek(fs, file, 5) == 0 && gopherRead(fs, file, buffer, 3) == 1 && buffer[0] == 'd');
  CHECK(gopherCloseFile(fs, file, false) == 0);
  /* Paths of a prefetch are keys as they are: a slash in front is refused for each, not for all. */
  list[0] = "g/a";
  list[1] = "g/b";
  CHECK(gopherPrefetch(fs, 2, list) == 0);
  CHECK(gopherBatchRead(fs, 2, list, buffer, sizeof buffer) == 11 && memcmp(buffer, "firstsecond", 11) == 0);
  CHECK(gopherBatchRead(fs, 2, list, buffer, 6) == -1);
  info = gopherGetFileInfo(fs, "/g/a");
  CHECK(info != NULL && info->mLength == 5);
  gopherFreeFileInfo(info);
  {
    gopherGroup group = gopherBegin(fs);
    file = gopherOpenFileIn(group, "/g/c", GOPHER_WRITE);
    CHECK(file != NULL && gopherWrite(fs, file, "third", 5) == 5 && gopherCloseFile(fs, file, false) == 0);
    CHECK(gopherGetFileInfo(fs, "/g/c") == NULL && gopherCommit(group) == 0);
    info = gopherGetFileInfo(fs, "/g/c");
    CHECK(info != NULL && info->mLength == 5);
    gopherFreeFileInfo(info);
    group = gopherBegin(fs);
    file = gopherOpenFileIn(group, "/g/d", GOPHER_WRITE);
    CHECK(file != NULL && gopherCloseFile(fs, file, false) == 0 && gopherAbort(group) == 0 && gopherGetFileInfo(fs, "/g/d") == NULL);
  }
  CHECK(gopherOpenFile(fs, "/g/none", GOPHER_READ, 0) == NULL && strlen(gopherGetLastError()) > 0);
  CHECK(gopherDeletePath(fs, "/g/a", 0) == 0 && gopherDeletePath(fs, "/g", 1) == 0);
  CHECK(gopherGetFileInfo(fs, "/g/b") == NULL);
  CHECK(gopherCreateObject(fs, "result", 5, &data) == 0);
  memcpy(data, "hello", 5);
  CHECK(gopherGetObject(fs, "result", 0, &seen) == -1 && gopherSealObject(fs, "result") == 0);
  CHECK(gopherGetObject(fs, "result", 10, &seen) == 0 && memcmp(seen, "hello", 5) == 0);
  CHECK(gopherReleaseObject(fs, "result") == 0 && gopherDeleteObject(fs, "result") == 0);
  CHECK(gopherDisconnect(fs) == 0);
}

int main(int argc, char **argv) {
  terrace_files *fs;
  CHECK(argc == 2);
  CHECK(terrace_files_connect("/nowhere/socket", NULL, &fs) == TERRACE_FILES_UNAVAILABLE && fs == NULL);
  CHECK(terrace_files_connect(argv[1], "s3://elsewhere", &fs) == TERRACE_FILES_INVALID && fs == NULL);
  CHECK(terrace_files_connect(argv[1], NULL, &fs) == TERRACE_FILES_OK);
  files(fs);
  leases(fs);
  batches(fs);
  objects(fs, argv[1]);
  groups(fs);
  CHECK(terrace_files_delete_prefix(fs, "c", NULL) == TERRACE_FILES_OK);
  terrace_files_disconnect(fs);
  terrace_files_disconnect(NULL);
  gopher(argv[1]);
  puts("every contract holds");
  return 0;
}
