/*
 * graph_memory.c - memory of graphs. Called by programs, any thread.
 *
 * A graph with allocation nodes takes its memory from the device when it is first launched or uploaded, and the device
 * keeps it for graphs until cuDeviceGraphMemTrim. So it is charged at that moment: memory for all of its nodes is
 * reserved, the driver is called, and the amount that the driver then reports for graphs stays charged. Nodes whose
 * addresses overlap share memory, and so may graphs of one stream: therefore a launch in the same stream again, with no
 * trim between, is paid already, and a trim waits until no launch under way relies on that.
 *
 * For a gang (gate/collectives.c) the collectives among a graph's kernels are counted at the same time, and again when
 * the whole graph is updated. Not seen: changes of a single node (another kernel, disabled); the bodies of conditional
 * nodes, which the driver does not report and which run as often as the device decides; graphs that were instantiated
 * before their slice was a gang. Where a query of the driver fails, the program gets its error: a graph is never
 * instantiated as if the node did not exist.
 */
#include "hooks/graph_memory.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/prim.h"
#include "context/context.h"
#include "gate/gate.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/graph_wait.h"
#include "ledger/credit.h"
#include "ledger/granule.h"
#include "ledger/records.h"

static struct {
  pthread_mutex_t lock;
  uint64_t promised_bytes; /* to launches that are under way */
  uint64_t charged_bytes;
  uint32_t trims;   /* how often the device has taken back what it kept */
  uint32_t relying; /* launches under way of graphs that were paid by an earlier launch */
} accounts[VG_DEVICES_MAX] = {[0 ... VG_DEVICES_MAX - 1] = {.lock = PTHREAD_MUTEX_INITIALIZER}};

uint32_t vg_graphs_with_memory; /* executables, counted once per device */

struct range { /* of device addresses, in whole granules */
  uint32_t device;
  uint64_t begin, end;
};

struct need {
  struct vg_device *gang; /* NULL: collectives are not counted; else the device of kernels that name none */
  struct range *ranges;   /* of its allocation nodes */
  size_t range_count;
  CUgraph *graphs; /* child graphs still to be read */
  size_t graph_count;
  uint64_t bytes[VG_DEVICES_MAX];
  uint32_t collectives[VG_DEVICES_MAX];
};

/* ---- what a graph needs ---- */

static CUresult add_kernel(struct need *need, CUgraphNode node) {
  CUDA_KERNEL_NODE_PARAMS parameters = {0}; /* begins with the fields of older drivers */
  CUresult result = REAL(cuGraphKernelNodeGetParams_v2)(node, &parameters);
  if (result != CUDA_SUCCESS)
    result = REAL(cuGraphKernelNodeGetParams)(node, (CUDA_KERNEL_NODE_PARAMS_v1 *)&parameters);
  const void *function = parameters.func ? (const void *)parameters.func : (const void *)parameters.kern;
  if (result != CUDA_SUCCESS || !function || !vg_gate_gang_is_collective(function)) return result;
  const struct vg_device *device = parameters.ctx ? vg_context_device_of(parameters.ctx) : NULL;
  need->collectives[(device ? device : need->gang) - vg_session.devices]++;
  return CUDA_SUCCESS;
}

