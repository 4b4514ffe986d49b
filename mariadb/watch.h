/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_WATCH_H
#define TERRACE_WATCH_H

namespace terrace {

/** Starts the thread that writes the engine's troubles into the error log when they come and when they have gone. */
void start_watch();
/** Ends it; the engine is still open. */
void stop_watch();

} // namespace terrace

#endif
