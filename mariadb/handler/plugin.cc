/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The plugin: its variables, its start and stop, its declaration.

  The engine's settings are variables with the names of the configuration's keys. What is set here goes before what stands in
  terrace_config's file; what is set nowhere has the engine's default. An engine that can't start says why in the error
  log; the plugin then isn't loaded, and the server lives.
*/
#include "ha_terrace.h"
#include "backup.h"
#include "copy.h"
#include "ddl.h"
#include "errors.h"
#include "globals.h"
#include "relations.h"
#include "info_schema.h"
#include "kept_definitions.h"
#include "lock_report.h"
#include "lock_tables.h"
#include "performance.h"
#include "resize.h"
#include "space_tables.h"
#include "session.h"
#include "status.h"
#include "table_options.h"
#include "watch.h"
#include "set_var.h"
#include "sys_vars_shared.h"
#include <fstream>
#include <sstream>

/* The server exports it and declares it in no header. */
extern void ignore_db_dirs_append(const char *name);

namespace terrace {

handlerton *hton;
terrace_engine *engine;

static char *config_path, *volume_path, *flash_path, *object_url, *object_endpoint, *emulate_profile, *flash_admission, *split, *metrics_listen, *without;
static char *compression;
static ulonglong memory_bytes, log_bytes, log_partitions, object_buffer_bytes, archive_interval, archive_keep, sink_after, flash_bytes;
static ulonglong sink_requests_max, memory_max_bytes, resize_wait;
static ulonglong locks_max, log_wait, purge_lag_max, temporary_max, bypass_from;
static ulong flush_log_at_trx_commit;
static my_bool bypass, temporary_unlogged, print_all_deadlocks;

Flush flush_at_commit() { return static_cast<Flush>(flush_log_at_trx_commit); }
bool has_flash() { return flash_bytes > 0; }
bool has_store() { return object_url && *object_url; }
bool temporary_tables_are_unlogged() { return temporary_unlogged; }

static const int FIXED= PLUGIN_VAR_READONLY | PLUGIN_VAR_RQCMDARG;

static MYSQL_SYSVAR_STR(config, config_path, FIXED,
                        "A configuration file (TOML) for the engine; other terrace_ variables go before it",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(volume_path, volume_path, FIXED,
                        "Directory of the log, the object buffer and the map, on a durable volume. Relative to the "
                        "data directory. Default: terrace",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(flash_path, flash_path, FIXED,
                        "Directory on local flash for copies of pages; may be lost at any time. Default: none",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(flash_admission, flash_admission, FIXED,
                        "Which pages that leave memory are copied to flash once it is full: admit-all, one-hit-discard, "
                        "ghost, tiny-lfu, ghost-tiny-lfu, ghost-whole. Default: ghost",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(split, split, FIXED,
                        "How reads of pages that are both on flash and on the volume are divided: off, on or knee, shortest-wait, "
                        "equal-latency, orthus, backend-only. Default: off",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(without, without, FIXED,
                        "Mechanisms to leave out, by comma, to see what each is worth: clean-copies, prefetch, shared-misses, "
                        "flash-for-the-store, warm-flash, deferral, pacing, patches, lock-order, give-way, single-flight, vectored-reads, kept-copies. "
                        "Default: none",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(object, object_url, FIXED,
                        "Where cold blocks go: s3://bucket/prefix, gs://bucket/prefix, az://bucket/prefix or a directory. Default: none", nullptr, nullptr,
                        nullptr);
static MYSQL_SYSVAR_STR(object_endpoint, object_endpoint, FIXED, "URL of a server that is not the provider's own",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(compression, compression, FIXED,
                        "How pages are compressed in objects: zstd, lz4, none; for tables without the option COMPRESSION. "
                        "Default: zstd",
                        nullptr, nullptr, nullptr);
static MYSQL_SYSVAR_STR(emulate, emulate_profile, FIXED,
                        "Give the devices the latencies and limits of a profile (cloud); for trials and benchmarks",
                        nullptr, nullptr, nullptr);

static MYSQL_SYSVAR_STR(metrics_listen, metrics_listen, FIXED,
                        "Loopback address and port on which Prometheus finds metrics, as 127.0.0.1:9185. Default: none",
                        nullptr, nullptr, nullptr);

/* Numbers of the engine's configuration; 0 leaves the file's value or the engine's default. */
#define ENGINE_NUMBER(name, variable, meaning)                                                                         \
  static MYSQL_SYSVAR_ULONGLONG(name, variable, FIXED, meaning " 0: the engine's default", nullptr, nullptr, 0, 0,     \
                                ULONGLONG_MAX, 0)
/* Those of them that SET GLOBAL changes while the server runs (resize.cc). */
#define ENGINE_SIZE(name, variable, meaning)                                                                           \
  static MYSQL_SYSVAR_ULONGLONG(name, variable, PLUGIN_VAR_RQCMDARG, meaning " 0: the engine's default", check_##name, \
                                resize_##name, 0, 0, ULONGLONG_MAX, 0)
ENGINE_SIZE(memory, memory_bytes, "All memory the engine may use, in bytes.");
ENGINE_SIZE(object_buffer, object_buffer_bytes, "Room for pages on the volume, in bytes.");
ENGINE_SIZE(flash, flash_bytes, "Room for copies of pages on flash, in bytes.");
ENGINE_NUMBER(memory_max, memory_max_bytes, "Up to here terrace_memory can be made more while the server runs, in bytes.");
ENGINE_NUMBER(resize_wait_timeout_ms, resize_wait,
              "How long a change of a size waits while nothing moves before it is given up, in milliseconds.");
ENGINE_NUMBER(log, log_bytes, "Size of the log on the volume, all partitions together, in bytes.");
ENGINE_NUMBER(log_partitions, log_partitions, "Log files written side by side.");
ENGINE_NUMBER(sink_after_ms, sink_after, "A block left alone for so long goes to the object store, in milliseconds.");
ENGINE_NUMBER(archive_interval_ms, archive_interval,
              "How often the log is copied to the object store, for terrace restore --at, in milliseconds. Nothing bypasses it then.");
ENGINE_NUMBER(archive_keep_hours, archive_keep, "How long that copy of the log is kept, in hours.");
ENGINE_NUMBER(sink_requests_max, sink_requests_max, "Requests a second to the object store that sinking may make.");
ENGINE_NUMBER(locks_max, locks_max, "Row locks held at a time, in all transactions together.");
ENGINE_NUMBER(purge_lag_max, purge_lag_max, "Undo records that purge may be behind before writers are slowed.");
ENGINE_NUMBER(temporary_max, temporary_max, "All temporary tables together, in memory and spilled, in bytes.");
ENGINE_NUMBER(log_wait_timeout_ms, log_wait, "How long a change waits for log space, in milliseconds.");

static char *copy_path;
static MYSQL_SYSVAR_STR(copy_to, copy_path, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
                        "Set, it copies the volume while the server runs into this directory, which is made or is empty: all rows of Terrace "
                        "tables, as a crash at the statement's end would leave them. With an object store, a snapshot there keeps what the copy needs (terrace backup)",
                        nullptr, copy_to, "");

static void set_bypass(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  bypass= *static_cast<const my_bool *>(from);
  *static_cast<my_bool *>(to)= bypass;
  terrace_engine_set_bypass(engine, bypass);
}
static MYSQL_SYSVAR_BOOL(bypass, bypass, PLUGIN_VAR_OPCMDARG,
                         "Pages that are built in bulk (loads, ALTER, new indexes) go straight to the volume, past the log and "
                         "memory, and large rows past the log. It counts for statements that begin afterwards",
                         nullptr, set_bypass, TRUE);

static void set_bypass_from(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  bypass_from= *static_cast<const ulonglong *>(from);
  *static_cast<ulonglong *>(to)= bypass_from;
  terrace_engine_set_bypass_from(engine, bypass_from);
}
static MYSQL_SYSVAR_ULONGLONG(bypass_from, bypass_from, PLUGIN_VAR_RQCMDARG,
                              "Rows of so many bytes and more go straight to the volume while terrace_bypass is on. It counts for rows "
                              "written afterwards",
                              nullptr, set_bypass_from, 64 << 10, 0, ULONGLONG_MAX, 0);
static MYSQL_SYSVAR_BOOL(temporary_unlogged, temporary_unlogged, PLUGIN_VAR_OPCMDARG,
                         "Temporary tables are in no log and on no tier that lasts. Off, for comparison: they are made as others are, and "
                         "dropped with their session or at the next start",
                         nullptr, nullptr, TRUE);

static void set_print_all_deadlocks(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  *static_cast<my_bool *>(to)= print_all_deadlocks= *static_cast<const my_bool *>(from);
  print_deadlocks(print_all_deadlocks);
}
static MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                         "Each deadlock is written to the error log, as SHOW ENGINE TERRACE STATUS has the last one",
                         nullptr, set_print_all_deadlocks, FALSE);

static const char *write_policy_names[]= {"auto", "clean", "dual", NullS};
static TYPELIB write_policy_choices= {array_elements(write_policy_names) - 1, "", write_policy_names, nullptr};
static ulong write_policy;

static void set_write_policy(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  write_policy= *static_cast<const ulong *>(from);
  *static_cast<ulong *>(to)= write_policy;
  terrace_engine_set_write_policy(engine, static_cast<uint8_t>(write_policy + 1));
}
static MYSQL_SYSVAR_ENUM(write_policy, write_policy, PLUGIN_VAR_RQCMDARG,
                         "What a flush does to a page's copy on flash, in tables without the option WRITE_POLICY: clean invalidates "
                         "it, dual rewrites it, auto is dual for a checkpoint and clean else",
                         nullptr, set_write_policy, 0, &write_policy_choices);

/* Prices, for the costs that are shown. Those that aren't given have the file's value or the engine's default. */
static double price_memory, price_flash, price_volume, price_object, price_puts, price_gets;
#define ENGINE_PRICE(name, meaning)                                                                                    \
  static MYSQL_SYSVAR_DOUBLE(name, name, FIXED, meaning, nullptr, nullptr, 0, 0, 1e6, 0)
ENGINE_PRICE(price_memory, "Dollars for a GB of memory for a month");
ENGINE_PRICE(price_flash, "Dollars for a GB of local flash for a month");
ENGINE_PRICE(price_volume, "Dollars for a GB of the volume for a month");
ENGINE_PRICE(price_object, "Dollars for a GB in the object store for a month");
ENGINE_PRICE(price_puts, "Dollars for a thousand PUT requests to the object store");
ENGINE_PRICE(price_gets, "Dollars for a thousand GET requests to the object store");

/** With 1 nobody is answered with what a crash can undo; with the others what is committed is seen at once. */
static void set_flush_log(THD *, st_mysql_sys_var *, void *to, const void *from)
{
  const ulong value= *static_cast<const ulong *>(from);
  // What was committed before is durable before the variable says so.
  if (terrace_engine_set_durable_reads(engine, value == FLUSH_AT_COMMIT))
    sql_print_warning("Terrace: what was committed while terrace_flush_log_at_trx_commit was %lu may not be durable: %s",
                      flush_log_at_trx_commit, last_message().c_str());
  *static_cast<ulong *>(to)= value;
}

static MYSQL_SYSVAR_ULONG(flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
                          "1: a commit returns, and is seen by others, when it is durable; 2: when it is written, and survives the end of the server, but not the "
                          "machine's for about a second; 0: at once, and either may lose about the last second",
                          nullptr, set_flush_log, FLUSH_AT_COMMIT, 0, 2, 0);
static const ulonglong LOCK_WAIT_DEFAULT= 50000;
static MYSQL_THDVAR_ULONGLONG(lock_wait_timeout_ms, PLUGIN_VAR_RQCMDARG,
                              "Milliseconds to wait for a row lock. 50000, the default: as long as innodb_lock_wait_timeout says",
                              nullptr, nullptr, LOCK_WAIT_DEFAULT, 0, 100000000000ULL, 0);

static MYSQL_THDVAR_BOOL(snapshot_isolation, PLUGIN_VAR_OPCMDARG,
                         "Strict snapshot isolation, as innodb_snapshot_isolation: a transaction that would lock a row which was changed "
                         "since its view was opened fails (ER_CHECKREAD) and is rolled back",
                         nullptr, nullptr, FALSE);

bool snapshot_isolation(THD *thd) { return THDVAR(thd, snapshot_isolation); }

static const char *foreign_key_names[]= {"refuse", "warn", "enforce", NullS};
static TYPELIB foreign_key_choices= {array_elements(foreign_key_names) - 1, "", foreign_key_names, nullptr};
static MYSQL_THDVAR_ENUM(foreign_keys, PLUGIN_VAR_RQCMDARG,
                         "What becomes of a declared FOREIGN KEY: enforce, refuse (an error) or warn (a warning; the table has no constraint). "
                         "Foreign keys that tables have are enforced in any case",
                         nullptr, nullptr, FOREIGN_KEYS_ENFORCED, &foreign_key_choices);

ulong foreign_keys(THD *thd) { return THDVAR(thd, foreign_keys); }

static const char *backup_stage_names[]= {"refuse", "allow", "copy", NullS};
static TYPELIB backup_stage_choices= {array_elements(backup_stage_names) - 1, "", backup_stage_names, nullptr};
static MYSQL_THDVAR_ENUM(backup_stage, PLUGIN_VAR_RQCMDARG,
                         "What BACKUP STAGE START is while there are Terrace tables, whose rows mariabackup leaves out: refuse (an error), "
                         "allow (they are copied in another way, or with a snapshot of the data directory and the volume at one moment) or "
                         "copy (the volume is copied into terrace_backup_copy_dir until BACKUP STAGE END, of the moment of BLOCK_COMMIT)",
                         nullptr, nullptr, BACKUP_STAGE_REFUSED, &backup_stage_choices);

ulong backup_stage(THD *thd) { return THDVAR(thd, backup_stage); }

static char *backup_copy_path;
static MYSQL_SYSVAR_STR(backup_copy_dir, backup_copy_path, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_MEMALLOC,
                        "Where terrace_backup_stage=copy puts the copy of the volume: a directory which is made or is empty, such as terrace in "
                        "mariabackup's target directory",
                        nullptr, nullptr, "");

std::string backup_copy_directory()
{
  mysql_mutex_lock(&LOCK_global_system_variables);
  const std::string path= backup_copy_path ? backup_copy_path : "";
  mysql_mutex_unlock(&LOCK_global_system_variables);
  return path;
}

/** A session's variable of InnoDB's; null if the server hasn't InnoDB built in: what is loaded could be unloaded. */
static sys_var *find_innodb_variable(const char *name)
{
  const LEX_CSTRING engine_name= {STRING_WITH_LEN("InnoDB")};
  plugin_ref innodb= ha_resolve_by_name(nullptr, &engine_name, false);
  const bool stays= innodb && !plugin_dlib(innodb);
  plugin_unlock(nullptr, innodb);
  mysql_prlock_rdlock(&LOCK_system_variables_hash);
  sys_var *variable= stays ? intern_find_sys_var(name, strlen(name)) : nullptr;
  mysql_prlock_unlock(&LOCK_system_variables_hash);
  return variable && variable->scope() == sys_var::SESSION ? variable : nullptr;
}

ulonglong innodb_lock_wait_ms(THD *thd)
{
  static const sys_var *const innodb= find_innodb_variable("innodb_lock_wait_timeout");        // asked by a statement: all plugins have started
  static const LEX_CSTRING no_base= {nullptr, 0};
  if (!innodb || innodb->show_type() != SHOW_UINT)
    return ULONGLONG_MAX;
  return 1000ULL * *reinterpret_cast<const uint *>(innodb->value_ptr(thd, OPT_SESSION, &no_base));
}

/** Scripts made for InnoDB set its variable, in seconds; who sets ours means it. */
ulonglong lock_wait_ms(THD *thd)
{
  const ulonglong own= THDVAR(thd, lock_wait_timeout_ms);
  const ulonglong innodb= own == LOCK_WAIT_DEFAULT ? innodb_lock_wait_ms(thd) : ULONGLONG_MAX;
  return innodb == ULONGLONG_MAX ? own : innodb;
}

bool innodb_is_strict(THD *thd)
{
  static sys_var *const innodb= find_innodb_variable("innodb_strict_mode");
  static const LEX_CSTRING no_base= {nullptr, 0};
  bool is_null;
  return !innodb || innodb->val_int(&is_null, thd, OPT_SESSION, &no_base);
}

static struct st_mysql_sys_var *variables[]= {
  MYSQL_SYSVAR(config), MYSQL_SYSVAR(volume_path), MYSQL_SYSVAR(flash_path), MYSQL_SYSVAR(object),
  MYSQL_SYSVAR(object_endpoint), MYSQL_SYSVAR(emulate), MYSQL_SYSVAR(metrics_listen), MYSQL_SYSVAR(memory), MYSQL_SYSVAR(log),
  MYSQL_SYSVAR(log_partitions), MYSQL_SYSVAR(object_buffer), MYSQL_SYSVAR(sink_after_ms), MYSQL_SYSVAR(archive_interval_ms), MYSQL_SYSVAR(archive_keep_hours), MYSQL_SYSVAR(flash), MYSQL_SYSVAR(flash_admission), MYSQL_SYSVAR(split), MYSQL_SYSVAR(without),
  MYSQL_SYSVAR(locks_max),
  MYSQL_SYSVAR(log_wait_timeout_ms), MYSQL_SYSVAR(purge_lag_max), MYSQL_SYSVAR(flush_log_at_trx_commit), MYSQL_SYSVAR(lock_wait_timeout_ms),
  MYSQL_SYSVAR(snapshot_isolation), MYSQL_SYSVAR(foreign_keys), MYSQL_SYSVAR(backup_stage), MYSQL_SYSVAR(backup_copy_dir), MYSQL_SYSVAR(copy_to), MYSQL_SYSVAR(memory_max), MYSQL_SYSVAR(temporary_max), MYSQL_SYSVAR(resize_wait_timeout_ms),
  MYSQL_SYSVAR(bypass), MYSQL_SYSVAR(bypass_from), MYSQL_SYSVAR(write_policy), MYSQL_SYSVAR(temporary_unlogged), MYSQL_SYSVAR(print_all_deadlocks), MYSQL_SYSVAR(compression), MYSQL_SYSVAR(sink_requests_max),
  MYSQL_SYSVAR(price_memory), MYSQL_SYSVAR(price_flash), MYSQL_SYSVAR(price_volume),
  MYSQL_SYSVAR(price_object), MYSQL_SYSVAR(price_puts), MYSQL_SYSVAR(price_gets),
  nullptr};

/** The variables that are numbers of the engine's configuration. */
static const struct { const char *name; ulonglong *value; } numbers[]= {
  {"memory", &memory_bytes}, {"log", &log_bytes}, {"log_partitions", &log_partitions},
  {"object_buffer", &object_buffer_bytes}, {"sink_after_ms", &sink_after}, {"archive_interval_ms", &archive_interval}, {"archive_keep_hours", &archive_keep}, {"flash", &flash_bytes},
  {"locks_max", &locks_max}, {"log_wait_timeout_ms", &log_wait},
  {"memory_max", &memory_max_bytes}, {"resize_wait_timeout_ms", &resize_wait},
  {"purge_lag_max", &purge_lag_max}, {"temporary_max", &temporary_max}, {"sink_requests_max", &sink_requests_max}};

static const struct { const char *name; double *value; } prices[]= {
  {"price_memory", &price_memory}, {"price_flash", &price_flash}, {"price_volume", &price_volume},
  {"price_object", &price_object}, {"price_puts", &price_puts}, {"price_gets", &price_gets}};

static const struct { const char *name; char **value; } texts[]= {
  {"volume_path", &volume_path}, {"flash_path", &flash_path}, {"object", &object_url}, {"object_endpoint", &object_endpoint},
  {"emulate", &emulate_profile}, {"metrics_listen", &metrics_listen}, {"compression", &compression},
  {"flash_admission", &flash_admission}, {"split", &split}, {"without", &without}};

/** Whether the variable was given at the start, on the command line or in one of the server's option files. */
static bool is_given(const char *name)
{
  mysql_prlock_rdlock(&LOCK_system_variables_hash);
  const sys_var *variable= intern_find_sys_var(name, strlen(name));
  const bool given= variable && variable->value_origin != sys_var::COMPILE_TIME;
  mysql_prlock_unlock(&LOCK_system_variables_hash);
  return given;
}

/** SHOW VARIABLES tells what is in force: the file's values and the defaults, too. */
static void take_setting(void *, terrace_bytes name, uint64_t value)
{
  auto is= [&](const char *other) { return name.len == strlen(other) && !memcmp(name.data, other, name.len); };
  for (const auto &one : numbers)
    if (is(one.name))
      *one.value= value;
  for (const auto &one : prices)
    if (is(one.name))
      *one.value= (double) value / 1e9;
  // The one that sessions have for themselves: what they begin with.
  if (is("lock_wait_timeout_ms") && !is_given("terrace_lock_wait_timeout_ms"))
    THDVAR(nullptr, lock_wait_timeout_ms)= value;
}

static void take_text(void *, terrace_bytes name, terrace_bytes text)
{
  static std::string kept[array_elements(texts)];
  for (size_t i= 0; i < array_elements(texts); i++)
    if (name.len == strlen(texts[i].name) && !memcmp(name.data, texts[i].name, name.len))
    {
      kept[i].assign(reinterpret_cast<const char *>(text.data), text.len);
      *texts[i].value= kept[i].data();
    }
}

/** A setting that is not in force is in the error log, not only in SHOW VARIABLES. */
static void tell_overruled(void *, terrace_bytes name, terrace_bytes text)
{
  static const char OVERRULED[]= "setting_overruled";
  if (name.len == sizeof OVERRULED - 1 && !memcmp(name.data, OVERRULED, name.len))
    sql_print_warning("Terrace: %.*s", (int) text.len, reinterpret_cast<const char *>(text.data));
}

static void put_text(std::string *toml, const char *key, const char *value)
{
  if (!value || !*value)
    return;
  toml->append(key).append(" = \"");
  for (; *value; value++)
  {
    char escaped[8];
    if (static_cast<unsigned char>(*value) < 0x20 || *value == 0x7f)
    {
      snprintf(escaped, sizeof escaped, "\\u%04X", *value);
      toml->append(escaped);
      continue;
    }
    if (*value == '"' || *value == '\\')
      toml->push_back('\\');
    toml->push_back(*value);
  }
  toml->append("\"\n");
}

static void put_number(std::string *toml, const char *key, ulonglong value)
{
  if (value)
    toml->append(key).append(" = ").append(std::to_string(value)).append("\n");
}

static std::string settings()
{
  static char default_volume[]= "terrace";
  std::string toml;
  // Without a file the volume has a default: a directory in the data directory, which is where the server stands.
  if (!(volume_path && *volume_path) && !(config_path && *config_path))
    volume_path= default_volume;
  put_text(&toml, "volume_path", volume_path);
  put_text(&toml, "flash_path", flash_path);
  put_text(&toml, "flash_admission", flash_admission);
  put_text(&toml, "split", split);
  put_text(&toml, "without", without);
  put_text(&toml, "compression", compression);
  put_text(&toml, "object", object_url);
  put_text(&toml, "object_endpoint", object_endpoint);
  put_text(&toml, "emulate", emulate_profile);
  put_text(&toml, "metrics_listen", metrics_listen);
  for (const auto &one : numbers)
    put_number(&toml, one.name, *one.value);
  for (const auto &one : prices)
    if (is_given((std::string("terrace_") + one.name).c_str()))
    {
      char text[64];
      snprintf(text, sizeof text, "%s = %.9f\n", one.name, *one.value);
      toml.append(text);
    }
  return toml;
}

static bool open_engine()
{
  std::string file;
  if (config_path && *config_path)
  {
    std::ifstream in(config_path);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in)
    {
      sql_print_error("Terrace: can't read the configuration file %s", config_path);
      return false;
    }
    file= text.str();
  }
  const std::string overrides= settings();
  terrace_open_options options= {};
  options.size= sizeof options;
  options.config= bytes_of(file);
  options.overrides= bytes_of(overrides);
  if (terrace_engine_open(&options, &engine) == TERRACE_OK)
    return true;
  sql_print_error("Terrace: the engine can't start: %s", last_message().c_str());
  return false;
}

/** The volume's directory, if it stands in the data directory, is no database. */
static void hide_volume()
{
  if (!volume_path || !*volume_path)
  {
    if (!config_path || !*config_path)
      ignore_db_dirs_append("terrace");
  }
  else if (!strchr(volume_path, FN_LIBCHAR))
    ignore_db_dirs_append(volume_path);
}

static handler *make_handler(handlerton *into, TABLE_SHARE *share, MEM_ROOT *root)
{
  // The first that is heard of the drop of a partitioned table: next the server removes its list.
  if (!share)
    sync_ddl_log_before_drop(current_thd);
  return new (root) ha_terrace(into, share);
}

static int start(void *place)
{
  hton= static_cast<handlerton *>(place);
  hton->db_type= DB_TYPE_AUTOASSIGN;
  hton->create= make_handler;
  hton->flags= HTON_SUPPORTS_EXTENDED_KEYS | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE | HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE |
               HTON_NATIVE_SYS_VERSIONING;
  hton->tablefile_extensions= hton_no_exts;
  fill_transaction_calls(hton);
  fill_definition_calls(hton);
  fill_backup_calls(hton);
  fill_table_options(hton);
  hton->show_status= show_status;
  start_performance();
  if (!open_engine())
    return 1;
  terrace_engine_settings(engine, take_setting, nullptr);
  terrace_engine_texts(engine, take_text, nullptr);
  terrace_engine_notes(engine, tell_overruled, nullptr);
  terrace_engine_set_durable_reads(engine, flush_log_at_trx_commit == FLUSH_AT_COMMIT);
  terrace_engine_set_bypass(engine, bypass);
  terrace_engine_set_bypass_from(engine, bypass_from);
  terrace_engine_set_write_policy(engine, static_cast<uint8_t>(write_policy + 1));
  tell_lock_waits();
  tell_statements();
  print_deadlocks(print_all_deadlocks);
  hide_volume();
  drop_left_temporary_tables();
  read_relations();
  remember_strays();
  drop_left_statistics();
  start_watch();
  if (has_store() && archive_interval)
    start_keeping_definitions();
  return 0;
}

static int stop(void *)
{
  if (!engine)
    return 0;
  stop_keeping_definitions();
  if (has_store())
    keep_definitions();
  stop_watch();
  end_copy();
  if (terrace_engine_close(engine))
    sql_print_error("Terrace: the shutdown failed, the next start recovers: %s", last_message().c_str());
  engine= nullptr;
  return 0;
}

static struct st_mysql_storage_engine storage_engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};

} // namespace terrace

/* A table of information_schema. */
#define TERRACE_VIEW(name, meaning, start)                                                                             \
  {                                                                                                                    \
    MYSQL_INFORMATION_SCHEMA_PLUGIN, &terrace::info_schema_interface, name, "The Terrace authors", meaning,            \
    PLUGIN_LICENSE_GPL, terrace::start, nullptr, 0x0001, nullptr, nullptr, "0.1", MariaDB_PLUGIN_MATURITY_EXPERIMENTAL \
  }

maria_declare_plugin(terrace)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &terrace::storage_engine,
  "Terrace",
  "The Terrace authors",
  "Tiered storage: memory, flash, volume, object store; transactions, row locks",
  PLUGIN_LICENSE_GPL,
  terrace::start,
  terrace::stop,
  0x0001,
  terrace::status_variables,
  terrace::variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_EXPERIMENTAL
},
TERRACE_VIEW("TERRACE_SPACES", "Where the pages of each table and index are", start_spaces),
TERRACE_VIEW("TERRACE_IO", "Requests to the tiers, by purpose", start_io),
TERRACE_VIEW("TERRACE_RULES", "Quotas, limits and placement of tables", start_rules),
TERRACE_VIEW("TERRACE_FOREIGN", "Foreign keys", start_foreign),
TERRACE_VIEW("TERRACE_FOREIGN_COLS", "Columns of foreign keys", start_foreign_cols),
TERRACE_VIEW("TERRACE_INDEX_STATISTICS", "What is where, what was read from where, and what it costs, by index", start_index_statistics),
TERRACE_VIEW("TERRACE_TABLE_STATISTICS", "What is where, what was read from where, and what it costs, by table", start_table_statistics),
TERRACE_VIEW("TERRACE_MISS_RATIO_CURVE", "Expected misses and costs for other sizes of memory and flash", start_miss_ratio_curve),
TERRACE_VIEW("TERRACE_METRICS", "What the engine counts", start_metrics),
TERRACE_VIEW("TERRACE_TRX", "Transactions that run, and what they wait for", start_trx),
TERRACE_VIEW("TERRACE_LOCKS", "Row locks and gap locks that are held or waited for", start_locks),
TERRACE_VIEW("TERRACE_LOCK_WAITS", "Which transaction waits for which", start_lock_waits),
TERRACE_VIEW("TERRACE_LAST_DEADLOCK", "Who waited for whom in the last deadlock, and who gave way", start_last_deadlock),
TERRACE_VIEW("TERRACE_ADVICE", "What more or less flash would bring, in words", start_advice)
maria_declare_plugin_end;
