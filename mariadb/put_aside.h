/* SPDX-License-Identifier: GPL-2.0-only */
/*
  What a loss of the volume, without the data directory, leaves: the server goes on for a moment while the engine can't follow, and ends
  its statement by its own log of DDL. At the next start nothing in that log tells of it.
*/
#ifndef TERRACE_PUT_ASIDE_H
#define TERRACE_PUT_ASIDE_H

#include "in_doubt.h"

namespace terrace {

/** EXCHANGE PARTITION of which the last of three renames was not made: the partition is under the table's name, the table under a passing one. */
void undo_exchanges();
/**
  DROP TABLE of a partitioned table whose list and partitions are gone: so is its definition, though the power took back that the server removed it
  after its log said that all is done. Before the partitions are forgotten, which tell of it.
*/
void finish_drops();
/** Drops what the server dropped while the volume was gone (failed_drops.h), if it has no definition of it. */
void do_failed_drops();
/**
  Whether another table, which the server knows, has the name that ALTER took from this one. As long as this one's own definition is
  there, it is so only if the same statement named both: else somebody made that table since, and this one has rows of its own.
*/
bool is_replaced(const std::string &name, const Properties &properties, const Tables &tables);
/** A table that ALTER put aside, and whose name nothing has: it comes back under its name, with its definition and its list of partitions. */
void bring_back_put_aside();
/** Names in the error log what has rows and no definition under a name that statements can use. */
void name_undefined();

} // namespace terrace
#endif
