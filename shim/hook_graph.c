/*
 * hook_graph.c - memory of graphs. Called by programs, any thread.
 *
 * A graph with allocation nodes takes its memory from the device's graph pool when it is first launched or uploaded,
 * and the pool keeps it until cuDeviceGraphMemTrim. A launch cannot be refused politely, so the sum of the nodes is
 * charged when the graph is instantiated; from then on the ledger holds the larger of what live graphs were promised
 * and what the driver says it has reserved. Graphs that share memory between each other are thereby charged for more
 * than they take.
 *
 * For a gang (gate_gang.c) the collectives among a graph's kernels are counted at the same time, and anew when the
 * whole graph is updated. Not seen: that a single node gets another kernel, or is disabled, or how often the body of a
 * conditional one runs; graphs that were instantiated before their slice was a gang.
 */
#include <pthread.h>
#include <stdlib.h>

#include "gate.h"
#include "gen/real.h"
#include "hook_memory.h"
#include "memory.h"
#include "prim.h"

#define DEPTH_MAX 16 /* of child graphs in child graphs */

static struct {
  pthread_mutex_t lock;
  uint64_t promised_bytes; /* to live executable graphs */
  uint64_t charged_bytes;
} accounts[VG_DEVICES_MAX] = {[0 ... VG_DEVICES_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

struct need {
  struct vg_device *gang; /* NULL: collectives are not counted; else the device of kernels that name none */
  uint64_t bytes[VG_DEVICES_MAX];
  uint32_t collectives[VG_DEVICES_MAX];
};

/* ---- what a graph needs ---- */

static void add_graph(struct need *need, CUgraph graph, int depth);

static void add_kernel(struct need *need, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS parameters = {0}; /* begins with what older drivers tell */
  if (REAL(cuGraphKernelNodeGetParams_v2)(node, &parameters) != CUDA_SUCCESS &&
      REAL(cuGraphKernelNodeGetParams)(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&parameters) != CUDA_SUCCESS)
    return;
  const void *function = parameters.func ? (const void *)parameters.func : (const void *)parameters.kern;
  if (!function || !vg_gate_gang_is_collective(function)) return;
  const struct vg_device *device = parameters.ctx ? vg_context_device_of(parameters.ctx) : NULL;
  need->collectives[(device ? device : need->gang) - vg_session.devices]++;
}

static void add_node(struct need *need, CUgraphNode node, int depth) {
  CUgraphNodeType type;
  if (REAL(cuGraphNodeGetType)(node, &type) != CUDA_SUCCESS) return;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
    CUgraph child;
    if (REAL(cuGraphChildGraphNodeGetGraph)(node, &child) == CUDA_SUCCESS) add_graph(need, child, depth + 1);
  }
  if (type == CU_GRAPH_NODE_TYPE_KERNEL && need->gang) add_kernel(need, node);
  if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) return;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
  if (REAL(cuGraphMemAllocNodeGetParams)(node, &parameters) != CUDA_SUCCESS) return;
  if (parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return;
  struct vg_device *device = vg_context_ordinal(parameters.poolProps.location.id);
  if (!device) return;
  uint64_t *bytes = &need->bytes[device - vg_session.devices];
  uint64_t more = vg_charge_round(parameters.bytesize, vg_charge_granule(device));
  if (__builtin_add_overflow(*bytes, more, bytes)) *bytes = UINT64_MAX;
}

static void add_graph(struct need *need, CUgraph graph, int depth) {
  size_t count = 0;
  if (depth > DEPTH_MAX || REAL(cuGraphGetNodes)(graph, NULL, &count) != CUDA_SUCCESS || !count) return;
  CUgraphNode *nodes = malloc(count * sizeof *nodes);
  if (!nodes) return;
  if (REAL(cuGraphGetNodes)(graph, nodes, &count) == CUDA_SUCCESS)
    for (size_t i = 0; i < count; i++) add_node(need, nodes[i], depth);
  free(nodes);
}

static struct need need_of(CUgraph graph, struct vg_device *device) {
  struct need need = {.gang = vg_gate_gang_counts(device) ? device : NULL};
  add_graph(&need, graph, 0);
  return need;
}

/* ---- the account of a device ---- */

static int promise(uint32_t index, uint64_t bytes) {
  struct vg_device *device = &vg_session.devices[index];
  if (vg_memory_reserve(device, bytes)) return -1;
  pthread_mutex_lock(&accounts[index].lock);
  accounts[index].promised_bytes += bytes;
  accounts[index].charged_bytes += bytes;
  pthread_mutex_unlock(&accounts[index].lock);
  return 0;
}

/* Under the account's lock. */
static void follow(uint32_t index) {
  struct vg_device *device = &vg_session.devices[index];
  uint64_t target = 0, charged = accounts[index].charged_bytes;
  if (REAL(cuDeviceGetGraphMemAttribute)(vg_context_handle(device), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &target) !=
      CUDA_SUCCESS)
    target = 0;
  if (target < accounts[index].promised_bytes) target = accounts[index].promised_bytes;
  accounts[index].charged_bytes = target;
  if (target > charged) vg_memory_force(device, target - charged);
  if (target < charged) vg_memory_release(device, charged - target);
}

static void take_promise_back(uint32_t index, uint64_t bytes) {
  pthread_mutex_lock(&accounts[index].lock);
  accounts[index].promised_bytes -= bytes;
  follow(index);
  pthread_mutex_unlock(&accounts[index].lock);
}

void vg_graph_record_gone(const struct vg_record *record) {
  if (record->size) take_promise_back((uint32_t)(record->device - vg_session.devices), record->size);
}

void vg_graph_refresh(struct vg_device *device) {
  uint32_t index = (uint32_t)(device - vg_session.devices);
  if (!VG_LOAD_RELAXED(&accounts[index].charged_bytes)) return;
  pthread_mutex_lock(&accounts[index].lock);
  follow(index);
  pthread_mutex_unlock(&accounts[index].lock);
}

/* ---- executable graphs ---- */

static uint64_t exec_key(CUgraphExec exec, uint32_t index) {
  return (uint64_t)(uintptr_t)exec | (uint64_t)index << 56;
}

struct promises { /* a record per device, made before the driver is called */
  struct vg_record *records[VG_DEVICES_MAX];
};

static void withdraw(struct promises *promises) {
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++)
    if (promises->records[i]) vg_charge_return(promises->records[i]);
}

