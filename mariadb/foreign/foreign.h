/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TERRACE_FOREIGN_H
#define TERRACE_FOREIGN_H

#include "link.h"
#include <memory>
#include <vector>

namespace terrace {

/** What a handler keeps of the relations of its table. */
struct Foreign
{
  std::shared_ptr<const Relations> relations;
  std::vector<std::unique_ptr<Link>> parents, children;
  Bytes bytes, own;
  bool is_changed= false;               // cascades may change rows of the table
  bool cascades= false;                 // changes of its rows may change rows of other tables
  bool comes_back= false;               // and so other rows of this one
};

} // namespace terrace
#endif
