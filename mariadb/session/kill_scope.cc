/* SPDX-License-Identifier: GPL-2.0-only */
#include "kill_scope.h"
#include "globals.h"

namespace terrace {

/** The session whose KILL is observed; null if there is none, and while the engine is being installed, as it has no slot in sessions yet. */
static THD *listener() { return hton->slot == HA_SLOT_UNDEF ? nullptr : current_thd; }

Heard::Heard()
{
  THD *thd= listener();
  if (!thd)
    return;
  terrace_cancel *waits= Session::of(thd)->own_waits();
  terrace_cancel_clear(waits);
  // A KILL may have come before kill_query could find the handle.
  if (is_killed(thd))
    terrace_txn_cancel(waits);
  scope= terrace_scope_begin(waits);
}

Heard::Heard(terrace_txn *txn)
{
  THD *thd= listener();
  if (!thd || terrace_txn_cancel_handle(txn, &own))
    return;
  session= Session::of(thd);
  session->hear(own);
  if (is_killed(thd))
    terrace_txn_cancel(own);
}

Heard::~Heard()
{
  terrace_scope_end(scope);
  if (session)
    session->unhear(own);
  terrace_cancel_close(own);
}

} // namespace terrace
