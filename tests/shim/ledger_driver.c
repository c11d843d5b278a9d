/*
 * ledger_driver.c - a small driver for the tests of the ledger: gives out addresses as the real one does (granules of
 * 2 MiB, small requests packed into them), keeps exact account of what is taken from the device, does no work, and
 * fails any function once when asked to. Loaded as the real driver through VGPU_DRIVER; the tests ask it directly as
 * well.
 *
 * LEDGER_DEVICES, LEDGER_TOTAL_MIB, LEDGER_CONTEXT_MIB: devices, memory of each, cost of a context on each.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "gen/abi/cuda_abi.h"

#define SEEN __attribute__((visibility("default")))
#define GRANULE (2ull << 20)
#define POOL_BLOCK (32ull << 20)
#define DEVICES 8
#define BLOCKS 65536

struct block {
  CUdeviceptr address;
  size_t bytes;
  struct context *context;
  int device;
  struct pool *pool;
};
struct chunk {
  CUdeviceptr base;
  size_t filled;
  int live, device;
};
struct context {
  int device, primary, references;
};
struct pool {
  int device;
  size_t used, reserved;
};
struct handle {
  size_t bytes;
  int device, references, maps;
  CUdeviceptr mapped_at;
};
struct node {
  CUgraphNodeType type;
  CUDA_MEM_ALLOC_NODE_PARAMS params;
};
struct graph {
  struct node nodes[16];
  size_t count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int visible[DEVICES], visible_count, started;
static unsigned long long used[DEVICES], graph_reserved[DEVICES];
static struct context primaries[DEVICES];
static struct block blocks[BLOCKS];
static struct chunk chunks[BLOCKS];
static int chunk_count;
static struct pool default_pools[DEVICES];
static CUdeviceptr next_address = 1ull << 40;
static char failing[64];
static __thread struct context *stack[16];
static __thread int depth;

static unsigned long long mib(const char *name, unsigned long long otherwise) {
  const char *text = getenv(name);
  return (text ? strtoull(text, NULL, 10) : otherwise) << 20;
}
static unsigned long long total(void) {
  return mib("LEDGER_TOTAL_MIB", 16384);
}
static unsigned long long up(unsigned long long bytes, unsigned long long unit) {
  return (bytes + unit - 1) / unit * unit;
}
static int fails(const char *name) {
  if (strcmp(failing, name)) return 0;
  failing[0] = 0;
  return 1;
}
#define MAY_FAIL                                                                                                       \
  if (fails(__func__)) return CUDA_ERROR_UNKNOWN
static struct context *current(void) {
  return depth ? stack[depth - 1] : NULL;
}
static int take(int device, unsigned long long bytes) {
  if (used[device] + bytes > total()) return 0;
  used[device] += bytes;
  return 1;
}

/* ---- asked by the tests ---- */
SEEN unsigned long long ledger_used(int device) {
  return used[device];
}
SEEN void ledger_fail(const char *function) {
  snprintf(failing, sizeof failing, "%s", function);
}
static int capturing;
SEEN void ledger_capture(int on) { /* from now on streams capture: allocations become nodes and take nothing */
  capturing = on;
}
SEEN int ledger_failed(void) {
  return !failing[0];
}

