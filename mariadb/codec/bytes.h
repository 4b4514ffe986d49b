/* SPDX-License-Identifier: GPL-2.0-only */
/*
  A growable byte buffer. A handler keeps it between calls, so that a row needs no allocation of its own.
*/
#ifndef TERRACE_BYTES_H
#define TERRACE_BYTES_H

#include <stdlib.h>
#include <string.h>
#include <new>

namespace terrace {

class Bytes
{
public:
  Bytes()= default;
  Bytes(const Bytes &)= delete;
  Bytes &operator=(const Bytes &)= delete;
  ~Bytes() { free(start); }

  unsigned char *data() { return start; }
  const unsigned char *data() const { return start; }
  size_t size() const { return used; }
  bool empty() const { return used == 0; }
  void clear() { used= 0; }
  /** As clear(), and frees the memory. */
  void free_all()
  {
    if (start)
      free(start);
    start= nullptr;
    used= room= 0;
  }
  void shrink(size_t length) { used= length; }

  /** Reserves space for `more` bytes after the end and returns its start. */
  unsigned char *reserve(size_t more)
  {
    if (used + more > room)
    {
      size_t wanted= (used + more) * 2 + 64;
      void *moved= realloc(start, wanted);
      if (!moved)
        throw std::bad_alloc();
      start= static_cast<unsigned char *>(moved);
      room= wanted;
    }
    return start + used;
  }
  /** Appends `length` bytes that the caller has written into reserved space. */
  void take(size_t length) { used+= length; }
  void push(unsigned char byte)
  {
    *reserve(1)= byte;
    used++;
  }
  void append(const void *bytes, size_t length)
  {
    if (length)
      memcpy(reserve(length), bytes, length);
    used+= length;
  }
  void assign(const void *bytes, size_t length)
  {
    used= 0;
    append(bytes, length);
  }
  bool equals(const unsigned char *bytes, size_t length) const
  {
    if (length == 8 && used == 8)
      return !memcmp(start, bytes, 8);  // compiles to no function call
    return used == length && (!length || !memcmp(start, bytes, length));
  }
  /** Whether this buffer's bytes sort before the given bytes, or equal them. */
  bool not_above(const unsigned char *bytes, size_t length) const
  {
    const size_t both= used < length ? used : length;
    const int order= both ? memcmp(start, bytes, both) : 0;
    return order ? order < 0 : used <= length;
  }

private:
  unsigned char *start= nullptr;
  size_t used= 0, room= 0;
};

} // namespace terrace
#endif
