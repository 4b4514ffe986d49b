/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The engine in performance_schema: its threads, reads and writes, waits, locks and memory, and the stages of long statements.

  The engine makes callbacks for all of these except stages. If performance_schema is disabled, no callbacks are registered.
*/
#ifndef TERRACE_PERFORMANCE_H
#define TERRACE_PERFORMANCE_H

#include "server.h"

namespace terrace {

/** Registers the instruments with the server, and the callbacks with the engine's library. Called before the engine is opened. */
void start_performance();

/** While this object lives, the thread is shown under the name. */
class Shown_thread
{
public:
  explicit Shown_thread(const char *name);
  ~Shown_thread();
  Shown_thread(const Shown_thread &)= delete;
};

/** A stage of a long statement, for as long as this object lives: its state and progress in PROCESSLIST, and both in performance_schema. */
class Stage
{
public:
  enum Name { BUILD_TABLE, READ_ROWS, BUILD_INDEX, FOLLOW_CHANGES };
  Stage(THD *thd, Name name);
  ~Stage();
  Stage(const Stage &)= delete;
  /** Reports that `done` of `all` units of work are done. */
  void report(ulonglong done, ulonglong all);
  /** The same as a callback of the engine; `self` is the Stage. Returns false if the statement has been killed. */
  static bool told(void *self, uint64_t done, uint64_t all);

private:
  THD *m_thd;
  PSI_stage_info m_before;
};

} // namespace terrace
#endif
