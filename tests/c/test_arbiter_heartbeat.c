/* Heartbeats of a thousand processes of which few work, by times that the test makes up: a process that does not get
 * one in time coasts although its arbiter runs. */
#include <string.h>
#include <sys/resource.h>

#include "arbiter/pages.h"
#include "arbiter/state.h"
#include "base/prim.h"
#include "check.h"
#include "session/session.h"

#define PROCESSES 1000
#define WORKING 250 /* every so many of them works */
#define STEP_NS (VG_NS_PER_MS / 4)

static struct vg_control_header headers[PROCESSES];
static struct vg_control_device controls[PROCESSES];
static struct vg_report_device reports[PROCESSES];
static int doorbells[PROCESSES];

static const struct vg_arbiter_params params = {.quantum_ns = 8 * VG_NS_PER_MS, .heartbeat_ns = 20 * VG_NS_PER_MS};
static const struct vg_slice_params slice = {.min_milli = 300, .max_milli = 300};

static struct vg_arbiter *crowd(void) {
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  memset(controls, 0, sizeof controls);
  memset(reports, 0, sizeof reports);
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &slice) == 0);
  for (int i = 0; i < PROCESSES; i++) {
    doorbells[i] = vg_prim_eventfd();
    CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                                 0) == 0);
    reports[i].contexts = 1;
    reports[i].outstanding = i % WORKING == WORKING - 1;
  }
  return arbiter;
}

static void end(struct vg_arbiter *arbiter) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < PROCESSES; i++) vg_prim_close(doorbells[i]);
}

/* Serves the table whenever that is due; returns how old a heartbeat has become at most, of those that are due one. */
static uint64_t oldest_ns(struct vg_arbiter *arbiter, uint64_t *now_ns, uint64_t passed_ns) {
  uint64_t oldest_ns = 0, end_ns = *now_ns + passed_ns;
  for (; *now_ns < end_ns; *now_ns += STEP_NS) {
    if (*now_ns >= arbiter->beat_due_ns) vg_pages_beat(arbiter, *now_ns);
    for (int i = 0; i < arbiter->process_end; i++)
      if (!controls[i].unread && *now_ns > controls[i].heartbeat_ns + oldest_ns)
        oldest_ns = *now_ns - controls[i].heartbeat_ns;
  }
  return oldest_ns;
}

static int unread(void) {
  int count = 0;
  for (int i = 0; i < PROCESSES; i++) count += controls[i].unread != 0;
  return count;
}

/* Those that rest are looked at now and then, and get new timetables. Working ones have theirs in time meanwhile. */
static void looking_at_all_delays_no_heartbeat(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  CHECK(unread() == PROCESSES - PROCESSES / WORKING);
  uint32_t version = arbiter->coast_version;
  CHECK(oldest_ns(arbiter, &now_ns, 2 * VG_SWEEP_BEATS * params.heartbeat_ns) <= VG_HEARTBEAT_LATE_NS / 2);
  CHECK(vg_arbiter_slice_set(arbiter, 2, &slice) == 0);
  CHECK(oldest_ns(arbiter, &now_ns, VG_NS_PER_S) <= VG_HEARTBEAT_LATE_NS / 2);
  for (int i = 0; i < PROCESSES; i++)
    CHECK(arbiter->processes[i]->coast_version == arbiter->coast_version && arbiter->coast_version != version);
  end(arbiter);
}

static void all_that_ring_at_once_have_heartbeats_in_time(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  for (int i = 0; i < PROCESSES; i++) vg_pages_wake(arbiter, arbiter->processes[i], now_ns);
  CHECK(unread() == 0);
  CHECK(oldest_ns(arbiter, &now_ns, VG_NS_PER_S / 8) <= VG_HEARTBEAT_LATE_NS / 2);
  end(arbiter);
}

static void those_that_end_stop_no_heartbeat(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  while (arbiter->beat_index <= WORKING) {
    vg_pages_beat(arbiter, now_ns);
    now_ns = arbiter->beat_due_ns;
  }
  for (int i = WORKING; i < PROCESSES; i++) CHECK(vg_arbiter_process_remove(arbiter, (uint64_t)i + 1) == 0);
  CHECK(oldest_ns(arbiter, &now_ns, VG_NS_PER_S) <= VG_HEARTBEAT_LATE_NS / 2);
  end(arbiter);
}

/* The process has rung for the number of its first attachment, and would not ring for the same one again. */
static void a_process_that_attaches_again_gets_another_number(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  uint32_t first = controls[0].unread;
  CHECK(first && vg_arbiter_process_remove(arbiter, 1) == 0);
  controls[0].unread = 0;
  CHECK(vg_arbiter_process_add(arbiter, 1, 1, &headers[0], &controls[0], &reports[0], doorbells[0], 0) == 0);
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  CHECK(controls[0].unread && controls[0].unread != first);
  end(arbiter);
}

/* A thousand helpers that are woken keep threads that launch from a processor. */
static void a_change_wakes_no_helper_of_a_process_that_rests(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  uint32_t before[PROCESSES];
  for (int i = 0; i < PROCESSES; i++) before[i] = headers[i].helper_wake;
  arbiter->core.slices[0].out.watch ^= VG_WATCH_EDGES;
  vg_pages_publish(arbiter);
  for (int i = 0; i < PROCESSES; i++) {
    CHECK(controls[i].watch == arbiter->core.slices[0].out.watch);
    CHECK((headers[i].helper_wake != before[i]) == (reports[i].outstanding != 0));
  }
  end(arbiter);
}

/* Launches at a SOLO gate leave the page as it is: what is outstanding is seen by the helper alone. */
static void a_change_wakes_the_helper_of_a_process_that_launches_uncounted(void) {
  struct vg_arbiter *arbiter = crowd();
  uint64_t now_ns = vg_prim_now_ns() + VG_NS_PER_S;
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  arbiter->core.slices[0].out.word = 9u << VG_GATE_EPOCH_SHIFT | VG_GATE_SOLO;
  vg_pages_publish(arbiter);
  vg_pages_read(arbiter, now_ns);
  oldest_ns(arbiter, &now_ns, VG_NS_PER_S);
  CHECK(controls[0].unread);
  uint32_t before = headers[0].helper_wake;
  arbiter->core.slices[0].out.word = 10u << VG_GATE_EPOCH_SHIFT | VG_GATE_COUNT;
  arbiter->core.slices[0].out.watch ^= VG_WATCH_USAGE;
  vg_pages_publish(arbiter);
  CHECK(headers[0].helper_wake != before);
  end(arbiter);
}

int main(void) {
  RUN(looking_at_all_delays_no_heartbeat);
  RUN(all_that_ring_at_once_have_heartbeats_in_time);
  RUN(those_that_end_stop_no_heartbeat);
  RUN(a_process_that_attaches_again_gets_another_number);
  RUN(a_change_wakes_no_helper_of_a_process_that_rests);
  RUN(a_change_wakes_the_helper_of_a_process_that_launches_uncounted);
  return 0;
}
