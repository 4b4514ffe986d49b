/* SPDX-License-Identifier: GPL-2.0-only */
/*
  TRUNCATE. The server empties a table's partitions one after the other. The first of them empties all that the statement names, in one
  change of the engine's catalog; the others find themselves emptied. So a crash leaves all of them as they were, or all of them empty.
*/
#include "ha_terrace.h"
#include "ddl.h"
#include "definition_files.h"
#include "errors.h"
#include "globals.h"
#include "kill_scope.h"
#include "kept_statistics.h"
#include "partition_info.h"
#include "xid.h"

using namespace terrace;

/** The partitions that the statement empties, subpartitions if there are any; else the table itself. */
static std::vector<std::string> emptied(const TABLE *table, const std::string &name)
{
  partition_info *partitions= table->part_info;
  if (!is_partition(name) || !partitions)
    return {name};
  const std::string whole= table_of(name);
  // In the server's order: the subpartitions of a partition side by side.
  const std::vector<std::string> listed= names_in(file_of(whole, ".par"));
  const bool all= thd_sql_command(table->in_use) == SQLCOM_TRUNCATE;
  const uint each= partitions->is_sub_partitioned() ? partitions->num_subparts : 1;
  std::vector<std::string> names;
  bool found= false;
  uint at= 0;
  List_iterator<partition_element> iterator(partitions->partitions);
  while (partition_element *partition= iterator++)
    for (uint sub= 0; sub < each && at < listed.size(); sub++, at++)
      if (all || partition->part_state == PART_ADMIN)
      {
        names.push_back(whole + MARK + listed[at]);
        found= found || names.back() == name;
      }
  // Not as expected: each for itself.
  return found ? names : std::vector<std::string>{name};
}

/** For whose prepared transactions it waits: none of them is truncated if one is refused. */
static std::string truncated(THD *thd, const std::string &name)
{
  static const char SUBPARTITION[]= "#SP#";
  const bool one_partition= thd_sql_command(thd) == SQLCOM_ALTER_TABLE && thd->lex->alter_info.partition_names.elements == 1;
  return one_partition ? name.substr(0, name.find(SUBPARTITION)) : table_of(name);
}

int ha_terrace::truncate()
{
  THD *thd= ha_thd();
  if (int error= wait_for_prepared(thd, truncated(thd, m_name)))
    return error;
  Session *session= Session::of(thd);
  close_cursor();
  free_retired();
  const std::string kept= statistics_key();
  terrace_table_close(m_table);
  m_table= nullptr;
  int error= 0;
  if (!session->is_emptied(thd, m_name))
  {
    const std::vector<std::string> names= emptied(table, m_name);
    std::vector<terrace_bytes> all;
    for (const std::string &name : names)
      all.push_back(bytes_of(name));
    Heard heard;
    error= map(terrace_tables_truncate(engine, all.data(), all.size()));
    if (!error)
      session->note_emptied(thd, names, m_name);
  }
  m_writers->changed();
  if (!error && !kept.empty())
    forget_statistics(kept);
  int opened= reopen();
  if (!error && !opened && table->s->tmp_table == NO_TMP_TABLE)
    error= map(terrace_table_outdate_views(engine, m_table));
  return error ? error : opened;
}