static CUresult add_allocation(struct need *need, CUgraphNode node) {
  CUDA_MEM_ALLOC_NODE_PARAMS parameters;
  CUresult result = REAL(cuGraphMemAllocNodeGetParams)(node, &parameters);
  if (result != CUDA_SUCCESS || parameters.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return result;
  struct vg_device *device = vg_context_ordinal(parameters.poolProps.location.id);
  if (!device) return CUDA_SUCCESS;
  uint64_t granule = vg_granule_bytes(device), begin = parameters.dptr / granule * granule, end;
  if (__builtin_add_overflow(parameters.dptr, parameters.bytesize, &end)) end = UINT64_MAX;
  struct range *more = realloc(need->ranges, (need->range_count + 1) * sizeof *more);
  if (!more) return CUDA_ERROR_OUT_OF_MEMORY;
  need->ranges = more;
  more[need->range_count++] = (struct range){(uint32_t)(device - vg_session.devices), begin, vg_round_up(end, granule)};
  return CUDA_SUCCESS;
}

static CUresult add_child(struct need *need, CUgraphNode node) {
  CUgraph child;
  CUresult result = REAL(cuGraphChildGraphNodeGetGraph)(node, &child);
  if (result != CUDA_SUCCESS) return result;
  CUgraph *more = realloc(need->graphs, (need->graph_count + 1) * sizeof(CUgraph));
  if (!more) return CUDA_ERROR_OUT_OF_MEMORY;
  need->graphs = more;
  more[need->graph_count++] = child;
  return CUDA_SUCCESS;
}

static CUresult add_node(struct need *need, CUgraphNode node) {
  CUgraphNodeType type;
  CUresult result = REAL(cuGraphNodeGetType)(node, &type);
  if (result != CUDA_SUCCESS) return result;
  if (type == CU_GRAPH_NODE_TYPE_GRAPH) return add_child(need, node);
  if (type == CU_GRAPH_NODE_TYPE_KERNEL && need->gang) return add_kernel(need, node);
  return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? add_allocation(need, node) : CUDA_SUCCESS;
}

static CUresult add_graph(struct need *need, CUgraph graph) {
  size_t count = 0;
  CUresult result = REAL(cuGraphGetNodes)(graph, NULL, &count);
  if (result != CUDA_SUCCESS || !count) return result;
  CUgraphNode *nodes = malloc(count * sizeof *nodes);
  if (!nodes) return CUDA_ERROR_OUT_OF_MEMORY;
  result = REAL(cuGraphGetNodes)(graph, nodes, &count);
  for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++) result = add_node(need, nodes[i]);
  free(nodes);
  return result;
}

static int by_place(const void *left, const void *right) {
  const struct range *a = left, *b = right;
  if (a->device != b->device) return a->device < b->device ? -1 : 1;
  return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* Overlapping ranges count once: the driver gives the same addresses to allocations that never exist together. */
static void add_up(struct need *need) {
  uint64_t end = 0;
  qsort(need->ranges, need->range_count, sizeof *need->ranges, by_place);
  for (size_t i = 0; i < need->range_count; i++) {
    const struct range *range = &need->ranges[i];
    if (i == 0 || range->device != range[-1].device) end = 0;
    uint64_t begin = range->begin > end ? range->begin : end;
    if (range->end > begin) need->bytes[range->device] += range->end - begin;
    if (range->end > end) end = range->end;
  }
}

static CUresult need_of(CUgraph graph, struct vg_device *device, struct need *ret_need) {
  *ret_need = (struct need){.gang = device && vg_gate_gang_counts(device) ? device : NULL};
  CUresult result = add_graph(ret_need, graph);
  while (result == CUDA_SUCCESS && ret_need->graph_count)
    result = add_graph(ret_need, ret_need->graphs[--ret_need->graph_count]);
  free(ret_need->graphs);
  if (result == CUDA_SUCCESS && ret_need->range_count) add_up(ret_need);
  free(ret_need->ranges);
  return result;
}

/* ---- the account of a device ---- */

/* Brings the charge to what the driver holds for graphs. If the query fails the charge stays, until the next one. Under
 * the account's lock. */
static void follow(uint32_t index) {
  struct vg_device *device = &vg_session.devices[index];
  uint64_t target = 0, charged = accounts[index].charged_bytes;
  if (REAL(cuDeviceGetGraphMemAttribute)(vg_context_handle(device), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &target) !=
      CUDA_SUCCESS)
    return;
  target += accounts[index].promised_bytes;
  VG_STORE_RELAXED(&accounts[index].charged_bytes, target);
  if (target > charged) vg_memory_force(device, target - charged);
  if (target < charged) vg_memory_release(device, charged - target);
}

/* Before the driver is asked to trim: launches from now on pay again, and launches that rely on an earlier payment are
 * let through first. With a deadline: the driver may hold a launch back until the program's next step, and then the
 * account is exact only after the next query of the device. */
static void begin_trim(uint32_t index) {
  enum { PATIENCE_NS = 100000000, STEP_NS = 20000 };
  pthread_mutex_lock(&accounts[index].lock);
  VG_STORE_RELAXED(&accounts[index].trims, accounts[index].trims + 1);
  pthread_mutex_unlock(&accounts[index].lock);
  uint64_t now_ns = vg_prim_now_ns(), end_ns = now_ns + PATIENCE_NS;
  for (; VG_LOAD(&accounts[index].relying) && now_ns < end_ns; now_ns = vg_prim_now_ns())
    vg_prim_sleep_until_ns(now_ns + STEP_NS);
}

static void end_trim(uint32_t index) {
  pthread_mutex_lock(&accounts[index].lock);
  follow(index);
  pthread_mutex_unlock(&accounts[index].lock);
}

/* A call of the shim itself: it may not invalidate what other threads capture. */
static void trim(uint32_t index) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  begin_trim(index);
  CUresult changed = REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  REAL(cuDeviceGraphMemTrim)(vg_context_handle(&vg_session.devices[index]));
  if (changed == CUDA_SUCCESS) REAL(cuThreadExchangeStreamCaptureMode)(&mode);
  end_trim(index);
}

