/*
 * test_gate_row.c - kernels that are shorter than their launches: what they are taken to cost. The time is the test's
 * own, for the gate, too: a launch takes CALL_NS, recording an event as long, and a kernel completes before the next
 * call. On the machine's clock a thread that loses its processor would have a gap among its launches.
 */
#include "fake_pages.h"
#include "own_clock.h"

#define CALL_NS 2500

static CUresult record(CUevent event, CUstream stream) {
  (void)stream;
  own_clock_ns += CALL_NS;
  VG_STORE(&event->ready_ns, own_clock_ns);
  return CUDA_SUCCESS;
}

static CUresult query(CUevent event) {
  (void)event;
  return CUDA_SUCCESS;
}

static void begin_short(void) {
  begin(VG_WATCH_USAGE);
  vg_real_slots[VG_ENTRY_cuEventRecord] = (void *)record;
  vg_real_slots[VG_ENTRY_cuEventQuery] = (void *)query;
}

static void launch_short(uintptr_t stream, int function) {
  struct vg_work *again = vg_gate_enter_short(fake_stream(stream), false, &functions[function], 1024);
  struct vg_ticket ticket;
  if (!again) vg_gate_enter(&ticket, fake_stream(stream), false, &functions[function], 1024);
  own_clock_ns += CALL_NS; /* the driver's part, in which the kernel runs */
  if (again)
    vg_gate_leave_short(again, CUDA_SUCCESS, true, false);
  else
    vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static const struct vg_estimate *estimate_of(int function) {
  return vg_work_find_estimate(device()->gate->works, &functions[function], 1024);
}

/* The events around a single launch take as long as the launch. */
static void kernels_shorter_than_their_launches(void) {
  begin_short();
  for (int i = 0; i < 20000; i++) launch_short(1, 0);
  printf("  %llu ns\n", (unsigned long long)estimate_of(0)->cost_ns);
  CHECK(estimate_of(0)->cost_ns < CALL_NS * 5 / 4);
  uint64_t events = fake_events;
  for (int i = 0; i < 100000; i++) launch_short(1, 0);
  CHECK(fake_events <= events + VG_WORK_MARKERS); /* none is forgotten */
  end();
}

/* What other launches take is not divided among those of the function. */
static void only_launches_without_others_between_them(void) {
  begin_short();
  for (int i = 0; i < 20000; i++) launch_short(1, i % 2);
  CHECK(!estimate_of(0)->row_ns && !estimate_of(1)->row_ns && estimate_of(0)->count > VG_ESTIMATE_SAMPLES_FIRST);
  end();
  begin_short();
  for (int i = 0; i < 20000; i++) launch_short(1 + (uintptr_t)i % 2, 0);
  CHECK(!estimate_of(0)->row_ns && estimate_of(0)->count > VG_ESTIMATE_SAMPLES_FIRST);
  end();
}

/* Nor does a limit outlast the time in which rows can be timed: the kernel may take longer by then. */
static void a_limit_ends_with_the_rows(void) {
  begin_short();
  for (int i = 0; i < 20000; i++) launch_short(1, 0);
  CHECK(estimate_of(0)->row_ns);
  for (int i = 0; i < 100000; i++) launch_short(1, i % 2);
  printf("  %llu ns\n", (unsigned long long)estimate_of(0)->cost_ns);
  CHECK(!estimate_of(0)->row_ns && estimate_of(0)->cost_ns > CALL_NS * 7 / 4);
  end();
}

/* A row that has begun is forgotten with its stream's work and with its context. */
static void a_row_ends_with_what_it_is_in(void) {
  begin_short();
  struct vg_work *work;
  for (launch_short(1, 0); !(work = device()->gate->works)->last->row.begin; launch_short(1, 0)) {
  }
  vg_work_lock(work);
  uint64_t events = fake_events;
  vg_work_clear(work, vg_prim_now_ns(), false);
  CHECK(!work->last->row.begin && fake_events < events);
  vg_unlock(&work->lock);
  while (!work->last->row.begin) launch_short(1, 0);
  end_context(); /* and its events with it: one that the gate destroyed later would be destroyed twice */
  CHECK(!work->streams[0].row.begin);
  end();
}

int main(void) {
  RUN(kernels_shorter_than_their_launches);
  RUN(only_launches_without_others_between_them);
  RUN(a_limit_ends_with_the_rows);
  RUN(a_row_ends_with_what_it_is_in);
  return 0;
}
