/*
 * test_hook_graph.c - the collectives in graphs: counted per device when a graph is instantiated or updated, reported
 * with each launch, forgotten with the executable. One thread, a fake driver whose graphs are lists of nodes.
 */
#include <string.h>

#include "fake_driver.h"
#include "gate/state.h"
#include "gen/hooks/bodies.h"
#include "hooks/graph_memory.h"
#include "ledger/credit.h"
#include "own_clock.h"

#define NODES 4

struct CUgraphNode_st {
  CUgraphNodeType type;
  const char *name; /* of its kernel */
  CUcontext context;
  CUgraph child;
};

struct CUgraph_st {
  struct CUgraphNode_st nodes[NODES];
  size_t count;
};

struct vg_session vg_session;
static struct vg_control_header header;
static struct vg_control_device controls[2];
static struct vg_report_device reports[2];
static int names_asked;

#define KERNEL(kernel_name, on) {.type = CU_GRAPH_NODE_TYPE_KERNEL, .name = (kernel_name), .context = (on)}
#define FIRST FAKE_CONTEXT
#define SECOND ((CUcontext)(uintptr_t)0xc1)

/* ---- the driver ---- */

static CUresult fake_nodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *count) {
  for (size_t i = 0; ret_nodes && i < graph->count; i++) ret_nodes[i] = &graph->nodes[i];
  *count = graph->count;
  return CUDA_SUCCESS;
}

static CUresult fake_type(CUgraphNode node, CUgraphNodeType *ret_type) {
  *ret_type = node->type;
  return CUDA_SUCCESS;
}

static CUresult fake_child(CUgraphNode node, CUgraph *ret_graph) {
  *ret_graph = node->child;
  return CUDA_SUCCESS;
}

static CUresult fake_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *ret_params) {
  *ret_params = (CUDA_KERNEL_NODE_PARAMS){.kern = (CUkernel)&node->name, .ctx = node->context};
  return CUDA_SUCCESS;
}

static CUresult fake_old_params(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1 *ret_params) {
  *ret_params = (CUDA_KERNEL_NODE_PARAMS_v1){.func = (CUfunction)&node->name};
  return CUDA_SUCCESS;
}

static CUresult fake_not_found(void) {
  return CUDA_ERROR_NOT_FOUND;
}

static CUresult fake_name(const char **ret_name, CUfunction function) {
  names_asked++;
  *ret_name = *(const char *const *)function;
  return CUDA_SUCCESS;
}

static CUresult fake_instantiate(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags) {
  (void)flags;
  *ret_exec = (CUgraphExec)graph;
  return CUDA_SUCCESS;
}

static CUresult fake_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info) {
  (void)exec, (void)ret_info;
  return graph->count ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

static CUresult fake_destroy(CUgraphExec exec) {
  (void)exec;
  return CUDA_SUCCESS;
}

/* ---- what the ledger and context.c answer ---- */

int vg_memory_reserve(struct vg_device *device, uint64_t bytes) {
  (void)device, (void)bytes;
  CHECK(!"no graph here has memory");
  return 0;
}

void vg_memory_force(struct vg_device *device, uint64_t bytes) {
  vg_memory_reserve(device, bytes);
}

void vg_memory_release(struct vg_device *device, uint64_t bytes) {
  vg_memory_reserve(device, bytes);
}

struct vg_device *vg_context_ordinal(CUdevice ordinal) {
  return &vg_session.devices[ordinal];
}

CUdevice vg_context_handle(const struct vg_device *device) {
  return (CUdevice)(device - vg_session.devices);
}

struct vg_device *vg_context_device_of(CUcontext context) {
  return &vg_session.devices[context == SECOND];
}

/* ---- tests ---- */

static void expect(CUgraphExec exec, uint32_t first, uint32_t second) {
  uint32_t before[] = {reports[0].collectives, reports[1].collectives};
  vg_graph_launched(&vg_session.devices[0], exec);
  CHECK(reports[0].collectives - before[0] == first && reports[1].collectives - before[1] == second);
}

static CUgraphExec make(CUgraph graph) {
  CUgraphExec exec;
  CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  return exec;
}

static void begin(void) {
  vg_session.ledger = vg_session.attached = true;
  vg_session.device_count = 2;
  vg_session.header = &header;
  fake_driver_start(&vg_session.devices[0]);
  for (int i = 0; i < 2; i++) {
    vg_session.devices[i].control = &controls[i];
    vg_session.devices[i].report = &reports[i];
    controls[i].watch = VG_WATCH_GANG;
    CHECK(vg_gate_attach(&vg_session.devices[i]) == 0);
  }
  vg_real_slots[VG_ENTRY_cuGraphGetNodes] = (void *)fake_nodes;
  vg_real_slots[VG_ENTRY_cuGraphNodeGetType] = (void *)fake_type;
  vg_real_slots[VG_ENTRY_cuGraphChildGraphNodeGetGraph] = (void *)fake_child;
  vg_real_slots[VG_ENTRY_cuGraphKernelNodeGetParams_v2] = (void *)fake_params;
  vg_real_slots[VG_ENTRY_cuFuncGetName] = (void *)fake_name;
  vg_real_slots[VG_ENTRY_cuGraphInstantiateWithFlags] = (void *)fake_instantiate;
  vg_real_slots[VG_ENTRY_cuGraphExecUpdate_v2] = (void *)fake_update;
  vg_real_slots[VG_ENTRY_cuGraphExecDestroy] = (void *)fake_destroy;
}

static void a_launch_counts_for_all_collectives_in_the_graph(void) {
  struct CUgraph_st child = {{KERNEL("meet_5", FIRST), KERNEL("saxpy", FIRST)}, 2};
  struct CUgraphNode_st whole = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &child};
  struct CUgraph_st graph = {{KERNEL("ncclDevKernel_A", FIRST), whole, KERNEL("meet_1", SECOND), whole}, 4};
  CUgraphExec exec = make(&graph);
  expect(exec, 3, 1);
  expect(exec, 3, 1);
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
  expect(exec, 0, 0);
}