/* ---- devices ---- */
static void uuid_text(int device, char *text) {
  char *out = text + sprintf(text, "GPU-");
  for (int i = 0; i < 16; i++)
    out += sprintf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", device + 1);
}
static void forked(void) { /* this driver keeps working in children; a real one refuses them */
  pthread_mutex_init(&lock, NULL);
}
SEEN CUresult cuInit(unsigned int flags) {
  MAY_FAIL;
  if (started) return CUDA_SUCCESS;
  pthread_atfork(NULL, NULL, forked);
  const char *list = getenv("CUDA_VISIBLE_DEVICES"), *count = getenv("LEDGER_DEVICES");
  int devices = count ? atoi(count) : 1;
  visible_count = 0;
  for (int i = 0; !list && i < devices; i++) visible[visible_count++] = i;
  for (const char *entry = list; entry && *entry;) {
    int found = -1;
    for (int i = 0; i < devices; i++) {
      char text[64];
      uuid_text(i, text);
      size_t length = strcspn(entry, ",");
      if (length > 4 && !strncasecmp(text, entry, length)) found = i;
      if (length == 1 && entry[0] == '0' + i) found = i;
    }
    if (found < 0) break;
    visible[visible_count++] = found;
    entry += strcspn(entry, ",");
    if (*entry) entry++;
  }
  started = visible_count > 0;
  return flags ? CUDA_ERROR_INVALID_VALUE : started ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
SEEN CUresult cuDeviceGetCount(int *count) {
  *count = visible_count;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  if (ordinal < 0 || ordinal >= visible_count) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  memset(uuid->bytes, visible[device] + 1, 16);
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  (void)device;
  *bytes = total();
  return CUDA_SUCCESS;
}

/* ---- contexts ---- */
static int enter(struct context *context) {
  if (!take(context->device, mib("LEDGER_CONTEXT_MIB", 300))) return 0;
  return 1;
}
static void give(struct block *block);
static void leave(struct context *context) {
  for (int i = 0; i < BLOCKS; i++)
    if (blocks[i].address && blocks[i].context == context && !blocks[i].pool) give(&blocks[i]);
  used[context->device] -= mib("LEDGER_CONTEXT_MIB", 300);
  for (int i = 0; i < depth; i++)
    if (stack[i] == context) stack[i] = NULL;
}
SEEN CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice device) {
  MAY_FAIL;
  (void)flags;
  struct context *context = calloc(1, sizeof *context);
  context->device = visible[device];
  if (!enter(context)) return CUDA_ERROR_OUT_OF_MEMORY;
  stack[depth++] = context;
  *out = (CUcontext)context;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxDestroy_v2(CUcontext context) {
  MAY_FAIL;
  leave((struct context *)context);
  while (depth && !stack[depth - 1]) depth--;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device) {
  MAY_FAIL;
  struct context *context = &primaries[visible[device]];
  context->device = visible[device];
  context->primary = 1;
  if (!context->references && !enter(context)) return CUDA_ERROR_OUT_OF_MEMORY;
  context->references++;
  *out = (CUcontext)context;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  MAY_FAIL;
  struct context *context = &primaries[visible[device]];
  if (!context->references) return CUDA_ERROR_INVALID_CONTEXT;
  if (--context->references == 0) leave(context);
  return CUDA_SUCCESS;
}
SEEN CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  MAY_FAIL;
  struct context *context = &primaries[visible[device]];
  if (context->references) leave(context);
  context->references = 0;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  *flags = 0;
  *active = primaries[visible[device]].references > 0;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxGetCurrent(CUcontext *out) {
  *out = (CUcontext)current();
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxGetDevice(CUdevice *device) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  for (int i = 0; i < visible_count; i++)
    if (visible[i] == current()->device) *device = i;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxSetCurrent(CUcontext context) {
  if (!depth) depth = 1;
  stack[depth - 1] = (struct context *)context;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxPushCurrent_v2(CUcontext context) {
  stack[depth++] = (struct context *)context;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  *context = (CUcontext)stack[--depth];
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  *free_bytes = total() - used[current()->device];
  *total_bytes = total();
  return CUDA_SUCCESS;
}

/* ---- memory by address ---- */
static CUdeviceptr small_address(int device, size_t bytes) {
  struct chunk *chunk = NULL;
  bytes = up(bytes, 512);
  for (int i = 0; i < chunk_count && !chunk; i++)
    if (chunks[i].live && chunks[i].device == device && chunks[i].filled + bytes <= GRANULE) chunk = &chunks[i];
  if (!chunk) {
    if (!take(device, GRANULE)) return 0;
    for (int i = 0; i < chunk_count && !chunk; i++)
      if (!chunks[i].live) chunk = &chunks[i];
    if (!chunk) chunk = &chunks[chunk_count++];
    *chunk = (struct chunk){.base = next_address, .device = device};
    next_address += GRANULE;
  }
  chunk->live++;
  chunk->filled += bytes;
  return chunk->base + chunk->filled - bytes;
}
static struct block *find(CUdeviceptr address) {
  for (int i = 0; i < BLOCKS; i++)
    if (blocks[i].address == address) return &blocks[i];
  return NULL;
}
static void give(struct block *block) {
  if (block->bytes >= GRANULE) {
    used[block->device] -= up(block->bytes, GRANULE);
  } else {
    for (int i = 0; i < chunk_count; i++)
      if (block->address / GRANULE == chunks[i].base / GRANULE && --chunks[i].live == 0) used[block->device] -= GRANULE;
  }
  block->address = 0;
}
static CUresult allocate(CUdeviceptr *out, size_t bytes) {
  if (!current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  int device = current()->device;
  CUdeviceptr address = 0;
  if (bytes < GRANULE) {
    address = small_address(device, bytes);
  } else if (take(device, up(bytes, GRANULE))) {
    address = next_address;
    next_address += up(bytes, GRANULE);
  }
  if (address) *find(0) = (struct block){.address = address, .bytes = bytes, .context = current(), .device = device};
  pthread_mutex_unlock(&lock);
  if (address) *out = address;
  return address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult release(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  struct block *block = address ? find(address) : NULL;
  if (block && block->pool)
    block->pool->used -= block->bytes, block->address = 0;
  else if (block)
    give(block);
  pthread_mutex_unlock(&lock);
  return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
SEEN CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
  MAY_FAIL;
  return allocate(out, bytes);
}
SEEN CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags) {
  MAY_FAIL;
  (void)flags;
  return allocate(out, bytes);
}
SEEN CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element) {
  MAY_FAIL;
  (void)element;
  *pitch = up(width, 4096); /* more than the hook expects */
  return allocate(out, *pitch * height);
}
SEEN CUresult cuMemFree_v2(CUdeviceptr address) {
  MAY_FAIL;
  return release(address);
}
SEEN CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  MAY_FAIL;
  (void)stream;
  return release(address);
}

/* ---- pools ---- */
static void shrink(struct pool *pool) {
  size_t keep = up(pool->used, POOL_BLOCK);
  if (keep >= pool->reserved) return;
  used[pool->device] -= pool->reserved - keep;
  pool->reserved = keep;
}
SEEN CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  (void)stream;
  *status = capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}
static CUresult from_pool(CUdeviceptr *out, size_t bytes, struct pool *pool) {
  if (capturing) return CUDA_SUCCESS;
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  size_t needed = up(pool->used + up(bytes, 512), POOL_BLOCK);
  int ok = needed <= pool->reserved || take(pool->device, needed - pool->reserved);
  if (ok) {
    if (needed > pool->reserved) pool->reserved = needed;
    pool->used += up(bytes, 512);
    *out = next_address;
    next_address += up(bytes, GRANULE);
    *find(0) = (struct block){*out, up(bytes, 512), current(), pool->device, pool};
  }
  pthread_mutex_unlock(&lock);
  return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
SEEN CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
  default_pools[visible[device]].device = visible[device];
  *out = (CUmemoryPool)&default_pools[visible[device]];
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
  return cuDeviceGetDefaultMemPool(out, device);
}
SEEN CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
  MAY_FAIL;
  (void)stream;
  CUmemoryPool pool;
  CUdevice device;
  if (cuCtxGetDevice(&device) || cuDeviceGetMemPool(&pool, device)) return CUDA_ERROR_INVALID_CONTEXT;
  return from_pool(out, bytes, (struct pool *)pool);
}
SEEN CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  MAY_FAIL;
  (void)stream;
  return from_pool(out, bytes, (struct pool *)pool);
}
SEEN CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
  MAY_FAIL;
  struct pool *pool = calloc(1, sizeof *pool);
  pool->device = visible[props->location.id];
  *out = (CUmemoryPool)pool;
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  MAY_FAIL;
  struct pool *gone = (struct pool *)pool;
  used[gone->device] -= gone->reserved;
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  MAY_FAIL;
  (void)keep;
  shrink((struct pool *)pool);
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  struct pool *asked = (struct pool *)pool;
  *(cuuint64_t *)value = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? asked->reserved : asked->used;
  return CUDA_SUCCESS;
}
SEEN CUresult cuCtxSynchronize(void) {
  for (int i = 0; i < DEVICES; i++) shrink(&default_pools[i]);
  return CUDA_SUCCESS;
}

