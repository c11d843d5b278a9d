/*
 * test_gate_gang.c - what the gate of one of a gang's devices does with kernels that wait for other devices: counts
 * them, and lets as many through its closed gate as the page says. One thread, a fake driver, pages written by hand.
 */
#include <string.h>

#include "fake_driver.h"
#include "gate/state.h"
#include "own_clock.h"

struct vg_session vg_session;
static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device report;
static const char *const names[] = {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", "_Z8meet_100Pf", "saxpy", "_Z9my_gather",
                                    "my_scatter"};

/* As compilers mangle them. */
static const char *const collectives[] = {
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_bf16",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_f32",
    "_ZN2at6native56_GLOBAL__N__0a12_CUDASymmetricMemoryOps_cu26multimem_all_reduce_kernelIfLi16EEEvPT_mPPjmm",
    "_ZN12_GLOBAL__N_135multimem_one_shot_all_reduce_kernelIfLi16EEEvPT_S2_mPPjmm",
    "_ZN12_GLOBAL__N_126multimem_all_gather_kernelILi16EEEvPcS1_mPPjmm",
    "_ZN12_GLOBAL__N_134two_shot_all_reduce_kernel_inplaceIfLi16ELi2EEEvPPT_mmPPjmm",
    "_ZN10flashinfer23trtllm_allreduce_fusion39allreduce_fusion_kernel_oneshot_lamportILi1EfLi2ELb1EEEv",
    "_ZN12tensorrt_llm7kernels18ar_fusion35allreduce_fusion_kernel_twoshot_syncILi1EfLi2EEEv",
    "_ZN12tensorrt_llm7kernels48moereduce_allreduce_fusion_kernel_oneshot_lamportILi1EfEEv",
    "_ZN10flashinfer22trtllm_mnnvl_allreduce28oneshotAllreduceFusionKernelIfLi8EEEv",
    "_ZN10flashinfer22trtllm_mnnvl_allreduce22twoshotAllreduceKernelIfLi8EEEv",
    "_ZN12tensorrt_llm7kernels22twoShotAllReduceKernelIfLi8EEEv",
    "_ZN10flashinfer16trtllm_allreduce45lamport_style_one_shot_all_reduce_norm_kernelIfLi8EEEv",
    "_ZN10flashinfer16trtllm_allreduce39one_shot_prenorm_all_reduce_norm_kernelIfLi8EEEv",
    "_ZN10flashinfer15trtllm_alltoall17moeAllToAllKernelEv",
    "_ZN12tensorrt_llm7kernels13moe_comm20moeA2ADispatchKernelIfEEv",
    "_ZN12tensorrt_llm7kernels13moe_comm19moeA2ACombineKernelIfEEv",
    "_ZN10flashinfer10mixed_comm16allreduce_kernelIfEEv",
    "_ZN10flashinfer4comm8pcie_ipc26ipc_tp2_remote_push_kernelEv",
    "_ZN10flashinfer4comm7ulysses18ulysses_a2a_kernelEv",
    "_ZN6sglang23allreduce_1shotLL_1nodeIfEEv",
    "_Z36barrier_on_stream_kernel_threadgroupIL13threadgroup_t1EEvii",
    "_Z33sync_on_stream_kernel_threadgroupIL13threadgroup_t1EEvii",
    "_Z21rdxn_on_stream_kernelIfEvi",
    "_Z30reducescatter_on_stream_kernelIfEvi",
    "_Z24fcollect_on_stream_kernelIfEvi",
    "_Z25broadcast_on_stream_kernelIfEvi",
    "_Z24alltoall_on_stream_kernelIfEvi",
    "_Z22nvshmemi_reduce_kernelIiL8rdxn_ops4EEviiiPT_",
    "_Z32userbuffers_fp16_sum_inplace_gpu_rwILi8EEvi",
    "_Z21kuserbuffers_pushsendPiS_",
    "_ZN7deep_ep6legacy9intranode15notify_dispatchILi8EEEvPKi",
    "_ZN7deep_ep6legacy9internode13cached_notifyILb0EEEvi",
    "_ZN7deep_ep6legacy9intranode8dispatchILi8ELi512EEEvP4int4",
    "_ZN7deep_ep6legacy9intranode7combineIfLi8EEEvP4int4",
    "_ZN7deep_ep6legacy9intranode7barrierILi8EEEvPPii",
    "_ZN7deep_ep9internode8dispatchILb0ELi2EEEvP4int4",
    "_ZN7deep_ep9internode7combineILb0ELi2EEEvP4int4",
    "_ZN7deep_ep12internode_ll8dispatchILb1ELi7168EEEvPv",
    "_ZN7deep_ep12internode_ll7combineILb1ELi7168EEEvPv",
    "_ZN7deep_ep7elastic13dispatch_implILi8EEEvPv",
    "_ZN7deep_ep7elastic12combine_implILi8EEEvPv",
    "_ZN7deep_ep7elastic20hybrid_dispatch_implILi8EEEvPv",
    "_ZN7deep_ep7elastic19hybrid_combine_implILi8EEEvPv",
    "_ZN7deep_ep7elastic12barrier_implILi8EEEvPv",
};

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
  launch_as(&names[0], false); /* a fill: what stands for its function has no name that the driver could report */
  CHECK(report.collectives == 2);
}

