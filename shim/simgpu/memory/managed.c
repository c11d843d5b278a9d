/*
 * managed.c - managed memory: what a program reads and writes itself is always where it is needed, so that to prefetch
 * and to discard it is nothing but checked; what a program has advised of a range, and where it prefetched it, can be
 * asked for. What kernels wait for where not all of it fits the device: server/managed.c. Called by programs.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/memory/alloc.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>
#include <stdlib.h>

/* ---- what has been said of ranges: the newest first, and what a newer one covers is forgotten ---- */

enum topic {
  READ_MOSTLY,
  PREFERRED,
  PREFETCHED,
  ACCESSED_BY
}; /* the last one and a device's number are a topic each */

struct word {
  struct word *next;
  uint64_t allocation; /* its id: addresses are given again */
  unsigned topic;
  CUdeviceptr from, to;
  CUmemLocation location; /* type 0: none, or no more */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct word *words;

static bool forgotten(const struct word *old, const struct word *by) {
  struct sim_allocation now;
  if (old->topic == by->topic && old->from >= by->from && old->to <= by->to) return true;
  return !sim_memory_find(old->from, &now) || now.id != old->allocation;
}

static CUresult say(const struct sim_allocation *allocation, CUdeviceptr address, uint64_t bytes, unsigned topic,
                    CUmemLocation location) {
  struct word *word = malloc(sizeof *word);
  if (!word) return CUDA_ERROR_OUT_OF_MEMORY;
  *word = (struct word){NULL, allocation->id, topic, address, address + bytes, location};
  pthread_mutex_lock(&lock);
  for (struct word **link = &words; *link;) {
    struct word *old = *link;
    if (!forgotten(old, word)) {
      link = &old->next;
      continue;
    }
    *link = old->next;
    free(old);
  }
  word->next = words;
  words = word;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

/* What is said of an address, and *ret_until: up to where; under the lock. */
static CUmemLocation said_at(uint64_t allocation, unsigned topic, CUdeviceptr address, CUdeviceptr *ret_until) {
  for (const struct word *word = words; word; word = word->next) {
    if (word->allocation != allocation || word->topic != topic || word->to <= address) continue;
    if (word->from <= address) {
      if (word->to < *ret_until) *ret_until = word->to;
      return word->location;
    }
    if (word->from < *ret_until) *ret_until = word->from;
  }
  return (CUmemLocation){0};
}

/* What is said of the whole range; type 0 where that is not one thing. */
static CUmemLocation said(const struct sim_allocation *allocation, unsigned topic, CUdeviceptr from, CUdeviceptr to) {
  CUmemLocation first = {0};
  bool same = true;
  pthread_mutex_lock(&lock);
  for (CUdeviceptr at = from; at < to && same;) {
    CUdeviceptr until = to;
    CUmemLocation here = said_at(allocation->id, topic, at, &until);
    if (at == from) first = here;
    same = here.type == first.type && here.id == first.id;
    at = until;
  }
  pthread_mutex_unlock(&lock);
  return same ? first : (CUmemLocation){0};
}

/* ---- checks ---- */

static CUresult managed(CUdeviceptr address, uint64_t bytes, struct sim_allocation *ret_allocation) {
  bool known = sim_memory_covers(address, bytes ? bytes : 1, ret_allocation);
  return known && ret_allocation->managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check_location(const CUmemLocation *location) {
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
    return sim_device(location->id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  bool known = location->type >= CU_MEM_LOCATION_TYPE_HOST && location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUmemLocation location_of(CUdevice device) {
  return (CUmemLocation){device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE,
                         device == CU_DEVICE_CPU ? 0 : device};
}

/* ---- one range ---- */

static CUresult attach(CUstream handle, bool is_per_thread, CUdeviceptr address, size_t bytes) {
  struct sim_stream *stream;
  struct sim_allocation allocation;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  return result == CUDA_SUCCESS ? managed(address, bytes, &allocation) : result;
}

static CUresult prefetch(CUstream handle, bool is_per_thread, CUdeviceptr address, size_t bytes, CUmemLocation to,
                         unsigned flags) {
  struct sim_stream *stream;
  struct sim_allocation allocation;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  result = managed(address, bytes, &allocation);
  if (result == CUDA_SUCCESS) result = check_location(&to);
  return result == CUDA_SUCCESS ? say(&allocation, address, bytes, PREFETCHED, to) : result;
}

#define ONE_RANGE(suffix, is_per_thread)                                                                               \
  SIM_PUBLIC CUresult cuStreamAttachMemAsync##suffix(CUstream stream, CUdeviceptr address, size_t bytes,               \
                                                     unsigned flags) {                                                 \
    (void)flags;                                                                                                       \
    return attach(stream, is_per_thread, address, bytes);                                                              \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemPrefetchAsync##suffix(CUdeviceptr address, size_t bytes, CUdevice to, CUstream stream) {    \
    return prefetch(stream, is_per_thread, address, bytes, location_of(to), 0);                                        \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemPrefetchAsync_v2##suffix(CUdeviceptr address, size_t bytes, CUmemLocation to,               \
                                                    unsigned flags, CUstream stream) {                                 \
    return prefetch(stream, is_per_thread, address, bytes, to, flags);                                                 \
  }
ONE_RANGE(, false)
ONE_RANGE(_ptsz, true)

SIM_PUBLIC CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  static const unsigned topics[] = {READ_MOSTLY, PREFERRED, ACCESSED_BY};
  struct sim_context *context;
  struct sim_allocation allocation;
  CUresult result = sim_enter(&context);
  if (result == CUDA_SUCCESS) result = managed(address, bytes, &allocation);
  if (result != CUDA_SUCCESS) return result;
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY || bytes == 0)
    return CUDA_ERROR_INVALID_VALUE;
  unsigned topic = topics[(advice - 1) / 2];
  bool unset = advice % 2 == 0;
  if (topic == READ_MOSTLY) location = (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0}; /* which one is of no account */
  if (topic != PREFERRED || !unset) result = check_location(&location);
  if (result != CUDA_SUCCESS) return result;
  if (topic == ACCESSED_BY && location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_SUCCESS; /* the host always */
  if (topic == ACCESSED_BY) topic += (unsigned)location.id;
  return say(&allocation, address, bytes, topic, unset ? (CUmemLocation){0} : location);
}

SIM_PUBLIC CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device) {
  return cuMemAdvise_v2(address, bytes, advice, location_of(device));
}

/* ---- batches: all is checked before the first is done ---- */

struct batch {
  const CUdeviceptr *addresses;
  const size_t *sizes;
  size_t count;
  const CUmemLocation *locations; /* where to: locations[i] from range runs[i] on */
  const size_t *runs;
  size_t run_count;
};

bool sim_runs_valid(const size_t *runs, size_t run_count, size_t count) {
  if (!runs || run_count == 0 || run_count > count || runs[0] != 0) return false;
  for (size_t i = 1; i < run_count; i++)
    if (runs[i] <= runs[i - 1]) return false;
  return runs[run_count - 1] < count;
}

static CUresult check_batch(const struct batch *batch, bool prefetches) {
  struct sim_allocation allocation;
  CUresult result = CUDA_SUCCESS;
  if (!batch->addresses || !batch->sizes || batch->count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch->count && result == CUDA_SUCCESS; i++)
    result = batch->sizes[i] ? managed(batch->addresses[i], batch->sizes[i], &allocation) : CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS || !prefetches) return result;
  if (!batch->locations || !sim_runs_valid(batch->runs, batch->run_count, batch->count))
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < batch->run_count && result == CUDA_SUCCESS; i++) result = check_location(&batch->locations[i]);
  return result;
}

