/*
  A disk that says of some files and directories that they are synced, and does nothing: those whose path matches TERRACE_UNSYNCED, a
  pattern as of a shell whose stars match slashes, too. Or, where TERRACE_SYNC_FAILS names a file, a disk whose syncs of the matching files fail with EIO
  once that file exists. Preloaded (LD_PRELOAD) into a server.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *pattern, *fails;

__attribute__((constructor)) static void begin(void)
{
  if (!strcmp(program_invocation_short_name, "mariadbd"))
  {
    pattern= getenv("TERRACE_UNSYNCED");
    fails= getenv("TERRACE_SYNC_FAILS");
  }
}

static int is_left_out(int fd)
{
  char link[40], name[4096];
  if (!pattern)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length= readlink(link, name, sizeof name - 1);
  if (length < 0)
    return 0;
  name[length]= 0;
  return !fnmatch(pattern, name, 0);
}

#define REAL(name) static __typeof__(name) *real; if (!real) real= (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

static int left_out(void)
{
  if (!fails)
    return 0;
  errno= EIO;
  return -1;
}

static int syncs(int fd) { return !is_left_out(fd) || (fails && access(fails, F_OK)); }

int fsync(int fd) { REAL(fsync); return syncs(fd) ? real(fd) : left_out(); }
int fdatasync(int fd) { REAL(fdatasync); return syncs(fd) ? real(fd) : left_out(); }
