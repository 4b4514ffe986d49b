/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The server's files about tables, in its data directory: a definition (.frm) and, for a partitioned table, a list of its partitions
  (.par). Tables are named as the engine names them: `db/table` in the server's file name encoding.
*/
#ifndef TERRACE_DEFINITION_FILES_H
#define TERRACE_DEFINITION_FILES_H

#include "server.h"
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace terrace {

/** Separates a table's name from a partition's. */
static const char MARK[]= "#P#";

bool is_partition(const std::string &name);
/** The table that a partition belongs to; for a table that isn't a partition, the table itself. */
std::string table_of(const std::string &name);

/** Whether the server has such a file for a table; true if that can't be determined. */
bool has_file(const std::string &table, const char *extension);
/** The names in a list if its partitions are this engine's. `whosever`: accepts any engine number, as that in the list may be from an earlier start. */
std::vector<std::string> names_in(const std::filesystem::path &list, bool whosever= false);
/** The version in a definition; empty if it has none. */
std::string version_in(const std::filesystem::path &frm);
/** The engine that a definition names (for a partitioned table, the engine of its partitions); empty if it can't be determined. */
std::string engine_in(const std::filesystem::path &frm);
/** Whether the definition shows that the table certainly belongs to another engine and isn't partitioned. */
bool is_of_another_engine(const std::string &table);
/** Whether the table's definition is that of a partitioned table. */
bool is_of_partitions(const std::string &table);
std::filesystem::path file_of(const std::string &table, const char *extension);

/** Calls `each` with every file with this extension in any database, and its table. */
void for_each_file(const char *extension, const std::function<void(const std::filesystem::path &, const std::string &)> &each);
/** Calls `each` with every table that has a definition, and the definition's version. */
void for_each_definition(const std::function<void(const std::string &table, const std::string &version)> &each);

/**
  The table that the server changes under the temporary name `db/start-number-table`; empty if the name isn't of that form. The name contains
  the table's name as the user wrote it, not in the encoding of the table's own files.
*/
std::string named_in(const std::string &passing, const std::string &start);

/** Renames the definition of `from` to be that of `to`, durably. */
void install_definition(const std::string &from, const std::string &to);
void remove_definition(const std::string &table);
/** Makes a second name for a definition, under which it is found until forget_definitions(). */
void keep_definition_file(const std::string &table);
void forget_definitions();
/** Syncs the server's DDL log: its records of the running statements are durable when this returns. */
void sync_ddl_log();
/** Syncs the table's list of partitions. */
void sync_list(const std::string &table);
/** Syncs the table's list of partitions, and any list that the server writes to replace it. */
void sync_lists(const std::string &table);
/** Syncs the directory of a database: files created, renamed and removed in it are durable when this returns. */
void sync_directory(const std::string &database);

} // namespace terrace
#endif