/* Over the limit, trimming what the device keeps of other graphs may free enough. */
static int promise(uint32_t index, uint64_t bytes) {
  struct vg_device *device = &vg_session.devices[index];
  if (vg_memory_reserve(device, bytes)) {
    if (!VG_LOAD_RELAXED(&accounts[index].charged_bytes)) return -1;
    trim(index);
    if (vg_memory_reserve(device, bytes)) return -1;
  }
  pthread_mutex_lock(&accounts[index].lock);
  accounts[index].promised_bytes += bytes;
  VG_STORE_RELAXED(&accounts[index].charged_bytes, accounts[index].charged_bytes + bytes);
  pthread_mutex_unlock(&accounts[index].lock);
  return 0;
}

static void take_promise_back(uint32_t index, uint64_t bytes) {
  pthread_mutex_lock(&accounts[index].lock);
  accounts[index].promised_bytes -= bytes;
  follow(index);
  pthread_mutex_unlock(&accounts[index].lock);
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

static void free_record(struct vg_record *record) {
  if (record->size) __atomic_sub_fetch(&vg_graphs_with_memory, 1, __ATOMIC_RELAXED);
  vg_record_free(record);
}

struct records { /* one per device, made before the driver is called */
  struct vg_record *of[VG_DEVICES_MAX];
};

static void drop(struct records *records) {
  for (uint32_t i = 0; i < VG_DEVICES_MAX; i++)
    if (records->of[i]) free_record(records->of[i]);
}

static CUresult begin(CUgraph graph, struct records *records) {
  *records = (struct records){0};
  CUcontext context; /* graphs need none to be made */
  struct vg_device *device = vg_context_current(&context);
  if (!VG_LOAD(&vg_session.ledger)) return CUDA_SUCCESS;
  struct need need;
  CUresult result = need_of(graph, device, &need);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < vg_session.device_count; i++) {
    if (!need.bytes[i] && !need.collectives[i]) continue;
    /* Of no context: it can be launched after the end of the one that it was made in. */
    struct vg_record *record = vg_record_new(VG_RECORD_GRAPH, &vg_session.devices[i], NULL);
    if (record) {
      record->size = need.bytes[i];
      record->other = need.collectives[i];
      if (record->size) __atomic_add_fetch(&vg_graphs_with_memory, 1, __ATOMIC_RELAXED);
    }
    records->of[i] = record;
    if (!record) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) drop(records);
  return result;
}

static CUresult end(struct records *records, CUresult result, const CUgraphExec *exec, CUgraph graph) {
  if (result != CUDA_SUCCESS) drop(records);
  if (result == CUDA_SUCCESS) vg_graph_note_waits(*exec, graph);
  for (uint32_t i = 0; result == CUDA_SUCCESS && i < vg_session.device_count; i++) {
    struct vg_record *stale = vg_table_take(VG_RECORD_GRAPH, exec_key(*exec, i)); /* its graph ended without a call */
    if (stale) free_record(stale);
    if (records->of[i]) vg_table_put(records->of[i], exec_key(*exec, i));
  }
  return result;
}

