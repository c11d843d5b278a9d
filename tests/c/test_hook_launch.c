/*
 * test_hook_launch.c - the hooks of launches with attributes and of graphs: in a slice that is alone, what they pass
 * uncounted is bounded, too; graphs that are counted take the short path, unless they are to be paid for.
 */
#include "fake_pages.h"
#include "gate/state.h"
#include "hooks/graph_memory.h"
#include "own_clock.h"

#define PIECE_NS (2 * VG_NS_PER_MS)
#define SHORT_NS (5 * VG_NS_PER_US)

/* ---- what graph_memory.c answers: no graph has memory ---- */

uint32_t vg_graphs_with_memory;
static uint32_t paid_calls; /* the short path has none */

CUresult vg_graph_paid_call(CUgraphExec exec, CUstream stream, vg_graph_call *call) {
  paid_calls++;
  return call(exec, stream);
}

void vg_graph_launched(const struct vg_device *device, CUgraphExec exec) {
  (void)device, (void)exec;
}

/* ---- the driver ---- */

static CUresult real_launch_ex(const CUlaunchConfig *config, CUfunction f, void **params, void **extra) {
  (void)f, (void)params, (void)extra;
  fake_launch(config->hStream, PIECE_NS);
  return CUDA_SUCCESS;
}

static uint64_t graph_ns = PIECE_NS;

static CUresult real_launch_graph(CUgraphExec graph, CUstream stream) {
  (void)graph;
  fake_launch(stream, graph_ns);
  return CUDA_SUCCESS;
}

static CUlaunchConfig one_block(void) {
  return (CUlaunchConfig){.gridDimX = 1,
                          .gridDimY = 1,
                          .gridDimZ = 1,
                          .blockDimX = 32,
                          .blockDimY = 1,
                          .blockDimZ = 1,
                          .hStream = fake_stream(1)};
}

static void launch_ex(void) {
  CUlaunchConfig config = one_block();
  CHECK(cuLaunchKernelEx(&config, (CUfunction)(uintptr_t)&functions[0], NULL, NULL) == CUDA_SUCCESS);
}

static void launch_ex_ptsz(void) {
  CUlaunchConfig config = one_block();
  CHECK(cuLaunchKernelEx_ptsz(&config, (CUfunction)(uintptr_t)&functions[0], NULL, NULL) == CUDA_SUCCESS);
}

static void launch_graph(void) {
  CHECK(cuGraphLaunch((CUgraphExec)(uintptr_t)&functions[1], fake_stream(1)) == CUDA_SUCCESS);
}

static void launch_graph_ptsz(void) {
  CHECK(cuGraphLaunch_ptsz((CUgraphExec)(uintptr_t)&functions[1], fake_stream(1)) == CUDA_SUCCESS);
}

/* Launches that the device keeps up with, until they pass uncounted, and then as many as it takes to wait for it.
 * Returns whether they were waited for. */
static bool waits_in_time(void (*launch_one)(void)) {
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S, most_ns = 0;
  vg_gate_capture_begin(); /* or it would measure its pauses, and count for ever */
  while (!vg_gate_solo() && vg_prim_now_ns() < limit_ns) {
    launch_one();
    vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
    vg_gate_service(vg_prim_now_ns());
  }
  vg_gate_capture_end();
  CHECK(vg_gate_solo());
  for (int i = 0; i < 300; i++) {
    launch_one();
    uint64_t end_ns = fake_end_of(fake_stream(1)), now_ns = vg_prim_now_ns();
    if (end_ns > now_ns && end_ns - now_ns > most_ns) most_ns = end_ns - now_ns;
  }
  printf("  queued %.0f ms of 600 ms\n", (double)most_ns / 1e6);
  return !vg_gate_solo() && most_ns <= 3 * VG_SOLO_BOUND_NS;
}

/* Where this thread was kept off the processor, kernels were measured longer or shorter than they are: three tries. */
static void is_bounded(void (*launch_one)(void)) {
  begin(0);
  set_gate(VG_GATE_SOLO);
  vg_real_slots[VG_ENTRY_cuLaunchKernelEx] = vg_real_slots[VG_ENTRY_cuLaunchKernelEx_ptsz] = (void *)real_launch_ex;
  vg_real_slots[VG_ENTRY_cuGraphLaunch] = vg_real_slots[VG_ENTRY_cuGraphLaunch_ptsz] = (void *)real_launch_graph;
  bool waited = false;
  for (int tries = 0; tries < 3 && !waited; tries++) {
    waited = waits_in_time(launch_one);
    vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
  }
  CHECK(waited);
  end();
}

static void launches_with_attributes_are_bounded(void) {
  is_bounded(launch_ex);
  is_bounded(launch_ex_ptsz);
}

static void graphs_are_bounded(void) {
  is_bounded(launch_graph);
  is_bounded(launch_graph_ptsz);
}

/* Of so many launches: how many are counted, and how many have taken the long path. */
static uint64_t count_graphs(void (*launch_one)(void), int launches, uint32_t *ret_paid_calls) {
  uint64_t before = vg_gate_launched(device());
  paid_calls = 0;
  for (int i = 0; i < launches; i++) {
    launch_one();
    if (i % 100 == 0) synchronize(fake_stream(1));
  }
  *ret_paid_calls = paid_calls;
  return vg_gate_launched(device()) - before;
}

static void take_the_short_path(void (*launch_one)(void)) {
  uint32_t paid;
  begin(VG_WATCH_USAGE);
  VG_STORE(&control.bound_ns, VG_NS_PER_S);
  vg_real_slots[VG_ENTRY_cuGraphLaunch] = vg_real_slots[VG_ENTRY_cuGraphLaunch_ptsz] = (void *)real_launch_graph;
  graph_ns = SHORT_NS;
  CHECK(count_graphs(launch_one, 100, &paid) == 100);
  CHECK(count_graphs(launch_one, 1000, &paid) == 1000);
  printf("  %u of 1000 on the long path\n", paid);
  CHECK(paid < 200);
  vg_graphs_with_memory = 1;
  CHECK(count_graphs(launch_one, 1000, &paid) == 1000 && paid == 1000);
  vg_graphs_with_memory = 0;
  graph_ns = PIECE_NS;
  end();
}

static void counted_graphs_take_the_short_path(void) {
  take_the_short_path(launch_graph);
  take_the_short_path(launch_graph_ptsz);
}

int main(void) {
  RUN(counted_graphs_take_the_short_path);
  RUN(launches_with_attributes_are_bounded);
  RUN(graphs_are_bounded);
  return 0;
}
