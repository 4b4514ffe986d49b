/* SPDX-License-Identifier: GPL-2.0-only */
#include "awaited.h"
#include <algorithm>
#include <string_view>

namespace terrace {

void AwaitedParents::add(const std::string &name, const Bytes &bytes)
{
  auto of= std::find_if(links.begin(), links.end(), [&](const Keys &keys) { return keys.name == name; });
  if (of == links.end())
    of= links.insert(of, Keys{name, {}, {}});
  // Rows often come in the order of a parent.
  if (!of->all.empty())
  {
    const Key &last= of->all.back();
    if (bytes.equals(reinterpret_cast<const unsigned char *>(of->bytes.data()) + last.begin, last.length))
      return;
  }
  of->all.push_back({of->bytes.size(), bytes.size(), row});
  of->bytes.append(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  count++;
}

AwaitedParents::Keys AwaitedParents::take(const std::string &name)
{
  for (auto of= links.begin(); of != links.end(); of++)
    if (of->name == name)
    {
      Keys taken= std::move(*of);
      links.erase(of);
      count-= taken.all.size();
      return taken;
    }
  return Keys{name, {}, {}};
}

void AwaitedParents::Keys::sort()
{
  const auto text= [&](const Key &key) { return std::string_view(bytes.data() + key.begin, key.length); };
  // Of equal keys that of the first row comes first.
  std::stable_sort(all.begin(), all.end(), [&](const Key &one, const Key &other) { return text(one) < text(other); });
  all.erase(std::unique(all.begin(), all.end(), [&](const Key &one, const Key &other) { return text(one) == text(other); }), all.end());
}

} // namespace terrace
