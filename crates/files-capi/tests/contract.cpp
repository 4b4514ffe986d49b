// Uses terrace_files.hpp against a daemon with flash: `contract_cpp SOCKET`.
#include <cstdio>
#include <cstdlib>

#include "terrace_files.hpp"

#define CHECK(what)                                                \
  do {                                                             \
    if (!(what)) {                                                 \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #what);      \
      std::exit(1);                                                \
    }                                                              \
  } while (0)

using namespace terrace::files;

template <class Work>
static int code_of(Work work) {
  try {
    work();
    return TERRACE_FILES_OK;
  } catch (const Error &error) {
    CHECK(std::string(error.what()).size() > 0);
    return error.code;
  }
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  CHECK(code_of([] { Connection("/nowhere/socket"); }) == TERRACE_FILES_UNAVAILABLE);
  Connection fs(argv[1]);
  const std::string large(20 << 20, 'l');
  fs.put("cpp/large", large);
  fs.put("cpp/empty", "");
  CHECK(fs.get("cpp/large") == large && fs.get("cpp/large") == large && fs.get("cpp/empty").empty());
  CHECK(code_of([&] { fs.get("cpp/none"); }) == TERRACE_FILES_ABSENT);
  CHECK(fs.stat("cpp/large").length == large.size());
  {
    File file = fs.open("cpp/large");
    char buffer[10];
    file.seek(5);
    CHECK(file.read(buffer, sizeof buffer) == 10 && file.tell() == 15 && file.pread(buffer, 10, large.size() - 3) == 3);
    File given_up = fs.open("cpp/given-up", TERRACE_FILES_WRITE);
    given_up.write("bytes");
  }
  CHECK(code_of([&] { fs.stat("cpp/given-up"); }) == TERRACE_FILES_ABSENT);
  {
    Lease lease = fs.lease("cpp/large", 1);
    std::size_t size = 0;
    for (std::string_view piece : lease.pieces()) size += piece.size();
    CHECK(size == large.size() - 1 && lease.pieces().size() == 3);
  }
  {
    Group group = fs.group();
    group.put("cpp/g/1", "one");
    group.put("cpp/g/2", large);
    CHECK(fs.list("cpp/g").empty() && !group.name().empty());
    CHECK(group.commit() == 2 && code_of([&] { group.commit(); }) == TERRACE_FILES_INVALID);
  }
  CHECK(fs.get("cpp/g/1") == "one" && fs.get("cpp/g/2") == large && fs.list("cpp/g").size() == 2);
  {
    Group forgotten = fs.group();
    forgotten.put("cpp/g/3", "three");
    Group aborted = fs.group();
    aborted.put("cpp/g/4", "four");
    aborted.abort();
    CHECK(code_of([&] { fs.resume("0123"); }) == TERRACE_FILES_INVALID);
    Group exclusive = fs.group();
    File file = exclusive.open("cpp/g/1", true);
    file.write("other");
    file.close();
    CHECK(code_of([&] { exclusive.commit(); }) == TERRACE_FILES_EXISTS);
  }
  CHECK(fs.list("cpp/g").size() == 2 && fs.get("cpp/g/1") == "one");
  const std::vector<int> codes = fs.prefetch({"cpp/empty", "cpp/none"});
  CHECK(codes[0] == TERRACE_FILES_OK && codes[1] == TERRACE_FILES_ABSENT);
  fs.remove("cpp/empty");
  CHECK(fs.remove_below("cpp") == 3 && fs.list().empty());
  std::puts("every contract holds");
}
