/*
 * test_gate_bound.c - how much is outstanding at most, whatever a program launches.
 */
#include "fake_pages.h"

static uint64_t queued_ns(CUstream stream) {
  uint64_t end_ns = fake_end_of(stream), now_ns = vg_prim_now_ns();
  return end_ns > now_ns ? end_ns - now_ns : 0;
}

/* As a graph of 50 ms is: nothing is known of the first one, and the next waits for it. */
static void long_work_is_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  uint64_t cost_ns = 50 * VG_NS_PER_MS, first_ns = 0, later_ns = 0;
  for (int i = 0; i < 20; i++) {
    launch(cost_ns);
    uint64_t *most_ns = i < 10 ? &first_ns : &later_ns;
    if (queued_ns(fake_stream(1)) > *most_ns) *most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.0f ms at first, then %.0f ms\n", (double)first_ns / 1e6, (double)later_ns / 1e6);
  CHECK(first_ns <= 2 * cost_ns);
  CHECK(later_ns <= 3 * cost_ns);
  synchronize(fake_stream(1));
  CHECK(report()->done_ns > 19 * cost_ns && report()->done_ns < 21 * cost_ns);
  end();
}

/* Each launch is its function's first, as of a program that wants its kernels to stay unknown. */
static void long_first_launches_are_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  uint64_t cost_ns = 100 * VG_NS_PER_MS, most_ns = 0;
  launch_into(fake_stream(1), &functions[0], cost_ns);
  synchronize(fake_stream(1));
  for (int i = 1; i < 8; i++) {
    launch_into(fake_stream(1), &functions[i], cost_ns);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.0f ms\n", (double)most_ns / 1e6);
  CHECK(most_ns <= 3 * cost_ns);
  synchronize(fake_stream(1));
  CHECK(report()->done_ns > 7 * cost_ns && report()->done_ns < 9 * cost_ns);
  end();
}

static bool is_stale(CUstream handle) {
  pthread_mutex_lock(&device()->gate->mutex);
  vg_gate_reap(device(), vg_prim_now_ns());
  const struct vg_stream *stream = device()->gate->works->streams;
  while (stream->handle != handle) stream++;
  pthread_mutex_unlock(&device()->gate->mutex);
  return stream->stale;
}

/* Work queued behind an uncounted launch does not count after a while. A launch that is seen to run does, however long:
 * else the work behind a kernel of seconds would not be bounded. */
static void a_long_kernel_is_not_taken_for_stuck(void) {
  begin(0);
  fake_launch(fake_stream(2), 3 * VG_NS_PER_S);
  launch_into(fake_stream(1), &functions[0], 3 * VG_NS_PER_S);
  launch_into(fake_stream(2), &functions[1], LAUNCH_NS);
  for (uint64_t end_ns = fake_end_of(fake_stream(2)) - VG_NS_PER_S / 2; !is_stale(fake_stream(2));) {
    CHECK(vg_prim_now_ns() < end_ns);
    vg_prim_sleep_until_ns(vg_prim_now_ns() + 10 * VG_NS_PER_MS);
  }
  CHECK(!is_stale(fake_stream(1)) && vg_gate_outstanding(device()) > VG_NS_PER_S / 2);
  end();
}

/* More than there is room for in the books, as of a program that makes a stream for each request. */
static void many_streams_are_bounded(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  for (uintptr_t i = 1; i <= VG_WORK_STREAMS; i++) launch_into(fake_stream(i), &functions[0], LAUNCH_NS / 10);
  uint64_t most_ns = 0;
  for (uintptr_t i = 0; i < 500; i++) {
    CUstream stream = fake_stream(VG_WORK_STREAMS + 1 + i % VG_WORK_STREAMS);
    launch_into(stream, &functions[0], LAUNCH_NS);
    if (queued_ns(stream) > most_ns) most_ns = queued_ns(stream);
  }
  printf("  queued %.1f ms in each of %d\n", (double)most_ns / 1e6, FAKE_STREAMS);
  CHECK(most_ns <= 6 * VG_NS_PER_MS);
  for (uintptr_t i = 0; i < FAKE_STREAMS; i++) vg_prim_sleep_until_ns(fake_end_of(fake_stream(i)));
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  CHECK(serve_until_idle());
  end();
}

