/*
 * graph_memory.c - memory nodes of graphs. The address is fixed when the node is made; memory is taken from the device
 * at the first upload or launch and then kept for graphs of that device until cuDeviceGraphMemTrim. Called by programs,
 * graph.c, graph_exec.c, graph_run.c and cuMemFree (memory/alloc.c). One difference from the real driver: graphs of one
 * stream do not share memory, each allocation node has its own.
 */
#define _GNU_SOURCE
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/charge.h"
#include "simgpu/arena/map.h"
#include "simgpu/graphs/graph.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <stdlib.h>

struct sim_block {
  CUdeviceptr base;
  uint64_t bytes;         /* as asked for */
  uint64_t rounded_bytes; /* as the device counts */
  int ordinal;
  struct sim_context *context;
  uint32_t references; /* nodes, those of executables included */
  bool charged;        /* it has memory of the device */
  bool live;           /* allocated by a launch and not yet freed */
  struct sim_block *next;
};

struct account {
  uint64_t spare_bytes; /* taken from the device, of no block */
  uint64_t used_bytes, used_high_bytes;
  uint64_t reserved_bytes, reserved_high_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_block *blocks;
static struct account accounts[SIM_DEVICES_MAX]; /* by ordinal */

static CUresult charge(struct sim_block *block) {
  struct account *account = &accounts[block->ordinal];
  if (block->charged) return CUDA_SUCCESS;
  if (account->spare_bytes >= block->rounded_bytes) {
    account->spare_bytes -= block->rounded_bytes;
  } else {
    CUresult result = sim_memory_charge(sim_device(block->ordinal)->index, block->rounded_bytes);
    if (result != CUDA_SUCCESS) return result;
    account->reserved_bytes += block->rounded_bytes;
    if (account->reserved_bytes > account->reserved_high_bytes) account->reserved_high_bytes = account->reserved_bytes;
  }
  block->charged = true;
  return CUDA_SUCCESS;
}

static void discharge(struct sim_block *block) {
  if (block->charged) accounts[block->ordinal].spare_bytes += block->rounded_bytes;
  block->charged = false;
}

/* A block that no node names and nothing uses is gone; its memory stays with the graphs of the device. */
static void drop_unused(struct sim_block *block) {
  struct sim_allocation allocation;
  if (block->references != 0 || block->live) return;
  discharge(block);
  sim_memory_remove(block->base, &allocation);
  sim_unmap_device((void *)block->base, block->rounded_bytes);
  for (struct sim_block **at = &blocks; *at != NULL; at = &(*at)->next) {
    if (*at != block) continue;
    *at = block->next;
    break;
  }
  free(block);
}

static void set_live(struct sim_block *block, bool live) {
  struct account *account = &accounts[block->ordinal];
  block->live = live;
  account->used_bytes += live ? block->rounded_bytes : -block->rounded_bytes;
  if (account->used_bytes > account->used_high_bytes) account->used_high_bytes = account->used_bytes;
}

/* ---- what nodes do with blocks ---- */

/* The same memory for both: an executable allocates what its graph names. */
static CUresult copy_alloc(struct sim_node *node, const struct sim_node *from) {
  pthread_mutex_lock(&lock);
  if (node->memory.block == NULL) from->memory.block->references++;
  pthread_mutex_unlock(&lock);
  node->work = from->work;
  node->memory = from->memory;
  return CUDA_SUCCESS;
}

static void drop_alloc(struct sim_node *node) {
  if (node->memory.block == NULL) return;
  pthread_mutex_lock(&lock);
  node->memory.block->references--;
  drop_unused(node->memory.block);
  pthread_mutex_unlock(&lock);
  node->memory.block = NULL;
}

static CUresult run_alloc(const struct sim_node *node, struct sim_stream *stream) {
  (void)stream; /* effects on memory are in program order */
  struct sim_block *block = node->memory.block;
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  if (block->live)
    result = CUDA_ERROR_INVALID_VALUE; /* the launch before has not freed it */
  else
    result = charge(block);
  if (result == CUDA_SUCCESS) set_live(block, true);
  pthread_mutex_unlock(&lock);
  return result;
}

static const struct sim_node_work alloc_work = {copy_alloc, drop_alloc, run_alloc};

static struct sim_block *find(CUdeviceptr address) {
  struct sim_block *block = blocks;
  while (block != NULL && block->base != address) block = block->next;
  return block;
}

static bool free_memory(CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  struct sim_block *block = find(address);
  bool live = block != NULL && block->live;
  if (live) {
    set_live(block, false);
    drop_unused(block);
  }
  pthread_mutex_unlock(&lock);
  return live;
}

static CUresult copy_free(struct sim_node *node, const struct sim_node *from) {
  node->work = from->work;
  node->address = from->address;
  return CUDA_SUCCESS;
}

static CUresult run_free(const struct sim_node *node, struct sim_stream *stream) {
  (void)stream;
  return free_memory(node->address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static const struct sim_node_work free_work = {copy_free, NULL, run_free};

/* Pinned or managed memory of a device. As with pools, no memory that begins on the host. */
static CUresult check_place(const CUmemPoolProps *properties) {
  bool managed = properties->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
  if (!managed && properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  switch (properties->location.type) {
  case CU_MEM_LOCATION_TYPE_DEVICE:
    return sim_device(properties->location.id) != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  case CU_MEM_LOCATION_TYPE_HOST:
  case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    return CUDA_ERROR_NOT_SUPPORTED;
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult sim_node_set_alloc(struct sim_node *node, CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  struct sim_context *context;
  CUresult result = sim_enter(&context);
  if (result != CUDA_SUCCESS) return result;
  if (params == NULL || params->bytesize == 0 || node->memory.block != NULL) return CUDA_ERROR_INVALID_VALUE;
  result = check_place(&params->poolProps);
  if (result != CUDA_SUCCESS) return result;
  if (params->bytesize > UINT64_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  struct sim_block *block = calloc(1, sizeof *block);
  if (block == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
  block->bytes = params->bytesize;
  block->rounded_bytes = (params->bytesize + SIM_GRANULE_BYTES - 1) / SIM_GRANULE_BYTES * SIM_GRANULE_BYTES;
  block->base = (CUdeviceptr)(uintptr_t)sim_map_device(block->rounded_bytes);
  block->ordinal = params->poolProps.location.id;
  block->context = context;
  block->references = 1;
  /* Known from now on: copies and kernels may name it before it is allocated, as nodes behind this one do. */
  struct sim_allocation allocation = {.base = block->base,
                                      .bytes = block->bytes,
                                      .device = sim_device(block->ordinal)->index,
                                      .kind = CU_MEMORYTYPE_DEVICE,
                                      .managed = params->poolProps.allocType == CU_MEM_ALLOCATION_TYPE_MANAGED,
                                      .mapped = true,
                                      .free = free_memory};
  if (block->base == 0 || sim_memory_add(&allocation) == NULL) {
    if (block->base != 0) sim_unmap_device((void *)block->base, block->rounded_bytes);
    free(block);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_mutex_lock(&lock);
  block->next = blocks;
  blocks = block;
  pthread_mutex_unlock(&lock);
  params->dptr = block->base;
  node->work = &alloc_work;
  node->memory.params = *params;
  node->memory.block = block;
  return CUDA_SUCCESS;
}

CUresult sim_graph_reserve(const struct sim_graph *graph) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < graph->count && result == CUDA_SUCCESS; i++)
    if (graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) result = charge(graph->nodes[i]->memory.block);
  pthread_mutex_unlock(&lock);
  return result;
}

static bool is_alloc(const struct sim_node *node) {
  return node->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->memory.block != NULL;
}

bool sim_graph_has_memory(const struct sim_graph *graph) {
  for (uint32_t i = 0; i < graph->count; i++)
    if (is_alloc(graph->nodes[i]) || graph->nodes[i]->type == CU_GRAPH_NODE_TYPE_MEM_FREE) return true;
  return false;
}

bool sim_graph_is_instantiated(const struct sim_graph *graph) {
  bool found = false;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < graph->count && !found; i++)
    found = is_alloc(graph->nodes[i]) && graph->nodes[i]->memory.block->references > 1;
  pthread_mutex_unlock(&lock);
  return found;
}

CUresult sim_graph_settle(const struct sim_graph *graph, bool frees) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  for (uint32_t i = 0; i < graph->count; i++) {
    struct sim_block *block = is_alloc(graph->nodes[i]) ? graph->nodes[i]->memory.block : NULL;
    if (block == NULL || !block->live) continue;
    if (frees)
      set_live(block, false);
    else
      result = CUDA_ERROR_INVALID_VALUE;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* The address of an allocation node, once in a graph. */
CUresult sim_node_set_free(struct sim_node *node, CUdeviceptr address) {
  pthread_mutex_lock(&lock);
  bool known = find(address) != NULL;
  pthread_mutex_unlock(&lock);
  for (uint32_t i = 0; i < node->graph->count; i++) {
    const struct sim_node *other = node->graph->nodes[i];
    known = known && (other == node || other->type != CU_GRAPH_NODE_TYPE_MEM_FREE || other->address != address);
  }
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  node->work = &free_work;
  node->address = address;
  return CUDA_SUCCESS;
}

void sim_graph_memory_context_destroy(struct sim_context *context) {
  pthread_mutex_lock(&lock);
  for (struct sim_block *block = blocks, *next; block != NULL; block = next) {
    next = block->next;
    if (block->context != context) continue;
    if (block->live) set_live(block, false);
    drop_unused(block);
  }
  pthread_mutex_unlock(&lock);
}

SIM_PUBLIC CUresult cuDeviceGraphMemTrim(CUdevice ordinal) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  struct sim_device *device = sim_device(ordinal);
  if (device == NULL) return CUDA_ERROR_INVALID_DEVICE;
  pthread_mutex_lock(&lock);
  for (struct sim_block *block = blocks; block != NULL; block = block->next) {
    if (block->ordinal != ordinal || block->live) continue;
    discharge(block);
    sim_clear_device((void *)block->base, block->rounded_bytes);
  }
  struct account *account = &accounts[ordinal];
  if (account->spare_bytes != 0) sim_memory_refund(device->index, account->spare_bytes);
  account->reserved_bytes -= account->spare_bytes;
  account->spare_bytes = 0;
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceGetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *ret_value) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (sim_device(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (ret_value == NULL || (unsigned)attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  const struct account *account = &accounts[ordinal];
  const uint64_t values[] = {account->used_bytes, account->used_high_bytes, account->reserved_bytes,
                             account->reserved_high_bytes};
  *(cuuint64_t *)ret_value = values[attribute];
  pthread_mutex_unlock(&lock);
  return CUDA_SUCCESS;
}

SIM_PUBLIC CUresult cuDeviceSetGraphMemAttribute(CUdevice ordinal, CUgraphMem_attribute attribute, void *value) {
  CUresult result = sim_ready();
  if (result != CUDA_SUCCESS) return result;
  if (sim_device(ordinal) == NULL) return CUDA_ERROR_INVALID_DEVICE;
  if (value == NULL || *(cuuint64_t *)value != 0) return CUDA_ERROR_INVALID_VALUE; /* marks can only be reset */
  struct account *account = &accounts[ordinal];
  pthread_mutex_lock(&lock);
  if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)
    account->used_high_bytes = account->used_bytes;
  else if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
    account->reserved_high_bytes = account->reserved_bytes;
  else
    result = CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_unlock(&lock);
  return result;
}
