/* The contracts of terrace.h, one after the other. Prints the line that fails and exits with 1. */
#include "terrace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define EXPECT(condition)                                                                                  \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, terrace_db_error()); \
      exit(1);                                                                                             \
    }                                                                                                      \
  } while (0)
#define OK(call) EXPECT((call) == TERRACE_DB_OK)
#define T(text) TERRACE_DB_TEXT(text)

static int is(terrace_db_bytes bytes, const char *text) { return bytes.size == strlen(text) && memcmp(bytes.data, text, bytes.size) == 0; }
static int holds(const terrace_db_buffer *value, const char *text) { return is(terrace_db_bytes_of(value->data, value->size), text); }

static void of_trees(terrace_db *db, terrace_db_tree *tree) {
  terrace_db_buffer value = {0};
  EXPECT(terrace_db_get(tree, T("a"), &value) == TERRACE_DB_NONE && value.size == 0);
  OK(terrace_db_put(tree, T("a"), T("1")));
  OK(terrace_db_get(tree, T("a"), &value));
  EXPECT(holds(&value, "1"));
  EXPECT(terrace_db_insert(tree, T("a"), T("2")) == TERRACE_DB_NONE);
  OK(terrace_db_insert(tree, T("b"), T("2")));
  EXPECT(terrace_db_delete(tree, T("c")) == TERRACE_DB_NONE);
  /* Any byte, empty keys and values, and a null pointer for no bytes. */
  OK(terrace_db_put(tree, terrace_db_bytes_of("\0\xff", 2), terrace_db_bytes_of(NULL, 0)));
  OK(terrace_db_get(tree, terrace_db_bytes_of("\0\xff", 2), &value));
  EXPECT(value.size == 0);
  OK(terrace_db_put(tree, terrace_db_bytes_of(NULL, 0), T("empty")));
  OK(terrace_db_get(tree, T(""), &value));
  EXPECT(holds(&value, "empty"));
  uint64_t deleted = 0;
  terrace_db_bounds bounds = {terrace_db_bytes_of("", 0), T("a"), 0};
  OK(terrace_db_delete_range(tree, &bounds, &deleted));
  EXPECT(deleted == 2);
  /* A large value, and that a buffer is used again. */
  size_t size = 3u << 20;
  char *large = malloc(size);
  EXPECT(large != NULL);
  memset(large, 'x', size);
  OK(terrace_db_put(tree, T("large"), terrace_db_bytes_of(large, size)));
  OK(terrace_db_get(tree, T("large"), &value));
  EXPECT(value.size == size && memcmp(value.data, large, size) == 0);
  OK(terrace_db_get(tree, T("b"), &value));
  EXPECT(holds(&value, "2"));
  OK(terrace_db_delete(tree, T("large")));
  free(large);
  terrace_db_buffer_free(&value);
  EXPECT(value.data == NULL && value.size == 0 && value.capacity == 0);
  terrace_db_buffer_free(&value);
  OK(terrace_db_delete_range(tree, NULL, NULL));
  EXPECT(terrace_db_get(tree, T("b"), &value) == TERRACE_DB_NONE);
  OK(terrace_db_sync(db));
}

static void of_ranges(terrace_db_tree *tree) {
  const char *keys[] = {"a", "b", "c/1", "c/2", "d"};
  for (size_t at = 0; at < 5; at++) OK(terrace_db_put(tree, T(keys[at]), T(keys[at])));
  struct {
    const char *low, *high;
    uint32_t flags;
    const char *keys;
  } cases[] = {
      {"a", "c/1", 0, "a b "},
      {"a", "c/1", TERRACE_DB_LOW_EXCLUDED, "b "},
      {"a", "c/1", TERRACE_DB_HIGH_INCLUDED, "a b c/1 "},
      {NULL, "b", 0, "a "},
      {"c/2", NULL, 0, "c/2 d "},
      {"x", "a", 0, ""},
  };
  for (size_t at = 0; at < sizeof cases / sizeof *cases; at++) {
    terrace_db_bounds bounds = {{0}, {0}, cases[at].flags};
    if (cases[at].low) bounds.low = T(cases[at].low);
    if (cases[at].high) bounds.high = T(cases[at].high);
    terrace_db_range *range;
    OK(terrace_db_range_open(tree, &bounds, &range));
    char found[64] = "";
    terrace_db_bytes key, value;
    while (terrace_db_range_next(range, &key, &value) == TERRACE_DB_OK) {
      EXPECT(key.size == value.size && memcmp(key.data, value.data, key.size) == 0);
      strncat(found, (const char *)key.data, key.size);
      strcat(found, " ");
    }
    EXPECT(strcmp(found, cases[at].keys) == 0);
    EXPECT(terrace_db_range_next(range, NULL, NULL) == TERRACE_DB_NONE);
    terrace_db_range_close(range);
  }
  terrace_db_range *range;
  terrace_db_bytes key;
  OK(terrace_db_prefix(tree, T("c/"), &range));
  OK(terrace_db_range_prev(range, &key, NULL));
  EXPECT(is(key, "c/2"));
  OK(terrace_db_range_next(range, &key, NULL));
  EXPECT(is(key, "c/1"));
  EXPECT(terrace_db_range_prev(range, &key, NULL) == TERRACE_DB_NONE);
  terrace_db_range_close(range);
  terrace_db_bounds wrong = {{0}, {0}, 8};
  EXPECT(terrace_db_range_open(tree, &wrong, &range) == TERRACE_DB_INVALID && range == NULL);
  OK(terrace_db_delete_range(tree, NULL, NULL));
}

