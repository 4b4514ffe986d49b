/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Keys as people read them, as InnoDB's LOCK_DATA has them: the values of the columns, by comma.

  What a key's bytes mean only an open table knows: so those that are open in some handler are known here, by name. Nobody's table is opened for
  that, since who looks at locks is to wait for none. Of a key that can't be turned back (texts by a language's order, prefixes of
  columns, keys that are cut) there are no words.
*/
#ifndef TERRACE_KEY_WORDS_H
#define TERRACE_KEY_WORDS_H

#include "server.h"
#include <string>

class ha_terrace;

namespace terrace {

/** From now on, until `forget_open`, the handler's table and indexes stay as they are. */
void note_open(const std::string &table, const ha_terrace *handler);
void forget_open(const std::string &table, const ha_terrace *handler);

/**
  Of a key, or of the range from one to another.
  @param keys  as LOCK_KEY and LOCK_KEY_END are: in hexadecimal digits; the second is null where there is none
  @param like  a table of the calling session
  @return false: it can't be told
*/
bool keys_in_words(const std::string &table, const std::string &index, const std::string &from, const std::string *to, TABLE *like,
                   std::string *out);

} // namespace terrace
#endif
