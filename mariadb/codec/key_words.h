/* SPDX-License-Identifier: GPL-2.0-only */
/*
  Keys as readable text, in the form of InnoDB's LOCK_DATA: the values of the columns, separated by commas.

  Decoding a key's bytes needs an open table, so the tables that are open in some handler are registered here, by name. No table is opened for
  this, since a session that inspects locks must not wait for one. Keys that can't be decoded (texts in a language's order, prefixes of
  columns, cut keys) have no text.
*/
#ifndef TERRACE_KEY_WORDS_H
#define TERRACE_KEY_WORDS_H

#include "server.h"
#include <string>

class ha_terrace;

namespace terrace {

/** Registers a handler. Its table and indexes must not change until `forget_open`. */
void note_open(const std::string &table, const ha_terrace *handler);
void forget_open(const std::string &table, const ha_terrace *handler);

/**
  Formats a key, or the range from one key to another.
  @param keys  in the form of LOCK_KEY and LOCK_KEY_END: in hexadecimal digits; `to` is null if there is no second key
  @param like  a table of the calling session
  @return false if the keys can't be decoded
*/
bool keys_in_words(const std::string &table, const std::string &index, const std::string &from, const std::string *to, TABLE *like,
                   std::string *out);

} // namespace terrace
#endif