static void the_collectives_of_today_are_known(void) {
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
    bool known = vg_gate_gang_is_collective(&collectives[i]);
    if (!known) fprintf(stderr, "%s\n", collectives[i]);
    CHECK(known);
  }
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

/* The forecast moves on with the clock: by the estimates, it should have ended. */
static void work_that_does_not_get_on_is_reported(void) {
  uint64_t now_ns = vg_prim_now_ns(), left_ns = 100 * VG_NS_PER_US;
  VG_STORE(&control.watch, 0);
  device()->gate->drain_forecast_ns = 0;
  CHECK(!vg_gate_gang_report_overdue(device(), left_ns, now_ns) &&
        !vg_gate_gang_report_overdue(device(), left_ns, now_ns + 9000000));
  VG_STORE(&control.watch, VG_WATCH_GANG);
  CHECK(!vg_gate_gang_report_overdue(device(), left_ns, now_ns));
  CHECK(!vg_gate_gang_report_overdue(device(), left_ns / 2, now_ns + left_ns / 2)); /* it runs */
  CHECK(report.overdue_ns == 0);
  CHECK(vg_gate_gang_report_overdue(device(), left_ns, now_ns + VG_NS_PER_MS) &&
        report.overdue_ns == now_ns + VG_NS_PER_MS);
  device()->gate->drain_left_ns++; /* a part of it has ended */
  CHECK(!vg_gate_gang_report_overdue(device(), left_ns, now_ns + 2 * VG_NS_PER_MS) && report.overdue_ns == 0);
}

static void what_others_may_wait_for_passes_a_closed_gate(void) {
  uint32_t closed = 3 << VG_GATE_EPOCH_SHIFT | VG_GATE_CLOSED;
  VG_STORE(&control.pass_collectives, 0);
  VG_STORE(&control.gate, closed);
  CHECK(!vg_gate_gang_passes(device(), closed));
  VG_STORE(&control.pass_serial, 1);
  CHECK(!vg_gate_gang_passes(device(), closed + 1));
  launch(&names[2]); /* would hang: any kernel may be the one */
  CHECK(report.passed_serial == 1 && report.outstanding && !vg_gate_gang_passes(device(), closed));
  VG_STORE(&control.pass_work_ns, VG_NS_PER_S);
  CHECK(!vg_gate_gang_passes(device(), closed)); /* it was for the next one */
  VG_STORE(&control.pass_serial, 2);
  for (int i = 0; i < 3; i++) launch(&names[2]);
  CHECK(report.passed_serial == 2);
  VG_STORE(&control.pass_work_ns, 0);
  CHECK(!vg_gate_gang_passes(device(), closed));
  VG_STORE(&control.pass_serial, 1);
  CHECK(!vg_gate_gang_passes(device(), closed)); /* taken back */
}

int main(void) {
  begin();
  RUN(collectives_are_counted_in_a_gang);
  RUN(as_many_pass_a_closed_gate_as_it_is_behind);
  RUN(the_collectives_of_today_are_known);
  RUN(work_that_does_not_get_on_is_reported);
  RUN(what_others_may_wait_for_passes_a_closed_gate);
  RUN(the_count_goes_on_from_page_to_page);
  RUN(a_user_may_name_more);
  RUN(drivers_may_tell_less);
  return 0;
}
