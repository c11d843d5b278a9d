/* helper_wake.c - see helper_wake.h. */
#include "session/helper_wake.h"

#include <limits.h>

#include "base/prim.h"
#include "session/session.h"

#define PAUSE_NS 20000ull
#define TRIES 1000 /* for a helper that lost its processor between its last look and its sleep */

static uint32_t wanted;
static uint32_t turn;     /* odd while the helper sleeps; grows */
static uint32_t slept_on; /* the value of the word */

void vg_helper_awake(void) {
  __atomic_exchange_n(&wanted, 0, __ATOMIC_SEQ_CST); /* later reads may not be moved before it */
}

/* The helper stores that it sleeps and then reads wanted; a waking thread stores wanted and then reads turn: one of the
 * two sees the other. */
void vg_helper_sleep(const uint32_t *word, uint32_t seen, uint64_t deadline_ns) {
  __atomic_store_n(&slept_on, seen, __ATOMIC_SEQ_CST);
  uint32_t asleep = __atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&wanted, __ATOMIC_SEQ_CST)) vg_prim_futex_wait(word, seen, deadline_ns);
  __atomic_store_n(&turn, asleep + 1, __ATOMIC_SEQ_CST); /* the waking thread may have stored it already */
}

void vg_helper_wake(void) {
  const struct vg_control_header *header = VG_LOAD(&vg_session.header);
  if (!header) return; /* before the first daemon answers, the helper looks often */
  __atomic_store_n(&wanted, 1, __ATOMIC_SEQ_CST);
  uint32_t asleep = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
  if (asleep % 2 == 0) return;
  for (int i = 0; i < TRIES; i++) {
    /* Works on the read-only page, too. Once woken, the helper only waits for a processor. */
    if (vg_prim_futex_wake(&header->helper_wake, INT_MAX) > 0) {
      uint32_t before = asleep;
      __atomic_compare_exchange_n(&turn, &before, asleep + 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
      return;
    }
    bool changed = VG_LOAD(&header->helper_wake) != __atomic_load_n(&slept_on, __ATOMIC_SEQ_CST); /* by the daemon */
    if (changed || __atomic_load_n(&turn, __ATOMIC_SEQ_CST) != asleep) return;
    vg_prim_sleep_until_ns(vg_prim_now_ns() + PAUSE_NS); /* not asleep yet: it is about to be */
  }
}
