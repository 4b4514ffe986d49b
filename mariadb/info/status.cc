/* SPDX-License-Identifier: GPL-2.0-only */
#include "status.h"
#include "globals.h"
#include "kept_definitions.h"
#include "latest_error.h"
#include "lock_report.h"
#include "space_tables.h"

namespace terrace {

struct Counters
{
  THD *thd;
  std::vector<st_mysql_show_var> list;
};

static void collect_one(void *context, terrace_bytes name, uint64_t value)
{
  Counters *counters= static_cast<Counters *>(context);
  // Allocated in the statement's memory: the server reads it after the call.
  char *text= static_cast<char *>(thd_strmake(counters->thd, reinterpret_cast<const char *>(name.data), name.len));
  ulonglong *number= static_cast<ulonglong *>(thd_alloc(counters->thd, sizeof(ulonglong)));
  if (!text || !number)
    return;
  *number= value;
  st_mysql_show_var one= {};
  one.name= text;
  one.value= number;
  one.type= SHOW_ULONGLONG;
  counters->list.push_back(one);
}

static int show_counters(THD *thd, struct st_mysql_show_var *var, void *, struct system_status_var *, enum enum_var_type scope)
{
  Counters counters= {thd, {}};
  if (engine)
    terrace_engine_status(engine, collect_one, &counters);
  if (scope == OPT_SESSION)
    add_session_counts(thd, &counters.list);
  counters.list.push_back({});
  size_t bytes= counters.list.size() * sizeof(st_mysql_show_var);
  var->type= SHOW_ARRAY;
  var->value= thd_memdup(thd, counters.list.data(), bytes);
  return 0;
}

struct st_mysql_show_var status_variables[]= {
  SHOW_FUNC_ENTRY("Terrace", &show_counters),
  {nullptr, nullptr, SHOW_LONG}};

static void line_of(void *context, terrace_bytes name, uint64_t value)
{
  std::string *text= static_cast<std::string *>(context);
  text->append(reinterpret_cast<const char *>(name.data), name.len).append(" ").append(std::to_string(value)).append("\n");
}

static void note_of(void *context, terrace_bytes name, terrace_bytes note)
{
  std::string *text= static_cast<std::string *>(context);
  text->append(reinterpret_cast<const char *>(name.data), name.len).append(" ");
  text->append(reinterpret_cast<const char *>(note.data), note.len).append("\n");
}

/** Appends a line to the table of requests. Its first word names tier and purpose; the numbers are right-aligned. */
static void requests_line(std::string *text, std::string name, std::initializer_list<std::string> numbers)
{
  name.resize(std::max<size_t>(name.size(), 24), ' ');
  text->append(name);
  for (const std::string &number : numbers)
    text->append(number.size() < 14 ? 14 - number.size() : 1, ' ').append(number);
  text->append("\n");
}

static void requests_of(void *context, const terrace_requests *one)
{
  auto text_of= [](terrace_bytes bytes) { return std::string(reinterpret_cast<const char *>(bytes.data), bytes.len); };
  auto number= [](uint64_t value) { return std::to_string(value); };
  requests_line(static_cast<std::string *>(context), text_of(one->tier) + "." + text_of(one->purpose),
                {number(one->requests), number(one->bytes), number(one->errors), number(one->retries),
                 number(one->mean), number(one->p50), number(one->p99)});
}

typedef std::vector<std::pair<std::string, std::string>> Sections;

static void section_of(void *context, terrace_bytes name, terrace_bytes text)
{
  static_cast<Sections *>(context)->push_back({std::string(reinterpret_cast<const char *>(name.data), name.len),
                                               std::string(reinterpret_cast<const char *>(text.data), text.len)});
}

bool show_status(handlerton *, THD *thd, stat_print_fn *print, enum ha_stat_type type)
{
  if (type != HA_ENGINE_STATUS || !engine)
    return false;
  std::string text;
  terrace_engine_notes(engine, note_of, &text);
  line_of(&text, bytes_of("definitions_kept_ms", 19), definitions_kept_ms());
  terrace_engine_status(engine, line_of, &text);
  requests_line(&text, "tier.purpose", {"requests", "bytes", "errors", "retries", "mean_us", "p50_us", "p99_us"});
  terrace_engine_requests(engine, requests_of, &text);
  if (print(thd, STRING_WITH_LEN("Terrace"), STRING_WITH_LEN(""), text.data(), text.size()))
    return true;
  // The first row has a name and a value on each line; readable texts have rows of their own.
  Sections sections;
  const std::string deadlock= last_deadlock(thd->variables.time_zone);
  if (!deadlock.empty())
    sections.push_back({"latest_deadlock", deadlock});
  const std::string foreign= latest_foreign_error(thd->variables.time_zone);
  if (!foreign.empty())
    sections.push_back({"latest_foreign_key_error", foreign});
  terrace_engine_report(engine, section_of, &sections);
  sections.push_back({"transactions", transactions_in_words()});
  for (const auto &[name, lines] : sections)
    if (print(thd, STRING_WITH_LEN("Terrace"), name.data(), name.size(), lines.data(), lines.size()))
      return true;
  return false;
}

} // namespace terrace
