/* SPDX-License-Identifier: GPL-2.0-only */
#include "key_words.h"
#include "ha_terrace.h"
#include <mutex>
#include <unordered_map>

namespace terrace {

namespace {

struct Open
{
  std::mutex guard;
  std::unordered_multimap<std::string, const ha_terrace *> tables;
};

} // namespace

/** Never freed: handlers may be closed after the plugin's statics are gone. */
static Open &open_tables()
{
  static Open *all= new Open;
  return *all;
}

void note_open(const std::string &table, const ha_terrace *handler)
{
  std::lock_guard<std::mutex> lock(open_tables().guard);
  open_tables().tables.insert({table, handler});
}

void forget_open(const std::string &table, const ha_terrace *handler)
{
  std::lock_guard<std::mutex> lock(open_tables().guard);
  auto range= open_tables().tables.equal_range(table);
  for (auto at= range.first; at != range.second; ++at)
    if (at->second == handler)
    {
      open_tables().tables.erase(at);
      return;
    }
}

static void put_hex(const uchar *bytes, size_t count, std::string *out)
{
  static const char DIGITS[]= "0123456789abcdef";
  out->append("0x");
  for (const uchar *at= bytes; at < bytes + count; at++)
    out->append({DIGITS[*at >> 4], DIGITS[*at & 15]});
}

static bool bytes_of_hex(const std::string &hex, std::string *bytes)
{
  auto digit= [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (hex.size() % 2)
    return false;
  for (size_t at= 0; at < hex.size(); at+= 2)
  {
    const int high= digit(hex[at]), low= digit(hex[at + 1]);
    if (high < 0 || low < 0)
      return false;                     // the digits were truncated
    bytes->push_back((char) (high << 4 | low));
  }
  return true;
}

/** The bits of a floating-point number, from its bytes in a key. */
template <class Bits> static Bits bits_of_key(const uchar *at, size_t count, uchar invert)
{
  Bits bits= 0;
  for (size_t byte= 0; byte < count; byte++)
    bits= bits << 8 | (uchar) (at[byte] ^ invert);
  const Bits sign= (Bits) 1 << (8 * count - 1);
  return bits & sign ? bits ^ sign : ~bits;
}

/** Formats the value at `*key` and moves past it. `record` has room for a record of the table. */
bool KeyPart::in_words(const uchar **key, const uchar *end, const TABLE *of, TABLE *like, uchar *record, MEM_ROOT *root, std::string *out) const
{
  bool is_null;
  const uchar *value= *key + nullable;
  if (!whole || kind == TEXT || is_cut(*key, end) || !decode(key, end, record, &is_null))
    return false;
  if (is_null)
  {
    out->append("NULL");
    return true;
  }
  const uchar invert= descending ? 0xFF : 0;
  if (kind == FLOAT)
    int4store(record + offset, bits_of_key<uint32>(value, 4, invert));
  else if (kind == DOUBLE)
    int8store(record + offset, bits_of_key<ulonglong>(value, 8, invert));
  if (cs == &my_charset_bin)
  {
    const uchar *bytes;
    size_t count;
    text_of(record, &bytes, &count);
    put_hex(bytes, count, out);
    return true;
  }
  // Uses a cloned field: another session may be using the table's own.
  Field *field= of->field[number]->clone(root, like, 0);
  if (!field)
    return false;
  field->move_field(record + offset, nullable ? record + null_offset : nullptr, null_bit);
  const enum_field_types type= field->real_type();
  if (type == MYSQL_TYPE_ENUM || type == MYSQL_TYPE_SET)
  {
    out->append(std::to_string(field->val_int()));
    return true;
  }
  StringBuffer<MAX_FIELD_WIDTH> buffer;
  String *text= field->val_str(&buffer, &buffer);
  const bool quoted= field->cmp_type() == STRING_RESULT || field->cmp_type() == TIME_RESULT;
  if (quoted)
    out->push_back('\'');
  out->append(text->ptr(), text->length());
  if (quoted)
    out->push_back('\'');
  return true;
}

bool KeyCodec::in_words(const uchar *key, size_t length, const TABLE *of, TABLE *like, std::string *out) const
{
  const uchar *end= key + length;
  std::vector<uchar> record(of->s->rec_buff_length);
  MEM_ROOT root;
  init_alloc_root(PSI_NOT_INSTRUMENTED, &root, 1024, 0, MYF(0));
  bool told= true;
  auto put= [&](const KeyPart &part) {
    out->append(out->empty() ? "" : ", ");
    told= part.in_words(&key, end, of, like, record.data(), &root, out);
  };
  for (size_t at= 0; told && at < parts.size() && key < end; at++)
    put(parts[at]);
  for (size_t at= 0; told && at < tail.size() && key < end; at++)
    if (extension[at] < 0)
      put(tail[at]);
    else
      told= tail[at].skip(&key, end);   // already formatted as one of the index's own parts
  // A row without a primary key is identified by its hidden row id.
  if (told && tail.empty() && end - key == 8)
  {
    out->append(", ");
    put_hex(key, 8, out);
    key= end;
  }
  free_root(&root, MYF(0));
  return told && key == end;
}

static const char INFIMUM[]= "infimum pseudo-record", SUPREMUM[]= "supremum pseudo-record";

/** `of_range`: the key is an end of a range, which may be just after a key. */
static bool key_in_words(const ha_terrace *handler, const std::string &index, const std::string &hex, TABLE *like, bool of_range, std::string *out)
{
  std::string bytes;
  if (hex == "supremum" || (hex.empty() && of_range))
  {
    out->append(hex.empty() ? INFIMUM : SUPREMUM);
    return true;
  }
  if (!bytes_of_hex(hex, &bytes))
    return false;
  std::string words;
  if (handler->key_in_words(index, bytes, like, &words))
  {
    out->append(words);
    return true;
  }
  if (!of_range || bytes.empty() || bytes.back())
    return false;
  // The smallest possible key after another one is that key with a zero byte appended.
  bytes.pop_back();
  words.clear();
  if (!handler->key_in_words(index, bytes, like, &words))
    return false;
  out->append("behind ").append(words);
  return true;
}

bool keys_in_words(const std::string &table, const std::string &index, const std::string &from, const std::string *to, TABLE *like,
                   std::string *out)
{
  std::lock_guard<std::mutex> lock(open_tables().guard);
  const auto at= open_tables().tables.find(table);
  if (at == open_tables().tables.end() || !key_in_words(at->second, index, from, like, to, out))
    return false;
  if (!to)
    return true;
  out->append(" .. ");
  return key_in_words(at->second, index, *to, like, true, out);
}

} // namespace terrace

using namespace terrace;

bool ha_terrace::key_in_words(const std::string &index, const std::string &key, TABLE *like, std::string *out) const
{
  const uchar *bytes= reinterpret_cast<const uchar *>(key.data());
  if (m_hidden && index == ROWS_INDEX)
  {
    put_hex(bytes, key.size(), out);
    return key.size() == 8;
  }
  for (uint at= 0; at < table->s->keys; at++)
    if (index == table->key_info[at].name.str)
      return m_indexes[at].in_words(bytes, key.size(), table, like, out);
  return false;
}
