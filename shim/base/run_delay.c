/* run_delay.c - see run_delay.h. */
#include "base/run_delay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

uint64_t vg_run_delay_ns(void) {
  int saved = errno;
  char text[96] = {0}; /* time on a processor, time without one, turns */
  unsigned long long delay_ns = 0;
  long fd = syscall(SYS_openat, AT_FDCWD, "/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && syscall(SYS_read, fd, text, sizeof text - 1) > 0) sscanf(text, "%*u %llu", &delay_ns);
  if (fd >= 0) syscall(SYS_close, fd);
  errno = saved;
  return delay_ns;
}
