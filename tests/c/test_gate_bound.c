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

/* More than the books can hold, as of a program that makes a stream for each request. */
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

/* The most that 300 kernels of this length queue while a capture is open, which lasts as long as the program wants. */
static uint64_t most_queued_beside_a_capture(void (*launch_one)(uint64_t), uint64_t kernel_ns) {
  fake_capture_begin(fake_stream(7));
  uint64_t most_ns = 0;
  for (int i = 0; i < 300; i++) {
    launch_one(kernel_ns);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.1f ms\n", (double)most_ns / 1e6);
  fake_capture_end(fake_stream(7));
  synchronize(fake_stream(1));
  return most_ns;
}

static void the_bound_holds_beside_a_capture(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  CHECK(most_queued_beside_a_capture(launch, LAUNCH_NS) <= 6 * VG_NS_PER_MS);
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

/* Each stream has a fraction of the device, so it progresses slowly: its work is outstanding all the same. */
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

static uint64_t queries;

static CUresult counted_query(CUevent event) {
  __atomic_add_fetch(&queries, 1, __ATOMIC_RELAXED);
  return fake_event_query(event);
}

/* Of the piece before the oldest marker the device has run a part. That much fits again, and launches of it do not
 * each look again. */
static void what_has_run_makes_room(void) {
  begin(0);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  uint64_t cost_ns = 5 * VG_NS_PER_US;
  launch(cost_ns);
  synchronize(fake_stream(1));
  struct vg_work *work = device()->gate->works;
  struct vg_estimate *estimate = vg_work_find_estimate(work, &functions[0], 1024);
  for (int i = 0; i < VG_ESTIMATE_SAMPLES; i++) vg_estimate_sample(estimate, cost_ns, false);
  estimate->countdown = 4000;
  fake_busy_until_ns[1] = FAKE_NEVER;
  while (vg_work_outstanding(work) < control.bound_ns) launch(cost_ns);
  sleep_ns(VG_NS_PER_MS);
  vg_real_slots[VG_ENTRY_cuEventQuery] = (void *)counted_query;
  queries = 0;
  for (int i = 0; i < 20; i++) launch(cost_ns);
  printf("  %llu queries by 20 launches\n", (unsigned long long)queries);
  CHECK(queries <= 5);
  fake_busy_until_ns[1] = 0;
  end();
}

/* ---- a slice that is alone ---- */

static void launch_alone(uint64_t cost_ns) {
  if (vg_gate_solo_launch())
    fake_launch(fake_stream(1), cost_ns);
  else
    launch(cost_ns);
}

/* Launches count no longer once the device has kept up with them for a while. This thread leaves the device idle
 * between them, which has the process measure and count for ever; beside a capture it does not begin to. */
static void keep_up(void) {
  uint64_t limit_ns = vg_prim_now_ns() + 5 * VG_NS_PER_S;
  vg_gate_capture_begin();
  while (!vg_gate_solo() && vg_prim_now_ns() < limit_ns) {
    launch_alone(VG_NS_PER_US);
    vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
    vg_gate_service(vg_prim_now_ns());
  }
  vg_gate_capture_end();
  CHECK(vg_gate_solo());
}

static void begin_alone(void) {
  begin(0);
  set_gate(VG_GATE_SOLO);
}

/* The most that was queued at a time. */
static uint64_t queue_alone(int launches, uint64_t cost_ns) {
  uint64_t most_ns = 0;
  for (int i = 0; i < launches; i++) {
    launch_alone(cost_ns);
    if (queued_ns(fake_stream(1)) > most_ns) most_ns = queued_ns(fake_stream(1));
  }
  printf("  queued %.0f ms\n", (double)most_ns / 1e6);
  return most_ns;
}

/* Where this thread was kept off the processor, the first estimates are of another kernel's length: three tries. */
static bool stays_bounded(void) {
  for (int tries = 0; tries < 3; tries++) {
    if (queue_alone(300, VG_NS_PER_MS) <= 2 * VG_SOLO_BOUND_NS) return true;
    CHECK(serve_until_idle());
  }
  return false;
}

/* What is queued before another slice attaches cannot be taken back. */
static void a_slice_that_is_alone_is_bounded(void) {
  begin_alone();
  CHECK(stays_bounded());
  CHECK(!vg_gate_solo() && report()->outstanding);
  CHECK(serve_until_idle());
  keep_up();
  CHECK(device()->gate->solo_dirty);
  CHECK(serve_until_idle() && device()->gate->solo_dirty);
  end();
}

/* The same after launches that passed uncounted, which are ahead of all that is counted. */
static void a_queue_that_grows_deep_is_bounded(void) {
  begin_alone();
  for (int i = 0; i < 20; i++) launch_alone(VG_NS_PER_MS);
  synchronize(fake_stream(1));
  device()->gate->deep = false;
  vg_gate_set_open_word(device(), control.gate);
  CHECK(vg_gate_solo());
  CHECK(stays_bounded());
  CHECK(!vg_gate_solo());
  end();
}

/* Pieces longer than the bound: the next is queued before the one that runs has ended. */
static void long_kernels_of_a_slice_that_is_alone_are_bounded(void) {
  begin_alone();
  uint64_t cost_ns = 80 * VG_NS_PER_MS, empty_ns = 0;
  CHECK(queue_alone(3, cost_ns) <= 3 * cost_ns);
  for (int i = 0; i < 10; i++) {
    launch_alone(cost_ns);
    if (queued_ns(fake_stream(1)) <= cost_ns) empty_ns++;
  }
  CHECK(!empty_ns && queued_ns(fake_stream(1)) <= 3 * cost_ns);
  end();
}

/* A program decides how long a capture stays open. */
static void a_slice_that_is_alone_is_bounded_beside_a_capture(void) {
  begin_alone();
  fake_capture_begin(fake_stream(7));
  CHECK(stays_bounded());
  fake_capture_end(fake_stream(7));
  synchronize(fake_stream(1));
  end();
}

/* Work that waits for what the program does after its launches: they pass, whatever they take by the estimates. */
static void alone_no_launch_waits_for_the_program(void) {
  begin_alone();
  for (int i = 0; i < 20; i++) launch_alone(VG_NS_PER_MS);
  synchronize(fake_stream(1));
  fake_busy_until_ns[1] = FAKE_NEVER;
  uint64_t begun_ns = vg_prim_now_ns();
  for (int i = 0; i < 1000; i++) launch_alone(VG_NS_PER_MS);
  uint64_t waited_ns = vg_prim_now_ns() - begun_ns;
  printf("  %.1f ms for launches of 1 s\n", (double)waited_ns / 1e6);
  CHECK(waited_ns < 100 * VG_NS_PER_MS);
  fake_busy_until_ns[1] = 0;
  end();
}

/* Nor do launches behind a kernel that runs until the program ends it. */
static void alone_no_launch_waits_for_a_kernel_without_end(void) {
  begin_alone();
  launch_into(fake_stream(2), &functions[1], 3600 * VG_NS_PER_S);
  uint64_t begun_ns = vg_prim_now_ns();
  for (int i = 0; i < 300; i++) launch_alone(VG_NS_PER_MS);
  uint64_t took_ns = vg_prim_now_ns() - begun_ns;
  printf("  %.0f ms for launches of 300 ms\n", (double)took_ns / 1e6);
  CHECK(took_ns < 300 * VG_NS_PER_MS && queued_ns(fake_stream(1)) > 0);
  end();
}

/* Nor do they for as long as it ran the last time. */
static void alone_no_launch_waits_as_long_as_the_last_run(void) {
  begin_alone();
  launch_alone(VG_NS_PER_MS);
  synchronize(fake_stream(1));
  struct vg_estimate *estimate = vg_work_find_estimate(device()->gate->works, &functions[1], 1024);
  for (int i = 0; i < 8; i++) vg_estimate_sample(estimate, 6 * VG_NS_PER_S, false);
  launch_into(fake_stream(2), &functions[1], 3600 * VG_NS_PER_S);
  uint64_t begun_ns = vg_prim_now_ns();
  launch_alone(VG_NS_PER_MS);
  uint64_t took_ns = vg_prim_now_ns() - begun_ns;
  printf("  %.0f ms behind a run of 6 s\n", (double)took_ns / 1e6);
  CHECK(took_ns < 3 * VG_NS_PER_S);
  end();
}

static void *launch_once(void *stream) {
  launch_into(stream, &functions[1], VG_NS_PER_US);
  return NULL;
}

/* What one thread has queued holds up no other one. */
static void alone_a_thread_with_little_does_not_wait(void) {
  begin_alone();
  uint64_t cost_ns = 150 * VG_NS_PER_MS;
  launch_alone(cost_ns);
  synchronize(fake_stream(1));
  for (int i = 0; i < 2; i++) launch_alone(cost_ns);
  pthread_t thread;
  CHECK(!pthread_create(&thread, NULL, launch_once, fake_stream(2)));
  pthread_join(thread, NULL);
  CHECK(queued_ns(fake_stream(1)) > 2 * VG_SOLO_BOUND_NS);
  end();
}

static void *launch_for_a_while(void *stream) {
  uint64_t end_ns = vg_prim_now_ns() + 300 * VG_NS_PER_MS;
  while (vg_prim_now_ns() < end_ns) launch_into(stream, &functions[0], 5 * VG_NS_PER_MS);
  return NULL;
}

#define CROWD 64

/* Looks at events by so many threads that the bound holds back, per thread. */
static uint64_t queries_of_each_of(uintptr_t count) {
  begin_alone();
  launch_alone(5 * VG_NS_PER_MS);
  synchronize(fake_stream(1));
  vg_real_slots[VG_ENTRY_cuEventQuery] = (void *)counted_query;
  queries = 0;
  pthread_t threads[CROWD];
  for (uintptr_t i = 0; i < count; i++) CHECK(!pthread_create(&threads[i], NULL, launch_for_a_while, fake_stream(i)));
  for (uintptr_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
  uint64_t each = queries / count;
  printf("  %llu queries by each of %llu\n", (unsigned long long)each, (unsigned long long)count);
  end();
  return each;
}

/* One look serves all: else each thread looks at the events of all, up to 16 times as many queries per thread. */
static void alone_waiting_threads_share_their_looks(void) {
  uint64_t few = queries_of_each_of(CROWD / 16);
  CHECK(queries_of_each_of(CROWD) < 2 * few);
}

static CUresult cannot_record(CUevent event, CUstream stream) {
  (void)event, (void)stream;
  return CUDA_ERROR_INVALID_HANDLE;
}

/* As in a stream of another context than the thread's: nothing would show that the work has ended. */
static void a_thread_that_cannot_look_does_not_wait(void) {
  begin_alone();
  uint64_t events = fake_events;
  vg_real_slots[VG_ENTRY_cuEventRecord] = (void *)cannot_record;
  CHECK(queue_alone(300, VG_NS_PER_MS) > 4 * VG_SOLO_BOUND_NS);
  device()->gate->deep = false;
  vg_gate_set_open_word(device(), control.gate);
  for (int i = 0; i < 3; i++) launch_alone(VG_NS_PER_MS);
  CHECK(vg_gate_solo() && fake_events == events);
  end();
}

/* Launches into a capture, and those that the driver refuses, leave the credit used up: it does not wrap around. */
static void launches_that_run_nothing_get_no_credit(void) {
  begin_alone();
  keep_up();
  while (vg_gate_solo_launch()) fake_launch(fake_stream(1), VG_NS_PER_US);
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(1), false, &functions[0], 1024);
  uint64_t events = fake_events;
  vg_gate_leave(&ticket, CUDA_ERROR_INVALID_VALUE);
  CHECK(vg_gate_credit == 0 && fake_events == events);
  fake_capture_begin(fake_stream(1));
  for (int i = 0; i < 10; i++) {
    CHECK(!vg_gate_solo_launch());
    vg_gate_enter(&ticket, fake_stream(1), false, &functions[0], 1024);
    vg_gate_leave(&ticket, CUDA_SUCCESS);
  }
  CHECK(vg_gate_credit == 0);
  fake_capture_end(fake_stream(1));
  end();
}

/* Launches that the device keeps up with pass uncounted; the longer it does, the less often the thread looks. */
static void a_shallow_queue_is_not_counted(void) {
  begin_alone();
  keep_up();
  CHECK(serve_until_idle());
  uint64_t before = report()->launches;
  for (int i = 0; i < 4096; i++) {
    launch_alone(VG_NS_PER_US);
    vg_prim_sleep_until_ns(fake_end_of(fake_stream(1)));
  }
  printf("  looked %llu times\n", (unsigned long long)(report()->launches - before));
  CHECK(vg_gate_solo() && !report()->outstanding);
  CHECK(report()->launches > before && report()->launches < before + 30);
  end();
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
  RUN(what_has_run_makes_room);
  RUN(a_slice_that_is_alone_is_bounded);
  RUN(a_queue_that_grows_deep_is_bounded);
  RUN(long_kernels_of_a_slice_that_is_alone_are_bounded);
  RUN(a_slice_that_is_alone_is_bounded_beside_a_capture);
  RUN(alone_no_launch_waits_for_the_program);
  RUN(alone_no_launch_waits_for_a_kernel_without_end);
  RUN(alone_no_launch_waits_as_long_as_the_last_run);
  RUN(alone_a_thread_with_little_does_not_wait);
  RUN(alone_waiting_threads_share_their_looks);
  RUN(a_thread_that_cannot_look_does_not_wait);
  RUN(launches_that_run_nothing_get_no_credit);
  RUN(a_shallow_queue_is_not_counted);
  RUN(completed_work_does_not_fill_the_bound);
  RUN(a_pool_does_not_fill_the_bound);
  return 0;
}
