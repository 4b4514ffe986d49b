/*
  A disk on which fdatasync of some files takes long: of those whose path matches TERRACE_SLOW_SYNC, a pattern as of a shell whose stars match
  slashes, too, and TERRACE_SLOW_SYNC_MS milliseconds more than it takes by itself. While the file TERRACE_SYNC_GATE exists it does not return at
  all. So commits wait in memory for the write before theirs.
  Preloaded (LD_PRELOAD) into a server.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *pattern, *gate;
static long milliseconds;

__attribute__((constructor)) static void begin(void)
{
  const char *ms= getenv("TERRACE_SLOW_SYNC_MS");
  gate= getenv("TERRACE_SYNC_GATE");
  milliseconds= ms ? atol(ms) : 0;
  if (!strcmp(program_invocation_short_name, "mariadbd"))
    pattern= getenv("TERRACE_SLOW_SYNC");
}

static int is_slow(int fd)
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

int fdatasync(int fd)
{
  static int (*real)(int);
  if (!real)
    real= (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
  if (is_slow(fd))
  {
    usleep(milliseconds * 1000);
    while (gate && !access(gate, F_OK))
      usleep(1000);
  }
  return real(fd);
}
