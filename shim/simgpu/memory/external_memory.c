/*
 * external_memory.c - memory of other interfaces (cuImportExternalMemory) and how it is mapped; descriptors for other
 * libraries of what lies at an address (dma-buf). A descriptor is what cuMemExportToShareableHandle or
 * cuMemGetHandleForAddressRange gave, in this process or another; or, as there is no other interface on a simulated
 * device, any file that can be mapped (a memfd). Called by programs and arrays/array_mipmap.c.
 *
 * Nothing is charged here: memory that came from the driver is paid by its maker (arena/share.c), other memory by no
 * process.
 */
#include "simgpu/memory/external_memory.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/base/slab.h"
#include "simgpu/memory/vmm.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/capture_rules.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXTERNAL_MAGIC 0x4558544du
#define EXTERNAL_ENDED 0x45585444u /* destroyed, and parts of it are still mapped */
#define PAGE_BYTES 4096ull

struct sim_external {
  struct sim_object object;
  struct sim_share share; /* key 0: a file of another interface */
  uint64_t bytes;
  uint64_t offset; /* in fd */
  int fd;
  uint32_t references; /* the handle and maps */
};

static struct sim_slab slab = SIM_SLAB(sizeof(struct sim_external), 1u << 16);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of references and of handles that end */

static struct sim_external *find(CUexternalMemory handle) {
  return sim_slab_find(&slab, handle, EXTERNAL_MAGIC);
}

static void drop(struct sim_external *memory) { /* under lock */
  if (--memory->references > 0) return;
  if (memory->share.key) sim_share_close(&memory->share);
  close(memory->fd);
  sim_slab_put(&slab, memory);
}

/* ---- importing ---- */

static CUresult open_ticket(struct sim_external *memory, uint64_t key, bool dma_buf) {
  CUresult result = sim_share_open(key, SIM_SHARE_PHYSICAL, &memory->share);
  if (result == CUDA_ERROR_INVALID_HANDLE && dma_buf) result = sim_share_open(key, SIM_SHARE_MEMORY, &memory->share);
  if (result != CUDA_SUCCESS) return result;
  memory->bytes = memory->share.bytes;
  memory->offset = memory->share.offset;
  memory->fd = memory->share.fd;
  return CUDA_SUCCESS;
}

static CUresult open_file(struct sim_external *memory, int fd) {
  struct stat found;
  if (vg_prim_fstat(fd, &found) < 0 || !S_ISREG(found.st_mode)) return CUDA_ERROR_INVALID_HANDLE;
  memory->bytes = (uint64_t)found.st_size;
  memory->fd = dup(fd);
  return memory->fd < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* The descriptor is the driver's once it has been imported. */
SIM_PUBLIC CUresult cuImportExternalMemory(CUexternalMemory *ret_handle, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc) {
  struct sim_context *context;
  uint64_t key;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_handle || !desc || desc->size == 0 || desc->flags & ~(unsigned)CUDA_EXTERNAL_MEMORY_DEDICATED)
    return CUDA_ERROR_INVALID_VALUE;
  bool dma_buf = desc->type == CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD;
  if (!dma_buf && desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  struct sim_external *memory = sim_slab_get(&slab, EXTERNAL_MAGIC);
  if (!memory) return CUDA_ERROR_OUT_OF_MEMORY;
  result = sim_share_ticket_key(desc->handle.fd, &key) ? open_ticket(memory, key, dma_buf)
                                                       : open_file(memory, desc->handle.fd);
  if (result != CUDA_SUCCESS) {
    sim_slab_put(&slab, memory);
    return result;
  }
  memory->references = 1;
  if (desc->size > memory->bytes) {
    drop(memory);
    return CUDA_ERROR_INVALID_VALUE;
  }
  memory->bytes = desc->size;
  close(desc->handle.fd);
  *ret_handle = (CUexternalMemory)memory;
  return CUDA_SUCCESS;
}

/* What is mapped of it stays, until the program frees that. */
SIM_PUBLIC CUresult cuDestroyExternalMemory(CUexternalMemory handle) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  pthread_mutex_lock(&lock);
  struct sim_external *memory = find(handle);
  if (memory) {
    VG_STORE(&memory->object.magic, EXTERNAL_ENDED);
    drop(memory);
  }
  pthread_mutex_unlock(&lock);
  return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- mapping ---- */

/* Of [offset, offset + bytes), which lies within the memory. */
static struct sim_external_map *map_part(struct sim_external *memory, uint64_t offset, uint64_t bytes) {
  uint64_t before = offset % PAGE_BYTES, whole = sim_round_up(before + bytes, PAGE_BYTES);
  struct sim_external_map *map = malloc(sizeof *map);
  char *pages = map ? sim_reserve_bytes(whole, 0) : NULL;
  if (!pages || !sim_arena_place(memory->fd, memory->offset + offset - before, pages, whole, SIM_READ_WRITE)) {
    if (pages) sim_unmap_bytes(pages, whole);
    free(map);
    return NULL;
  }
  *map = (struct sim_external_map){memory, pages, whole, (CUdeviceptr)pages + before};
  memory->references++;
  return map;
}

CUresult sim_external_map(CUexternalMemory handle, uint64_t offset, uint64_t bytes, struct sim_external_map **ret_map) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  struct sim_external *memory = find(handle);
  if (!memory)
    result = CUDA_ERROR_INVALID_HANDLE;
  else if (offset > memory->bytes || bytes > memory->bytes - offset)
    result = CUDA_ERROR_INVALID_VALUE;
  else if ((*ret_map = map_part(memory, offset, bytes)) == NULL)
    result = CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_unlock(&lock);
  return result;
}