CUresult sim_batch_stream(CUstream handle, bool is_per_thread, struct sim_stream **ret_stream) {
  CUresult result = sim_stream_find(handle, is_per_thread, ret_stream);
  if (result != CUDA_SUCCESS) return result;
  if (sim_stream_is_default(*ret_stream)) return CUDA_ERROR_INVALID_VALUE;
  return (*ret_stream)->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult run_batch(CUstream handle, bool is_per_thread, const struct batch *batch, bool prefetches,
                          unsigned long long flags) {
  struct sim_stream *stream;
  CUresult result = sim_batch_stream(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  result = flags ? CUDA_ERROR_INVALID_VALUE : check_batch(batch, prefetches);
  for (size_t i = 0, run = 0; prefetches && i < batch->count && result == CUDA_SUCCESS; i++) {
    if (run + 1 < batch->run_count && i == batch->runs[run + 1]) run++;
    result = prefetch(handle, is_per_thread, batch->addresses[i], batch->sizes[i], batch->locations[run], 0);
  }
  return result;
}

#define BATCHES(suffix, is_per_thread)                                                                                 \
  SIM_PUBLIC CUresult cuMemDiscardBatchAsync##suffix(CUdeviceptr *addresses, size_t *sizes, size_t count,              \
                                                     unsigned long long flags, CUstream stream) {                      \
    return run_batch(stream, is_per_thread, &(struct batch){addresses, sizes, count, NULL, NULL, 0}, false, flags);    \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemPrefetchBatchAsync##suffix(CUdeviceptr *addresses, size_t *sizes, size_t count,             \
                                                      CUmemLocation *locations, size_t *runs, size_t run_count,        \
                                                      unsigned long long flags, CUstream stream) {                     \
    return run_batch(stream, is_per_thread, &(struct batch){addresses, sizes, count, locations, runs, run_count},      \
                     true, flags);                                                                                     \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuMemDiscardAndPrefetchBatchAsync##suffix(                                                       \
      CUdeviceptr *addresses, size_t *sizes, size_t count, CUmemLocation *locations, size_t *runs, size_t run_count,   \
      unsigned long long flags, CUstream stream) {                                                                     \
    return cuMemPrefetchBatchAsync##suffix(addresses, sizes, count, locations, runs, run_count, flags, stream);        \
  }
BATCHES(, false)
BATCHES(_ptsz, true)

/* ---- asking ---- */

static int device_of(CUmemLocation location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : location.type ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
}

static void list_accessed(const struct sim_allocation *allocation, CUdeviceptr from, CUdeviceptr to, int *ret_devices,
                          size_t count) {
  size_t found = 0;
  for (int i = 0; i < sim_device_count() && found < count; i++)
    if (said(allocation, ACCESSED_BY + (unsigned)i, from, to).type) ret_devices[found++] = i;
  while (found < count) ret_devices[found++] = CU_DEVICE_INVALID;
}

static CUresult ask(int *ret_data, size_t size, CUmem_range_attribute attribute, CUdeviceptr from, size_t bytes) {
  struct sim_allocation allocation;
  CUresult result = managed(from, bytes, &allocation);
  if (result != CUDA_SUCCESS) return result;
  bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  if (!ret_data || bytes == 0 || size == 0 || size % sizeof(int) || (!list && size != sizeof(int)))
    return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation preferred = said(&allocation, PREFERRED, from, from + bytes);
  CUmemLocation prefetched = said(&allocation, PREFETCHED, from, from + bytes);
  switch (attribute) {
  case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
    *ret_data = said(&allocation, READ_MOSTLY, from, from + bytes).type != 0;
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
    list_accessed(&allocation, from, from + bytes, ret_data, size / sizeof(int));
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    *ret_data = device_of(preferred);
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    *ret_data = device_of(prefetched);
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    *ret_data = (int)preferred.type;
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    *ret_data = preferred.id;
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
    *ret_data = (int)prefetched.type;
    return CUDA_SUCCESS;
  case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
    *ret_data = prefetched.id;
    return CUDA_SUCCESS;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

SIM_PUBLIC CUresult cuMemRangeGetAttribute(void *ret_data, size_t size, CUmem_range_attribute attribute,
                                           CUdeviceptr from, size_t bytes) {
  CUresult result = sim_ready();
  return result == CUDA_SUCCESS ? ask(ret_data, size, attribute, from, bytes) : result;
}

SIM_PUBLIC CUresult cuMemRangeGetAttributes(void **ret_data, size_t *sizes, CUmem_range_attribute *attributes,
                                            size_t count, CUdeviceptr from, size_t bytes) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (!ret_data || !sizes || !attributes || count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = ask(ret_data[i], sizes[i], attributes[i], from, bytes);
  return result;
}
