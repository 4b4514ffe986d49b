/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The engine in performance_schema: its threads, what it reads and writes, what is waited for, its locks, its memory, and the stages of
  long statements.

  The engine calls back for all but stages. If performance_schema is off, it is not asked to.
*/
#ifndef TERRACE_PERFORMANCE_H
#define TERRACE_PERFORMANCE_H

#include "server.h"

namespace terrace {

/** Registers the instruments, and itself with the engine's library. Before the engine is opened. */
void start_performance();

/** While it lives, this thread is shown under the name. */
class Shown_thread
{
public:
  explicit Shown_thread(const char *name);
  ~Shown_thread();
  Shown_thread(const Shown_thread &)= delete;
};

/** A part of a long statement, while it lives: the state in PROCESSLIST, how far it is there (Progress), and both in
    performance_schema. */
class Stage
{
public:
  enum Name { BUILD_TABLE, READ_ROWS, BUILD_INDEX, FOLLOW_CHANGES };
  Stage(THD *thd, Name name);
  ~Stage();
  Stage(const Stage &)= delete;
  /** So much is done. */
  void report(ulonglong done, ulonglong all);
  /** The same for a Stage as the engine's context. False: the statement is killed. */
  static bool told(void *self, uint64_t done, uint64_t all);

private:
  THD *m_thd;
  PSI_stage_info m_before;
};

} // namespace terrace
#endif