static void older_drivers_do_not_say_on_which_device(void) {
  struct CUgraph_st graph = {{KERNEL("meet_1", FIRST), KERNEL("meet_1", SECOND)}, 2};
  vg_real_slots[VG_ENTRY_cuGraphKernelNodeGetParams_v2] = (void *)fake_not_found;
  vg_real_slots[VG_ENTRY_cuGraphKernelNodeGetParams] = (void *)fake_old_params;
  CUgraphExec exec = make(&graph);
  expect(exec, 2, 0);
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
  vg_real_slots[VG_ENTRY_cuGraphKernelNodeGetParams_v2] = (void *)fake_params;
}

static void an_update_counts_again(void) {
  struct CUgraph_st plain = {{KERNEL("saxpy", FIRST)}, 1}, gathers = {{KERNEL("meet_1", SECOND)}, 1}, refused = {0};
  CUgraphExecUpdateResultInfo info;
  CUgraphExec exec = make(&plain);
  expect(exec, 0, 0);
  CHECK(cuGraphExecUpdate_v2(exec, &gathers, &info) == CUDA_SUCCESS);
  expect(exec, 0, 1);
  CHECK(cuGraphExecUpdate_v2(exec, &refused, &info) != CUDA_SUCCESS);
  expect(exec, 0, 1);
  CHECK(cuGraphExecUpdate_v2(exec, &plain, &info) == CUDA_SUCCESS);
  expect(exec, 0, 0);
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
}

static void other_slices_pay_nothing_for_it(void) {
  struct CUgraph_st graph = {{KERNEL("meet_1", FIRST)}, 1};
  VG_STORE(&controls[0].watch, 0);
  names_asked = 0;
  CUgraphExec exec = make(&graph);
  expect(exec, 0, 0);
  CHECK(names_asked == 0);
  vg_session.devices[0].control = NULL; /* no daemon has been met yet */
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
  CHECK(cuGraphExecDestroy(make(&graph)) == CUDA_SUCCESS);
}

static CUresult fake_failure(void) {
  return CUDA_ERROR_UNKNOWN;
}

/* Instantiated as if it had no such node, the graph would not be paid for: the program gets the query's error. */
static void a_graph_that_cannot_be_asked_is_not_instantiated(void) {
  static const enum vg_entry questions[] = {
      VG_ENTRY_cuGraphGetNodes, VG_ENTRY_cuGraphNodeGetType, VG_ENTRY_cuGraphChildGraphNodeGetGraph,
      VG_ENTRY_cuGraphKernelNodeGetParams_v2, VG_ENTRY_cuGraphMemAllocNodeGetParams};
  struct CUgraph_st child = {{KERNEL("meet_5", FIRST), {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC}}, 2};
  struct CUgraph_st graph = {{KERNEL("saxpy", FIRST), {.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &child}}, 2};
  struct CUgraph_st small = {{KERNEL("meet_1", FIRST)}, 1};
  vg_real_slots[VG_ENTRY_cuGraphKernelNodeGetParams] = (void *)fake_failure;
  for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
    void *answers = vg_real_slots[questions[i]];
    CUgraphExecUpdateResultInfo info;
    CUgraphExec exec, known = make(&small);
    vg_real_slots[questions[i]] = (void *)fake_failure;
    CHECK(cuGraphInstantiateWithFlags(&exec, &graph, 0) == CUDA_ERROR_UNKNOWN);
    CHECK(cuGraphExecUpdate_v2(known, &graph, &info) == CUDA_SUCCESS);
    expect(known, 1, 0); /* as before */
    vg_real_slots[questions[i]] = answers;
    CHECK(cuGraphExecDestroy(known) == CUDA_SUCCESS);
  }
}

static void graphs_in_graphs_are_looked_at_however_deep(void) {
  static struct CUgraph_st graphs[100] = {{{KERNEL("meet_1", FIRST)}, 1}};
  for (int i = 1; i < 100; i++)
    graphs[i] = (struct CUgraph_st){{{.type = CU_GRAPH_NODE_TYPE_GRAPH, .child = &graphs[i - 1]}}, 1};
  CUgraphExec exec = make(&graphs[99]);
  expect(exec, 1, 0);
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
}

int main(void) {
  begin();
  RUN(a_graph_that_cannot_be_asked_is_not_instantiated);
  RUN(graphs_in_graphs_are_looked_at_however_deep);
  RUN(a_launch_counts_for_all_collectives_in_the_graph);
  RUN(older_drivers_do_not_say_on_which_device);
  RUN(an_update_counts_again);
  RUN(other_slices_pay_nothing_for_it);
  return 0;
}
