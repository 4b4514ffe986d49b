/* SPDX-License-Identifier: GPL-2.0-only */
/*
  The server's headers, in the order in which they must be included, and the engine's header.
*/
#ifndef TERRACE_SERVER_H
#define TERRACE_SERVER_H

#define MYSQL_SERVER 1
#include <my_global.h>
#include <my_base.h>
#include "sql_class.h"
#include "sql_alter.h"
#include "handler.h"
#include "key.h"
#include "table.h"
#include "field.h"
#include "sql_show.h"
#include "mysql/plugin.h"
#include "log.h"
#include <myisampack.h>

#include "terrace.h"

#endif
