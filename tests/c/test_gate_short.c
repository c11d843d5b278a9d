/*
 * test_gate_short.c - launches that are counted without the lock: they are in the books like the others, and what a
 * launch must not do there takes the long path.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "fake_pages.h"

#define SHORT_NS (5 * VG_NS_PER_US)

static struct vg_work *enter(CUstream stream, const void *function) {
  return vg_gate_enter_short(stream, false, function, 1024);
}

static void leave(struct vg_work *launch, CUresult result) {
  vg_gate_leave_short(launch, result, true, false);
}

/* Launches until the next one may take the short path. */
static void open_short_path(void) {
  for (int i = 0; i < 100; i++) {
    struct vg_work *launch = enter(fake_stream(1), &functions[0]);
    if (launch) {
      leave(launch, CUDA_ERROR_INVALID_VALUE);
      return;
    }
    launch_into(fake_stream(1), &functions[0], SHORT_NS);
  }
  CHECK(!"the short path never opens");
}

static void begin_open(void) {
  begin(VG_WATCH_USAGE);
  open_short_path();
}

static bool is_open(CUstream stream, const void *function) {
  struct vg_work *launch = enter(stream, function);
  if (launch) leave(launch, CUDA_ERROR_INVALID_VALUE);
  return launch;
}

static void most_launches_take_it_and_all_are_counted(void) {
  begin_open();
  VG_STORE(&control.bound_ns, VG_NS_PER_S); /* so that markers do not depend on how fast this machine is */
  synchronize(fake_stream(1));
  uint64_t before = report()->launches, before_ns = report()->done_ns;
  uint32_t on_short_path = 0;
  for (int i = 0; i < 1000; i++) {
    on_short_path += is_open(fake_stream(1), &functions[0]);
    launch_into(fake_stream(1), &functions[0], SHORT_NS);
  }
  uint64_t outstanding_ns = vg_gate_outstanding(device());
  synchronize(fake_stream(1));
  printf("  %u of 1000\n", on_short_path);
  CHECK(on_short_path > 500);
  CHECK(outstanding_ns > 0 && vg_gate_outstanding(device()) == 0 && !report()->outstanding);
  CHECK(report()->launches == before + 1000);
  CHECK(report()->done_ns > before_ns);
  end();
}

static void what_is_new_takes_the_long_path(void) {
  begin_open();
  CHECK(!is_open(fake_stream(2), &functions[0]));
  CHECK(!is_open(fake_stream(1), &functions[1]));
  CHECK(!vg_gate_enter_short(fake_stream(1), false, &functions[0], 4096));
  vg_gate_capture_begin();
  CHECK(!is_open(fake_stream(1), &functions[0]));
  launch_into(fake_stream(1), &functions[0], SHORT_NS);
  CHECK(!is_open(fake_stream(1), &functions[0]));
  vg_gate_capture_end();
  open_short_path();
  set_gate(VG_GATE_CLOSED);
  CHECK(!is_open(fake_stream(1), &functions[0]));
  set_gate(VG_GATE_COUNT); /* a new lease: not accepted yet */
  CHECK(!is_open(fake_stream(1), &functions[0]));
  open_short_path();
  vg_context_here.work_generation = 0; /* the thread has another context now, or may have */
  CHECK(!is_open(fake_stream(1), &functions[0]));
  open_short_path();
  vg_gate_daemon_gone(device());
  CHECK(!is_open(fake_stream(1), &functions[0]));
  vg_gate_daemon_back(device()); /* with the same word */
  CHECK(!is_open(fake_stream(1), &functions[0]));
  open_short_path();
  end_context();
  CHECK(!is_open(fake_stream(1), &functions[0]));
  end();
}

/* Its collectives are counted on the long path. A slice becomes a gang's when its shares change: launches of a tally
 * that is open are the last ones. */
