/* test_arbiter_gang.c - the board by which the arbiters of a gang's devices notify each other. */
#include "arbiter/gang.h"

#include <poll.h>

#include "arbiter/state.h"
#include "base/prim.h"
#include "check.h"

enum { LEADER, FOLLOWER, DEVICES };

static int wake_fds[DEVICES];

static struct vg_gang_part part_of(int device) {
  return (struct vg_gang_part){.leads = device == LEADER};
}

static bool rung(int fd) {
  struct pollfd poller = {.fd = fd, .events = POLLIN};
  bool is_rung = poll(&poller, 1, 0) == 1;
  vg_prim_eventfd_drain(fd);
  return is_rung;
}

static uint64_t now_ns = VG_NS_PER_S;

/* Each a millisecond after the one before it: all rings are at hand. */
static void post(uint64_t slice_id, int device, struct vg_gang_part what) {
  CHECK(vg_gang_post(slice_id, wake_fds[device], &what, now_ns += VG_NS_PER_MS) == UINT64_MAX);
}

static struct vg_gang_others read_board(uint64_t slice_id, int device) {
  struct vg_gang_others others;
  vg_gang_read(slice_id, wake_fds[device], &others);
  return others;
}

static void begin(uint64_t slice_id) {
  for (int i = 0; i < DEVICES; i++) post(slice_id, i, part_of(i));
  for (int i = 0; i < DEVICES; i++) rung(wake_fds[i]);
}

static void end(uint64_t slice_id) {
  for (int i = 0; i < DEVICES; i++) vg_gang_leave(slice_id, wake_fds[i]);
}

static void followers_go_with_their_leader(void) {
  begin(1);
  begin(2);
  CHECK(!read_board(1, FOLLOWER).go);
  struct vg_gang_part leader = part_of(LEADER);
  leader.open = true;
  post(1, LEADER, leader);
  CHECK(rung(wake_fds[FOLLOWER]) && !rung(wake_fds[LEADER]));
  CHECK(read_board(1, FOLLOWER).go && !read_board(2, FOLLOWER).go);
  post(1, LEADER, leader);
  CHECK(!rung(wake_fds[FOLLOWER])); /* no news */
  leader.open = false;
  post(1, LEADER, leader);
  CHECK(rung(wake_fds[FOLLOWER]) && !read_board(1, FOLLOWER).go);
  end(1);
  end(2);
}

static void the_leader_knows_of_work_elsewhere(void) {
  begin(1);
  struct vg_gang_part follower = part_of(FOLLOWER);
  follower.wants = true;
  post(1, FOLLOWER, follower);
  CHECK(rung(wake_fds[LEADER]) && read_board(1, LEADER).wants && !read_board(1, LEADER).outstanding);
  follower.wants = false;
  follower.outstanding = true;
  post(1, FOLLOWER, follower);
  CHECK(rung(wake_fds[LEADER]) && !read_board(1, LEADER).wants && read_board(1, LEADER).outstanding);
  end(1);
}

/* Each device of a gang may stop it, for its maximum there: the leader knew only of its followers'. */
static void any_device_stops_the_gang(void) {
  begin(1);
  for (int i = 0; i < DEVICES; i++) {
    int other = DEVICES - 1 - i;
    struct vg_gang_part part = part_of(i);
    part.veto = true;
    post(1, i, part);
    CHECK(rung(wake_fds[other]) && read_board(1, other).veto && !read_board(1, i).veto);
    part.veto = false;
    post(1, i, part);
    CHECK(rung(wake_fds[other]) && !read_board(1, other).veto);
  }
  end(1);
}

static void a_missing_leader_is_not_waited_for(void) {
  begin(1);
  CHECK(!read_board(1, FOLLOWER).go);
  vg_gang_leave(1, wake_fds[LEADER]);
  CHECK(rung(wake_fds[FOLLOWER]) && read_board(1, FOLLOWER).go);
  end(1);
}

static void launch(int device, bool open, uint32_t collectives) {
  struct vg_gang_part part = part_of(device);
  part.open = open;
  part.collectives = collectives;
  post(1, device, part);
}