/* The queries about a graph failed: it is not a valid handle, or no context is current. The driver's own call returns
 * its error; an executable graph that it makes nevertheless is destroyed, since it is not accounted. */
static CUresult end_unasked(CUresult refused, CUresult result, const CUgraphExec *exec) {
  if (result != CUDA_SUCCESS) return result;
  REAL(cuGraphExecDestroy)(*exec);
  return refused;
}

#define INSTANTIATE(call)                                                                                              \
  struct records records;                                                                                              \
  CUresult refused = begin(hGraph, &records);                                                                          \
  if (refused != CUDA_SUCCESS) return end_unasked(refused, call, phGraphExec);                                         \
  return end(&records, call, phGraphExec, hGraph)

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

typedef CUresult instantiate_call(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);

/* An upload is done as a call of its own: it takes the memory. The flag changes nothing else. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params,
                            instantiate_call *call, vg_graph_call *upload) {
  struct records records;
  CUresult result = begin(graph, &records);
  if (result != CUDA_SUCCESS) return end_unasked(result, call(exec, graph, params), exec);
  CUDA_GRAPH_INSTANTIATE_PARAMS plain;
  bool known = VG_LOAD(&vg_graphs_with_memory) && vg_prim_peek(&plain, params, sizeof plain);
  bool uploads = known && plain.flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  if (!uploads) return end(&records, call(exec, graph, params), exec, graph);
  plain.flags &= ~(cuuint64_t)CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
  result = end(&records, call(exec, graph, &plain), exec, graph);
  params->hErrNode_out = plain.hErrNode_out;
  params->result_out = plain.result_out;
  if (result == CUDA_SUCCESS) result = upload(*exec, plain.hUploadStream);
  if (result == CUDA_SUCCESS || plain.result_out != CUDA_GRAPH_INSTANTIATE_SUCCESS) return result;
  params->result_out = CUDA_GRAPH_INSTANTIATE_ERROR;
  cuGraphExecDestroy(*exec);
  return result;
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  return instantiate(phGraphExec, hGraph, instantiateParams, REAL(cuGraphInstantiateWithParams), cuGraphUpload);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams) {
  return instantiate(phGraphExec, hGraph, instantiateParams, REAL(cuGraphInstantiateWithParams_ptsz),
                     cuGraphUpload_ptsz);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec) {
  struct records records = {0};
  for (uint32_t i = 0; i < vg_session.device_count; i++)
    records.of[i] = vg_table_take(VG_RECORD_GRAPH, exec_key(hGraphExec, i));
  CUresult result = REAL(cuGraphExecDestroy)(hGraphExec);
  if (result == CUDA_SUCCESS) drop(&records);
  if (result == CUDA_SUCCESS) vg_gate_graph_gone(hGraphExec);
  for (uint32_t i = 0; result != CUDA_SUCCESS && i < VG_DEVICES_MAX; i++)
    if (records.of[i]) vg_table_put(records.of[i], records.of[i]->key);
  return result;
}

/* ---- launches and uploads ---- */

/* The count of a record whose graph has been paid: a hash of the stream and the number of trims before. Never 1, which
 * a new record has. Two streams with one hash make the account inexact until the next query of the device. */
static uint32_t paid_mark(uint32_t index, CUstream stream) {
  uint64_t mixed = (uint64_t)(uintptr_t)stream * 0x9e3779b97f4a7c15ull; /* 2^64 / golden ratio */
  return ((uint32_t)(mixed >> 32) + VG_LOAD_RELAXED(&accounts[index].trims) * 4) | 2;
}

struct payment {
  CUgraphExec exec;
  uint64_t bytes[VG_DEVICES_MAX]; /* reserved until the driver says what it took */
  uint32_t marks[VG_DEVICES_MAX];
  bool relies[VG_DEVICES_MAX]; /* on an earlier launch's payment: no trim until this launch is done */
};

