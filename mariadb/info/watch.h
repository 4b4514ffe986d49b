/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_WATCH_H
#define TERRACE_WATCH_H

namespace terrace {

/** Starts the thread that reports the engine's problems in the error log, when they begin and when they are over. */
void start_watch();
/** Stops the thread, while the engine is still open. */
void stop_watch();

} // namespace terrace

#endif
