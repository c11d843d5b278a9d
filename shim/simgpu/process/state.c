/*
 * state.c - what every entry point checks first: whether cuInit succeeded in this process, and whether the process is
 * locked (ipc/checkpoint.c). A forked child of an initialised process is not initialised: the page that says so is
 * wiped by the kernel at fork.
 */
#include "simgpu/process/process.h"
#include "simgpu/process/started.h"
#include <pthread.h>

#define CHECK_NS 100000000ull /* how often a locked process looks whether the server is still there */

static const uint32_t never; /* 0 */
static const uint32_t *alive = &never;
static pthread_mutex_t object_lock = PTHREAD_MUTEX_INITIALIZER;

void sim_lock(void) {
  pthread_mutex_lock(&object_lock);
}

void sim_unlock(void) {
  pthread_mutex_unlock(&object_lock);
}

bool sim_is_started(void) {
  return VG_LIKELY(VG_LOAD_RELAXED(VG_LOAD(&alive)));
}

CUresult sim_started(void) {
  return sim_is_started() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

void sim_start(const uint32_t *page) {
  VG_STORE(&alive, page);
}

/* A definition does not take the model from the header. */
__thread uint32_t sim_asks __attribute__((tls_model("initial-exec")));
__thread const void *sim_caller __attribute__((tls_model("initial-exec")));

/* Until the process is not locked any more (cuCheckpointProcessLock). */
static void wait_while_locked(void) {
  uint32_t locked;
  while ((locked = VG_LOAD(&sim_link.done->locked)) && !VG_LOAD_RELAXED(&sim_link.gone))
    if (vg_prim_futex_wait(&sim_link.done->locked, locked, vg_prim_now_ns() + CHECK_NS) < 0) sim_link_check();
}

CUresult sim_ready(void) {
  CUresult result = sim_started();
  if (VG_LIKELY(result == CUDA_SUCCESS) && VG_UNLIKELY(VG_LOAD_RELAXED(&sim_link.done->locked)) && !sim_asks)
    wait_while_locked();
  return result;
}
