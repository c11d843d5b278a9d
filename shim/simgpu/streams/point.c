/*
 * point.c - completion: what is done, and sleeping until it is. Completion times are computed by the server and may lie
 * in the future: then the waiter sleeps until exactly that time, without being woken. Only for what is undecided yet it
 * waits for the process's bell. Called by every synchronising entry point.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"

#define QUERY_KICK_NS 200000ull /* a program that polls asks the server to decide at most this often */
#define CHECK_NS 100000000ull   /* how often a long wait looks whether the server is still there */

static __thread bool slack_set;

uint32_t sim_released;
static void (*wait_hook)(struct sim_context *context);

void sim_wait_hook_set(void (*hook)(struct sim_context *context)) {
  VG_STORE_RELAXED(&wait_hook, hook);
}

void sim_wait_hook_run(struct sim_context *context) {
  void (*hook)(struct sim_context *) = VG_LOAD_RELAXED(&wait_hook);
  if (hook) hook(context);
}

bool sim_point_time(struct sim_point point, uint64_t *ret_time_ns) {
  const struct sim_stream_state *state = &sim_link.done->streams[point.slot];
  *ret_time_ns = 0;
  if (point.seq == 0) return true;
  uint64_t decided = VG_LOAD(&state->decided_seq);
  if (decided < point.seq) return VG_LOAD_RELAXED(&sim_link.gone);
  (void)VG_LOAD(&sim_released);
  if (point.seq + SIM_STREAM_TIMES <= decided) return true;
  uint64_t time_ns = VG_LOAD(&state->times[point.seq % SIM_STREAM_TIMES]);
  if (point.seq + SIM_STREAM_TIMES > VG_LOAD(&state->decided_seq))
    *ret_time_ns = time_ns; /* not overwritten meanwhile */
  return true;
}

bool sim_point_done(struct sim_point point) {
  uint64_t time_ns;
  return sim_point_time(point, &time_ns) && (time_ns == 0 || time_ns <= vg_prim_now_ns());
}

bool sim_point_query(struct sim_point point) {
  static uint64_t last_kick_ns;
  uint64_t time_ns, now_ns = vg_prim_now_ns();
  if (sim_point_time(point, &time_ns)) return time_ns <= now_ns;
  if (now_ns > VG_LOAD_RELAXED(&last_kick_ns) + QUERY_KICK_NS) {
    VG_STORE_RELAXED(&last_kick_ns, now_ns);
    sim_link_kick();
  }
  return false;
}

uint32_t sim_bell_announce(void) {
  __atomic_fetch_add(&sim_link.ring->waiters, 1, __ATOMIC_SEQ_CST);
  return __atomic_load_n(&sim_link.done->bell, __ATOMIC_SEQ_CST);
}

void sim_bell_sleep(uint32_t bell, uint64_t deadline_ns) {
  if (!slack_set) {
    vg_prim_timer_slack_ns(1);
    slack_set = true;
  }
  if (vg_prim_futex_wait(&sim_link.done->bell, bell, deadline_ns) < 0) sim_link_check();
}

void sim_bell_retire(void) {
  __atomic_fetch_sub(&sim_link.ring->waiters, 1, __ATOMIC_SEQ_CST);
}

void sim_point_wait(struct sim_point point) {
  uint64_t time_ns;
  for (bool kicked = false; !sim_point_time(point, &time_ns); kicked = true) {
    uint32_t bell = sim_bell_announce();
    if (!kicked) sim_link_kick();
    if (!sim_point_time(point, &time_ns)) sim_bell_sleep(bell, vg_prim_now_ns() + CHECK_NS);
    sim_bell_retire();
  }
  if (time_ns == 0 || time_ns <= vg_prim_now_ns()) return;
  if (!slack_set) {
    vg_prim_timer_slack_ns(1);
    slack_set = true;
  }
  vg_prim_sleep_until_ns(time_ns);
}
