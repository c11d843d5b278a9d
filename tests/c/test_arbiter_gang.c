/* test_arbiter_gang.c - the board by which the arbiters of a gang's devices tell each other. */
#include "arbiter/gang.h"

#include <poll.h>

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
  CHECK(vg_gang_post(1, wake_fds[FOLLOWER], &follower, again_ns) == UINT64_MAX); /* nothing new, but one is owed */
  CHECK(rung(wake_fds[LEADER]) && read_board(1, LEADER).wants);
  CHECK(vg_gang_post(1, wake_fds[FOLLOWER], &follower, again_ns) == UINT64_MAX && !rung(wake_fds[LEADER]));
  end(1);
}

int main(void) {
  for (int i = 0; i < DEVICES; i++) wake_fds[i] = vg_prim_eventfd();
  RUN(followers_go_with_their_leader);
  RUN(the_leader_knows_of_work_elsewhere);
  RUN(a_missing_leader_is_not_waited_for);
  RUN(a_device_that_is_behind_is_woken);
  RUN(rings_are_limited_and_the_last_news_arrives);
  return 0;
}
