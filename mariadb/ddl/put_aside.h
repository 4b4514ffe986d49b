/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Repairs what is left after a loss of the volume without the data directory: the server continues for a moment while the engine can't follow,
  and ends its statement by its own DDL log. At the next start nothing in that log mentions the statement.
*/
#ifndef TERRACE_PUT_ASIDE_H
#define TERRACE_PUT_ASIDE_H

#include "in_doubt.h"

namespace terrace {

/** Undoes an EXCHANGE PARTITION whose last of three renames is missing: the partition has the table's name, and the table a temporary one. */
void undo_exchanges();
/**
  Finishes the DROP TABLE of a partitioned table whose list and partitions are gone, by removing its definition: the server removed it after its
  log said that all was done, but a power loss undid the removal. Called before the records of the dropped partitions, which show this case,
  are removed.
*/
void finish_drops();
/** Drops the tables that the server dropped while the volume was unavailable (failed_drops.h), if it has no definition of them. */
void do_failed_drops();
/**
  Whether another table that the server knows has the name that ALTER took from this one. While this table's own definition exists, that
  counts only if the same statement renamed both: otherwise the other table was created later, and this table has rows of its own.
*/
bool is_replaced(const std::string &name, const Properties &properties, const Tables &tables);
/** Restores tables that ALTER moved aside, if their name is unused, under that name, with their definition and list of partitions. */
void bring_back_put_aside();
/** Reports in the error log tables that have rows but no definition under a name that statements can use. */
void name_undefined();

} // namespace terrace
#endif
