/* helper_bell.c - see helper_bell.h. */
#include "helper_bell.h"

#include <limits.h>

#include "prim.h"
#include "session.h"

#define PAUSE_NS 20000ull
#define TRIES 1000 /* so long for a helper that lost its processor between its last look and its sleep */

static uint32_t wanted, sleeps;

void vg_helper_awake(void) {
  __atomic_store_n(&wanted, 0, __ATOMIC_SEQ_CST);
}

/* Says that it sleeps and then looks whether it may, while the others want it and then look whether it sleeps: one of
 * the two sees the other. */
void vg_helper_sleep(const uint32_t *bell, uint32_t seen, uint64_t deadline_ns) {
  __atomic_store_n(&sleeps, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&wanted, __ATOMIC_SEQ_CST)) vg_prim_futex_wait(bell, seen, deadline_ns);
  __atomic_store_n(&sleeps, 0, __ATOMIC_SEQ_CST);
}

void vg_helper_wake(void) {
  const struct vg_control_header *header = VG_LOAD(&vg_session.header);
  if (!header) return; /* it looks often */
  __atomic_store_n(&wanted, 1, __ATOMIC_SEQ_CST);
  /* Works on the read-only page, too. Not there yet: it is on its way. */
  for (int i = 0; i < TRIES && __atomic_load_n(&sleeps, __ATOMIC_SEQ_CST); i++) {
    if (vg_prim_futex_wake(&header->bell, INT_MAX) > 0) break;
    vg_prim_sleep_until_ns(vg_prim_now_ns() + PAUSE_NS);
  }
}