/* A device with a closed gate is woken when the others get further; while its gate is open that changes all the time.
 */
static void a_device_that_is_behind_is_woken(void) {
  begin(1);
  launch(LEADER, true, 7);
  launch(FOLLOWER, true, 6);
  CHECK(read_board(1, LEADER).collectives == 6 && read_board(1, FOLLOWER).collectives == 7);
  rung(wake_fds[FOLLOWER]);
  launch(LEADER, true, 8);
  CHECK(!rung(wake_fds[FOLLOWER]));
  launch(FOLLOWER, false, 7);
  launch(LEADER, true, 9);
  CHECK(rung(wake_fds[FOLLOWER]) && read_board(1, FOLLOWER).collectives == 9);
  launch(FOLLOWER, false, UINT32_MAX); /* counts go round */
  rung(wake_fds[LEADER]);
  launch(LEADER, false, UINT32_MAX - 2);
  rung(wake_fds[FOLLOWER]);
  launch(FOLLOWER, false, 1);
  CHECK(rung(wake_fds[LEADER]) && read_board(1, LEADER).collectives == 1);
  end(1);
}

/* A device at whose closed gate a thread waits is woken when work of another one is overdue or resumes. */
static void a_device_that_others_may_wait_for_is_woken(void) {
  begin(1);
  struct vg_gang_part leader = part_of(LEADER), follower = part_of(FOLLOWER);
  leader.overdue_ns = 5;
  post(1, LEADER, leader);
  CHECK(!rung(wake_fds[FOLLOWER]) && read_board(1, FOLLOWER).overdue_ns == 5);
  follower.wants = true;
  post(1, FOLLOWER, follower);
  rung(wake_fds[LEADER]);
  CHECK(read_board(1, LEADER).idle_wants);
  leader.overdue_ns = 6;
  post(1, LEADER, leader);
  CHECK(rung(wake_fds[FOLLOWER]));
  leader.overdue_ns = 0;
  post(1, LEADER, leader);
  struct vg_gang_others seen = read_board(1, FOLLOWER);
  CHECK(rung(wake_fds[FOLLOWER]) && !seen.overdue_ns);
  follower.outstanding = true;
  post(1, FOLLOWER, follower);
  CHECK(!read_board(1, LEADER).idle_wants);
  end(1);
}

/* A tenant whose pages change all the time makes its devices' arbiters wake each other no faster than the limit. */
static void rings_are_limited_and_the_last_news_arrives(void) {
  begin(1);
  now_ns += VG_NS_PER_MS;
  struct vg_gang_part follower = part_of(FOLLOWER);
  uint64_t window_ns = now_ns, again_ns = 0;
  int rings = 0;
  for (int i = 0; i < 99; i++) {
    follower.wants = !follower.wants;
    again_ns = vg_gang_post(1, wake_fds[FOLLOWER], &follower, now_ns += VG_NS_PER_US);
    rings += rung(wake_fds[LEADER]);
  }
  CHECK(rings == VG_GANG_RINGS_PER_MS && again_ns > now_ns && again_ns <= window_ns + 2 * VG_NS_PER_MS);
  CHECK(vg_gang_post(1, wake_fds[FOLLOWER], &follower, again_ns) == UINT64_MAX); /* nothing new, but one is due */
  CHECK(rung(wake_fds[LEADER]) && read_board(1, LEADER).wants);
  CHECK(vg_gang_post(1, wake_fds[FOLLOWER], &follower, again_ns) == UINT64_MAX && !rung(wake_fds[LEADER]));
  end(1);
}

/* ---- launches let through closed gates ---- */

static struct vg_arbiter arbiters[DEVICES];
static struct vg_process processes[DEVICES];
static struct vg_control_device controls[DEVICES];
static struct vg_report_device reports[DEVICES];

