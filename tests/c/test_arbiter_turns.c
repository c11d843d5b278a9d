/* Which processes of a slice have its leases, by gate words and reports that the test makes up. */
#include <string.h>

#include "arbiter/pages.h"
#include "base/prim.h"
#include "check.h"

#define PROCESSES 3
#define LEASE_NS (10 * VG_NS_PER_MS)

static struct vg_control_header headers[PROCESSES];
static struct vg_control_device controls[PROCESSES];
static struct vg_report_device reports[PROCESSES];
static int doorbells[PROCESSES];
static struct vg_arbiter *arbiter;
static struct vg_core_slice *slice;

static bool is_open(int i) {
  return (controls[i].gate & VG_GATE_STATE_MASK) != VG_GATE_CLOSED;
}

static int open_count(void) {
  int count = 0;
  for (int i = 0; i < PROCESSES; i++) count += is_open(i);
  return count;
}

static void set_word(uint32_t state) {
  slice->out.word = ((slice->out.word >> VG_GATE_EPOCH_SHIFT) + 1) << VG_GATE_EPOCH_SHIFT | state;
  slice->gate.state = state == VG_GATE_CLOSED ? VG_CORE_SHUT : VG_CORE_OPEN;
}

/* Its lease ends, and all of its processes wait. */
static void close_gates(void) {
  arbiter->core.last_ns += LEASE_NS;
  slice->gate.close_ns = arbiter->core.last_ns;
  slice->out.lease_end_ns = 0;
  set_word(VG_GATE_CLOSED);
  vg_pages_publish(arbiter);
  for (int i = 0; i < PROCESSES; i++) arbiter->processes[i]->reported.waiting = 1;
}

/* The slice is granted a lease, while another slice waits or not. */
static void grant(bool contended) {
  slice->gate.grant_ns = arbiter->core.last_ns;
  slice->out.lease_end_ns = contended ? arbiter->core.last_ns + LEASE_NS : 0;
  set_word(VG_GATE_COUNT);
  vg_pages_publish(arbiter);
}

static void begin(void) {
  struct vg_arbiter_params params = {.quantum_ns = LEASE_NS, .heartbeat_ns = 20 * VG_NS_PER_MS};
  struct vg_slice_params given = {.min_milli = 500, .max_milli = 500};
  arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_slice_set(arbiter, 1, &given) == 0);
  memset(reports, 0, sizeof reports);
  for (int i = 0; i < PROCESSES; i++) {
    doorbells[i] = vg_prim_eventfd();
    reports[i].contexts = 1;
    CHECK(vg_arbiter_process_add(arbiter, 1, (uint64_t)i + 1, &headers[i], &controls[i], &reports[i], doorbells[i],
                                 0) == 0);
  }
  slice = &arbiter->core.slices[0];
  slice->saturating = true;
  arbiter->core.last_ns = vg_prim_now_ns() + VG_NS_PER_S;
  vg_pages_read(arbiter, arbiter->core.last_ns);
  close_gates();
}

static void end(void) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < PROCESSES; i++) vg_prim_close(doorbells[i]);
}

static void processes_have_contended_leases_in_turns(void) {
  begin();
  int leases[PROCESSES] = {0};
  for (int lease = 0; lease < 4 * PROCESSES; lease++) {
    grant(true);
    CHECK(open_count() == 1);
    for (int i = 0; i < PROCESSES; i++) leases[i] += is_open(i);
    close_gates();
    CHECK(open_count() == 0);
  }
  for (int i = 0; i < PROCESSES; i++) CHECK(leases[i] == 4);
  end();
}

/* The leases of the others meanwhile are no deficit of a process that rarely waits. */
static void a_process_that_did_not_wait_has_no_turns_to_make_up(void) {
  begin();
  int leases = 0;
  for (int lease = 0; lease < 30; lease++) {
    if (lease < 20) arbiter->processes[0]->reported.waiting = 0;
    grant(true);
    CHECK(open_count() == 1);
    if (lease >= 20) leases += is_open(0);
    close_gates();
  }
  CHECK(leases >= 3 && leases <= 4);
  end();
}

