/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_BACKUP_H
#define TERRACE_BACKUP_H

#include "server.h"

namespace terrace {

/** Puts the calls of BACKUP STAGE into the handlerton. */
void fill_backup_calls(handlerton *into);

/** The engine ends: a copy that is under way is not to be. */
void end_copy();

} // namespace terrace
#endif
