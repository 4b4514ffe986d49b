/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_BACKUP_H
#define TERRACE_BACKUP_H

#include "server.h"

namespace terrace {

/** Puts the calls of BACKUP STAGE into the handlerton. */
void fill_backup_calls(handlerton *into);

/** Called at the engine's shutdown: discards a copy that is in progress. */
void end_copy();

} // namespace terrace
#endif
