/*
 * clock.c - preloaded: CLOCK_REALTIME is off by as many seconds as the file CLOCK_OFF says, as if it had been set.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long off_s(void) {
  const char *path = getenv("CLOCK_OFF");
  FILE *file = path ? fopen(path, "re") : NULL;
  long seconds = 0;
  if (file && fscanf(file, "%ld", &seconds) != 1) seconds = 0;
  if (file) fclose(file);
  return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  long rc = syscall(SYS_clock_gettime, clock, now);
  if (rc == 0 && clock == CLOCK_REALTIME) now->tv_sec += off_s();
  return (int)rc;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &exact);
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *ret_seconds) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (ret_seconds) *ret_seconds = now.tv_sec;
  return now.tv_sec;
}
