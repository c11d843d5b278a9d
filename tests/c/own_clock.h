/*
 * own_clock.h - a clock that moves by LOOK_NS when it is looked at, and that the test, or a wait of what it tests,
 * moves as well: what a test says of time is true on a busy machine, too. Calls reach it by the linker's --wrap, in
 * programs that OWN_CLOCK of tests/test_c.py names. For programs of one thread.
 */
#ifndef OWN_CLOCK_H
#define OWN_CLOCK_H
#include "base/prim.h"

#define LOOK_NS 50

static uint64_t own_clock_ns = VG_NS_PER_S; /* 0 would be no time */

uint64_t __wrap_vg_prim_now_ns(void);
void __wrap_vg_prim_sleep_until_ns(uint64_t deadline_ns);

uint64_t __wrap_vg_prim_now_ns(void) {
  return own_clock_ns += LOOK_NS;
}

void __wrap_vg_prim_sleep_until_ns(uint64_t deadline_ns) {
  if (own_clock_ns < deadline_ns) own_clock_ns = deadline_ns;
}

#endif
