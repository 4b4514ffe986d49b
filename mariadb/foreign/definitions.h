/* SPDX-License-Identifier: GPL-2.0-only */
/* What the files about declared, altered and renamed foreign keys share. */
#ifndef TERRACE_FOREIGN_DEFINITIONS_H
#define TERRACE_FOREIGN_DEFINITIONS_H

#include "relations.h"

namespace terrace {

/** Raises an error that names what is not done. Returns a handler error. */
int refuse_by_name(const std::string &what);
/** The name of the first of `columns` columns whose types are not comparable; null if all are. */
const char *unequal(const KEY *one, const KEY *other, size_t columns);
/** Whether NULL in the parent's column would be copied to a column that can't be NULL. InnoDB looks at it in strict mode, and for no other actions. */
bool copies_null(THD *thd, const ForeignKey &key, const Field *column, const Field *parents);
/** The name of a table's foreign key that has none: as InnoDB's. */
std::string generated_name(const std::string &table, ulong number);
/** The number in a name that was generated for the table; 0 if the name is of another form. */
ulong generated_number(const std::string &table, const std::string &name);
/** The largest of the table's own. */
ulong generated_number(const std::string &table, const Relations *relations);
/** A declaration in a statement on the table (the engine's name). Without a constraint's name it has none. */
ForeignKey read_declared(const std::string &table, Foreign_key *from);

} // namespace terrace
#endif
