/*
 * test_context.c - contexts are charged once and released once, whichever thread is the last to count or to call.
 */
#include "context/context.h"

#include <pthread.h>

#include "base/prim.h"
#include "check.h"
#include "gen/abi/real.h"
#include "ledger/credit.h"

#define COST 100

struct vg_session vg_session;
void *vg_real_slots[VG_ENTRY_COUNT];

static uint64_t charged_bytes;
static const CUcontext OWN = (CUcontext)1, PRIMARY = (CUcontext)2;

int vg_memory_reserve(struct vg_device *device, uint64_t bytes) {
  (void)device;
  charged_bytes += bytes;
  return 0;
}

void vg_memory_release(struct vg_device *device, uint64_t bytes) {
  (void)device;
  charged_bytes -= bytes;
}

void vg_memory_force(struct vg_device *device, uint64_t bytes) {
  (void)device, (void)bytes;
}

void vg_memory_contexts(struct vg_device *device, uint32_t count) {
  (void)device, (void)count;
}

static void made(CUcontext context, enum vg_context_kind kind) {
  CHECK(vg_context_begin(&vg_session.devices[0], kind) == 0);
  vg_context_end(&vg_session.devices[0], context, kind);
}

static uint32_t waiting;

/* It has counted one of two references, called, and finds that the driver has no primary context any more. */
static void *sees_the_end(void *unused) {
  struct vg_device *device;
  VG_STORE(&waiting, 1);
  CHECK(vg_context_retire(PRIMARY, true, &device)); /* waits for the thread that counted last */
  vg_context_retired(device, PRIMARY, true);
  return unused;
}

static void two_who_see_the_end_of_the_primary_one_pay_it_back_once(void) {
  struct vg_device *device;
  pthread_t thread;
  made(OWN, VG_CONTEXT_OWN);
  made(PRIMARY, VG_CONTEXT_PRIMARY);
  made(PRIMARY, VG_CONTEXT_PRIMARY);
  CHECK(charged_bytes == 2 * COST);
  CHECK(!vg_context_retire(PRIMARY, false, &device)); /* one counts */
  CHECK(vg_context_retire(PRIMARY, false, &device));  /* another one counts last, */
  CHECK(pthread_create(&thread, NULL, sees_the_end, NULL) == 0);
  while (!VG_LOAD(&waiting)) vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  vg_prim_sleep_until_ns(vg_prim_now_ns() + 100 * VG_NS_PER_MS);
  vg_context_retired(device, PRIMARY, true); /* and the first one's call was the last */
  pthread_join(thread, NULL);
  CHECK(charged_bytes == COST);
  CHECK(vg_context_retire(OWN, true, &device));
  vg_context_retired(device, OWN, true);
  CHECK(charged_bytes == 0);
}

int main(void) {
  vg_session.device_count = 1;
  vg_session.devices[0].resolved.context_bytes = COST;
  RUN(two_who_see_the_end_of_the_primary_one_pay_it_back_once);
  return 0;
}
