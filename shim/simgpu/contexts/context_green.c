/*
 * context_green.c - green contexts and the parts of a device's SMs that they are made for. A part is kept and answered;
 * it changes no time: all streams of the process share the SMs as before.
 */
#include "simgpu/base/slab.h"
#include "simgpu/contexts/context.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"
#include <string.h>

#define RESOURCE_MAGIC 0x534d5253u
#define DESCRIPTOR_MAGIC 0x52445343u
/* Compute capability 9.0: groups of 8 SMs, single pairs without co-scheduling, 16 for the largest clusters. */
#define SM_PART 8u
#define SM_PART_SINGLE 2u
#define SM_PART_CLUSTER 16u

/* What a resource carries in the part that programs leave alone. */
struct origin {
  uint32_t magic;
  int ordinal;
  uint64_t split; /* which split made it; 0: it may be split */
};

/* Nothing destroys a descriptor, so the same contents are one descriptor. */
struct descriptor {
  struct sim_object object;
  int ordinal;
  unsigned sm_count, sm_alignment;
};
static struct sim_slab descriptors = SIM_SLAB(sizeof(struct descriptor), 4096);
static struct descriptor *known[4096]; /* under sim_lock() */
static unsigned known_count;
static uint64_t splits;

static void fill(CUdevResource *resource, int ordinal, unsigned sm_count, unsigned alignment, uint64_t split) {
  struct origin origin = {RESOURCE_MAGIC, ordinal, split};
  memset(resource, 0, sizeof *resource);
  if (sm_count == 0) return; /* CU_DEV_RESOURCE_TYPE_INVALID */
  resource->type = CU_DEV_RESOURCE_TYPE_SM;
  memcpy(resource->_internal_padding, &origin, sizeof origin);
  resource->sm = (CUdevSmResource){sm_count, alignment, alignment};
}

