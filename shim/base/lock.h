/*
 * lock.h - the lock of a thread's outstanding work, and of the ledger's parts. Launches and allocations take it and
 * hardly ever find it taken, so both halves are inline, and unlocking is a plain store: one locked instruction for
 * both, where a mutex has two and two calls. Zero is unlocked.
 *
 * Unlocking reads the waiters after a store that may not be visible yet, so it may miss one: a waiter looks again by
 * itself soon after.
 */
#ifndef VG_GATE_LOCK_H
#define VG_GATE_LOCK_H
#include "base/prim.h"

struct vg_lock {
  uint32_t held;
  uint32_t waiters;
};

void vg_lock_wait(struct vg_lock *lock);   /* takes it, later */
void vg_lock_notify(struct vg_lock *lock); /* wakes one waiter */

static inline bool vg_lock_try(struct vg_lock *lock) {
  uint32_t unlocked = 0;
  return __atomic_compare_exchange_n(&lock->held, &unlocked, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void vg_lock(struct vg_lock *lock) {
  if (VG_UNLIKELY(!vg_lock_try(lock))) vg_lock_wait(lock);
}

static inline void vg_unlock(struct vg_lock *lock) {
  VG_STORE(&lock->held, 0);
  if (VG_UNLIKELY(VG_LOAD_RELAXED(&lock->waiters))) vg_lock_notify(lock);
}

#endif
