/*
 * test_gate_gang.c - what the gate of one of a gang's devices does with kernels that wait for other devices: counts
 * them, and lets as many through its closed gate as it is told. One thread, a fake driver, pages written by hand.
 */
#include <string.h>

#include "fake_driver.h"
#include "gate/state.h"

struct vg_session vg_session;
static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device report;
static const char *const names[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "_Z8meet_100Pf", "saxpy", "_Z9my_gather",
                                    "my_scatter"};

static struct vg_device *device(void) {
  return &vg_session.devices[0];
}

static CUresult fake_name(const char **ret_name, CUfunction function) {
  *ret_name = *(const char *const *)function;
  return CUDA_SUCCESS;
}

static void launch_as(const void *function, bool kernel) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(1), false, function, 1024);
  ticket.kernel = kernel;
  fake_launch(fake_stream(1), VG_NS_PER_US);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static void launch(const void *function) {
  launch_as(function, true);
}

static void begin(void) {
  control.bound_ns = 20 * VG_NS_PER_MS;
  control.max_milli = 1000;
  control.gate = 1 << VG_GATE_EPOCH_SHIFT | VG_GATE_COUNT;
  vg_session.attached = true;
  vg_session.device_count = 1;
  vg_session.header = &header;
  device()->control = &control;
  device()->report = &report;
  device()->doorbell_fd = vg_prim_eventfd();
  fake_driver_start(device());
  vg_real_slots[VG_ENTRY_cuFuncGetName] = (void *)fake_name;
  CHECK(vg_gate_attach(device()) == 0);
}

static void collectives_are_counted_in_a_gang(void) {
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) launch(&names[i]);
  CHECK(report.collectives == 0);
  VG_STORE(&control.watch, VG_WATCH_GANG);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) launch(&names[i]);
  CHECK(report.collectives == 2);
  launch_as(&names[0], false); /* a fill: what stands for its function has no name that the driver could tell */
  CHECK(report.collectives == 2);
}

/* Else processes that come back to a daemon one after the other would seem to be unequally far for ever. */
static void the_count_goes_on_from_page_to_page(void) {
  static struct vg_report_device next;
  uint32_t count = report.collectives;
  device()->report = &next;
  vg_gate_report_again(device());
  CHECK(count > 0 && next.collectives == count);
  vg_gate_gang_launched(device(), 2);
  CHECK(next.collectives == count + 2);
}

static void a_user_may_name_more(void) {
  CHECK(!vg_gate_gang_is_collective(&names[3]));
  setenv("VGPU_COLLECTIVES", ",my_gather,,my_scat", 1);
  CHECK(vg_gate_gang_is_collective(&names[3]) && vg_gate_gang_is_collective(&names[4]));
  CHECK(!vg_gate_gang_is_collective(&names[2]));
  unsetenv("VGPU_COLLECTIVES");
}

static CUresult fake_kernel_name(const char **ret_name, CUkernel kernel) {
  *ret_name = *(const char *const *)kernel;
  return CUDA_SUCCESS;
}

static CUresult fake_refusal(const char **ret_name, CUfunction function) {
  (void)ret_name, (void)function;
  return CUDA_ERROR_INVALID_HANDLE;
}

static void drivers_may_tell_less(void) {
  vg_real_slots[VG_ENTRY_cuFuncGetName] = (void *)fake_refusal; /* a kernel of a library */
  CHECK(!vg_gate_gang_is_collective(&names[0]));
  vg_real_slots[VG_ENTRY_cuKernelGetName] = (void *)fake_kernel_name;
  CHECK(vg_gate_gang_is_collective(&names[0]) && !vg_gate_gang_is_collective(&names[2]));
  vg_real_slots[VG_ENTRY_cuFuncGetName] = vg_real_slots[VG_ENTRY_cuKernelGetName] = (void *)fake_missing;
  CHECK(!vg_gate_gang_is_collective(&names[0]));
}

static void as_many_pass_a_closed_gate_as_it_is_behind(void) {
  uint32_t closed = 2 << VG_GATE_EPOCH_SHIFT | VG_GATE_CLOSED;
  VG_STORE(&control.gate, closed);
  CHECK(!vg_gate_gang_passes(device(), closed));
  VG_STORE(&control.pass_collectives, 4);
  VG_STORE(&report.drained_word, closed);
  CHECK(!vg_gate_gang_passes(device(), closed + 1)); /* that was another closing */
  CHECK(report.drained_word == closed);
  launch(&names[0]); /* would hang */
  CHECK(report.drained_word == VG_GATE_NO_WORD && report.outstanding);
  launch(&names[1]);
  CHECK(report.collectives == 4 && !vg_gate_gang_passes(device(), closed));
}

int main(void) {
  begin();
  RUN(collectives_are_counted_in_a_gang);
  RUN(as_many_pass_a_closed_gate_as_it_is_behind);
  RUN(the_count_goes_on_from_page_to_page);
  RUN(a_user_may_name_more);
  RUN(drivers_may_tell_less);
  return 0;
}
