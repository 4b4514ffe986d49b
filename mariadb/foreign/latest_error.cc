/* SPDX-License-Identifier: GPL-2.0-only */
#include "latest_error.h"
#include "errors.h"
#include "tztime.h"
#include <mutex>

namespace terrace {

/** The most bytes of the statement and of the description. */
static const size_t STATEMENT_MAX= 1000, WHAT_MAX= 4000;

static std::mutex guard;
static struct
{
  my_time_t when= 0;
  my_thread_id connection= 0;
  std::string what, statement;
} latest;

void keep_foreign_error(THD *thd, const std::string &what)
{
  const std::string statement= thd->query() ? std::string(thd->query(), thd->query_length()) : "";
  std::lock_guard<std::mutex> lock(guard);
  latest.when= hrtime_to_my_time(my_hrtime());
  latest.connection= thd->thread_id;
  latest.what= shortened(what, WHAT_MAX);
  latest.statement= shortened(statement, STATEMENT_MAX);
}

std::string latest_foreign_error(Time_zone *zone)
{
  std::lock_guard<std::mutex> lock(guard);
  if (!latest.when)
    return "";
  MYSQL_TIME time;
  zone->gmt_sec_to_TIME(&time, latest.when);
  char when[MAX_DATE_STRING_REP_LENGTH];
  const uint length= my_datetime_to_str(&time, when, 0);
  std::string text= std::string(when, length) + ", connection " + std::to_string(latest.connection) + "\n" + latest.what + "\n";
  return latest.statement.empty() ? text : text + "Statement: " + latest.statement + "\n";
}

} // namespace terrace
