/*
 * test_gate_lock.c - the lock of a thread's work: threads that want it all the time, and now and then one that keeps it
 * for longer than any of them spins.
 */
#include "base/lock.h"

#include <pthread.h>

#include "check.h"

#define THREADS 4
#define ROUNDS 20000
#define KEEP_EVERY 1000
#define KEEP_NS (300 * VG_NS_PER_US)

static struct vg_lock lock;
static uint64_t sum; /* not atomic: the sanitizer sees two threads in it */

static void *add(void *argument) {
  for (int i = 0; i < ROUNDS; i++) {
    vg_lock(&lock);
    uint64_t before = sum;
    if (i % KEEP_EVERY == (int)(intptr_t)argument) vg_prim_sleep_until_ns(vg_prim_now_ns() + KEEP_NS);
    sum = before + 1;
    vg_unlock(&lock);
  }
  return NULL;
}

static void one_at_a_time(void) {
  pthread_t threads[THREADS];
  for (intptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, add, (void *)i) == 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK(sum == (uint64_t)THREADS * ROUNDS);
  CHECK(!lock.held && !lock.waiters);
}

static void *take(void *unused) {
  vg_lock(&lock);
  vg_unlock(&lock);
  return unused;
}

/* As when unlocking misses the waiter, since its store was not visible yet: no thread wakes it. */
static void a_missed_waiter_looks_again(void) {
  pthread_t thread;
  vg_lock(&lock);
  CHECK(pthread_create(&thread, NULL, take, NULL) == 0);
  while (!VG_LOAD(&lock.waiters)) vg_prim_sleep_until_ns(vg_prim_now_ns() + KEEP_NS);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + KEEP_NS);
  VG_STORE(&lock.held, 0);
  pthread_join(thread, NULL);
  CHECK(!lock.held && !lock.waiters);
}

int main(void) {
  RUN(one_at_a_time);
  RUN(a_missed_waiter_looks_again);
  return 0;
}
