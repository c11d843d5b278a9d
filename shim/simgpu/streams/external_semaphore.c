/*
 * external_semaphore.c - semaphores of other interfaces. There is none on a simulated device: a file that can be mapped
 * (a memfd) stands for one, its first 64-bit word for the state: the counter of a timeline semaphore, 0 or 1 of a
 * binary one. A signal is a value that the stream writes there, a wait is a stream that waits for it; any process may
 * do either. Called by programs and by nodes of graphs (graphs/graph_batch.c).
 */
#include "simgpu/streams/external_semaphore.h"
#include "simgpu/base/slab.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include "simgpu/streams/stream.h"
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEMAPHORE_MAGIC 0x53454d41u
#define SIGNALLED 1ull

struct semaphore {
  struct sim_object object;
  uint64_t *state;
  bool timeline;
};

static struct sim_slab slab = SIM_SLAB(sizeof(struct semaphore), 1u << 16);

SIM_PUBLIC CUresult cuImportExternalSemaphore(CUexternalSemaphore *ret_handle,
                                              const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc) {
  struct sim_context *context;
  struct stat found;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || !desc || desc->flags) return CUDA_ERROR_INVALID_VALUE;
  bool timeline = desc->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  if (!timeline && desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  if (vg_prim_fstat(desc->handle.fd, &found) < 0 || !S_ISREG(found.st_mode) || found.st_size < (off_t)sizeof(uint64_t))
    return CUDA_ERROR_INVALID_HANDLE;
  struct semaphore *semaphore = sim_slab_get(&slab, SEMAPHORE_MAGIC);
  if (!semaphore) return CUDA_ERROR_OUT_OF_MEMORY;
  void *page = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, desc->handle.fd, 0);
  if (page == MAP_FAILED) {
    sim_slab_put(&slab, semaphore);
    return CUDA_ERROR_OPERATING_SYSTEM;
  }
  semaphore->state = page;
  semaphore->timeline = timeline;
  close(desc->handle.fd); /* the driver's once it has been imported */
  *ret_handle = (CUexternalSemaphore)semaphore;
  return CUDA_SUCCESS;
}

/* The page stays mapped: a stream may still be about to write into it. */
SIM_PUBLIC CUresult cuDestroyExternalSemaphore(CUexternalSemaphore handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct semaphore *semaphore = sim_slab_find(&slab, handle, SEMAPHORE_MAGIC);
  if (!semaphore) return CUDA_ERROR_INVALID_HANDLE;
  sim_slab_put(&slab, semaphore);
  return CUDA_SUCCESS;
}

static CUresult signal_one(struct sim_stream *stream, const struct semaphore *semaphore, uint64_t value) {
  return sim_agent_write(stream, (CUdeviceptr)semaphore->state, semaphore->timeline ? value : SIGNALLED, sizeof value);
}

/* A binary one is taken by the stream that has waited for it. */
static CUresult wait_one(struct sim_stream *stream, const struct semaphore *semaphore, uint64_t value) {
  CUdeviceptr state = (CUdeviceptr)semaphore->state;
  if (semaphore->timeline) return sim_agent_wait(stream, state, value, sizeof value, CU_STREAM_WAIT_VALUE_GEQ);
  CUresult result = sim_agent_wait(stream, state, SIGNALLED, sizeof value, CU_STREAM_WAIT_VALUE_EQ);
  return result == CUDA_SUCCESS ? sim_agent_write(stream, state, 0, sizeof value) : result;
}

/* Signals and waits. All semaphores are looked at before the first is done. Flags are of NvSciSync. */
#define EACH(name, params_type, one)                                                                                   \
  CUresult sim_semaphores_check_##name(const CUexternalSemaphore *handles, const params_type *params,                  \
                                       unsigned count) {                                                               \
    CUresult result = handles && params && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                            \
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {                                                   \
      if (!sim_slab_find(&slab, handles[i], SEMAPHORE_MAGIC)) result = CUDA_ERROR_INVALID_HANDLE;                      \
      if (params[i].flags) result = CUDA_ERROR_INVALID_VALUE;                                                          \
    }                                                                                                                  \
    return result;                                                                                                     \
  }                                                                                                                    \
  CUresult sim_semaphores_##name(struct sim_stream *stream, const CUexternalSemaphore *handles,                        \
                                 const params_type *params, unsigned count) {                                          \
    CUresult result = sim_capture_implicit(stream);                                                                    \
    for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)                                                     \
      result = one(stream, (const struct semaphore *)handles[i], params[i].params.fence.value);                        \
    return result;                                                                                                     \
  }

EACH(signal, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, signal_one)
EACH(wait, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, wait_one)

/* ---- in a stream, or as a node of the graph that it is captured into ---- */

static CUresult find(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  return result == CUDA_SUCCESS ? sim_stream_find(handle, is_per_thread, ret_stream) : result;
}

/* Signals and waits, legacy and per thread. */
#define SEMAPHORES(name, suffix, is_per_thread, params_type, to_node, work)                                            \
  SIM_PUBLIC CUresult cu##name##ExternalSemaphoresAsync##suffix(                                                       \
      const CUexternalSemaphore *handles, const params_type *params, unsigned count, CUstream handle) {                \
    struct sim_stream *stream;                                                                                         \
    CUresult result = find(handle, is_per_thread, &stream);                                                            \
    if (result == CUDA_SUCCESS) result = sim_semaphores_check_##work(handles, params, count);                          \
    if (result != CUDA_SUCCESS) return result;                                                                         \
    return stream->capture ? to_node(stream, handles, params, count)                                                   \
                           : sim_semaphores_##work(stream, handles, params, count);                                    \
  }

SEMAPHORES(Signal, , false, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, sim_capture_work()->signal, signal)
SEMAPHORES(Signal, _ptsz, true, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, sim_capture_work()->signal, signal)
SEMAPHORES(Wait, , false, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, sim_capture_work()->wait_semaphores, wait)
SEMAPHORES(Wait, _ptsz, true, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS, sim_capture_work()->wait_semaphores, wait)