static void a_gang_takes_the_long_path(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_GANG);
  for (int i = 0; i < 100; i++) {
    launch_into(fake_stream(1), &functions[0], SHORT_NS);
    CHECK(!is_open(fake_stream(1), &functions[0]));
  }
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  open_short_path();
  VG_STORE(&control.watch, VG_WATCH_USAGE | VG_WATCH_GANG);
  uint32_t on_short_path = 0;
  for (; is_open(fake_stream(1), &functions[0]); on_short_path++) launch_into(fake_stream(1), &functions[0], SHORT_NS);
  CHECK(on_short_path <= 512); /* of a process that measures, as one does on a busy host (count.c) */
  launch_into(fake_stream(1), &functions[0], SHORT_NS);
  CHECK(!is_open(fake_stream(1), &functions[0]));
  end();
}

static void a_refused_launch_is_not_counted(void) {
  begin_open();
  uint64_t outstanding_ns = vg_gate_outstanding(device());
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch);
  leave(launch, CUDA_ERROR_INVALID_VALUE);
  CHECK(vg_gate_outstanding(device()) == outstanding_ns);
  end();
}

/* The wait begins before the launch has reached the driver. */
static void a_wait_does_not_cover_a_later_launch(void) {
  begin_open();
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch);
  uint64_t begin_of_wait = vg_gate_sync_begin();
  fake_launch(fake_stream(1), VG_NS_PER_S);
  leave(launch, CUDA_SUCCESS);
  vg_gate_synced(begin_of_wait, fake_stream(1), false, false);
  CHECK(report()->outstanding == 1 && vg_gate_outstanding(device()) > 0);
  end();
}

/* Another thread finds that nothing is outstanding while the launch is on its way. */
static void a_launch_under_way_is_not_idleness(void) {
  begin_open();
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch);
  synchronize(fake_stream(1));
  CHECK(report()->outstanding == 0);
  fake_launch(fake_stream(1), VG_NS_PER_S);
  leave(launch, CUDA_SUCCESS);
  CHECK(report()->outstanding == 1);
  end();
}

/* The same when the helper finds it, in the epoch of the launch. */
static void a_probe_before_the_launch_does_not_cover_it(void) {
  begin_open();
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch && serve_until_idle());
  fake_launch(fake_stream(1), VG_NS_PER_S);
  leave(launch, CUDA_SUCCESS);
  CHECK(report()->outstanding == 1);
  end();
}

/* No marker shows between programmatic launches how much is outstanding, but the bound is looked at all the same. */
static void a_bound_that_is_lowered_is_soon_seen(void) {
  begin_open();
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(1), false, &functions[0], 1024);
  fake_launch(fake_stream(1), SHORT_NS);
  ticket.programmatic = true;
  vg_gate_leave(&ticket, CUDA_SUCCESS);
  const struct vg_tally *tally = &device()->gate->works->tally;
  CHECK(tally->left > 0 && (uint64_t)tally->left >> VG_TALLY_LAUNCH_BITS <= control.bound_ns / 8);
  end();
}

/* Another thread has seen that the function takes longer: the launch on its way is the last one of this tally. */
static void a_cost_that_rises_closes_the_tally(void) {
  begin_open();
  uint64_t outstanding_ns = vg_gate_outstanding(device());
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch);
  vg_estimate_set_cost(launch->tally.estimate, VG_NS_PER_S);
  leave(launch, CUDA_SUCCESS);
  CHECK(launch->tally.left <= 0 && !is_open(fake_stream(1), &functions[0]));
  CHECK(vg_gate_outstanding(device()) == outstanding_ns + VG_TALLY_MOST_NS);
  vg_work_lock(launch);
  vg_unlock(&launch->lock);
  CHECK(launch->outstanding_ns == outstanding_ns + VG_TALLY_MOST_NS && launch->tally.taken == launch->tally.left);
  end();
}

static void *mark_kept(void *unused) {
  launch_into(fake_stream(1), &functions[0], SHORT_NS);
  open_short_path();
  struct vg_work *launch = enter(fake_stream(1), &functions[0]);
  CHECK(launch);
  VG_STORE((struct vg_work **)unused, launch);
  while (VG_LOAD((struct vg_work **)unused)) sleep_ns(VG_NS_PER_MS / 10);
  leave(launch, CUDA_SUCCESS);
  return NULL;
}