/* ---- memory by handle ---- */
static void drop_handle(struct handle *handle) {
  if (!handle->references && !handle->maps) used[handle->device] -= handle->bytes;
}
SEEN CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                          unsigned long long flags) {
  MAY_FAIL;
  (void)flags;
  struct handle *handle = calloc(1, sizeof *handle);
  *handle = (struct handle){.references = 1};
  if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    handle->bytes = bytes;
    handle->device = visible[prop->location.id];
    if (!take(handle->device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *out = (CUmemGenericAllocationHandle)(uintptr_t)handle;
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  MAY_FAIL;
  struct handle *known = (struct handle *)(uintptr_t)handle;
  known->references--;
  drop_handle(known);
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr address,
                                  unsigned long long flags) {
  (void)alignment, (void)address, (void)flags;
  *out = next_address;
  next_address += up(bytes, GRANULE);
  return CUDA_SUCCESS;
}
static struct handle *mapped[256];
SEEN CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags) {
  MAY_FAIL;
  (void)offset, (void)flags, (void)size;
  struct handle *known = (struct handle *)(uintptr_t)handle;
  known->maps++;
  known->mapped_at = address;
  for (int i = 0; i < 256; i++)
    if (!mapped[i]) {
      mapped[i] = known;
      break;
    }
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  MAY_FAIL;
  for (int i = 0; i < 256; i++) {
    struct handle *known = mapped[i];
    if (!known || known->mapped_at < address || known->mapped_at >= address + size) continue;
    known->maps--;
    mapped[i] = NULL;
    drop_handle(known);
  }
  return CUDA_SUCCESS;
}
SEEN CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  MAY_FAIL;
  for (int i = 0; i < 256; i++)
    if (mapped[i] && mapped[i]->mapped_at == (CUdeviceptr)(uintptr_t)address) {
      mapped[i]->references++;
      *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapped[i];
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_INVALID_VALUE;
}

/* ---- arrays: large ones only, in blocks of 64 bytes by 8 rows ---- */
SEEN CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d) {
  MAY_FAIL;
  struct handle *array = calloc(1, sizeof *array);
  array->device = current()->device;
  array->bytes = up(up(d->Width * d->NumChannels * 4, 64) * (d->Height > 1 ? up(d->Height, 8) : 1), GRANULE);
  if (!take(array->device, array->bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  *out = (CUarray)array;
  return CUDA_SUCCESS;
}
SEEN CUresult cuArrayDestroy(CUarray array) {
  MAY_FAIL;
  drop_handle((struct handle *)array);
  return CUDA_SUCCESS;
}

/* ---- graphs of allocation nodes ---- */
SEEN CUresult cuGraphCreate(CUgraph *out, unsigned int flags) {
  (void)flags;
  *out = calloc(1, sizeof(struct graph));
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                     CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  (void)dependencies, (void)count;
  struct graph *known = (struct graph *)graph;
  struct node *node = &known->nodes[known->count++];
  static unsigned long long next = 1ull << 40;
  params->dptr = next;
  next += up(params->bytesize, GRANULE);
  *node = (struct node){CU_GRAPH_NODE_TYPE_MEM_ALLOC, *params};
  *out = (CUgraphNode)node;
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  struct graph *known = (struct graph *)graph;
  for (size_t i = 0; nodes && i < known->count; i++) nodes[i] = (CUgraphNode)&known->nodes[i];
  *count = known->count;
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  *type = ((struct node *)node)->type;
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  *params = ((struct node *)node)->params;
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags) {
  MAY_FAIL;
  (void)flags;
  struct graph *copy = malloc(sizeof *copy);
  *copy = *(struct graph *)graph;
  *out = (CUgraphExec)copy;
  return CUDA_SUCCESS;
}
/* Graphs share what the device keeps for them: the largest one's need is taken. */
SEEN CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  MAY_FAIL;
  (void)stream;
  unsigned long long bytes = 0;
  struct graph *known = (struct graph *)exec;
  int device = current()->device;
  for (size_t i = 0; i < known->count; i++) bytes += up(known->nodes[i].params.bytesize, GRANULE);
  if (bytes <= graph_reserved[device]) return CUDA_SUCCESS;
  if (!take(device, bytes - graph_reserved[device])) return CUDA_ERROR_OUT_OF_MEMORY;
  graph_reserved[device] = bytes;
  return CUDA_SUCCESS;
}
SEEN CUresult cuGraphUpload(CUgraphExec exec, CUstream stream) {
  return cuGraphLaunch(exec, stream);
}
SEEN CUresult cuGraphExecDestroy(CUgraphExec exec) {
  MAY_FAIL;
  (void)exec;
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  (void)attribute;
  *(cuuint64_t *)value = graph_reserved[visible[device]];
  return CUDA_SUCCESS;
}
SEEN CUresult cuDeviceGraphMemTrim(CUdevice device) {
  MAY_FAIL;
  used[visible[device]] -= graph_reserved[visible[device]];
  graph_reserved[visible[device]] = 0;
  return CUDA_SUCCESS;
}
