/* SPDX-License-Identifier: GPL-2.0-only */
/* The engine's counters: SHOW STATUS LIKE 'Terrace%' and SHOW ENGINE TERRACE STATUS. */
#ifndef TERRACE_STATUS_H
#define TERRACE_STATUS_H

#include "server.h"

namespace terrace {

extern struct st_mysql_show_var status_variables[];
bool show_status(handlerton *hton, THD *thd, stat_print_fn *print, enum ha_stat_type type);

} // namespace terrace
#endif
