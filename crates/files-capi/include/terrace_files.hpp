/* terrace_files.h for C++: handles that close themselves, and errors as exceptions. Header only, C++17.
 *
 *   terrace::files::Connection fs;
 *   std::string bytes = fs.get("table/part-0.parquet");
 *   auto group = fs.group();
 *   group.put("out/1", bytes);
 *   group.commit();
 *
 * What terrace_files.h says holds: a connection, and all that comes from it, is for one thread at a time, and outlives what came from it. */
#ifndef TERRACE_FILES_HPP
#define TERRACE_FILES_HPP

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "terrace_files.h"

namespace terrace {
namespace files {

/* What failed; `code` is one of TERRACE_FILES_…. */
class Error : public std::runtime_error {
 public:
  explicit Error(int code) : std::runtime_error(terrace_files_error()), code(code) {}
  const int code;
};

inline void check(int code) {
  if (code != TERRACE_FILES_OK) throw Error(code);
}

inline std::size_t check_number(std::int64_t number) {
  if (number < 0) throw Error(static_cast<int>(-number));
  return static_cast<std::size_t>(number);
}

template <class T, void (*End)(T *)>
struct Ends {
  void operator()(T *handle) const { End(handle); }
};

/* An open file. One that is written and not closed is given up. */
class File {
 public:
  explicit File(terrace_files_file *file) : file_(file) {}
  std::size_t read(void *into, std::size_t size) { return check_number(terrace_files_read(file_.get(), into, size)); }
  std::size_t pread(void *into, std::size_t size, std::uint64_t offset) { return check_number(terrace_files_pread(file_.get(), into, size, offset)); }
  void seek(std::uint64_t offset) { check(terrace_files_seek(file_.get(), offset)); }
  std::uint64_t tell() const { return terrace_files_tell(file_.get()); }
  void write(std::string_view bytes) { check(terrace_files_write(file_.get(), bytes.data(), bytes.size())); }
  void close() { check(terrace_files_close(file_.release())); }

 private:
  std::unique_ptr<terrace_files_file, Ends<terrace_files_file, terrace_files_abandon>> file_;
};

/* Leased bytes, where the daemon has them. */
class Lease {
 public:
  Lease(terrace_files *fs, const std::string &path, std::uint64_t offset, std::uint64_t size) {
    terrace_files_lease *lease = nullptr;
    const terrace_files_piece *pieces = nullptr;
    std::size_t count = 0;
    check(terrace_files_lease_get(fs, path.c_str(), offset, size, &lease, &pieces, &count));
    lease_.reset(lease);
    for (std::size_t i = 0; i < count; i++) pieces_.emplace_back(reinterpret_cast<const char *>(pieces[i].data), pieces[i].size);
  }
  const std::vector<std::string_view> &pieces() const { return pieces_; }

 private:
  std::unique_ptr<terrace_files_lease, Ends<terrace_files_lease, terrace_files_lease_release>> lease_;
  std::vector<std::string_view> pieces_;
};

/* Files that become visible together. One that is not committed is aborted. */
class Group {
 public:
  explicit Group(terrace_files_group *group) : group_(group) {}
  std::string name() const { return terrace_files_group_name(group_.get()); }
  File open(const std::string &path, bool exclusive = false) {
    terrace_files_file *file = nullptr;
    check(terrace_files_group_open(group_.get(), path.c_str(), TERRACE_FILES_WRITE | (exclusive ? TERRACE_FILES_EXCLUSIVE : 0), &file));
    return File(file);
  }
  void put(const std::string &path, std::string_view bytes) {
    File file = open(path);
    file.write(bytes);
    file.close();
  }
  std::uint64_t commit() {
    std::uint64_t count = 0;
    check(terrace_files_group_commit(group_.get(), &count));
    return count;
  }
  void abort() { check(terrace_files_group_abort(group_.get())); }

 private:
  std::unique_ptr<terrace_files_group, Ends<terrace_files_group, terrace_files_group_free>> group_;
};

struct Entry {
  std::string path;
  std::uint64_t length;
};

class Connection {
 public:
  /* Empty: where daemons listen by default; any store. */
  explicit Connection(const std::string &socket = "", const std::string &target = "") {
    terrace_files *fs = nullptr;
    check(terrace_files_connect(socket.empty() ? nullptr : socket.c_str(), target.empty() ? nullptr : target.c_str(), &fs));
    fs_.reset(fs);
  }
  File open(const std::string &path, int flags = TERRACE_FILES_READ) {
    terrace_files_file *file = nullptr;
    check(terrace_files_open(fs_.get(), path.c_str(), flags, &file));
    return File(file);
  }
  terrace_files_info stat(const std::string &path) {
    terrace_files_info info;
    check(terrace_files_stat(fs_.get(), path.c_str(), &info));
    return info;
  }
  /* A whole file. If it changes while its length is asked for, it is read again. */
  std::string get(const std::string &path) {
    std::uint64_t length = stat(path).length;
    for (;;) {
      std::string bytes(static_cast<std::size_t>(length), '\0');
      std::uint64_t now = 0;
      std::size_t got = check_number(terrace_files_get(fs_.get(), path.c_str(), 0, &bytes[0], bytes.size(), &now));
      if (now <= bytes.size()) {
        bytes.resize(got);
        return bytes;
      }
      length = now;
    }
  }
  void put(const std::string &path, std::string_view bytes) {
    File file = open(path, TERRACE_FILES_WRITE);
    file.write(bytes);
    file.close();
  }
  Lease lease(const std::string &path, std::uint64_t offset = 0, std::uint64_t size = ~std::uint64_t(0)) { return Lease(fs_.get(), path, offset, size); }
  Group group() {
    terrace_files_group *group = nullptr;
    check(terrace_files_group_begin(fs_.get(), &group));
    return Group(group);
  }
  Group resume(const std::string &name) {
    terrace_files_group *group = nullptr;
    check(terrace_files_group_resume(fs_.get(), name.c_str(), &group));
    return Group(group);
  }
  /* A code for each. */
  std::vector<int> prefetch(const std::vector<std::string> &paths) {
    std::vector<const char *> names;
    for (const std::string &path : paths) names.push_back(path.c_str());
    std::vector<int> codes(paths.size());
    check(terrace_files_prefetch(fs_.get(), names.data(), names.size(), codes.data()));
    return codes;
  }
  std::vector<Entry> list(const std::string &folder = "") {
    std::vector<Entry> found;
    check(terrace_files_list(fs_.get(), folder.c_str(), add, &found));
    return found;
  }
  void remove(const std::string &path) { check(terrace_files_delete(fs_.get(), path.c_str())); }
  std::uint64_t remove_below(const std::string &folder) {
    std::uint64_t count = 0;
    check(terrace_files_delete_prefix(fs_.get(), folder.c_str(), &count));
    return count;
  }

 private:
  /* Called from C, which no exception may pass: out of memory ends the listing. */
  static int add(void *found, const char *path, std::uint64_t length) noexcept {
    try {
      static_cast<std::vector<Entry> *>(found)->push_back(Entry{path, length});
      return 0;
    } catch (...) {
      return 1;
    }
  }
  std::unique_ptr<terrace_files, Ends<terrace_files, terrace_files_disconnect>> fs_;
};

}  // namespace files
}  // namespace terrace

#endif
