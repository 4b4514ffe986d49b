/* SPDX-License-Identifier: GPL-2.0-only */
#include "lock_report.h"
#include "globals.h"
#include "info_schema.h"
#include "tztime.h"
#include <map>

namespace terrace {

namespace {

/** A row of one of the engine's information tables. */
struct Row
{
  const terrace_value *values;
  bool is_null(size_t at) const { return values[at].kind == TERRACE_VALUE_NULL; }
  uint64_t of(size_t at) const { return values[at].number; }
  std::string text(size_t at) const { return std::string(reinterpret_cast<const char *>(values[at].text.data), values[at].text.len); }
  std::string number(size_t at) const { return is_null(at) ? "unknown" : std::to_string(of(at)); }
  std::string table_and_index(size_t at) const
  {
    const std::string path= text(at);
    return path.empty() ? "a table that is gone" : "table " + name_of_table(path) + " index " + text(at + 1);
  }
};

struct Transactions
{
  uint64_t now;                         // in milliseconds since 1970
  std::map<uint64_t, std::string> waits;
  size_t count;
  std::string text;
};

struct Words
{
  Time_zone *zone;
  std::string text;
};

} // namespace

/* --- transactions ---------------------------------------------------------------------------- */

/** The most transactions that are shown. */
static const size_t TRANSACTIONS_MAX= 1000;

/** As SHOW PROCESSLIST would show it, with milliseconds. */
static std::string seconds_since(uint64_t now, uint64_t then)
{
  char text[32];
  snprintf(text, sizeof text, "%.3f s", (double) (now > then ? now - then : 0) / 1000);
  return text;
}

/** Handles a row of `lock_waits`; a wait for several transactions has several rows. */
static void put_wait(void *context, const terrace_value *values, size_t)
{
  enum { TRX, LOCK, BLOCKING, CONNECTION, BLOCKING_CONNECTION, SINCE, MODE, TYPE, TABLE_PATH, INDEX, LOCK_KEY };
  Transactions *all= static_cast<Transactions *>(context);
  const Row row{values};
  std::string *into= &all->waits[row.of(TRX)];
  if (into->empty())
    *into= "waits " + seconds_since(all->now, row.of(SINCE)) + " for " + row.text(MODE) + " " + row.text(TYPE) + " key " + row.text(LOCK_KEY) + " of " +
           row.table_and_index(TABLE_PATH) + ", which TRANSACTION ";
  else
    into->append(" and ");
  into->append(row.number(BLOCKING) + " (connection " + row.number(BLOCKING_CONNECTION) + ")");
}

static void put_transaction(void *context, const terrace_value *values, size_t)
{
  // In the order of the columns of TERRACE_TRX.
  enum { TRX, STATE, STARTED, ISOLATION, UNDO_RECORDS, LOCKS, CONNECTION, STATEMENT, WAIT_STARTED, LOCK, WEIGHT, ROWS_LOCKED, ROWS_MODIFIED };
  Transactions *all= static_cast<Transactions *>(context);
  if (all->count++ >= TRANSACTIONS_MAX)
    return;
  const Row row{values};
  std::string *into= &all->text;
  into->append("TRANSACTION " + row.number(TRX) + ", " + row.text(STATE) + ", " + seconds_since(all->now, row.of(STARTED)) + " old, ");
  into->append((row.is_null(ISOLATION) ? "left by a crash" : row.text(ISOLATION)) + ", connection " + (row.is_null(CONNECTION) ? "gone" : row.number(CONNECTION)));
  into->append("\n" + row.number(ROWS_LOCKED) + " rows locked by " + row.number(LOCKS) + " locks, " + row.number(ROWS_MODIFIED) + " rows changed, " +
               row.number(UNDO_RECORDS) + " undo records\n");
  const auto wait= all->waits.find(row.of(TRX));
  if (wait != all->waits.end())
    into->append(wait->second + " has or asked for before\n");
  if (!row.is_null(STATEMENT))
    into->append(row.text(STATEMENT) + "\n");
}

std::string transactions_in_words()
{
  static const char TRANSACTIONS[]= "transactions", WAITS[]= "lock_waits";
  Transactions all= {my_hrtime().val / 1000, {}, 0, ""};
  terrace_engine_seen(engine, bytes_of(WAITS, sizeof WAITS - 1), put_wait, &all);
  terrace_engine_seen(engine, bytes_of(TRANSACTIONS, sizeof TRANSACTIONS - 1), put_transaction, &all);
  if (!all.count)
    return "none is open\n";
  if (all.count > TRANSACTIONS_MAX)
    all.text+= "and " + std::to_string(all.count - TRANSACTIONS_MAX) + " more\n";
  return all.text;
}

/* --- deadlocks ------------------------------------------------------------------------------- */

static void put_member(void *context, const terrace_value *values, size_t)
{
  // In the order of the columns of TERRACE_LAST_DEADLOCK, but the table is a single value.
  enum { DETECTED, MEMBER, TRX, CONNECTION, GAVE_WAY, MODE, TYPE, TABLE_PATH, INDEX, LOCK_KEY, WAITS_FOR, STATEMENT };
  Words *words= static_cast<Words *>(context);
  const Row row{values};
  std::string *into= &words->text;
  if (row.of(MEMBER) == 1)
  {
    MYSQL_TIME when;
    char written[MAX_DATE_STRING_REP_LENGTH];
    words->zone->gmt_sec_to_TIME(&when, (my_time_t) (row.of(DETECTED) / 1000));
    my_datetime_to_str(&when, written, 0);
    into->append("LATEST DETECTED DEADLOCK\n").append(written).append("\n");
  }
  const std::string member= row.number(MEMBER);
  into->append("*** (" + member + ") TRANSACTION " + row.number(TRX) + ", connection " + row.number(CONNECTION) + "\n");
  into->append(row.is_null(STATEMENT) ? "(its statement is not known)" : row.text(STATEMENT)).append("\n");
  into->append("*** (" + member + ") WAITING FOR " + row.text(MODE) + " " + row.text(TYPE) + " key " + row.text(LOCK_KEY) + " of " +
               row.table_and_index(TABLE_PATH) + ", which TRANSACTION " + row.number(WAITS_FOR) + " has or asked for before\n");
  if (row.of(GAVE_WAY))
    into->append("*** WE ROLL BACK TRANSACTION (" + member + ")\n");
}

std::string last_deadlock(Time_zone *zone)
{
  static const char NAME[]= "last_deadlock";
  Words words= {zone, ""};
  terrace_engine_seen(engine, bytes_of(NAME, sizeof NAME - 1), put_member, &words);
  return words.text;
}

/** Called by a thread that waits for a lock. */
static void print_deadlock(const terrace_value *values, size_t columns, size_t rows)
{
  Words words= {global_system_variables.time_zone, ""};
  for (size_t row= 0; row < rows; row++)
    put_member(&words, values + row * columns, columns);
  sql_print_information("Terrace: a deadlock was found");
  // The server truncates a message after a kilobyte. stderr goes to the error log.
  fputs(words.text.c_str(), stderr);
  fflush(stderr);
}

void print_deadlocks(bool on) { terrace_engine_tell_deadlocks(engine, on ? print_deadlock : nullptr); }

} // namespace terrace
