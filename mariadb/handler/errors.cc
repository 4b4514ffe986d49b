/* SPDX-License-Identifier: GPL-2.0-only */
#include "errors.h"
#include <functional>
#include <mutex>
#include <set>

namespace terrace {

std::string last_message()
{
  char text[1024];
  terrace_error_message(reinterpret_cast<uint8_t *>(text), sizeof text);
  return text;
}

std::string shortened(const std::string &text, size_t max)
{
  static const char MORE[]= " …";
  static const size_t WORD_MAX= 40;
  if (text.size() <= max)
    return text;
  size_t end= max - (sizeof MORE - 1);
  const size_t word= text.rfind(' ', end);
  if (word != std::string::npos && end - word <= WORD_MAX)
    return text.substr(0, word) + MORE;
  // Not within a character.
  while (end && ((uchar) text[end] & 0xc0) == 0x80)
    end--;
  return text.substr(0, end) + (MORE + 1);
}

/** Texts that are remembered: of more different ones each is written anew when it comes again. */
static const size_t WRITTEN_MAX= 256;

void log_error_once(const std::string &text)
{
  static std::mutex guard;
  static std::set<size_t> written;
  {
    std::lock_guard<std::mutex> lock(guard);
    if (written.size() >= WRITTEN_MAX)
      written.clear();
    if (!written.insert(std::hash<std::string>()(text)).second)
      return;
  }
  sql_print_error("Terrace: %s", text.c_str());
}

enum Rollback { NOTHING, STATEMENT, TRANSACTION };
enum Tell { SILENT, ERROR, WARN, WARN_AND_LOG, LOG };

struct Row
{
  int32_t code;
  int error;
  Rollback rollback;
  Tell tell;
};

static const Row table[]= {
  {TERRACE_OK, 0, NOTHING, SILENT},
  {TERRACE_NO_ROW, HA_ERR_KEY_NOT_FOUND, NOTHING, SILENT},
  {TERRACE_DUPLICATE, HA_ERR_FOUND_DUPP_KEY, NOTHING, SILENT},
  {TERRACE_LOCK_TIMEOUT, HA_ERR_LOCK_WAIT_TIMEOUT, STATEMENT, SILENT},
  {TERRACE_DEADLOCK, HA_ERR_LOCK_DEADLOCK, TRANSACTION, SILENT},
  {TERRACE_ABSENT, HA_ERR_NO_SUCH_TABLE, NOTHING, SILENT},
  {TERRACE_EXISTS, HA_ERR_TABLE_EXIST, NOTHING, SILENT},
  {TERRACE_TOO_LARGE, HA_ERR_TO_BIG_ROW, NOTHING, ERROR},
  {TERRACE_UNAVAILABLE, OWN_ERROR + TERRACE_UNAVAILABLE, NOTHING, SILENT},
  {TERRACE_FULL, HA_ERR_RECORD_FILE_FULL, NOTHING, WARN},
  {TERRACE_CORRUPT, HA_ERR_CRASHED, NOTHING, WARN_AND_LOG},
  {TERRACE_MISSING, OWN_ERROR + TERRACE_MISSING, NOTHING, LOG},
  {TERRACE_POISONED, OWN_ERROR + TERRACE_POISONED, NOTHING, SILENT},
  {TERRACE_INVALID, OWN_ERROR + TERRACE_INVALID, NOTHING, SILENT},
  {TERRACE_CANCELLED, HA_ERR_ABORTED_BY_USER, NOTHING, SILENT},
  {TERRACE_ROW_CHANGED, HA_ERR_RECORD_CHANGED, TRANSACTION, SILENT},
  {TERRACE_TOO_MANY_LOCKS, HA_ERR_LOCK_TABLE_FULL, TRANSACTION, SILENT},
  {TERRACE_BUSY, OWN_ERROR + TERRACE_BUSY, NOTHING, SILENT},
  {TERRACE_CHANGED, HA_ERR_TABLE_DEF_CHANGED, NOTHING, SILENT},
  {TERRACE_PANIC, OWN_ERROR + TERRACE_PANIC, NOTHING, WARN_AND_LOG},
};

int map_error(THD *thd, int32_t code)
{
  for (const Row &row : table)
  {
    if (row.code != code)
      continue;
    if (row.tell != SILENT)
    {
      std::string text= last_message();
      // The server has no message of its own for it; InnoDB gives this one too.
      if (row.tell == ERROR)
        my_printf_error(ER_TOO_BIG_ROWSIZE, "Row size too large: %s", MYF(0), text.c_str());
      else if (row.tell != LOG && thd)
      {
        // A strict statement would turn the warning into its error, and hide the code that a user of InnoDB expects.
        Abort_on_warning_instant_set only_warns(thd, false);
        push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "Terrace: %s", text.c_str());
      }
      if (row.tell == WARN_AND_LOG || row.tell == LOG)
        log_error_once(text);
    }
    if (thd && row.rollback != NOTHING)
      thd->mark_transaction_to_rollback(row.rollback == TRANSACTION);
    return row.error;
  }
  return HA_ERR_INTERNAL_ERROR;
}

void report_error(int32_t code, const char *what)
{
  if (code == TERRACE_CANCELLED)
  {
    my_error(ER_QUERY_INTERRUPTED, MYF(0));
    return;
  }
  my_printf_error(ER_UNKNOWN_ERROR, "Terrace: %s: %s", MYF(0), what, last_message().c_str());
}

} // namespace terrace
