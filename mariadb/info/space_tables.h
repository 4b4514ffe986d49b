/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The engine's information tables: information_schema.TERRACE_INDEX_STATISTICS, TERRACE_TABLE_STATISTICS, TERRACE_MISS_RATIO_CURVE,
  TERRACE_ADVICE and TERRACE_METRICS, whose rows the engine returns; and the counts of a session's reads, by tier.

  The engine counts the reads of each thread. The session takes the counts at the end of each call that may read (Meter) and at the end of a
  statement, so that they belong to the session even if threads serve several sessions.
*/
#ifndef TERRACE_SPACE_TABLES_H
#define TERRACE_SPACE_TABLES_H

#include "server.h"

namespace terrace {

class Session;

int start_index_statistics(void *place);
int start_table_statistics(void *place);
int start_miss_ratio_curve(void *place);
int start_advice(void *place);
int start_metrics(void *place);

/** A table of information_schema that is being filled. */
struct Filling
{
  THD *thd;
  TABLE *table;
  ha_rows rows;
  bool failed;

  /** Stores values from the first column on. Returns the column after them. */
  Field **put(const terrace_value *values, size_t count);
  /** Stores the completed row. */
  void put_row();
};
/** Stores a row of the engine unchanged. `filling` is a Filling. */
void fill_row(void *filling, const terrace_value *values, size_t count);

/** Fills a table of information_schema with the rows of the engine's table of this name. `*filling` has the result. */
int fill_seen(const char *name, Filling *filling, terrace_row_fn each= fill_row);
int fill_seen(THD *thd, TABLE_LIST *tables, const char *name);
/** Initializes such a table. */
int start_seen(void *place, ST_FIELD_INFO *fields, int (*fill_table)(THD *, TABLE_LIST *, COND *));

/** Adds the reads to a handler's statistics for ANALYZE and the slow log, if these are requested. */
class Meter
{
public:
  Meter(ha_handler_stats *into, Session *session);
  ~Meter();
private:
  ha_handler_stats *m_into;
  Session *m_session;
};

/** Appends the session's counters to the list as status variables, allocated in the statement's memory. */
void add_session_counts(THD *thd, std::vector<st_mysql_show_var> *list);

} // namespace terrace
#endif
