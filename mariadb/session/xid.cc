/* SPDX-License-Identifier: GPL-2.0-only */
#include "xid.h"
#include "definition_files.h"
#include "errors.h"
#include "globals.h"
#include "query_cache.h"
#include "session.h"
#include <set>

namespace terrace {

/* The calls' return codes, as in the X/Open XA specification. */
enum { XA_OK= 0, XAER_RMERR= -3, XAER_NOTA= -4, XAER_RMFAIL= -7 };

/* A name: 8 bytes of format, 1 byte each for the lengths of the global part and the branch, then both parts. */
static const size_t HEAD= 10;

std::string name_of(const XID *xid)
{
  uchar head[HEAD];
  int8store(head, (longlong) xid->formatID);
  head[8]= (uchar) xid->gtrid_length;
  head[9]= (uchar) xid->bqual_length;
  std::string name(reinterpret_cast<char *>(head), HEAD);
  name.append(xid->data, xid->gtrid_length + xid->bqual_length);
  return name;
}

static bool xid_of(terrace_bytes name, XID *xid)
{
  if (name.len < HEAD)
    return false;
  size_t global= name.data[8], branch= name.data[9];
  if (global > MAXGTRIDSIZE || branch > MAXBQUALSIZE || name.len != HEAD + global + branch)
    return false;
  xid->set((long) sint8korr(name.data), reinterpret_cast<const char *>(name.data) + HEAD, (long) global,
           reinterpret_cast<const char *>(name.data) + HEAD + global, (long) branch);
  return true;
}

struct Recovered
{
  XID *list;
  uint room, count;
};

/** Names that were already handed to the server, which asks again until it gets fewer than it has room for. */
static std::set<std::string> handed_over;

static void recover_one(void *context, terrace_bytes name)
{
  Recovered *recovered= static_cast<Recovered *>(context);
  if (recovered->count >= recovered->room)
    return;
  if (!handed_over.insert(std::string(reinterpret_cast<const char *>(name.data), name.len)).second)
    return;
  if (xid_of(name, recovered->list + recovered->count))
    recovered->count++;
  else
    sql_print_warning("Terrace: a prepared transaction has a name that is no XID; it stays prepared");
}

static int recover(handlerton *, XID *list, uint room)
{
  if (!engine || !list || !room)
    return 0;
  Recovered recovered= {list, room, 0};
  terrace_prepared(engine, recover_one, &recovered);
  return (int) recovered.count;
}

static int decide(int32_t code)
{
  return code == TERRACE_OK ? XA_OK : code == TERRACE_ABSENT ? XAER_NOTA : XAER_RMERR;
}

static int commit_by_xid(handlerton *, XID *xid)
{
  Ends_by_name ends;
  let_go_of_prepared(name_of(xid));
  return engine ? decide(terrace_prepared_commit(engine, bytes_of(name_of(xid)))) : XAER_RMFAIL;
}

static int rollback_by_xid(handlerton *, XID *xid)
{
  Ends_by_name ends;
  let_go_of_prepared(name_of(xid));
  return engine ? decide(terrace_prepared_rollback(engine, bytes_of(name_of(xid)))) : XAER_RMFAIL;
}

static void collect(void *context, terrace_bytes name)
{
  static_cast<std::set<std::string> *>(context)->insert(std::string(reinterpret_cast<const char *>(name.data), name.len));
}

/** Whether `one` is the table `name` or one of its partitions or, if `name` is a partition, one of its subpartitions. */
static bool is_of(const std::string &one, const std::string &name)
{
  static const char SUBPARTITION[]= "#SP#";
  return !one.compare(0, name.size(), name) && (one.size() == name.size() || !one.compare(name.size(), sizeof MARK - 1, MARK) ||
                                               !one.compare(name.size(), sizeof SUBPARTITION - 1, SUBPARTITION));
}

int wait_for_prepared(THD *thd, const std::string &name)
{
  static const ulong STEP= 10;          // milliseconds
  // This wait also takes the place of a wait for a metadata lock.
  const ulonglong patience= MY_MIN(lock_wait_ms(thd), (ulonglong) thd->variables.lock_wait_timeout * 1000);
  for (ulonglong waited= 0;; waited+= STEP)
  {
    std::set<std::string> touched;
    int32_t code= terrace_prepared_tables(engine, collect, &touched);
    // The server has released the metadata locks of a connection that was reset.
    if (!code)
      code= tables_of_prepared(collect, &touched);
    if (code)
      return map_error(thd, code);
    bool is_touched= false;
    for (const std::string &one : touched)
      is_touched|= is_of(one, name);
    if (!is_touched)
      return 0;
    if (is_killed(thd))
      return HA_ERR_ABORTED_BY_USER;
    if (waited >= patience)
      return HA_ERR_LOCK_WAIT_TIMEOUT;
    my_sleep(STEP * 1000);
  }
}

/** The binary log asks when it may discard what recovery would need: once all committed transactions are durable. */
static void checkpoint_request(void *cookie)
{
  if (!engine || terrace_engine_sync(engine) == TERRACE_OK)
    commit_checkpoint_notify_ha(cookie);
}

/** FLUSH LOGS: makes all committed transactions durable, even if terrace_flush_log_at_trx_commit would delay that. */
static bool flush_logs(handlerton *)
{
  return engine && terrace_engine_sync(engine) != TERRACE_OK;
}

void fill_recovery_calls(handlerton *into)
{
  into->recover= recover;
  into->commit_by_xid= commit_by_xid;
  into->rollback_by_xid= rollback_by_xid;
  into->commit_checkpoint_request= checkpoint_request;
  into->flush_logs= flush_logs;
}

} // namespace terrace