/* Both gates close now, and a thread waits at the follower's. */
static void close_gates(void) {
  for (int i = 0; i < DEVICES; i++) {
    struct vg_core_slice *slice = &arbiters[i].core.slices[0];
    *slice = (struct vg_core_slice){
        .present = true, .id = 5, .params.gang = i == LEADER ? VG_GANG_LEADER : VG_GANG_FOLLOWER};
    slice->gate.close_ns = now_ns;
    processes[i] = (struct vg_process){.control = &controls[i], .report = &reports[i]};
    arbiters[i].wake_fd = wake_fds[i];
    arbiters[i].core.params = (struct vg_arbiter_params){.bound_ns = 2 * VG_NS_PER_MS, .overrun_ns = 16 * VG_NS_PER_MS};
    arbiters[i].core.slice_count = 1;
    arbiters[i].lanes[0] = (struct vg_lane){.first = &processes[i]};
  }
  processes[FOLLOWER].reported.waiting = 1;
  arbiters[FOLLOWER].core.slices[0].in.wants = true;
}

static void one_round(int device) {
  arbiters[device].core.last_ns = now_ns;
  vg_gang_round_begins(&arbiters[device]);
  vg_gang_round_ends(&arbiters[device], now_ns);
}

static void leader_says(uint64_t overdue_ns, uint64_t expected_ns) {
  now_ns += VG_NS_PER_MS / 2;
  processes[LEADER].reported = (struct vg_reported){.outstanding = true, .overdue_ns = overdue_ns ? now_ns : 0};
  arbiters[LEADER].core.slices[0].in.outstanding = true;
  arbiters[LEADER].core.slices[0].in.drain_expected_ns = expected_ns ? now_ns + expected_ns : 0;
  one_round(LEADER);
  one_round(FOLLOWER);
}

/* The thread's launch has passed, and has ended at that time. */
static void follower_ends(uint64_t drained_ns) {
  processes[FOLLOWER].reported.passed_serial = controls[FOLLOWER].pass_serial;
  processes[FOLLOWER].reported.drained_ns = drained_ns;
}

static void overdue_work_has_launches_let_through(void) {
  const struct vg_control_device *control = &controls[FOLLOWER];
  close_gates();
  leader_says(0, VG_NS_PER_MS);
  CHECK(control->pass_serial == 0); /* it takes its time */
  leader_says(1, 0);
  uint64_t first_ns = control->pass_work_ns;
  CHECK(control->pass_serial == 1 && first_ns > 0 && first_ns < 200 * VG_NS_PER_US);
  leader_says(1, 0);
  CHECK(control->pass_serial == 1); /* it has not passed yet */
  follower_ends(now_ns + VG_NS_PER_MS);
  leader_says(1, 0);
  CHECK(control->pass_serial == 1); /* what has passed may be what the work waited for: both end together */
  now_ns += VG_NS_PER_MS;
  leader_says(1, 0);
  CHECK(control->pass_serial == 2 && control->pass_work_ns == 2 * first_ns);
  CHECK(controls[LEADER].pass_serial == 0);
}

static void nothing_passes_when_the_time_is_over(void) {
  const struct vg_control_device *control = &controls[FOLLOWER];
  follower_ends(now_ns);
  leader_says(1, 0);
  CHECK(control->pass_serial == 3);
  now_ns += 18 * VG_NS_PER_MS;
  leader_says(1, 0);
  CHECK(control->pass_serial == 2 && control->pass_work_ns == 0);
  leader_says(1, 0);
  CHECK(control->pass_serial == 2);
}

int main(void) {
  for (int i = 0; i < DEVICES; i++) wake_fds[i] = vg_prim_eventfd();
  RUN(followers_go_with_their_leader);
  RUN(the_leader_knows_of_work_elsewhere);
  RUN(any_device_stops_the_gang);
  RUN(a_missing_leader_is_not_waited_for);
  RUN(a_device_that_is_behind_is_woken);
  RUN(a_device_that_others_may_wait_for_is_woken);
  RUN(rings_are_limited_and_the_last_news_arrives);
  RUN(overdue_work_has_launches_let_through);
  RUN(nothing_passes_when_the_time_is_over);
  return 0;
}
