/* What is believed of a report page, by times that the test makes up. */
#include <string.h>

#include "arbiter/pages.h"
#include "base/prim.h"
#include "check.h"

#define OPEN_WORD (1u << VG_GATE_EPOCH_SHIFT | VG_GATE_COUNT)
#define CLOSED_WORD (2u << VG_GATE_EPOCH_SHIFT | VG_GATE_CLOSED)

static struct vg_control_header header;
static struct vg_control_device control;
static struct vg_report_device report;

/* Whether one thread of it is believed to wait, at a gate with this word. */
static bool believed(struct vg_arbiter *arbiter, uint32_t word, bool rings, uint64_t now_ns) {
  struct vg_process *process = arbiter->processes[0];
  process->word = word;
  process->rang |= rings;
  arbiter->due[0] = VG_DUE_PAGE;
  vg_pages_read(arbiter, now_ns);
  return process->reported.waiting != 0;
}

/* A quota of processor time stops a program for most of each 100 ms, also while its gate is open. */
static void a_throttled_program_is_believed_when_it_rings_again(void) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 500, .max_milli = 1000};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  int doorbell_fd = vg_prim_eventfd();
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  uint64_t begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  report.contexts = report.waiting = 1;
  report.launches = 1;
  CHECK(believed(arbiter, OPEN_WORD, true, begin_ns));
  CHECK(!believed(arbiter, OPEN_WORD, false, begin_ns + 30 * VG_NS_PER_MS));
  CHECK(believed(arbiter, CLOSED_WORD, true, begin_ns + 80 * VG_NS_PER_MS));
  /* a second time in 100 ms: later, and without another ring */
  CHECK(!believed(arbiter, OPEN_WORD, false, begin_ns + 110 * VG_NS_PER_MS));
  CHECK(!believed(arbiter, CLOSED_WORD, true, begin_ns + 120 * VG_NS_PER_MS));
  CHECK(believed(arbiter, CLOSED_WORD, false, begin_ns + 190 * VG_NS_PER_MS));
  /* and a ring at an open gate is no sign of life */
  CHECK(!believed(arbiter, OPEN_WORD, true, begin_ns + 300 * VG_NS_PER_MS));
  CHECK(!believed(arbiter, OPEN_WORD, true, begin_ns + 500 * VG_NS_PER_MS));
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

/* The end of a span that is reported late is the device's: what was counted beyond it is not counted again. */
static void time_counted_ahead_of_a_late_report_is_counted_once(void) {
  struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  int doorbell_fd = vg_prim_eventfd();
  memset(&report, 0, sizeof report);
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &header, &control, &report, doorbell_fd, 0) == 0);
  const struct vg_core_slice *core = &arbiter->core.slices[0];
  uint64_t begin_ns = vg_prim_now_ns() + VG_NS_PER_S;
  report.contexts = 1;
  believed(arbiter, OPEN_WORD, true, begin_ns);
  report.busy_since_ns = begin_ns;
  report.outstanding = 1;
  believed(arbiter, OPEN_WORD, false, begin_ns + 5 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && !core->in.counted_ahead);
  report.busy_since_ns = report.outstanding = 0; /* it had been done after 2 ms */
  report.busy_ns = 2 * VG_NS_PER_MS;
  believed(arbiter, CLOSED_WORD, false, begin_ns + 6 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && core->in.counted_ahead);
  report.busy_since_ns = begin_ns + 10 * VG_NS_PER_MS;
  report.outstanding = 1;
  believed(arbiter, OPEN_WORD, false, begin_ns + 12 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 5 * VG_NS_PER_MS && core->in.counted_ahead);
  believed(arbiter, OPEN_WORD, false, begin_ns + 14 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 6 * VG_NS_PER_MS && !core->in.counted_ahead);
  /* work is outstanding and takes no time: that contradicts itself, however much has been counted */
  report.busy_since_ns = 0;
  report.busy_ns = 4 * VG_NS_PER_MS;
  believed(arbiter, OPEN_WORD, false, begin_ns + 15 * VG_NS_PER_MS);
  CHECK(core->in.counted_ahead);
  believed(arbiter, OPEN_WORD, false, begin_ns + 16 * VG_NS_PER_MS);
  CHECK(core->in.busy_total_ns == 6 * VG_NS_PER_MS && !core->in.counted_ahead);
  vg_arbiter_free(arbiter);
  vg_prim_close(doorbell_fd);
}

int main(void) {
  RUN(a_throttled_program_is_believed_when_it_rings_again);
  RUN(time_counted_ahead_of_a_late_report_is_counted_once);
  return 0;
}