static bool begin(CUgraph graph, struct promises *promises) {
  *promises = (struct promises){0};
  CUcontext context;
  struct vg_device *device = vg_context_current(&context);
  if (!device) return true;
  struct need need = need_of(graph, device);
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    if (!need.bytes[i] && !need.collectives[i]) continue;
    struct vg_record *record = vg_record_new(VG_RECORD_GRAPH, &vg_session.devices[i], context);
    if (!record || (need.bytes[i] && promise(i, need.bytes[i]))) {
      vg_record_free(record);
      withdraw(promises);
      return false;
    }
    record->size = need.bytes[i];
    record->other = need.collectives[i];
    promises->records[i] = record;
  }
  return true;
}

static CUresult end(struct promises *promises, CUresult result, const CUgraphExec *exec) {
  if (result != CUDA_SUCCESS) withdraw(promises);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < VG_DEVICES_MAX; i++)
    if (promises->records[i]) vg_table_put(promises->records[i], exec_key(*exec, i));
  return result;
}

#define INSTANTIATE(call)                                                                                              \
  struct promises promises;                                                                                            \
  if (!begin(hGraph, &promises)) return CUDA_ERROR_OUT_OF_MEMORY;                                                      \
  return end(&promises, call, phGraphExec)

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                            size_t bufferSize) {
  INSTANTIATE(REAL(cuGraphInstantiate)(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
                               size_t bufferSize) {
  INSTANTIATE(REAL(cuGraphInstantiate_v2)(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize));
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags) {
  INSTANTIATE(REAL(cuGraphInstantiateWithFlags)(phGraphExec, hGraph, flags));
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  INSTANTIATE(REAL(cuGraphInstantiateWithParams)(phGraphExec, hGraph, instantiateParams));
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  INSTANTIATE(REAL(cuGraphInstantiateWithParams_ptsz)(phGraphExec, hGraph, instantiateParams));
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  struct promises promises = {0};
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    promises.records[i] = vg_table_take(VG_RECORD_GRAPH, exec_key(hGraphExec, i));
  CUresult result = REAL(cuGraphExecDestroy)(hGraphExec);
  if (result == CUDA_SUCCESS) withdraw(&promises);
  for (uint32_t i = 0; result != CUDA_SUCCESS && i < VG_DEVICES_MAX; i++)
    if (promises.records[i]) vg_table_put(promises.records[i], promises.records[i]->key);
  return result;
}

/* An update changes kernels, and cannot change allocations. Without memory it is as if the graph had no collectives. */
static CUresult updated(CUresult result, CUgraphExec exec, CUgraph graph) {
  CUcontext context;
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_current(&context) : NULL;
  if (!device || !vg_gate_gang_counts(device)) return result;
  struct need need = need_of(graph, device);
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_record *record = vg_table_take(VG_RECORD_GRAPH, exec_key(exec, i));
    if (!record && need.collectives[i]) record = vg_record_new(VG_RECORD_GRAPH, &vg_session.devices[i], context);
    if (!record) continue;
    record->other = need.collectives[i];
    vg_table_put(record, exec_key(exec, i));
  }
  return result;
}

CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
                           CUgraphExecUpdateResult *updateResult_out) {
  return updated(REAL(cuGraphExecUpdate)(hGraphExec, hGraph, hErrorNode_out, updateResult_out), hGraphExec, hGraph);
}

CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo) {
  return updated(REAL(cuGraphExecUpdate_v2)(hGraphExec, hGraph, resultInfo), hGraphExec, hGraph);
}

void vg_graph_launched(const struct vg_device *device, CUgraphExec exec) {
  if (VG_LIKELY(!vg_gate_gang_counts(device))) return;
  struct vg_record record;
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    if (vg_gate_gang_counts(&vg_session.devices[i]) && vg_table_look(VG_RECORD_GRAPH, exec_key(exec, i), &record))
      vg_gate_gang_launched(&vg_session.devices[i], (uint32_t)record.other);
}

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  CUresult result = REAL(cuDeviceGraphMemTrim)(device);
  struct vg_device *known = result == CUDA_SUCCESS ? vg_context_ordinal(device) : NULL;
  if (known) vg_graph_refresh(known);
  return result;
}

void vg_graph_forked_child(void) {
  for (int i = 0; i < VG_DEVICES_MAX; i++) {
    pthread_mutex_init(&accounts[i].lock, NULL);
    accounts[i].promised_bytes = accounts[i].charged_bytes = 0;
  }
}
