/* lock.c - see lock.h. */
#include "base/lock.h"

#define SPINS 64 /* with pauses one to three microseconds: less than a system call and being woken up */
#define LOOK_AGAIN_NS (100 * VG_NS_PER_US)

/* Leaves the processor's other hardware thread, which may be the holder, more of it. */
static void pause_briefly(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* yield does nothing on most of them */
#endif
}

void vg_lock_wait(struct vg_lock *lock) {
  for (int i = 0; i < SPINS; i++) {
    pause_briefly();
    if (!VG_LOAD_RELAXED(&lock->held) && vg_lock_try(lock)) return;
  }
  __atomic_add_fetch(&lock->waiters, 1, __ATOMIC_SEQ_CST);
  while (!vg_lock_try(lock)) vg_prim_futex_wait(&lock->held, 1, vg_prim_now_ns() + LOOK_AGAIN_NS);
  __atomic_sub_fetch(&lock->waiters, 1, __ATOMIC_RELAXED);
}

void vg_lock_notify(struct vg_lock *lock) {
  vg_prim_futex_wake(&lock->held, 1);
}
