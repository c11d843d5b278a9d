/* lock.c - see lock.h. */
#include "base/lock.h"

#define SPINS 200 /* a few times the 100 ns for which a launch holds it */
#define LOOK_AGAIN_NS (100 * VG_NS_PER_US)

static bool try(struct vg_lock *lock) {
  uint32_t unlocked = 0;
  return __atomic_compare_exchange_n(&lock->held, &unlocked, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

void vg_lock_wait(struct vg_lock *lock) {
  for (int i = 0; i < SPINS; i++)
    if (!VG_LOAD_RELAXED(&lock->held) && try(lock)) return;
  __atomic_add_fetch(&lock->waiters, 1, __ATOMIC_SEQ_CST);
  while (!try(lock)) vg_prim_futex_wait(&lock->held, 1, vg_prim_now_ns() + LOOK_AGAIN_NS);
  __atomic_sub_fetch(&lock->waiters, 1, __ATOMIC_RELAXED);
}

void vg_lock_notify(struct vg_lock *lock) {
  vg_prim_futex_wake(&lock->held, 1);
}
