/* Reads files through `terrace files` and prints how many a second: `files SOCKET LIST once|batch|get ROUNDS`, LIST has a path in each line.
 * once: a batch, as it comes; batch: ROUNDS batches of what is cached; get: one after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "terrace_files.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  enum { MAX = 100000, FILE_MAX = 16 << 10, BATCH = 1000 };
  static const char *paths[MAX];
  static terrace_files_item items[BATCH];
  char line[1100];
  size_t count = 0, i, done = 0, some;
  char *buffer = malloc((size_t)BATCH * FILE_MAX);
  FILE *list = argc == 5 ? fopen(argv[2], "r") : NULL;
  terrace_files *fs;
  double began;
  int rounds, round;
  if (list == NULL) return 2;
  rounds = atoi(argv[4]);
  while (count < MAX && fgets(line, sizeof line, list) != NULL) {
    line[strcspn(line, "\n")] = 0;
    paths[count++] = strdup(line);
  }
  if (terrace_files_connect(argv[1], NULL, &fs) != TERRACE_FILES_OK) {
    fprintf(stderr, "%s\n", terrace_files_error());
    return 1;
  }
  memset(buffer, 1, (size_t)BATCH * FILE_MAX);
  began = now();
  for (round = 0; round < rounds; round++) {
    for (i = 0; i < count; i += some) {
      some = count - i < BATCH ? count - i : BATCH;
      if (strcmp(argv[3], "get") == 0) {
        size_t k;
        for (k = 0; k < some; k++)
          if (terrace_files_get(fs, paths[i + k], 0, buffer + k * FILE_MAX, FILE_MAX, NULL) <= 0) {
            fprintf(stderr, "%s: %s\n", paths[i + k], terrace_files_error());
            return 1;
          }
      } else {
        size_t k;
        if (terrace_files_batch_read(fs, paths + i, some, buffer, (size_t)BATCH * FILE_MAX, items) != TERRACE_FILES_OK) {
          fprintf(stderr, "%s\n", terrace_files_error());
          return 1;
        }
        for (k = 0; k < some; k++)
          if (items[k].code != TERRACE_FILES_OK) {
            fprintf(stderr, "%s: code %d\n", paths[i + k], items[k].code);
            return 1;
          }
      }
      done += some;
    }
  }
  printf("%.0f\n", (double)done / (now() - began));
  terrace_files_disconnect(fs);
  return 0;
}
