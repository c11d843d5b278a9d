/*
 * current.c - what entry points do first: the thread's current context, if it is live. contexts/context.c makes and
 * ends contexts, and sets which one is current.
 */
#include "simgpu/process/current.h"
#include "simgpu/base/slab.h"
#include "simgpu/base/strict.h"
#include "simgpu/process/process.h"

struct sim_slab sim_contexts = SIM_SLAB(sizeof(struct sim_context), 4096);
static uint64_t ids;
__thread struct sim_context *sim_current;

uint64_t sim_next_id(void) {
  return __atomic_add_fetch(&ids, 1, __ATOMIC_RELAXED);
}

struct sim_context *sim_context_find(CUcontext handle) {
  return sim_slab_find(&sim_contexts, handle ? (const void *)handle : sim_current, SIM_CONTEXT_MAGIC);
}

CUresult sim_enter(struct sim_context **ret_context) {
  CUresult result = sim_ready();
  if (VG_UNLIKELY(result != CUDA_SUCCESS)) return result;
  struct sim_context *context = sim_current;
  if (VG_UNLIKELY(!context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (VG_UNLIKELY(context->object.magic != SIM_CONTEXT_MAGIC)) {
    if (SIM_STRICT) sim_strict_tell("context", context, "current after its end");
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *ret_context = context->home;
  return sim_context_state(context);
}