static void a_lease_that_no_other_slice_waits_for_is_all_processes(void) {
  begin();
  grant(false);
  CHECK(open_count() == PROCESSES);
  close_gates();
  grant(true);
  CHECK(open_count() == 1);
  slice->out.lease_end_ns = 0; /* the other slice waits no more */
  vg_pages_publish(arbiter);
  CHECK(open_count() == PROCESSES);
  end();
}

/* They fill each other's gaps, and may wait for each other's work. */
static void processes_that_leave_gaps_have_leases_together(void) {
  begin();
  grant(true);
  int first = is_open(0) ? 0 : is_open(1) ? 1 : 2;
  for (int i = 0; i < PROCESSES; i++) reports[i].waiting = i != first;
  VG_STORE(&reports[first].given_up_word, slice->out.word);
  arbiter->due[first] = VG_DUE_PAGE;
  vg_pages_read(arbiter, arbiter->core.last_ns + VG_NS_PER_MS);
  CHECK(!slice->in.quiet && slice->in.wants); /* the lease continues for the others */
  vg_pages_publish(arbiter);
  CHECK(open_count() == PROCESSES);
  close_gates();
  grant(true);
  CHECK(open_count() == PROCESSES);
  close_gates();
  arbiter->core.last_ns += VG_NS_PER_S;
  grant(true);
  CHECK(open_count() == 1);
  close_gates();
  slice->gate.overran = true; /* its work may have waited for that of another process */
  grant(true);
  CHECK(open_count() == PROCESSES);
  end();
}

static void a_process_that_ends_in_its_turn_leaves_the_lease_to_the_others(void) {
  begin();
  grant(true);
  int first = is_open(0) ? 0 : is_open(1) ? 1 : 2;
  CHECK(vg_arbiter_process_remove(arbiter, (uint64_t)first + 1) == 0);
  vg_pages_publish(arbiter);
  CHECK(open_count() == PROCESSES); /* its page is as it was */
  end();
}

/* Nor is the turn over because of it: it has launched nothing yet. */
static void a_process_that_attaches_has_no_turn(void) {
  static struct vg_control_header header;
  static struct vg_control_device control;
  static struct vg_report_device report;
  begin();
  grant(true);
  int first = is_open(0) ? 0 : is_open(1) ? 1 : 2, doorbell_fd = vg_prim_eventfd();
  CHECK(vg_arbiter_process_add(arbiter, 1, PROCESSES + 1, &header, &control, &report, doorbell_fd, 0) == 0);
  vg_pages_publish(arbiter);
  CHECK(open_count() == 1 && is_open(first));
  close_gates();
  CHECK(vg_arbiter_process_remove(arbiter, PROCESSES + 1) == 0);
  vg_prim_close(doorbell_fd);
  grant(true);
  CHECK(open_count() == 1 && !is_open(first)); /* it has used its turn */
  end();
}

/* Else the others would wait for a second, however little they have to run. */
static void the_remainder_of_a_long_lease_is_all_processes(void) {
  begin();
  grant(true);
  for (int extended = 0; extended < 4; extended++) {
    arbiter->core.last_ns += LEASE_NS;
    slice->out.lease_end_ns = arbiter->core.last_ns + LEASE_NS;
    vg_pages_publish(arbiter);
    CHECK(open_count() == 1);
  }
  arbiter->core.last_ns += LEASE_NS;
  vg_pages_publish(arbiter);
  CHECK(open_count() == PROCESSES);
  close_gates();
  grant(true);
  CHECK(open_count() == 1);
  end();
}

int main(void) {
  RUN(processes_have_contended_leases_in_turns);
  RUN(a_process_that_did_not_wait_has_no_turns_to_make_up);
  RUN(a_lease_that_no_other_slice_waits_for_is_all_processes);
  RUN(processes_that_leave_gaps_have_leases_together);
  RUN(a_process_that_ends_in_its_turn_leaves_the_lease_to_the_others);
  RUN(a_process_that_attaches_has_no_turn);
  RUN(the_remainder_of_a_long_lease_is_all_processes);
  return 0;
}
