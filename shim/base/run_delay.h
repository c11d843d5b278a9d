/* run_delay.h - time that a thread loses to others on a busy machine. A file of its own: tests make it up. */
#ifndef VG_BASE_RUN_DELAY_H
#define VG_BASE_RUN_DELAY_H
#include <stdint.h>

/* For how long the calling thread has been ready to run and had no processor; 0 where the kernel does not say. Takes
 * some microseconds. */
uint64_t vg_run_delay_ns(void);

/* By how much it has grown, where both are known. */
static inline uint64_t vg_delay_between(uint64_t before_ns, uint64_t delay_ns) {
  return before_ns && delay_ns > before_ns ? delay_ns - before_ns : 0;
}

#endif