static void of_transactions(terrace_db *db, terrace_db_tree *tree) {
  terrace_db_buffer value = {0};
  terrace_db_txn *one, *other;
  terrace_db_range *range;
  uint64_t deleted;
  size_t first, second;

  OK(terrace_db_begin(db, TERRACE_DB_SNAPSHOT, &one));
  OK(terrace_db_txn_put(one, tree, T("a"), T("1")));
  OK(terrace_db_txn_savepoint(one, &first));
  OK(terrace_db_txn_put(one, tree, T("b"), T("2")));
  OK(terrace_db_txn_savepoint(one, &second));
  EXPECT(terrace_db_txn_insert(one, tree, T("b"), T("3")) == TERRACE_DB_NONE);
  OK(terrace_db_txn_rollback_to(one, first));
  EXPECT(terrace_db_txn_rollback_to(one, second) == TERRACE_DB_INVALID && strstr(terrace_db_error(), "savepoint 2"));
  EXPECT(terrace_db_txn_get(one, tree, T("b"), &value) == TERRACE_DB_NONE);
  OK(terrace_db_txn_insert(one, tree, T("c"), T("4")));
  OK(terrace_db_txn_delete(one, tree, T("c")));
  OK(terrace_db_txn_put(one, tree, T("d"), T("5")));
  OK(terrace_db_txn_delete_range(one, tree, &(terrace_db_bounds){T("d"), {0}, 0}, &deleted));
  EXPECT(deleted == 1);
  EXPECT(terrace_db_get(tree, T("a"), &value) == TERRACE_DB_NONE);
  OK(terrace_db_txn_prefix(one, tree, T("a"), &range));
  OK(terrace_db_range_next(range, NULL, NULL));
  OK(terrace_db_txn_commit(one, TERRACE_DB_WAIT));
  /* A range of a transaction that has ended. */
  EXPECT(terrace_db_range_next(range, NULL, NULL) == TERRACE_DB_INVALID && strstr(terrace_db_error(), "has ended"));
  terrace_db_range_close(range);
  OK(terrace_db_get(tree, T("a"), &value));

  /* A conflict. */
  OK(terrace_db_begin(db, TERRACE_DB_SNAPSHOT, &one));
  OK(terrace_db_txn_get(one, tree, T("a"), &value));
  OK(terrace_db_put(tree, T("a"), T("others")));
  EXPECT(terrace_db_txn_put(one, tree, T("a"), T("mine")) == TERRACE_DB_CONFLICT);
  EXPECT(terrace_db_txn_put(one, tree, T("z"), T("mine")) == TERRACE_DB_CONFLICT);
  EXPECT(terrace_db_txn_commit(one, TERRACE_DB_WAIT) == TERRACE_DB_CONFLICT);
  EXPECT(terrace_db_get(tree, T("z"), &value) == TERRACE_DB_NONE);

  /* A lock wait that times out leaves the transaction usable. */
  OK(terrace_db_begin(db, TERRACE_DB_SERIALIZABLE, &one));
  OK(terrace_db_txn_get_for_update(one, tree, T("a"), &value));
  OK(terrace_db_begin(db, TERRACE_DB_SNAPSHOT, &other));
  EXPECT(terrace_db_txn_put(other, tree, T("a"), T("waits")) == TERRACE_DB_CONFLICT);
  OK(terrace_db_txn_put(other, tree, T("e"), T("6")));
  OK(terrace_db_txn_commit(other, TERRACE_DB_WRITTEN));
  OK(terrace_db_txn_range(one, tree, NULL, &range));
  OK(terrace_db_range_prev(range, NULL, NULL));
  terrace_db_range_close(range);
  OK(terrace_db_txn_rollback(one));

  EXPECT(terrace_db_begin(db, 7, &one) == TERRACE_DB_INVALID && one == NULL);
  OK(terrace_db_begin(db, TERRACE_DB_SNAPSHOT, &one));
  OK(terrace_db_txn_put(one, tree, T("rolled back"), T("")));
  EXPECT(terrace_db_txn_commit(one, 7) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_get(tree, T("rolled back"), &value) == TERRACE_DB_NONE);
  terrace_db_buffer_free(&value);
}