static void a_lease_is_not_given_up_under_a_launch(void) {
  begin(VG_WATCH_USAGE);
  struct vg_work *under_way = NULL;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, mark_kept, &under_way) == 0);
  while (!VG_LOAD(&under_way)) sleep_ns(VG_NS_PER_MS / 10);
  VG_STORE(&control.neighbour_waits, VG_NEIGHBOUR_WAITS); /* no earlier: a thread between launches gives it up */
  pthread_mutex_lock(&device()->gate->mutex);
  CHECK(VG_LOAD(&device()->open_word) != VG_GATE_NO_WORD);
  CHECK(vg_gate_in_flight(device()) && !vg_gate_give_up(device()));
  pthread_mutex_unlock(&device()->gate->mutex);
  VG_STORE(&under_way, NULL);
  pthread_join(thread, NULL);
  CHECK(!vg_gate_in_flight(device()));
  end();
}

static uint32_t stop;

static void *serve(void *unused) {
  while (!VG_LOAD(&stop)) {
    vg_gate_service(vg_prim_now_ns());
    sleep_ns(VG_NS_PER_MS / 10);
  }
  return unused;
}

static void *launch_and_check(void *argument) {
  uintptr_t index = (uintptr_t)argument;
  CUstream stream = fake_stream(index);
  for (int i = 1; i <= 2000; i++) {
    launch_into(stream, &functions[index], 50 * VG_NS_PER_US);
    bool busy = VG_LOAD(&report()->outstanding);
    CHECK(busy || vg_prim_now_ns() >= fake_end_of(stream));
    if (i % 20 == 0) sleep_ns(VG_NS_PER_MS);
    if (i % 100 == 0 && index % 2) synchronize(stream);
  }
  return NULL;
}

/* Work that no thread has waited for is always reported, whatever helper and other threads do. */
static void threads_and_helper_agree(void) {
  pthread_t threads[3], helper;
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  stop = 0;
  CHECK(pthread_create(&helper, NULL, serve, NULL) == 0);
  for (uintptr_t i = 0; i < 3; i++) CHECK(pthread_create(&threads[i], NULL, launch_and_check, (void *)(i + 1)) == 0);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  VG_STORE(&stop, 1);
  pthread_join(helper, NULL);
  CHECK(serve_until_idle());
  CHECK(report()->launches == 6000 && vg_gate_outstanding(device()) == 0);
  end();
}

/* As in a container whose seccomp profile does not know the call. Without the barrier neither a mark nor a tally may be
 * relied on. For the rest of this process. */
static void without_membarrier_the_short_path_stays_closed(void) {
  struct sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {.len = sizeof steps / sizeof *steps, .filter = steps};
  begin_open();
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  CHECK(!vg_gate_in_flight(device())); /* a program that installs the filter after its first launches */
  set_gate(VG_GATE_CLOSED);
  set_gate(VG_GATE_COUNT);
  for (int i = 0; i < 100; i++) {
    launch_into(fake_stream(1), &functions[0], SHORT_NS);
    CHECK(!is_open(fake_stream(1), &functions[0]));
  }
  end();
  vg_prim_membarrier_refused = false; /* as in a new process */
  begin(VG_WATCH_USAGE);
  for (int i = 0; i < 100; i++) {
    launch_into(fake_stream(1), &functions[0], SHORT_NS);
    CHECK(!is_open(fake_stream(1), &functions[0]));
  }
  synchronize(fake_stream(1));
  CHECK(report()->launches == 100 && !report()->outstanding);
  end();
}

int main(void) {
  RUN(most_launches_take_it_and_all_are_counted);
  RUN(what_is_new_takes_the_long_path);
  RUN(a_gang_takes_the_long_path);
  RUN(a_refused_launch_is_not_counted);
  RUN(a_wait_does_not_cover_a_later_launch);
  RUN(a_launch_under_way_is_not_idleness);
  RUN(a_probe_before_the_launch_does_not_cover_it);
  RUN(a_bound_that_is_lowered_is_soon_seen);
  RUN(a_cost_that_rises_closes_the_tally);
  RUN(a_lease_is_not_given_up_under_a_launch);
  RUN(threads_and_helper_agree);
  RUN(without_membarrier_the_short_path_stays_closed); /* the last one */
  return 0;
}
