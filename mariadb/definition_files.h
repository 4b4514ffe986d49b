/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The server's files about tables, in its data directory: a definition (.frm), and of a partitioned table a list of its partitions
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

/** Between a table's name and a partition's. */
static const char MARK[]= "#P#";

bool is_partition(const std::string &name);
/** The table that a partition belongs to; of another table, itself. */
std::string table_of(const std::string &name);

/** Whether the server has such a file of a table; if that can't be known, it has. */
bool has_file(const std::string &table, const char *extension);
/** The names that a list has, if its partitions are this engine's. `whosever`: the number that it has for the engine may be one of another time. */
std::vector<std::string> names_in(const std::filesystem::path &list, bool whosever= false);
/** The version in a definition; empty: there is none. */
std::string version_in(const std::filesystem::path &frm);
/** The engine that a definition names, of a partitioned table that of its partitions; empty: it can't be known. */
std::string engine_in(const std::filesystem::path &frm);
/** Whether the definition says that the table is certainly not this engine's, nor partitioned. */
bool is_of_another_engine(const std::string &table);
/** Whether the table's definition is that of a partitioned one. */
bool is_of_partitions(const std::string &table);
std::filesystem::path file_of(const std::string &table, const char *extension);

/** Calls `each` with every file of this extension in a database, and its table. */
void for_each_file(const char *extension, const std::function<void(const std::filesystem::path &, const std::string &)> &each);
/** Calls `each` with every table that has a definition, and the definition's version. */
void for_each_definition(const std::function<void(const std::string &table, const std::string &version)> &each);

/**
  The table that the server changes by this name, `db/start-number-table`; empty: it is no such name. The table's name stands in it as the user
  wrote it, not as in the table's own files.
*/
std::string named_in(const std::string &passing, const std::string &start);

/** Gives a table the definition that has another name, durably. */
void install_definition(const std::string &from, const std::string &to);
void remove_definition(const std::string &table);
/** Another name for a definition, under which it is found until forget_definitions(). */
void keep_definition_file(const std::string &table);
void forget_definitions();
/** What the server has noted of the statements at hand is durable when it returns. */
void sync_ddl_log();
/** The table's list of partitions is durable when it returns. */
void sync_list(const std::string &table);
/** The table's list of partitions, and one that the server makes to take its place, are durable when it returns. */
void sync_lists(const std::string &table);
/** What was done to the files of a database is durable when it returns. */
void sync_directory(const std::string &database);

} // namespace terrace
#endif
