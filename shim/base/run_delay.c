/* run_delay.c - see run_delay.h. */
#include "base/run_delay.h"

#include "base/prim.h"

/* The second number of the file: time on a processor, time without one, turns. */
uint64_t vg_run_delay_ns(void) {
  char text[96];
  uint64_t delay_ns = 0;
  if (vg_prim_read_file("/proc/thread-self/schedstat", text, sizeof text) < 0) return 0;
  const char *at = text;
  while (*at && *at != ' ') at++;
  while (*at == ' ') at++;
  for (; *at >= '0' && *at <= '9'; at++) delay_ns = 10 * delay_ns + (uint64_t)(*at - '0');
  return delay_ns;
}