static void of_batches_and_snapshots(terrace_db *db, terrace_db_tree *tree) {
  terrace_db_tree *second;
  terrace_db_batch *batch;
  terrace_db_snapshot *snapshot;
  terrace_db_buffer value = {0};
  OK(terrace_db_tree_open(db, "second", &second));
  OK(terrace_db_put(tree, T("old"), T("old")));
  OK(terrace_db_snapshot_open(db, &snapshot));
  OK(terrace_db_batch_new(&batch));
  OK(terrace_db_batch_delete_range(batch, tree, NULL));
  OK(terrace_db_batch_put(batch, tree, T("x"), T("1")));
  OK(terrace_db_batch_put(batch, second, T("y"), T("2")));
  OK(terrace_db_batch_delete(batch, second, T("none")));
  EXPECT(terrace_db_batch_len(batch) == 4);
  OK(terrace_db_write(db, batch, TERRACE_DB_NO_WAIT));
  OK(terrace_db_write(db, batch, TERRACE_DB_WAIT));
  EXPECT(terrace_db_write(db, batch, -1) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_get(tree, T("old"), &value) == TERRACE_DB_NONE);
  OK(terrace_db_get(second, T("y"), &value));
  OK(terrace_db_snapshot_get(snapshot, tree, T("old"), &value));
  EXPECT(holds(&value, "old"));
  EXPECT(terrace_db_snapshot_get(snapshot, second, T("y"), &value) == TERRACE_DB_NONE);
  terrace_db_range *range, *of_prefix;
  terrace_db_bytes key;
  OK(terrace_db_snapshot_range(snapshot, tree, &(terrace_db_bounds){T("o"), T("p"), 0}, &range));
  OK(terrace_db_snapshot_prefix(snapshot, tree, T("x"), &of_prefix));
  terrace_db_snapshot_close(snapshot);
  OK(terrace_db_range_next(range, &key, NULL));
  EXPECT(is(key, "old"));
  EXPECT(terrace_db_range_next(of_prefix, NULL, NULL) == TERRACE_DB_NONE);
  terrace_db_range_close(range);
  terrace_db_range_close(of_prefix);
  EXPECT(terrace_db_drop_tree(db, "second") == TERRACE_DB_BUSY);
  terrace_db_batch_clear(batch);
  EXPECT(terrace_db_batch_len(batch) == 0);
  terrace_db_batch_free(batch);
  terrace_db_tree_close(second);
  OK(terrace_db_drop_tree(db, "second"));
  EXPECT(terrace_db_drop_tree(db, "second") == TERRACE_DB_NOT_FOUND);
  EXPECT(terrace_db_find_tree(db, "second", &second) == TERRACE_DB_NONE && second == NULL);
  terrace_db_buffer_free(&value);
}

static void of_wrong_calls(terrace_db *db, terrace_db_tree *tree, const char *path) {
  terrace_db_buffer value = {0};
  terrace_db *second;
  terrace_db_tree *none;
  EXPECT(terrace_db_open(path, &second) == TERRACE_DB_BUSY && second == NULL);
  EXPECT(terrace_db_open(NULL, &second) == TERRACE_DB_INVALID && strstr(terrace_db_error(), "path"));
  EXPECT(terrace_db_open("\xff", &second) == TERRACE_DB_INVALID && strstr(terrace_db_error(), "UTF-8"));
  EXPECT(terrace_db_open(path, NULL) == TERRACE_DB_INVALID);
  terrace_db_setting wrong[] = {{"memery", "1G"}, {"flash", "1G"}};
  EXPECT(terrace_db_open_with(path, wrong, 2, &second) == TERRACE_DB_INVALID);
  EXPECT(strstr(terrace_db_error(), "memery") && strstr(terrace_db_error(), "flash_path"));
  EXPECT(terrace_db_open_with(path, NULL, 1, &second) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_tree_open(db, "", &none) == TERRACE_DB_INVALID && none == NULL);
  EXPECT(terrace_db_tree_open(NULL, "a", &none) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_get(NULL, T("a"), &value) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_get(tree, T("a"), NULL) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_put(tree, terrace_db_bytes_of(NULL, 1), T("")) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_put(tree, terrace_db_bytes_of("a", SIZE_MAX), T("")) == TERRACE_DB_INVALID);
  char key[4000];
  memset(key, 'k', sizeof key);
  EXPECT(terrace_db_put(tree, terrace_db_bytes_of(key, sizeof key), T("")) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_range_next(NULL, NULL, NULL) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_trees(db, NULL, NULL) == TERRACE_DB_INVALID);
  EXPECT(terrace_db_approximate_len(NULL) == 0 && terrace_db_batch_len(NULL) == 0);
  /* Freeing functions accept null. */
  terrace_db_tree_close(NULL);
  terrace_db_range_close(NULL);
  terrace_db_snapshot_close(NULL);
  terrace_db_batch_free(NULL);
  terrace_db_batch_clear(NULL);
  terrace_db_buffer_free(NULL);
  OK(terrace_db_txn_rollback(NULL));
  OK(terrace_db_close(NULL));
  EXPECT(terrace_db_txn_commit(NULL, TERRACE_DB_WAIT) == TERRACE_DB_INVALID);
}