/* Whether a graph is paid on a device already. If so, no trim begins until it is launched (payment->relies). */
static bool relies(struct payment *payment, const struct vg_record *record, uint32_t index, CUstream stream) {
  pthread_mutex_lock(&accounts[index].lock);
  payment->relies[index] = record->count == paid_mark(index, stream);
  if (payment->relies[index]) __atomic_add_fetch(&accounts[index].relying, 1, __ATOMIC_ACQUIRE);
  pthread_mutex_unlock(&accounts[index].lock);
  return payment->relies[index];
}

static void rely_no_more(struct payment *payment) {
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    if (payment->relies[i]) __atomic_sub_fetch(&accounts[i].relying, 1, __ATOMIC_RELEASE);
    payment->relies[i] = false;
  }
}

static void paid(struct payment *payment, CUresult result) {
  rely_no_more(payment);
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_record record, *gone;
    if (!payment->bytes[i]) continue;
    if (result == CUDA_SUCCESS && vg_table_look(VG_RECORD_GRAPH, exec_key(payment->exec, i), &record))
      vg_table_add(VG_RECORD_GRAPH, record.key, (int)(payment->marks[i] - record.count), &gone);
    take_promise_back(i, payment->bytes[i]);
  }
}

static bool pay(struct payment *payment, CUgraphExec exec, CUstream stream) {
  *payment = (struct payment){.exec = exec};
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_record record;
    if (payment->bytes[i] || !vg_table_look(VG_RECORD_GRAPH, exec_key(exec, i), &record) || !record.size) continue;
    if (relies(payment, &record, i, stream)) continue;
    rely_no_more(payment); /* promise() may trim, and a trim waits for launches that rely: so this one relies last */
    if (promise(i, record.size)) {
      paid(payment, CUDA_ERROR_OUT_OF_MEMORY);
      return false;
    }
    payment->bytes[i] = record.size;
    payment->marks[i] = paid_mark(i, stream);
    i = UINT32_MAX; /* from the first device again */
  }
  return true;
}

CUresult vg_graph_paid_call(CUgraphExec exec, CUstream stream, vg_graph_call *call) {
  struct payment payment;
  if (!VG_LOAD_RELAXED(&vg_graphs_with_memory)) return call(exec, stream);
  if (!pay(&payment, exec, stream)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = call(exec, stream);
  paid(&payment, result);
  return result;
}

CUresult cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  return vg_graph_paid_call(hGraphExec, hStream, REAL(cuGraphUpload));
}

CUresult cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return vg_graph_paid_call(hGraphExec, hStream, REAL(cuGraphUpload_ptsz));
}

/* An update changes kernels, and cannot change allocations. It has been done: where a query fails, the counts stay. */
static CUresult updated(CUresult result, CUgraphExec exec, CUgraph graph) {
  CUcontext context;
  if (result == CUDA_SUCCESS && vg_gate_does_graph_wait(exec))
    vg_graph_note_waits(exec, graph); /* nodes keep their types */
  struct vg_device *device = result == CUDA_SUCCESS ? vg_context_current(&context) : NULL;
  if (!device || !vg_gate_gang_counts(device)) return result;
  struct need need;
  if (need_of(graph, device, &need) != CUDA_SUCCESS) return result;
  for (uint32_t i = 0; i < vg_session.device_count; i++) {
    struct vg_record *record = vg_table_take(VG_RECORD_GRAPH, exec_key(exec, i));
    if (!record && need.collectives[i]) record = vg_record_new(VG_RECORD_GRAPH, &vg_session.devices[i], NULL);
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
  struct vg_device *known = vg_context_ordinal(device);
  if (!known || !VG_LOAD(&vg_session.ledger)) return REAL(cuDeviceGraphMemTrim)(device);
  begin_trim((uint32_t)(known - vg_session.devices));
  CUresult result = REAL(cuDeviceGraphMemTrim)(device);
  end_trim((uint32_t)(known - vg_session.devices));
  return result;
}

void vg_graph_forked_child(void) {
  for (int i = 0; i < VG_DEVICES_MAX; i++) {
    pthread_mutex_init(&accounts[i].lock, NULL);
    accounts[i].promised_bytes = accounts[i].charged_bytes = 0;
    accounts[i].relying = 0;
  }
  vg_graphs_with_memory = 0;
}
