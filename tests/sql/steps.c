/*
  Counts what a server asks of its file system, and kills it when a given number is reached: before that request, so that every
  state between two of them can be left by a crash. Preloaded (LD_PRELOAD); TERRACE_STEPS names a file of 512 bytes that is shared
  with the test: steps left until the kill (0: none are counted), the name of the last step, and what a file's name must have in it
  for its steps to be counted.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

struct shared
{
  int64_t left;
  char last[440];
  char only[64];
};
static struct shared *shared;

__attribute__((constructor)) static void begin(void)
{
  const char *path= getenv("TERRACE_STEPS");
  if (!path || strcmp(program_invocation_short_name, "mariadbd"))
    return;
  int fd= open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return;
  void *at= mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED)
    shared= at;
}

static void step(const char *what, const char *name)
{
  if (!shared || __atomic_load_n(&shared->left, __ATOMIC_RELAXED) <= 0 || (shared->only[0] && (!name || !strstr(name, shared->only))))
    return;
  int64_t left= __atomic_fetch_sub(&shared->left, 1, __ATOMIC_SEQ_CST);
  if (left != 1)
    return;
  snprintf(shared->last, sizeof shared->last, "%s %s", what, name ? name : "");
  kill(getpid(), SIGKILL);
  for (;;)
    pause();
}

static void step_of_file(const char *what, int fd)
{
  struct stat about;
  if (!shared || __atomic_load_n(&shared->left, __ATOMIC_RELAXED) <= 0 || fstat(fd, &about) || !S_ISREG(about.st_mode))
    return;
  char link[40], name[256];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length= readlink(link, name, sizeof name - 1);
  name[length < 0 ? 0 : length]= 0;
  step(what, name);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real= (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

int rename(const char *from, const char *to) { REAL(rename); step("rename", from); return real(from, to); }
int link(const char *from, const char *to) { REAL(link); step("link", to); return real(from, to); }
int unlink(const char *path) { REAL(unlink); step("unlink", path); return real(path); }
int unlinkat(int dir, const char *path, int flags) { REAL(unlinkat); step("unlinkat", path); return real(dir, path, flags); }
int rmdir(const char *path) { REAL(rmdir); step("rmdir", path); return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); step("mkdir", path); return real(path, mode); }
int fsync(int fd) { REAL(fsync); step_of_file("fsync", fd); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); step_of_file("fdatasync", fd); return real(fd); }
int ftruncate64(int fd, off64_t length) { REAL(ftruncate64); step_of_file("ftruncate", fd); return real(fd, length); }
ssize_t write(int fd, const void *bytes, size_t length) { REAL(write); step_of_file("write", fd); return real(fd, bytes, length); }
ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
  REAL(pwrite64);
  step_of_file("pwrite", fd);
  return real(fd, bytes, length, at);
}

/* A batch of the engine's. */
long syscall(long number, ...)
{
  REAL(syscall);
  va_list rest;
  va_start(rest, number);
  long a= va_arg(rest, long), b= va_arg(rest, long), c= va_arg(rest, long), d= va_arg(rest, long), e= va_arg(rest, long),
       f= va_arg(rest, long);
  va_end(rest);
  if (number == SYS_io_uring_enter && b > 0)
    step("io_uring_enter", NULL);
  return real(number, a, b, c, d, e, f);
}