static void the_bound_holds_beside_a_capture(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  fake_capture_begin(fake_stream(7));
  uint64_t most_ns = 0;
  for (int i = 0; i < 300; i++) {
    launch(LAUNCH_NS);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.1f ms\n", (double)most_ns / 1e6);
  CHECK(most_ns <= 6 * VG_NS_PER_MS);
  fake_capture_end(fake_stream(7));
  synchronize(fake_stream(1));
  end();
}

/* ---- streams that share the device ---- */

#define LAUNCHERS 6
#define LAUNCHES_EACH 500

static uint64_t shared_most_ns; /* queued on the device */

static uint64_t queued_in_all_ns(void) {
  pthread_mutex_lock(&fake_mutex);
  uint64_t end_ns = fake_last_end();
  pthread_mutex_unlock(&fake_mutex);
  uint64_t now_ns = vg_prim_now_ns();
  return end_ns > now_ns ? end_ns - now_ns : 0;
}

static void launch_shared(uintptr_t stream, bool first) {
  launch_into(fake_stream(stream), &functions[0], LAUNCH_NS);
  uint64_t queued_ns = queued_in_all_ns(), most_ns = VG_LOAD(&shared_most_ns);
  while (
      !first && queued_ns > most_ns &&
      !__atomic_compare_exchange_n(&shared_most_ns, &most_ns, queued_ns, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

/* The first ones are launched before their cost is known. */
static void *launch_many(void *stream) {
  for (int i = 0; i < LAUNCHES_EACH; i++) launch_shared((uintptr_t)stream, i < 10);
  return NULL;
}

static void begin_shared(void) {
  begin(0);
  fake_serial = true;
  shared_most_ns = 0;
}

static void end_shared(void) {
  printf("  queued %.0f ms\n", (double)shared_most_ns / 1e6);
  CHECK(shared_most_ns <= 3 * control.bound_ns);
  for (uintptr_t i = 0; i < FAKE_STREAMS; i++) vg_prim_sleep_until_ns(fake_end_of(fake_stream(i)));
  VG_STORE(&control.watch, VG_WATCH_USAGE);
  CHECK(serve_until_idle());
  end();
}

/* Each stream has a fraction of the device, so it gets on slowly: its work is outstanding all the same. */
static void streams_of_many_threads_are_bounded_together(void) {
  begin_shared();
  pthread_t threads[LAUNCHERS];
  for (uintptr_t i = 0; i < LAUNCHERS; i++) CHECK(!pthread_create(&threads[i], NULL, launch_many, fake_stream(i)));
  for (int i = 0; i < LAUNCHERS; i++) pthread_join(threads[i], NULL);
  end_shared();
}

static void streams_of_one_thread_are_bounded_together(void) {
  begin_shared();
  for (uint32_t i = 0; i < LAUNCHERS * LAUNCHES_EACH; i++) launch_shared(i % LAUNCHERS, i < 10 * LAUNCHERS);
  end_shared();
}

#define POOL 16

/* Launches of a known cost into a thread's books; returns the most that was behind the last marker. */
static uint64_t most_unmarked(struct vg_work *work, uint64_t cost_ns) {
  struct vg_estimate *estimate = vg_work_find_estimate(work, &functions[0], 1024);
  uint64_t most_ns = 0;
  estimate->cost_ns = cost_ns;
  estimate->count = VG_ESTIMATE_SAMPLES;
  estimate->countdown = 1000;
  for (int i = 0; i < 200; i++) {
    vg_work_lock(work);
    struct vg_stream *stream = vg_work_stream(work, fake_stream(1), false, NULL);
    vg_work_launched(work, stream, estimate, NULL, control.bound_ns, false);
    if (stream->unmarked_ns > most_ns) most_ns = stream->unmarked_ns;
    vg_unlock(&work->lock);
  }
  return most_ns;
}

/* A thread adds to what all have outstanding and takes it away again when it has completed, however that is seen. */
static void completed_work_does_not_fill_the_bound(void) {
  begin(VG_WATCH_USAGE);
  for (int i = 0; i < 100; i++) launch(20 * VG_NS_PER_US);
  uint64_t published_ns = VG_LOAD(&device()->gate->published_ns);
  synchronize(fake_stream(1));
  uint64_t synchronized_ns = VG_LOAD(&device()->gate->published_ns);
  for (int i = 0; i < 100; i++) launch(20 * VG_NS_PER_US);
  CHECK(published_ns && !synchronized_ns && VG_LOAD(&device()->gate->published_ns));
  CHECK(serve_until_idle() && !VG_LOAD(&device()->gate->published_ns));
  end();
}

/* What threads of a pool have launched behind their last markers does not fill the bound: nothing shows its end. */
static void a_pool_does_not_fill_the_bound(void) {
  const uint64_t costs_ns[] = {5 * VG_NS_PER_US, 100 * VG_NS_PER_US, VG_NS_PER_MS};
  for (size_t i = 0; i < sizeof costs_ns / sizeof *costs_ns; i++) {
    begin(0);
    uint64_t sum_ns = 0;
    for (int thread = 0; thread < POOL; thread++) sum_ns += most_unmarked(vg_gate_new_work(device()), costs_ns[i]);
    printf("  %.1f ms of kernels of %.3f ms\n", (double)sum_ns / 1e6, (double)costs_ns[i] / 1e6);
    CHECK(sum_ns < control.bound_ns / 2);
    end();
  }
}

int main(void) {
  RUN(long_work_is_bounded);
  RUN(long_first_launches_are_bounded);
  RUN(a_long_kernel_is_not_taken_for_stuck);
  RUN(many_streams_are_bounded);
  RUN(the_bound_holds_beside_a_capture);
  RUN(streams_of_many_threads_are_bounded_together);
  RUN(streams_of_one_thread_are_bounded_together);
  RUN(completed_work_does_not_fill_the_bound);
  RUN(a_pool_does_not_fill_the_bound);
  return 0;
}
