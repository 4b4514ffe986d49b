/* A C program on the C ABI: every function once, by somebody who has only the header. Argument: an empty directory. */
#include "terrace.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int line_of_check;

static void fail(int line, const char *what, int32_t code) {
  char text[512];
  terrace_error_message((uint8_t *)text, sizeof text);
  fprintf(stderr, "abi.c:%d: %s = %d: %s\n", line, what, (int)code, text);
  exit(1);
}
#define OK(call) \
  do { line_of_check = __LINE__; int32_t c_ = (call); if (c_ != TERRACE_OK) fail(__LINE__, #call, c_); } while (0)
#define IS(code, call) \
  do { int32_t c_ = (call); if (c_ != (code)) fail(__LINE__, #call, c_); } while (0)
#define TRUE(what) \
  do { if (!(what)) fail(__LINE__, #what, 0); } while (0)

static terrace_bytes bytes(const char *text) {
  terrace_bytes b = {(const uint8_t *)text, strlen(text)};
  return b;
}
static int equals(const uint8_t *data, size_t len, const char *text) {
  return len == strlen(text) && !memcmp(data, text, len);
}

static terrace_engine *open_engine(const char *directory) {
  char config[600];
  snprintf(config, sizeof config, "volume_path = \"%s\"\nmemory = \"16M\"\nlog = \"8M\"\nobject_buffer = \"64M\"\n", directory);
  terrace_open_options options = {sizeof options, bytes(config), bytes("memory = \"24M\"")};
  terrace_engine *engine = NULL;
  OK(terrace_engine_open(&options, &engine));
  TRUE(engine != NULL);
  return engine;
}

static void count_call(void *context, terrace_bytes name, uint64_t value) {
  (void)name, (void)value;
  ++*(int *)context;
}
static void count_space(void *context, const terrace_space *space) {
  TRUE(space->size == sizeof *space);
  ++*(int *)context;
}
static void find_memory(void *context, terrace_bytes name, uint64_t value) {
  if (equals(name.data, name.len, "memory"))
    *(uint64_t *)context = value;
}
static void find_log_writes(void *context, const terrace_requests *requests) {
  TRUE(requests->size == sizeof *requests);
  TRUE(equals(requests->tier.data, requests->tier.len, "volume"));
  if (!equals(requests->purpose.data, requests->purpose.len, "log_write"))
    return;
  TRUE(requests->requests > 0 && requests->bytes > 0 && requests->errors == 0 && requests->retries == 0);
  TRUE(requests->p50 <= requests->p99);
  ++*(int *)context;
}
static void count_table(void *context, terrace_bytes name, terrace_bytes properties) {
  TRUE(equals(name.data, name.len, "shop/orders"));
  TRUE(equals(properties.data, properties.len, "opaque"));
  ++*(int *)context;
}
static void count_xid(void *context, terrace_bytes xid) {
  TRUE(equals(xid.data, xid.len, "xid-1"));
  ++*(int *)context;
}

/* key k, row r, one secondary entry s‖k with value v */
static int32_t insert(terrace_txn *txn, terrace_table *table, const char *k, const char *r, const char *s) {
  char key[64];
  snprintf(key, sizeof key, "%s%s", s, k);
  terrace_entry entry = {sizeof entry, 1, bytes(key), strlen(s), strlen(s), bytes("extra")};
  return terrace_row_insert(txn, table, bytes(k), bytes(r), NULL, 0, &entry, 1);
}

static void commit(terrace_txn *txn) {
  terrace_ticket *ticket = NULL;
  OK(terrace_txn_commit(txn, &ticket));
  OK(terrace_ticket_wait(ticket));
  terrace_txn_close(txn);
}

static terrace_txn *begin(terrace_engine *engine) {
  terrace_txn *txn = NULL;
  OK(terrace_txn_begin(engine, TERRACE_ISOLATION_REPEATABLE_READ, &txn));
  OK(terrace_txn_set_lock_wait(txn, 100));
  OK(terrace_txn_statement_begin(txn));
  OK(terrace_txn_statement_end(txn));
  OK(terrace_txn_statement_begin(txn));
  return txn;
}

/* One change of terrace_rows_change; value null: what is there goes. */
static size_t change(uint8_t *to, uint32_t index, const char *key, uint32_t primary_at, const char *value) {
  terrace_change_head head = {index, (uint32_t)strlen(key), primary_at, value ? (uint32_t)strlen(value) : UINT32_MAX};
  memcpy(to, &head, sizeof head);
  memcpy(to + sizeof head, key, head.key_len);
  if (value)
    memcpy(to + sizeof head + head.key_len, value, head.value_len);
  return sizeof head + head.key_len + (value ? head.value_len : 0);
}

/* k1 is changed, k2 goes; all is as before in the end. */
static void changes_together(terrace_engine *engine, terrace_table *table) {
  uint8_t changes[400];
  size_t length = change(changes, 0, "k1", 0, "row eins");
  length += change(changes + length, 1, "eek1", 2, NULL);
  length += change(changes + length, 1, "ffk1", 2, "extra");
  length += change(changes + length, 0, "k2", 0, NULL);
  length += change(changes + length, 1, "bbk2", 2, NULL);
  terrace_bytes all = {changes, length}, part = {changes, length - 1}, row;
  terrace_txn *txn = begin(engine);
  IS(TERRACE_INVALID, terrace_rows_change(txn, table, part));
  OK(terrace_rows_change(txn, table, all));
  OK(terrace_row_get(txn, table, bytes("k1"), TERRACE_LOCK_NONE, &row));
  TRUE(equals(row.data, row.len, "row eins"));
  IS(TERRACE_NO_ROW, terrace_row_get(txn, table, bytes("k2"), TERRACE_LOCK_NONE, &row));
  IS(TERRACE_ABSENT, terrace_rows_change(txn, table, (terrace_bytes){changes, change(changes, 0, "k7", 0, NULL)}));
  OK(terrace_txn_rollback(txn));
  terrace_txn_close(txn);
}

static void writes(terrace_engine *engine, terrace_table *table) {
  terrace_txn *txn = begin(engine);
  TRUE(!terrace_txn_has_changes(txn));
  TRUE(!terrace_txn_has_locks(txn));
  OK(insert(txn, table, "k1", "row one", "aa"));
  OK(insert(txn, table, "k2", "row two", "bb"));
  TRUE(terrace_txn_has_changes(txn));
  IS(TERRACE_DUPLICATE, insert(txn, table, "k1", "again", "cc"));
  TRUE(terrace_error_index() == 0);
  IS(TERRACE_DUPLICATE, insert(txn, table, "k9", "again", "bb"));
  TRUE(terrace_error_index() == 1);
  terrace_savepoint *savepoint = NULL;
  OK(terrace_txn_savepoint(txn, &savepoint));
  OK(insert(txn, table, "k3", "gone soon", "cc"));
  OK(terrace_txn_rollback_to(txn, savepoint));
  terrace_savepoint_close(savepoint);
  OK(terrace_txn_statement_begin(txn));
  OK(insert(txn, table, "k4", "gone soon too", "dd"));
  OK(terrace_txn_statement_rollback(txn));
  terrace_entry old = {sizeof old, 1, bytes("aak1"), 2, 2, bytes("extra")};
  terrace_entry new = {sizeof new, 1, bytes("eek1"), 2, 2, bytes("extra")};
  OK(terrace_row_update(txn, table, bytes("k1"), bytes("row 1"), NULL, 0, &old, 1, &new, 1));
  commit(txn);

  txn = begin(engine);
  terrace_entry gone = {sizeof gone, 1, bytes("bbk2"), 2, 2, bytes("extra")};
  OK(terrace_row_delete(txn, table, bytes("k2"), &gone, 1));
  OK(terrace_txn_rollback(txn));
  terrace_txn_close(txn);
  changes_together(engine, table);
}

/* The first verdict for the first entry, bb → k2, the second for the other. */
static int32_t judge(void *context, terrace_bytes key, uint32_t primary_at, terrace_bytes value) {
  TRUE(primary_at == 2 && value.len <= 5);
  return ((int32_t *)context)[key.data[0] == 'e'];
}

static void count_key(void *context, terrace_bytes key) {
  TRUE(key.len > 0);
  ++*(int *)context;
}

static bool wants(void *context, terrace_bytes row, uint32_t name) {
  TRUE(row.len == 9000 - 7000 && row.data[0] == 'b');
  return name == *(uint32_t *)context;
}

/* A row of which a part is kept apart: read without it and with it, changed beside it; all is as before in the end. */
static void parts(terrace_engine *engine, terrace_table *table) {
  static char text[9000];
  memset(text, 'b', sizeof text);
  memset(text + 1000, 'p', 7000);
  terrace_bytes row = {(const uint8_t *)text, sizeof text}, got;
  terrace_span span = {1000, 7000, 7}, outside = {8000, 1001, 7}, nameless = {1000, 7000, 65536};
  terrace_txn *txn = begin(engine);
  IS(TERRACE_INVALID, terrace_row_insert(txn, table, bytes("p"), row, &outside, 1, NULL, 0));
  IS(TERRACE_INVALID, terrace_row_insert(txn, table, bytes("p"), row, &nameless, 1, NULL, 0));
  OK(terrace_row_insert(txn, table, bytes("p"), row, &span, 1, NULL, 0));
  text[0] = 'B';
  OK(terrace_row_update(txn, table, bytes("p"), row, &span, 1, NULL, 0, NULL, 0));
  text[0] = 'b';
  OK(terrace_row_update(txn, table, bytes("p"), row, &span, 1, NULL, 0, NULL, 0));
  OK(terrace_row_get(txn, table, bytes("p"), TERRACE_LOCK_NONE, &got));
  TRUE(got.len == sizeof text && memcmp(got.data, text, sizeof text) == 0);
  terrace_cursor_options options = {sizeof options, 0, TERRACE_LOCK_NONE, false, false, false, false};
  terrace_cursor *cursor = NULL;
  OK(terrace_cursor_open(txn, table, &options, &cursor));
  uint32_t wanted = 7;
  terrace_fetch fetch = {sizeof fetch, TERRACE_SEEK_AT_LEAST, TERRACE_WANT_ROW, bytes("p"), bytes("p"), {NULL, 0}, NULL, wants, &wanted, 10, 100000, 0};
  terrace_rows rows = {sizeof rows, 0, false, NULL, NULL};
  OK(terrace_cursor_fetch_rows(cursor, &fetch, &rows));
  TRUE(rows.count == 1 && rows.first[0].holes == 0 && rows.first[0].value.len == sizeof text);
  wanted = 8;
  OK(terrace_cursor_fetch_rows(cursor, &fetch, &rows));
  TRUE(rows.count == 1 && rows.first[0].holes == 1 && rows.first[0].value.len == 2000 && rows.first[0].value.data[1000] == 'b');
  TRUE(rows.first_hole[0].at == 1000 && rows.first_hole[0].len == 7000 && rows.first_hole[0].name == 7);
  terrace_batch batch = {sizeof batch, 0, false, {NULL, 0}};
  IS(TERRACE_INVALID, terrace_cursor_fetch(cursor, &fetch, &batch));
  fetch.parts = NULL;
  OK(terrace_cursor_fetch(cursor, &fetch, &batch));
  TRUE(batch.data.len == sizeof(terrace_row_head) + 1 + sizeof text);
  terrace_cursor_close(cursor);
  OK(terrace_txn_rollback(txn));
  terrace_txn_close(txn);
}

static void reads(terrace_engine *engine, terrace_table *table) {
  terrace_txn *txn = begin(engine);
  OK(terrace_txn_open_view(txn));
  TRUE(!terrace_txn_has_locks(txn));
  terrace_bytes row;
  OK(terrace_row_get(txn, table, bytes("k1"), TERRACE_LOCK_SHARED, &row));
  TRUE(terrace_txn_has_locks(txn) && !terrace_txn_has_changes(txn));
  TRUE(equals(row.data, row.len, "row 1"));
  IS(TERRACE_NO_ROW, terrace_row_get(txn, table, bytes("k3"), TERRACE_LOCK_NONE, &row));

  /* The secondary index, with rows: bb → k2, ee → k1. */
  terrace_cursor_options options = {sizeof options, 1, TERRACE_LOCK_NONE, false, false, false, false};
  terrace_cursor *cursor = NULL;
  OK(terrace_cursor_open(txn, table, &options, &cursor));
  terrace_fetch fetch = {sizeof fetch, TERRACE_SEEK_FIRST, TERRACE_WANT_ROW, {NULL, 0}, {NULL, 0}, {NULL, 0}, NULL, NULL, NULL, 10, 10000, 0};
  terrace_batch batch = {sizeof batch, 0, false, {NULL, 0}};
  OK(terrace_cursor_fetch(cursor, &fetch, &batch));
  TRUE(batch.rows == 2);
  terrace_row_head head;
  const uint8_t *at = batch.data.data;
  memcpy(&head, at, sizeof head);
  at += sizeof head;
  TRUE(equals(at, head.key_len, "bbk2") && head.primary_at == 2);
  TRUE(equals(at + head.key_len, head.value_len, "row two"));
  at += head.key_len + head.value_len;
  memcpy(&head, at, sizeof head);
  at += sizeof head;
  TRUE(equals(at, head.key_len, "eek1"));
  TRUE(equals(at + head.key_len, head.value_len, "row 1"));

  terrace_rows rows = {sizeof rows, 0, false, NULL, NULL};
  OK(terrace_cursor_fetch_rows(cursor, &fetch, &rows));
  TRUE(rows.count == 2);
  TRUE(equals(rows.first[0].key.data, rows.first[0].key.len, "bbk2") && rows.first[0].primary_at == 2);
  TRUE(equals(rows.first[0].value.data, rows.first[0].value.len, "row two"));
  TRUE(equals(rows.first[1].key.data, rows.first[1].key.len, "eek1"));
  TRUE(equals(rows.first[1].value.data, rows.first[1].value.len, "row 1"));

  /* The index alone, backward, within a prefix. */
  fetch.seek = TERRACE_SEEK_LAST;
  fetch.want = TERRACE_WANT_ENTRY;
  fetch.prefix = bytes("ee");
  OK(terrace_cursor_fetch(cursor, &fetch, &batch));
  TRUE(batch.rows == 1 && batch.ended);
  memcpy(&head, batch.data.data, sizeof head);
  TRUE(equals(batch.data.data + sizeof head + head.key_len, head.value_len, "extra"));
  fetch.seek = TERRACE_SEEK_AT_LEAST;
  fetch.key = bytes("zz");
  IS(TERRACE_NO_ROW, terrace_cursor_fetch(cursor, &fetch, &batch));
  fetch.size = 1;
  IS(TERRACE_INVALID, terrace_cursor_fetch(cursor, &fetch, &batch));

  /* One row is asked for: that the prefix ends with it is known already, from the entry behind it. */
  terrace_fetch one = {sizeof one, TERRACE_SEEK_AT_LEAST, TERRACE_WANT_ROW, bytes("bb"), bytes("bb"), {NULL, 0}, NULL, NULL, NULL, 1, 10000, 0};
  OK(terrace_cursor_fetch(cursor, &one, &batch));
  TRUE(batch.rows == 1 && batch.ended);
  one.prefix = bytes("");
  OK(terrace_cursor_fetch(cursor, &one, &batch));
  TRUE(batch.rows == 1 && !batch.ended);

  /* Filtered before the row is read: what is skipped, ended, cancelled. An end that is a key. */
  int32_t verdicts[2] = {TERRACE_VERDICT_SKIP, TERRACE_VERDICT_KEEP};
  terrace_fetch filtered = {sizeof filtered, TERRACE_SEEK_FIRST, TERRACE_WANT_ROW, {NULL, 0}, {NULL, 0}, {NULL, 0}, judge, NULL, verdicts, 10, 10000, 0};
  OK(terrace_cursor_fetch(cursor, &filtered, &batch));
  memcpy(&head, batch.data.data, sizeof head);
  TRUE(batch.rows == 1 && equals(batch.data.data + sizeof head, head.key_len, "eek1"));
  verdicts[0] = TERRACE_VERDICT_END;
  IS(TERRACE_NO_ROW, terrace_cursor_fetch(cursor, &filtered, &batch));
  verdicts[0] = TERRACE_VERDICT_SKIP, verdicts[1] = TERRACE_VERDICT_END;
  IS(TERRACE_NO_ROW, terrace_cursor_fetch(cursor, &filtered, &batch));
  TRUE(batch.ended);
  verdicts[1] = TERRACE_VERDICT_CANCEL;
  IS(TERRACE_CANCELLED, terrace_cursor_fetch(cursor, &filtered, &batch));
  verdicts[1] = TERRACE_VERDICT_DAMAGED;
  IS(TERRACE_CORRUPT, terrace_cursor_fetch(cursor, &filtered, &batch));
  verdicts[1] = 77;
  IS(TERRACE_INVALID, terrace_cursor_fetch(cursor, &filtered, &batch));
  filtered.filter = NULL;
  filtered.end = bytes("eek1");
  OK(terrace_cursor_fetch(cursor, &filtered, &batch));
  TRUE(batch.rows == 1 && batch.ended);
  filtered.end = bytes("eek10");
  OK(terrace_cursor_fetch(cursor, &filtered, &batch));
  TRUE(batch.rows == 2);
  filtered.seek = TERRACE_SEEK_NEXT;
  IS(TERRACE_NO_ROW, terrace_cursor_fetch(cursor, &filtered, &batch));
  TRUE(batch.ended);
  terrace_cursor_close(cursor);

  /* A lock of one is a wait of another. */
  options.index = 0;
  options.lock = TERRACE_LOCK_EXCLUSIVE;
  OK(terrace_cursor_open(txn, table, &options, &cursor));
  terrace_fetch first = {sizeof first, TERRACE_SEEK_FIRST, TERRACE_WANT_ROW, {NULL, 0}, {NULL, 0}, {NULL, 0}, NULL, NULL, NULL, 10, 10000, 0};
  OK(terrace_cursor_fetch(cursor, &first, &batch));
  TRUE(batch.rows == 1);
  terrace_txn *other = begin(engine);
  IS(TERRACE_LOCK_TIMEOUT, terrace_row_get(other, table, bytes("k1"), TERRACE_LOCK_EXCLUSIVE, &row));
  OK(terrace_row_counter_lock(txn, table));
  TRUE(terrace_row_counter_is_locked(table));
  IS(TERRACE_LOCK_TIMEOUT, terrace_row_counter_lock(other, table));
  terrace_row_counter_release(other, table);
  terrace_row_counter_release(txn, table);
  TRUE(!terrace_row_counter_is_locked(table));
  IS(TERRACE_LOCK_TIMEOUT, terrace_row_lock(other, table, bytes("k1"), TERRACE_LOCK_SHARED));
  OK(terrace_row_lock(other, table, bytes("k2"), TERRACE_LOCK_SHARED));
  IS(TERRACE_NO_ROW, terrace_row_lock(other, table, bytes("k3"), TERRACE_LOCK_EXCLUSIVE));
  IS(TERRACE_INVALID, terrace_row_lock(other, table, bytes("k2"), TERRACE_LOCK_NONE));
  terrace_cancel *cancel = NULL;
  OK(terrace_txn_cancel_handle(other, &cancel));
  OK(terrace_txn_set_lock_wait(other, 60000));
  terrace_txn_cancel(cancel);
  IS(TERRACE_CANCELLED, terrace_row_get(other, table, bytes("k1"), TERRACE_LOCK_EXCLUSIVE, &row));
  terrace_cancel_close(cancel);
  OK(terrace_txn_rollback(other));
  terrace_txn_close(other);
  OK(terrace_cursor_unlock_last(cursor));
  OK(terrace_cursor_set_reads_all(cursor, true));
  OK(terrace_cursor_fetch(cursor, &first, &batch));
  TRUE(batch.rows >= 1);
  terrace_cursor_close(cursor);
  commit(txn);
}

static size_t statement_of(uint64_t connection, uint8_t *text, size_t max) {
  TRUE(connection == 77 && max >= 4);
  memcpy(text, "work", 4);
  return 4;
}

/* Of `transactions`: number, state, start, isolation, undo records, locks, connection, statement, wait, lock, weight,
   rows locked, rows changed. */
static void one_transaction(void *context, const terrace_value *values, size_t count) {
  TRUE(count == 13 && values[0].kind == TERRACE_VALUE_NUMBER && values[2].kind == TERRACE_VALUE_TIME);
  TRUE(equals(values[1].text.data, values[1].text.len, "RUNNING"));
  TRUE(values[6].number == 77 && equals(values[7].text.data, values[7].text.len, "work"));
  TRUE(values[9].kind == TERRACE_VALUE_NULL);
  TRUE(values[10].number == 0 && values[11].number == 0 && values[12].kind == TERRACE_VALUE_NUMBER);
  ++*(int *)context;
}

static void seen(terrace_engine *engine) {
  int count = 0;
  OK(terrace_engine_ask_statements(engine, statement_of));
  terrace_txn *txn = begin(engine), *unseen = begin(engine);
  OK(terrace_txn_set_connection(txn, 77));
  OK(terrace_engine_seen(engine, bytes("transactions"), one_transaction, &count));
  TRUE(count == 1);
  terrace_txn_close(txn);
  terrace_txn_close(unseen);
  OK(terrace_engine_seen(engine, bytes("transactions"), one_transaction, &count));
  OK(terrace_engine_seen(engine, bytes("lock_waits"), one_transaction, &count));
  OK(terrace_engine_seen(engine, bytes("last_deadlock"), one_transaction, &count));
  TRUE(count == 1);
  IS(TERRACE_INVALID, terrace_engine_seen(engine, bytes("nothing"), one_transaction, &count));
}

static void find_rows(void *context, terrace_bytes name, uint64_t value) {
  if (equals(name.data, name.len, "rows_updated")) *(uint64_t *)context = value;
}

static void section(void *context, terrace_bytes name, terrace_bytes text) {
  if (equals(name.data, name.len, "activity") || equals(name.data, name.len, "tiers")) *(int *)context += text.len > 0;
}

static void counters(terrace_engine *engine, terrace_table *table) {
  uint64_t a, b, first, taken;
  OK(terrace_table_next_row_id(table, &a));
  OK(terrace_table_next_row_id(table, &b));
  TRUE(b > a);
  OK(terrace_table_auto_increment_take(table, 1, 1, 3, 1000, &first, &taken));
  TRUE(first == 1 && taken == 3);
  OK(terrace_table_auto_increment_take(table, 5, 10, 2, 1000, &first, &taken));
  TRUE(first == 5 && taken == 2);
  OK(terrace_table_auto_increment_raise(table, 100));
  OK(terrace_table_auto_increment(table, &a));
  TRUE(a == 100);
  OK(terrace_table_auto_increment_take(table, 1, 1, 1, 99, &first, &taken));
  TRUE(first == 100 && taken == 0);
  TRUE(terrace_auto_increment_after(12, 1, 1, 5, 1000) == 16);

  terrace_estimate estimate = {sizeof estimate, 0, 0, 0, 0};
  OK(terrace_table_estimate(table, &estimate));
  TRUE(estimate.rows <= 10);
  bool near = false;
  OK(terrace_table_records_in_range(table, 0, bytes("k1"), bytes("k9"), &a, &near));
  TRUE(a >= 1 && a <= 10 && near);
  int keys = 0;
  OK(terrace_table_recount(table));
  OK(terrace_table_sample(table, 0, 0.5, count_key, &keys));
  TRUE(keys >= 1 && keys <= 10);
  IS(TERRACE_INVALID, terrace_table_sample(table, 9, 0.5, count_key, &keys));
  OK(terrace_table_check(table, 0, &a));
  OK(terrace_table_check(table, 1, &a));
  int calls = 0;
  OK(terrace_engine_status(engine, count_call, &calls));
  TRUE(calls > 0);
  calls = 0;
  OK(terrace_engine_spaces(engine, count_space, &calls));
  uint64_t memory = 0;
  OK(terrace_engine_settings(engine, find_memory, &memory));
  TRUE(memory == 24 << 20);
  int log_writes = 0;
  OK(terrace_engine_requests(engine, find_log_writes, &log_writes));
  TRUE(log_writes == 1);
  TRUE(calls >= 2);
  calls = 0;
  OK(terrace_table_list(engine, count_table, &calls));
  TRUE(calls == 1);
  OK(terrace_table_defined(engine, bytes("shop/orders"), count_table, &calls));
  TRUE(calls == 2);
  IS(TERRACE_ABSENT, terrace_table_defined(engine, bytes("shop/none"), count_table, &calls));
  OK(terrace_engine_sync(engine));
  terrace_row_counts rows = {.updated = 5};
  uint64_t updated = 0;
  OK(terrace_engine_count_rows(engine, 3, &rows));
  OK(terrace_engine_count_rows(engine, 400, &rows));
  OK(terrace_engine_status(engine, find_rows, &updated));
  TRUE(updated == 10);
  calls = 0;
  OK(terrace_engine_report(engine, section, &calls));
  TRUE(calls == 2);
}

/* What is shown of the engine, by whoever shows it. */
static _Atomic int64_t threads, threads_begun, under_way, waits_begun, memory_held;
static _Atomic uint64_t log_bytes;

static void thread_begins(terrace_bytes name) {
  TRUE(name.len > 0 && !memchr(name.data, ' ', name.len));
  ++threads;
  ++threads_begun;
}
static void thread_ends(void) { --threads; }
static bool transfer_begins(uint32_t place, uint32_t operation, uint64_t size, void *note) {
  TRUE(terrace_observed_name(TERRACE_OBSERVED_PLACES, place).len > 0 && operation <= TERRACE_OPERATION_LIST);
  const terrace_bytes name = terrace_observed_name(TERRACE_OBSERVED_PLACES, place);
  const uint64_t kept[2] = {equals(name.data, name.len, "log") && operation == TERRACE_OPERATION_WRITE, size};
  TRUE(sizeof kept <= TERRACE_NOTE_BYTES);
  memcpy(note, kept, sizeof kept);
  ++under_way;
  return true;
}
static void transfer_ends(void *note, uint64_t moved) {
  uint64_t kept[2];
  memcpy(kept, note, sizeof kept);
  TRUE(moved == kept[1]);
  log_bytes += kept[0] ? moved : 0;
  --under_way;
}
static bool wait_begins(uint32_t wait, void *note) {
  (void)note;
  TRUE(terrace_observed_name(TERRACE_OBSERVED_WAITS, wait).len > 0);
  ++waits_begun;
  return false;
}
static void wait_ends(void *note) {
  (void)note;
  TRUE(!"nobody wanted to know");
}
static bool lock_begins(uint32_t wanted, uint32_t number, void *note) {
  const uint32_t kind = wanted == TERRACE_WANTED_MUTEX ? TERRACE_OBSERVED_MUTEXES : TERRACE_OBSERVED_RWLOCKS;
  TRUE(wanted <= TERRACE_WANTED_EXCLUSIVE && terrace_observed_name(kind, number).len > 0);
  memcpy(note, &wanted, sizeof wanted);
  return true;
}
static void lock_ends(uint32_t wanted, void *note) { TRUE(memcmp(note, &wanted, sizeof wanted) == 0); }
static void memory_changes(uint32_t what, int64_t change) {
  TRUE(terrace_observed_name(TERRACE_OBSERVED_MEMORY, what).len > 0);
  memory_held += change;
}

static void observe(void) {
  terrace_observer observer = {sizeof observer, thread_begins, thread_ends, transfer_begins, transfer_ends,
                               wait_begins, wait_ends, lock_begins, lock_ends, NULL};
  IS(TERRACE_INVALID, terrace_observe(&observer));
  observer.memory = memory_changes;
  OK(terrace_observe(&observer));
  IS(TERRACE_INVALID, terrace_observe(&observer));
}

static bool few_calls(void *context, uint64_t bytes, uint64_t all) {
  TRUE(bytes <= all);
  return --*(int *)context > 0;
}

/* A copy beside the volume, of a moment at which a transaction is prepared. */
static void copies(terrace_engine *engine, const char *volume) {
  char place[1000];
  snprintf(place, sizeof place, "%s-copy", volume);
  int calls = 1;
  IS(TERRACE_CANCELLED, terrace_engine_copy(engine, bytes(place), few_calls, &calls));
  calls = 1000000;
  OK(terrace_engine_copy(engine, bytes(place), few_calls, &calls));
  TRUE(calls < 1000000);
  IS(TERRACE_INVALID, terrace_engine_copy(engine, bytes(place), NULL, NULL));
  IS(TERRACE_BUSY, terrace_engine_copy(engine, bytes(volume), NULL, NULL));
  /* In the background: given up, killed at the end, whole. */
  char other[1010];
  snprintf(other, sizeof other, "%s-2", place);
  terrace_copy *background = NULL;
  IS(TERRACE_INVALID, terrace_copy_begin(engine, bytes(place), &background));
  TRUE(background == NULL);
  terrace_copy_discard(background);
  OK(terrace_copy_begin(engine, bytes(other), &background));
  IS(TERRACE_BUSY, terrace_engine_copy(engine, bytes(place), NULL, NULL));
  terrace_copy_discard(background);
  TRUE(access(other, F_OK) != 0);
  OK(terrace_copy_begin(engine, bytes(other), &background));
  calls = 1;
  IS(TERRACE_CANCELLED, terrace_copy_finish(background, few_calls, &calls));
  TRUE(access(other, F_OK) != 0);
  OK(terrace_copy_begin(engine, bytes(other), &background));
  OK(terrace_copy_finish(background, NULL, NULL));
  OK(terrace_engine_close(open_engine(other)));
  terrace_engine *copy = open_engine(place);
  terrace_table *table = NULL;
  OK(terrace_table_open(copy, bytes("shop/orders"), &table));
  terrace_table_close(table);
  int prepared = 0;
  OK(terrace_prepared(copy, count_xid, &prepared));
  TRUE(prepared == 1);
  OK(terrace_prepared_commit(copy, bytes("xid-1")));
  OK(terrace_engine_close(copy));
}

int main(int argc, char **argv) {
  TRUE(argc == 2);
  observe();
  terrace_open_options bad = {sizeof bad, bytes("memory = 1\nnonsense = 2"), bytes("")};
  terrace_engine *engine = (terrace_engine *)1;
  IS(TERRACE_INVALID, terrace_engine_open(&bad, &engine));
  TRUE(engine == NULL);
  char text[1000];
  TRUE(terrace_error_message((uint8_t *)text, sizeof text) == strlen(text));
  TRUE(strstr(text, "memory") && strstr(text, "nonsense") && strstr(text, "volume_path"));

  engine = open_engine(argv[1]);
  TRUE(memory_held > 16 << 20 && memory_held < 26 << 20);
  terrace_index_definition indexes[2] = {{sizeof *indexes, bytes("PRIMARY"), true}, {sizeof *indexes, bytes("s"), true}};
  terrace_table_definition definition = {sizeof definition, bytes("shop/draft"), indexes, 2,
                                         bytes("opaque"), false};
  terrace_table *table = NULL;
  OK(terrace_table_create(engine, &definition, NULL));
  IS(TERRACE_EXISTS, terrace_table_create(engine, &definition, NULL));
  OK(terrace_table_rename(engine, bytes("shop/draft"), bytes("shop/orders")));
  IS(TERRACE_ABSENT, terrace_table_open(engine, bytes("shop/draft"), &table));
  OK(terrace_table_open(engine, bytes("shop/orders"), &table));
  terrace_bytes properties = terrace_table_properties(table);
  TRUE(equals(properties.data, properties.len, "opaque"));
  writes(engine, table);
  parts(engine, table);
  reads(engine, table);
  counters(engine, table);
  seen(engine);

  terrace_txn *txn = begin(engine);
  OK(insert(txn, table, "k5", "prepared", "ff"));
  OK(terrace_txn_prepare(txn, bytes("xid-1")));
  terrace_txn_close(txn);
  int prepared = 0;
  OK(terrace_prepared(engine, count_xid, &prepared));
  TRUE(prepared == 1);
  IS(TERRACE_ABSENT, terrace_prepared_rollback(engine, bytes("xid-2")));
  copies(engine, argv[1]);
  terrace_table_close(table);
  OK(terrace_engine_close(engine));
  TRUE(threads_begun > 3 && threads == 0 && under_way == 0 && log_bytes > 4096 && memory_held == 0);

  /* Again: what was committed is there, what was prepared is still prepared. */
  engine = open_engine(argv[1]);
  OK(terrace_table_open(engine, bytes("shop/orders"), &table));
  prepared = 0;
  OK(terrace_prepared(engine, count_xid, &prepared));
  TRUE(prepared == 1);
  OK(terrace_prepared_commit(engine, bytes("xid-1")));
  txn = begin(engine);
  terrace_bytes row;
  OK(terrace_row_get(txn, table, bytes("k5"), TERRACE_LOCK_NONE, &row));
  TRUE(equals(row.data, row.len, "prepared"));
  OK(terrace_row_get(txn, table, bytes("k1"), TERRACE_LOCK_NONE, &row));
  TRUE(equals(row.data, row.len, "row 1"));
  terrace_ticket *ticket = NULL;
  OK(terrace_txn_commit(txn, &ticket));
  terrace_ticket_close(ticket);
  terrace_txn_close(txn);
  uint64_t next;
  OK(terrace_table_auto_increment(table, &next));
  TRUE(next == 100);
  terrace_table_close(table);
  const terrace_bytes emptied[] = {bytes("shop/orders"), bytes("shop/nowhere")};
  IS(TERRACE_ABSENT, terrace_tables_truncate(engine, emptied, 2));
  OK(terrace_tables_truncate(engine, emptied, 1));
  OK(terrace_table_drop(engine, bytes("shop/orders")));
  IS(TERRACE_ABSENT, terrace_table_drop(engine, bytes("shop/orders")));
  OK(terrace_engine_close(engine));
  puts("all of the C ABI works");
  return 0;
}