void sim_external_unmap(struct sim_external_map *map) {
  sim_unmap_bytes(map->pages, map->pages_bytes);
  pthread_mutex_lock(&lock);
  drop(map->memory);
  pthread_mutex_unlock(&lock);
  free(map);
}

static CUresult enter_unsafe(struct sim_context **ret_context) {
  CUresult result = sim_enter(ret_context);
  return result == CUDA_SUCCESS ? sim_capture_unsafe() : result;
}

SIM_PUBLIC CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *ret_pointer, CUexternalMemory handle,
                                                    const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc) {
  struct sim_context *context;
  struct sim_external_map *made;
  CUresult result = enter_unsafe(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_pointer || !desc || desc->size == 0 || desc->flags) return CUDA_ERROR_INVALID_VALUE;
  result = sim_external_map(handle, desc->offset, desc->size, &made);
  if (result != CUDA_SUCCESS) return result;
  struct sim_allocation allocation = {.base = made->base,
                                      .bytes = desc->size,
                                      .context = context,
                                      .device = context->device,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .external = made};
  *ret_pointer = made->base;
  if (sim_memory_add(&allocation)) return CUDA_SUCCESS;
  sim_external_unmap(made);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- exporting by address ---- */

/* A descriptor holds whole memory; a range that begins inside of it cannot be distinguished from that. */
static CUresult share_range(const struct sim_allocation *allocation, CUdeviceptr address, uint64_t *ret_key) {
  uint64_t base, bytes;
  if (allocation->kind != CU_MEMORYTYPE_DEVICE || allocation->managed || allocation->pool || allocation->imported ||
      allocation->external)
    return CUDA_ERROR_INVALID_VALUE;
  sim_share_unit(allocation, &base, &bytes);
  return address == base ? sim_share_memory(allocation->device, (void *)base, bytes, ret_key)
                         : CUDA_ERROR_NOT_SUPPORTED;
}

SIM_PUBLIC CUresult cuMemGetHandleForAddressRange(void *ret_fd, CUdeviceptr address, size_t bytes,
                                                  CUmemRangeHandleType type, unsigned long long flags) {
  struct sim_context *context;
  struct sim_allocation allocation;
  uint64_t key;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (!ret_fd || bytes == 0 || address % PAGE_BYTES || bytes % PAGE_BYTES ||
      type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD ||
      flags & ~(unsigned long long)CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!sim_memory_find(address, &allocation) ||
      bytes > sim_round_up(allocation.base + allocation.bytes - address, PAGE_BYTES))
    return CUDA_ERROR_INVALID_VALUE;
  result = allocation.mapped ? sim_physical_share_at(address, bytes, &key) : share_range(&allocation, address, &key);
  return result == CUDA_SUCCESS ? sim_share_ticket(key, ret_fd) : result;
}