static int note_name(void *context, const char *name) {
  strcat(context, name);
  strcat(context, " ");
  return strcmp(name, "counters") == 0 ? 1 : 0;
}

struct counting {
  terrace_db *db;
  terrace_db_tree *tree;
};

static void *count(void *argument) {
  struct counting *counting = argument;
  terrace_db_buffer value = {0};
  for (int done = 0; done < 25;) {
    terrace_db_txn *txn;
    OK(terrace_db_begin(counting->db, TERRACE_DB_SNAPSHOT, &txn));
    int code = terrace_db_txn_get_for_update(txn, counting->tree, T("count"), &value);
    unsigned char next = code == TERRACE_DB_OK ? value.data[0] + 1 : 1;
    if (code == TERRACE_DB_OK || code == TERRACE_DB_NONE) code = terrace_db_txn_put(txn, counting->tree, T("count"), terrace_db_bytes_of(&next, 1));
    if (code == TERRACE_DB_OK) {
      code = terrace_db_txn_commit(txn, TERRACE_DB_NO_WAIT);
    } else {
      terrace_db_txn_rollback(txn);
    }
    EXPECT(code == TERRACE_DB_OK || code == TERRACE_DB_CONFLICT);
    if (code == TERRACE_DB_OK) done++;
  }
  terrace_db_buffer_free(&value);
  return NULL;
}

int main(int argc, char **argv) {
  EXPECT(argc == 2);
  terrace_db *db;
  terrace_db_tree *tree, *counters;
  const terrace_db_setting settings[] = {{"memory", "16M"}, {"log", "4M"}, {"lock_wait_timeout_ms", "1000"}};
  OK(terrace_db_open_with(argv[1], settings, 3, &db));
  OK(terrace_db_tree_open(db, "first", &tree));
  of_trees(db, tree);
  of_ranges(tree);
  of_transactions(db, tree);
  of_batches_and_snapshots(db, tree);
  of_wrong_calls(db, tree, argv[1]);

  OK(terrace_db_tree_open(db, "counters", &counters));
  struct counting counting = {db, counters};
  pthread_t threads[4];
  for (int at = 0; at < 4; at++) EXPECT(pthread_create(&threads[at], NULL, count, &counting) == 0);
  for (int at = 0; at < 4; at++) EXPECT(pthread_join(threads[at], NULL) == 0);
  terrace_db_buffer value = {0};
  OK(terrace_db_get(counters, T("count"), &value));
  EXPECT(value.data[0] == 100);
  char names[64] = "";
  OK(terrace_db_trees(db, note_name, names));
  EXPECT(strcmp(names, "counters ") == 0);

  /* Handles may be freed in any order: the last one closes the instance. */
  terrace_db_range *range;
  OK(terrace_db_range_open(counters, NULL, &range));
  terrace_db_tree_close(tree);
  terrace_db_tree_close(counters);
  EXPECT(terrace_db_close(db) == TERRACE_DB_BUSY);
  OK(terrace_db_range_next(range, NULL, NULL));
  terrace_db_range_close(range);
  OK(terrace_db_open_with(argv[1], settings, 2, &db));
  OK(terrace_db_find_tree(db, "counters", &counters));
  EXPECT(terrace_db_get(counters, T("count"), &value) == TERRACE_DB_OK && value.data[0] == 100);
  terrace_db_buffer_free(&value);
  terrace_db_tree_close(counters);
  OK(terrace_db_close(db));
  puts("every contract holds");
  return 0;
}
