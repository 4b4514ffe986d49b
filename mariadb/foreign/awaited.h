/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Keys of parents that the rows of a bulk load refer to. They are looked for together: in the order of the parent's index, each key once, and what is not in
  memory is fetched side by side.
*/
#ifndef TERRACE_AWAITED_H
#define TERRACE_AWAITED_H

#include "bytes.h"
#include "terrace.h"
#include <my_global.h>
#include <my_base.h>
#include <string>
#include <vector>

namespace terrace {

class AwaitedParents
{
public:
  struct Key
  {
    size_t begin, length;               // in Keys::bytes
    ha_rows row;                        // the first row that refers to it
  };
  /** Those of one foreign key. */
  struct Keys
  {
    std::string name;                   // the foreign key's
    std::string bytes;
    std::vector<Key> all;

    terrace_bytes bytes_of(const Key &key) const
    {
      return {reinterpret_cast<const uint8_t *>(bytes.data()) + key.begin, key.length};
    }
    /** Sorts them and leaves each once. */
    void sort();
  };

  /** The current row refers to a key, encoded for the parent's index. */
  void add(const std::string &name, const Bytes &bytes);
  void end_row() { row++; }
  bool are_many() const { return count >= MANY; }
  bool empty() const { return !count; }
  /** Gives the keys of a foreign key away. */
  Keys take(const std::string &name);
  void clear() { links.clear(), count= 0; }

private:
  static const size_t MANY= 1024;
  std::vector<Keys> links;
  size_t count= 0;
  ha_rows row= 0;
};

} // namespace terrace
#endif
