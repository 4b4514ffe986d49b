/*
 * An ordered map on disk: stock of a shop. Moves some of it in a transaction that is run again after a conflict, and lists a range, both ways.
 *
 *   cc ordered_map.c $(pkg-config --cflags --libs terrace) -o ordered_map && ./ordered_map /tmp/shop
 */
#include "terrace.h"

#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the text of an error. Returns TERRACE_DB_OK or TERRACE_DB_NONE. */
static int check(int code) {
  if (code != TERRACE_DB_OK && code != TERRACE_DB_NONE) {
    fprintf(stderr, "error %d: %s\n", code, terrace_db_error());
    exit(1);
  }
  return code;
}

static long number(const terrace_db_buffer *value) {
  char text[24];
  size_t size = value->size < sizeof text - 1 ? value->size : sizeof text - 1;
  if (size > 0) memcpy(text, value->data, size);
  text[size] = 0;
  return strtol(text, NULL, 10);
}

static int put_number(terrace_db_txn *txn, terrace_db_tree *tree, const char *key, long n) {
  char text[24];
  snprintf(text, sizeof text, "%ld", n);
  return terrace_db_txn_put(txn, tree, TERRACE_DB_TEXT(key), TERRACE_DB_TEXT(text));
}

/* One try to move `n` from one key to another. The transaction is open in any case. */
static int try_move(terrace_db_txn *txn, terrace_db_tree *stock, const char *from, const char *to, long n) {
  terrace_db_buffer value = {0};
  int code = terrace_db_txn_get_for_update(txn, stock, TERRACE_DB_TEXT(from), &value);
  long left = number(&value) - n;
  if (code == TERRACE_DB_OK) code = left < 0 ? TERRACE_DB_NONE : put_number(txn, stock, from, left);
  if (code == TERRACE_DB_OK) code = terrace_db_txn_get_for_update(txn, stock, TERRACE_DB_TEXT(to), &value);
  if (code == TERRACE_DB_OK || (code == TERRACE_DB_NONE && left >= 0)) code = put_number(txn, stock, to, number(&value) + n);
  terrace_db_buffer_free(&value);
  return code;
}

/* NONE: there is not so much, and nothing is moved. */
static int move(terrace_db *db, terrace_db_tree *stock, const char *from, const char *to, long n) {
  for (;;) {
    terrace_db_txn *txn;
    check(terrace_db_begin(db, TERRACE_DB_SNAPSHOT, &txn));
    int code = try_move(txn, stock, from, to, n);
    if (code == TERRACE_DB_OK) {
      code = terrace_db_txn_commit(txn, TERRACE_DB_WAIT);
    } else {
      terrace_db_txn_rollback(txn);
    }
    if (code != TERRACE_DB_CONFLICT) return check(code);
  }
}

static void list(terrace_db_range *range, int backward) {
  terrace_db_bytes key, value;
  while (check(backward ? terrace_db_range_prev(range, &key, &value) : terrace_db_range_next(range, &key, &value)) == TERRACE_DB_OK) {
    printf("%.*s = %.*s\n", (int)key.size, (const char *)key.data, (int)value.size, (const char *)value.data);
  }
  terrace_db_range_close(range);
}

int main(int count, char **arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: ordered_map DIRECTORY\n");
    return 2;
  }
  terrace_db *db;
  terrace_db_tree *stock;
  const terrace_db_setting settings[] = {{"memory", "16M"}, {"log", "4M"}};
  check(terrace_db_open_with(arguments[1], settings, 2, &db));
  check(terrace_db_tree_open(db, "stock", &stock));

  terrace_db_batch *batch;
  check(terrace_db_batch_new(&batch));
  check(terrace_db_batch_put(batch, stock, TERRACE_DB_TEXT("shelf/apples"), TERRACE_DB_TEXT("3")));
  check(terrace_db_batch_put(batch, stock, TERRACE_DB_TEXT("store/apples"), TERRACE_DB_TEXT("40")));
  check(terrace_db_batch_put(batch, stock, TERRACE_DB_TEXT("store/pears"), TERRACE_DB_TEXT("7")));
  check(terrace_db_write(db, batch, TERRACE_DB_WAIT));
  terrace_db_batch_free(batch);

  check(move(db, stock, "store/apples", "shelf/apples", 12));
  check(move(db, stock, "store/pears", "shelf/pears", 2));
  if (move(db, stock, "store/pears", "shelf/pears", 100) == TERRACE_DB_NONE) printf("not 100 pears\n");

  terrace_db_range *range;
  terrace_db_bounds shelf = {TERRACE_DB_TEXT("shelf/"), TERRACE_DB_TEXT("shelf0"), 0};
  check(terrace_db_range_open(stock, &shelf, &range));
  list(range, 0);
  check(terrace_db_prefix(stock, TERRACE_DB_TEXT("store/"), &range));
  list(range, 1);

  terrace_db_tree_close(stock);
  check(terrace_db_close(db));
  return 0;
}
