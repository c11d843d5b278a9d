/*
 * saturate KERNEL_US SECONDS [sync]: launches back to back for so long (waiting for each with `sync`), then says how
 * many were launched and how much processor time that took. Waits for a line on stdin before it starts.
 */
#include "program.h"
#include <sys/resource.h>

int main(int argc, char **argv) {
  unsigned us = (unsigned)atoi(argv[1]);
  double seconds = atof(argv[2]);
  int sync = argc > 3 && strcmp(argv[3], "sync") == 0;
  begin();
  CUfunction function = spin(us);
  printf("{\"ready\": %d}\n", (int)getpid());
  fflush(stdout);
  if (getchar() == EOF) return 1;
  unsigned long long first = now_ns(), end = first + (unsigned long long)(seconds * 1e9), launches = 0;
  while (now_ns() < end) {
    launch(function, NULL);
    launches++;
    if (sync) CHECK(cuStreamSynchronize(NULL));
  }
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
               (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  printf("{\"launches\": %llu, \"begin_ns\": %llu, \"end_ns\": %llu, \"cpu_seconds\": %.3f}\n", launches, first,
         now_ns(), cpu);
  return 0;
}