static CUresult origin_of(const CUdevResource *resource, struct origin *ret_origin) {
  if (resource->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  memcpy(ret_origin, resource->_internal_padding, sizeof *ret_origin);
  return ret_origin->magic == RESOURCE_MAGIC ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult answer(CUdevResource *resource, CUdevResourceType type, const struct sim_context *green, int ordinal) {
  if (!resource) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  if (green)
    fill(resource, ordinal, green->sm_count, green->sm_alignment, 0);
  else
    fill(resource, ordinal, (unsigned)sim_device(ordinal)->sm_count, SM_PART, 0);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGetDevResource(CUdevice ordinal, CUdevResource *resource, CUdevResourceType type) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  return sim_device(ordinal) ? answer(resource, type, NULL, ordinal) : CUDA_ERROR_INVALID_DEVICE;
}

SIM_PUBLIC CUresult cuCtxGetDevResource(CUcontext handle, CUdevResource *resource, CUdevResourceType type) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_context *context = sim_context_find(handle);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  return answer(resource, type, context->home == context ? NULL : context, context->ordinal);
}

SIM_PUBLIC CUresult cuGreenCtxGetDevResource(CUgreenCtx handle, CUdevResource *resource, CUdevResourceType type) {
  struct sim_context *green;
  CUresult result = sim_green_find(handle, &green);
  return result == CUDA_SUCCESS ? answer(resource, type, green, green->ordinal) : result;
}

static CUresult part_of(unsigned flags, unsigned *ret_part) {
  *ret_part = flags == 0                                                     ? SM_PART
              : flags == CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING     ? SM_PART_SINGLE
              : flags == CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE ? SM_PART_CLUSTER
                                                                             : 0;
  return *ret_part ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

SIM_PUBLIC CUresult cuDevSmResourceSplitByCount(CUdevResource *groups, unsigned *group_count,
                                                const CUdevResource *input, CUdevResource *remaining, unsigned flags,
                                                unsigned least) {
  struct origin origin;
  unsigned part;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!group_count || !input) return CUDA_ERROR_INVALID_VALUE;
  result = origin_of(input, &origin);
  if (result == CUDA_SUCCESS) result = part_of(flags, &part);
  if (result != CUDA_SUCCESS) return result;
  unsigned all = input->sm.smCount;
  if (least > all || (groups && *group_count == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (origin.split) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION; /* first a green context, then its resource */
  unsigned each = (unsigned)sim_round_up(least ? least : part, part), most = all / each;
  if (groups && most == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  if (!groups || *group_count > most) *group_count = most;
  uint64_t split = __atomic_add_fetch(&splits, 1, __ATOMIC_RELAXED);
  for (unsigned i = 0; groups && i < *group_count; i++) fill(&groups[i], origin.ordinal, each, part, split);
  if (groups && remaining) fill(remaining, origin.ordinal, all - each * *group_count, SM_PART_SINGLE, split);
  return CUDA_SUCCESS;
}

static CUresult descriptor_get(const struct descriptor *wanted, struct descriptor **ret_descriptor) {
  struct descriptor *found = NULL;
  sim_lock();
  for (unsigned i = 0; i < known_count && !found; i++)
    if (known[i]->ordinal == wanted->ordinal && known[i]->sm_count == wanted->sm_count &&
        known[i]->sm_alignment == wanted->sm_alignment)
      found = known[i];
  if (!found && (found = sim_slab_get(&descriptors, DESCRIPTOR_MAGIC)) != NULL) {
    found->ordinal = wanted->ordinal;
    found->sm_count = wanted->sm_count;
    found->sm_alignment = wanted->sm_alignment;
    known[known_count++] = found;
  }
  sim_unlock();
  *ret_descriptor = found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_PUBLIC CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *ret_descriptor, CUdevResource *resources,
                                              unsigned count) {
  struct origin first, origin;
  struct descriptor whole = {.sm_alignment = UINT32_MAX}, *descriptor;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_descriptor || !resources || count == 0) return CUDA_ERROR_INVALID_VALUE;
  result = origin_of(&resources[0], &first);
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) {
    const CUdevSmResource *sm = &resources[i].sm;
    result = origin_of(&resources[i], &origin);
    if (result != CUDA_SUCCESS) break;
    if (origin.ordinal != first.ordinal || (count > 1 && (origin.split == 0 || origin.split != first.split)))
      result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    whole.sm_count += sm->smCount;
    if (sm->smCoscheduledAlignment < whole.sm_alignment) whole.sm_alignment = sm->smCoscheduledAlignment;
  }
  whole.ordinal = first.ordinal;
  if (result == CUDA_SUCCESS) result = descriptor_get(&whole, &descriptor);
  if (result == CUDA_SUCCESS) *ret_descriptor = (CUdevResourceDesc)descriptor;
  return result;
}

SIM_PUBLIC CUresult cuGreenCtxCreate(CUgreenCtx *ret_green, CUdevResourceDesc handle, CUdevice ordinal,
                                     unsigned flags) {
  struct sim_context *green;
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct descriptor *descriptor = sim_slab_find(&descriptors, handle, DESCRIPTOR_MAGIC);
  if (!ret_green || !descriptor || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
  if (!sim_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  if (descriptor->ordinal != ordinal) return CUDA_ERROR_INVALID_VALUE;
  result = sim_green_make(ordinal, descriptor->sm_count, descriptor->sm_alignment, &green);
  if (result == CUDA_SUCCESS) *ret_green = (CUgreenCtx)green;
  return result;
}

SIM_PUBLIC CUresult cuGreenCtxDestroy(CUgreenCtx handle) {
  struct sim_context *green;
  CUresult result = handle ? sim_green_find(handle, &green) : CUDA_ERROR_INVALID_CONTEXT;
  if (result == CUDA_SUCCESS) sim_green_destroy(green);
  return result;
}

SIM_PUBLIC CUresult cuCtxFromGreenCtx(CUcontext *ret_context, CUgreenCtx handle) {
  struct sim_context *green;
  CUresult result = handle ? sim_green_find(handle, &green) : CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) return result;
  if (!ret_context) return CUDA_ERROR_INVALID_VALUE;
  *ret_context = (CUcontext)green;
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuGreenCtxGetId(CUgreenCtx handle, unsigned long long *ret_id) {
  struct sim_context *green;
  CUresult result = sim_green_find(handle, &green); /* NULL: the current one */
  return result == CUDA_SUCCESS ? cuCtxGetId((CUcontext)green, ret_id) : result;
}

SIM_PUBLIC CUresult cuGreenCtxRecordEvent(CUgreenCtx handle, CUevent event) {
  struct sim_context *green;
  CUresult result = handle ? sim_green_find(handle, &green) : CUDA_ERROR_INVALID_CONTEXT;
  return result == CUDA_SUCCESS ? cuCtxRecordEvent((CUcontext)green, event) : result;
}

SIM_PUBLIC CUresult cuGreenCtxWaitEvent(CUgreenCtx handle, CUevent event) {
  struct sim_context *green;
  CUresult result = handle ? sim_green_find(handle, &green) : CUDA_ERROR_INVALID_CONTEXT;
  return result == CUDA_SUCCESS ? cuCtxWaitEvent((CUcontext)green, event) : result;
}

SIM_PUBLIC CUresult cuGreenCtxStreamCreate(CUstream *ret_stream, CUgreenCtx handle, unsigned flags, int priority) {
  struct sim_context *green;
  struct sim_stream *stream;
  CUresult result = handle ? sim_green_find(handle, &green) : CUDA_ERROR_INVALID_CONTEXT;
  if (result != CUDA_SUCCESS) return result;
  if (!ret_stream || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  result = sim_stream_make(green, flags, priority, &stream);
  if (result == CUDA_SUCCESS) *ret_stream = (CUstream)stream;
  return result;
}
