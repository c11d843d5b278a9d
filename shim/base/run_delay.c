/* run_delay.c - see run_delay.h. */
#include "base/run_delay.h"

#include <stdio.h>

#include "base/prim.h"

uint64_t vg_run_delay_ns(void) {
  char text[96]; /* time on a processor, time without one, turns */
  unsigned long long delay_ns = 0;
  if (vg_prim_read_file("/proc/thread-self/schedstat", text, sizeof text) == 0) sscanf(text, "%*u %llu", &delay_ns);
  return delay_ns;
}
