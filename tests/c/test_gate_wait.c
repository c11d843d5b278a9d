/*
 * test_gate_wait.c - work behind a wait of its stream is outstanding and does not run: what is reported of it, that no
 * drain, lease or bound waits for it, and that it is seen when it runs.
 */
#include "fake_pages.h"

/* Streams of the program: handles 1 and 2 are the driver's names for default streams. */
#define WAIT_NS (60 * VG_NS_PER_MS)

static void call_that_waits(CUstream stream, uint64_t wait_ns) {
  vg_gate_wait_before(stream, false);
  fake_launch(stream, wait_ns); /* takes as long, and is no launch */
  vg_gate_wait_behind(stream, false);
}

static void learn_cost(CUstream stream) {
  for (int i = 0; i < 20; i++) {
    launch_into(stream, &functions[0], LAUNCH_NS);
    synchronize(stream);
  }
}

static void serve(uint64_t length_ns) {
  uint64_t end_ns = vg_prim_now_ns() + length_ns, now_ns;
  while ((now_ns = vg_prim_now_ns()) < end_ns) {
    uint64_t due_ns = vg_gate_service(now_ns);
    vg_prim_sleep_until_ns(due_ns < now_ns + VG_NS_PER_MS ? due_ns : now_ns + VG_NS_PER_MS);
  }
}

static uint64_t busy_ns(void) {
  uint64_t since_ns = VG_LOAD(&report()->busy_since_ns);
  return VG_LOAD(&report()->busy_ns) + (since_ns ? vg_prim_now_ns() - since_ns : 0);
}

/* Executable graphs with one kernel each that is known, and something that waits. */
static char graphs[16];

static void make_graphs(CUstream stream) {
  learn_cost(stream);
  struct vg_graph_kernel kernel = {.function = &functions[0], .threads = 1024};
  struct vg_graph_content content = {.kernels = &kernel, .kernel_count = 1};
  for (int i = 0; i < 16; i++) vg_gate_graph_waits((CUgraphExec)&graphs[i], &content);
}

static void launch_graph(int number, uint64_t elapsed_ns) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(3 + number), false, &graphs[number], 0);
  fake_launch(fake_stream(3 + number), elapsed_ns);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

static void forget_graphs(void) {
  for (int i = 0; i < 16; i++) vg_gate_graph_gone((CUgraphExec)&graphs[i]);
}

/* Each a kernel and then a wait, all of which end at once: the first kernels' times would count as one. */
static void graphs_that_wait_at_once_have_run_one_after_the_other(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  make_graphs(fake_stream(3));
  uint64_t before_ns = busy_ns();
  for (int i = 0; i < 8; i++) launch_graph(i, WAIT_NS);
  serve(2 * WAIT_NS);
  uint64_t ran_ns = busy_ns() - before_ns;
  printf("  eight kernels of %.2f ms, ran %.2f ms\n", (double)LAUNCH_NS / 1e6, (double)ran_ns / 1e6);
  CHECK(ran_ns > 6 * LAUNCH_NS && ran_ns < 10 * LAUNCH_NS);
  CHECK(!report()->outstanding);
  forget_graphs();
  end();
}

/* The first one waits for the second one, whose time would count for the first and not again when that runs. */
static void a_graph_that_waits_for_another_one_has_not_run_before_it(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  make_graphs(fake_stream(3));
  uint64_t before_ns = busy_ns();
  for (int i = 0; i < 10; i++) {
    launch_graph(0, 20 * LAUNCH_NS);
    launch_graph(1, 10 * LAUNCH_NS);
    serve(30 * LAUNCH_NS);
  }
  uint64_t ran_ns = busy_ns() - before_ns;
  printf("  twenty kernels of %.2f ms, ran %.2f ms\n", (double)LAUNCH_NS / 1e6, (double)ran_ns / 1e6);
  CHECK(ran_ns > 16 * LAUNCH_NS && ran_ns < 26 * LAUNCH_NS);
  forget_graphs();
  end();
}

/* Whatever becomes of the executable graph meanwhile: no drain and no lease waits for it. */
static void a_graph_whose_executable_is_gone_has_come_to_wait(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  make_graphs(fake_stream(3));
  launch_graph(0, WAIT_NS);
  forget_graphs();
  serve(WAIT_NS / 3);
  CHECK(!report()->outstanding);
  serve(WAIT_NS);
  end();
}

/* Graphs of another type are measured as ever, and what is not known of a graph that waits is counted as a whole. */
static void only_graphs_that_wait_and_are_known_have_a_limit(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  make_graphs(fake_stream(3));
  vg_gate_graph_gone((CUgraphExec)&graphs[0]);
  struct vg_graph_kernel unknown = {.function = &graphs, .threads = 1024};
  vg_gate_graph_waits((CUgraphExec)&graphs[1], &(struct vg_graph_content){.kernels = &unknown, .kernel_count = 1});
  for (int number = 0; number < 2; number++) {
    for (int i = 0; i < 20; i++) {
      launch_graph(number, LAUNCH_NS);
      synchronize(fake_stream(3 + number));
    }
    uint64_t before_ns = busy_ns();
    launch_graph(number, WAIT_NS);
    serve(2 * WAIT_NS);
    CHECK(busy_ns() - before_ns > WAIT_NS / 2);
  }
  forget_graphs();
  end();
}

/* The whole wait would be charged as device time. */
static void work_behind_a_wait_does_not_count_as_running(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  uint64_t before_ns = busy_ns(), done_ns = report()->done_ns;
  call_that_waits(fake_stream(3), WAIT_NS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  serve(WAIT_NS / 2);
  CHECK(!report()->outstanding);
  rang();
  serve(WAIT_NS);
  CHECK(!report()->outstanding && report()->done_ns > done_ns);
  uint64_t ran_ns = busy_ns() - before_ns;
  printf("  waited %.0f ms, ran %.2f ms\n", (double)WAIT_NS / 1e6, (double)ran_ns / 1e6);
  CHECK(ran_ns >= LAUNCH_NS / 2 && ran_ns < WAIT_NS / 4);
  end();
}

static void what_completes_before_the_helper_looks_is_reported(void) {
  begin(0);
  learn_cost(fake_stream(3));
  uint64_t before_ns = busy_ns(), done_ns = report()->done_ns;
  for (int i = 0; i < 20; i++) {
    call_that_waits(fake_stream(3), VG_NS_PER_MS);
    launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
    synchronize(fake_stream(3));
  }
  CHECK(report()->done_ns - done_ns > 15 * LAUNCH_NS && busy_ns() - before_ns > 15 * LAUNCH_NS);
  end();
}

/* Work of another stream runs, and ends, meanwhile. */
static void other_streams_run_meanwhile(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  learn_cost(fake_stream(4));
  call_that_waits(fake_stream(3), WAIT_NS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
  CHECK(report()->outstanding == 1);
  synchronize(fake_stream(4));
  CHECK(!report()->outstanding);
  end();
}

/* A thread launches into a stream that another one has made wait. */
static void *wait_in_stream_3(void *unused) {
  launch_into(fake_stream(4), &functions[1], LAUNCH_NS);
  call_that_waits(fake_stream(3), WAIT_NS);
  return unused;
}

static void another_thread_may_make_the_stream_wait(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* takes the short path from here on */
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, wait_in_stream_3, NULL) == 0);
  pthread_join(thread, NULL);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  serve(WAIT_NS / 3);
  CHECK(!report()->outstanding);
  end();
}

/* The legacy default stream waits for all others. */
static void the_legacy_stream_waits_too(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(0));
  call_that_waits(fake_stream(3), WAIT_NS);
  fake_launch(fake_stream(0), WAIT_NS);
  launch_into(fake_stream(0), &functions[0], LAUNCH_NS);
  serve(WAIT_NS / 3);
  CHECK(!report()->outstanding);
  end();
}

/* A blocking stream waits for what the legacy one waits for: a marker that it gets then shows nothing of the work
 * before, which would run for as long as the wait. */
static void a_marker_behind_a_wait_of_the_legacy_stream_is_none_of_work(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  fake_streams_block = true;
  learn_cost(fake_stream(3));
  uint64_t before_ns = busy_ns();
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* without a marker */
  call_that_waits(fake_stream(0), WAIT_NS);
  fake_launch(fake_stream(3), WAIT_NS); /* as it waits for the legacy one */
  call_that_waits(fake_stream(3), VG_NS_PER_MS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  serve(2 * WAIT_NS);
  uint64_t ran_ns = busy_ns() - before_ns;
  printf("  waited %.0f ms, ran %.2f ms\n", (double)WAIT_NS / 1e6, (double)ran_ns / 1e6);
  CHECK(ran_ns >= LAUNCH_NS && ran_ns < WAIT_NS / 4);
  fake_streams_block = false;
  end();
}

/* Destroyed with work pending, which is legal: its handle may not be used any more. */
static void a_destroyed_blocking_stream_is_left_alone(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  fake_streams_block = true;
  learn_cost(fake_stream(3));
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  vg_gate_stream_gone(fake_stream(3));
  fake_destroyed = fake_stream(3);
  call_that_waits(fake_stream(0), VG_NS_PER_MS);
  launch_into(fake_stream(0), &functions[0], LAUNCH_NS);
  fake_destroyed = NULL;
  fake_streams_block = false;
  end();
}

/* Nothing runs: the next slice need not wait. Then something does: it is seen behind the closed gate. */
static void a_drain_does_not_wait_for_what_waits(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(3), WAIT_NS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
  set_gate(VG_GATE_CLOSED);
  serve(WAIT_NS / 3);
  CHECK(report()->drained_word == control.gate && !report()->outstanding);
  fake_launch(fake_stream(3), 5 * LAUNCH_NS); /* so that its run is seen */
  uint64_t limit_ns = vg_prim_now_ns() + VG_NS_PER_S;
  while (report()->drained_word == control.gate && vg_prim_now_ns() < limit_ns) serve(VG_NS_PER_MS / 10);
  CHECK(report()->outstanding == 1 || report()->drained_word == control.gate);
  serve(WAIT_NS / 3);
  CHECK(report()->drained_word == control.gate && !report()->outstanding);
  end();
}

/* The program has waited for all that ran: what waits may begin to run at any moment. */
static void a_wait_beside_running_work_is_not_forgotten(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
  call_that_waits(fake_stream(3), 5 * VG_NS_PER_MS);
  launch_into(fake_stream(3), &functions[0], WAIT_NS);
  synchronize(fake_stream(4));
  CHECK(!report()->outstanding && device()->gate->waits);
  serve(WAIT_NS / 3);
  CHECK(report()->outstanding == 1);
  end();
}

static void a_wait_that_is_over_hides_no_work(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(4), 0);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  launch_into(fake_stream(4), &functions[0], WAIT_NS);
  synchronize(fake_stream(3));
  CHECK(report()->outstanding == 1);
  serve(WAIT_NS / 3);
  CHECK(report()->outstanding == 1);
  end();
}

/* Of a kernel that was launched before the wait, by a stream that is ordered with this one, no marker shows the end. */
static void long_work_before_a_wait_still_runs(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(0));
  launch_into(fake_stream(0), &functions[0], WAIT_NS);
  call_that_waits(fake_stream(5), 0);
  launch_into(fake_stream(0), &functions[0], LAUNCH_NS);
  serve(4 * VG_NS_PER_MS);
  CHECK(report()->outstanding == 1);
  end();
}

/* The helper would record an event in it. */
static void a_destroyed_stream_is_left_alone(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(3), WAIT_NS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
  vg_gate_stream_gone(fake_stream(4));
  fake_destroyed = fake_stream(4);
  serve(WAIT_NS / 2); /* what it had is over by the time that it takes */
  CHECK(!report()->outstanding);
  fake_destroyed = NULL;
  end();
}

/* Behind a wait the stream's queue grows with the time that it lasts, and another stream launches as if it were empty.
 */
static void waits_hold_up_no_other_stream(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  VG_STORE(&control.bound_ns, 2 * VG_NS_PER_MS);
  learn_cost(fake_stream(3));
  learn_cost(fake_stream(4));
  call_that_waits(fake_stream(3), 4 * WAIT_NS);
  uint64_t begin_ns = vg_prim_now_ns();
  for (int i = 0; i < 20; i++) launch_into(fake_stream(3), &functions[0], LAUNCH_NS);
  serve(10 * VG_NS_PER_MS);
  uint64_t other_ns = vg_prim_now_ns();
  for (int i = 0; i < 20; i++) {
    launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
    synchronize(fake_stream(4));
  }
  uint64_t end_ns = vg_prim_now_ns();
  printf("  20 behind the wait %.1f ms, 20 beside it %.1f ms\n", (double)(other_ns - begin_ns) / 1e6 - 10,
         (double)(end_ns - other_ns) / 1e6);
  CHECK(other_ns - begin_ns < 4 * WAIT_NS && end_ns - other_ns < 3 * WAIT_NS);
  end();
}

/* No thread looks before all is over, and by its cost as known it takes a third of the time, as what is behind the
 * last marker does. */
static void how_long_it_ran_behind_a_wait_is_measured(void) {
  enum { ROUNDS = 3, LAUNCHES = 26 }; /* with two markers */
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(3), VG_NS_PER_MS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* from here on the time of events is known */
  serve(5 * VG_NS_PER_MS);
  uint64_t before_ns = busy_ns();
  for (int i = 0; i < ROUNDS; i++) {
    call_that_waits(fake_stream(3), 5 * VG_NS_PER_MS);
    for (int j = 0; j < LAUNCHES; j++) launch_into(fake_stream(3), &functions[0], 3 * LAUNCH_NS);
    sleep_ns(30 * VG_NS_PER_MS);
    serve(2 * VG_NS_PER_MS);
  }
  CHECK(serve_until_idle()); /* on a busy host it takes longer until that is seen */
  uint64_t ran_ns = busy_ns() - before_ns, most_ns = 3 * ROUNDS * LAUNCHES * LAUNCH_NS;
  printf("  ran %.1f ms, reported %.1f ms\n", (double)most_ns / 1e6, (double)ran_ns / 1e6);
  CHECK(ran_ns > most_ns / 5 * 4 && ran_ns < most_ns / 2 * 3);
  end();
}

/* ---- launches that the driver holds up for longer than a drain waits for them ---- */

static bool held_up, go_on;

static void *launch_slowly(void *unused) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(3), false, &functions[0], 1024);
  VG_STORE(&held_up, true);
  while (!VG_LOAD(&go_on)) sleep_ns(VG_NS_PER_MS / 10);
  fake_launch(fake_stream(3), LAUNCH_NS);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
  return unused;
}

static pthread_t begin_slow_launch(void) {
  pthread_t thread;
  held_up = go_on = false;
  CHECK(pthread_create(&thread, NULL, launch_slowly, NULL) == 0);
  while (!VG_LOAD(&held_up)) sleep_ns(VG_NS_PER_MS / 10);
  return thread;
}

/* Without that, the launch would count as running until the gate opens. */
static void a_launch_behind_its_drain_is_drained_again(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  pthread_t thread = begin_slow_launch();
  set_gate(VG_GATE_CLOSED);
  serve(20 * VG_NS_PER_MS);
  CHECK(report()->drained_word == control.gate && !report()->outstanding);
  VG_STORE(&go_on, true);
  pthread_join(thread, NULL);
  CHECK(report()->outstanding == 1);
  serve(20 * VG_NS_PER_MS);
  CHECK(report()->drained_word == control.gate && !report()->outstanding);
  end();
}

/* The drain is over before the launch is counted: that its stream waits must not be forgotten. */
static void a_drain_forgets_no_wait_of_a_launch_under_way(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  call_that_waits(fake_stream(3), WAIT_NS);
  pthread_t thread = begin_slow_launch();
  set_gate(VG_GATE_CLOSED);
  serve(20 * VG_NS_PER_MS);
  CHECK(report()->drained_word == control.gate);
  VG_STORE(&go_on, true);
  pthread_join(thread, NULL);
  serve(10 * VG_NS_PER_MS);
  CHECK(!report()->outstanding && device()->gate->waits);
  end();
}

#define HELD_UP_NS (30 * VG_NS_PER_MS)

/* As long as the sleep took: on a busy host that is far longer than was asked for. */
static void launch_held_up(void) {
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, fake_stream(3), false, &functions[0], 1024);
  uint64_t begin_ns = vg_prim_now_ns();
  sleep_ns(HELD_UP_NS);
  fake_run_delay_ns += vg_prim_now_ns() - begin_ns;
  fake_launch(fake_stream(3), LAUNCH_NS);
  vg_gate_leave(&ticket, CUDA_SUCCESS);
}

/* How long it counts as running that 21 launches are made, of which the first one is held up. */
static uint64_t run_held_up(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(3), VG_NS_PER_MS);
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* from here on the time of events is known */
  serve(5 * VG_NS_PER_MS);
  launch_held_up(); /* once, so that the thread knows its run delay */
  CHECK(serve_until_idle());
  uint64_t before_ns = busy_ns();
  launch_held_up();
  for (int i = 0; i < 20; i++) launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* with a marker */
  CHECK(serve_until_idle());
  uint64_t ran_ns = busy_ns() - before_ns; /* huge where what had counted was taken back */
  printf("  ran %.1f ms\n", (double)ran_ns / 1e6);
  end();
  return ran_ns;
}

/* Its thread has no processor, and the device is idle. On a busy host it may really have none elsewhere, which counts.
 */
static void time_in_which_a_launch_is_held_up_does_not_run(void) {
  uint64_t ran_ns = run_held_up();
  for (int i = 0; i < 3 && ran_ns >= 21 * LAUNCH_NS + HELD_UP_NS / 2; i++) ran_ns = run_held_up();
  CHECK(ran_ns < 21 * LAUNCH_NS + HELD_UP_NS / 2);
}

/* The first launch of its function: else it is said to take as long. */
static void a_timing_in_which_the_thread_is_held_up_is_not_believed(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  launch_held_up();
  sleep_ns(2 * LAUNCH_NS);
  serve(10 * VG_NS_PER_MS);
  printf("  took %.1f ms\n", (double)report()->done_ns / 1e6);
  CHECK(!report()->outstanding && report()->done_ns < HELD_UP_NS / 2);
  end();
}

/* CUDA_LAUNCH_BLOCKING: the launch returns when its kernel has run. */
static void a_launch_that_blocks_is_timed(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  for (int i = 0; i < 8; i++) {
    struct vg_ticket ticket;
    vg_gate_enter(&ticket, fake_stream(3), false, &functions[i % 2], 1024);
    fake_launch(fake_stream(3), 5 * VG_NS_PER_MS);
    sleep_ns(5 * VG_NS_PER_MS);
    vg_gate_leave(&ticket, CUDA_SUCCESS);
    serve(VG_NS_PER_MS);
  }
  printf("  40.0 ms, done %.1f ms\n", (double)report()->done_ns / 1e6);
  CHECK(report()->done_ns > 30 * VG_NS_PER_MS);
  end();
}

static void *launch_twice(void *unused) {
  learn_cost(fake_stream(3));
  launch_into(fake_stream(3), &functions[0], LAUNCH_NS); /* has no marker */
  return launch_slowly(unused);
}

/* Beside a stream that waits, no event behind the whole context shows that the first launch is over. */
static void what_is_behind_no_marker_ends_while_the_next_launch_is_held_up(void) {
  begin(VG_WATCH_USAGE | VG_WATCH_EDGES);
  learn_cost(fake_stream(3));
  call_that_waits(fake_stream(4), WAIT_NS);
  launch_into(fake_stream(4), &functions[0], LAUNCH_NS);
  pthread_t thread;
  held_up = go_on = false;
  CHECK(pthread_create(&thread, NULL, launch_twice, NULL) == 0);
  while (!VG_LOAD(&held_up)) sleep_ns(VG_NS_PER_MS / 10);
  CHECK(report()->outstanding == 1);
  serve(WAIT_NS / 3);
  CHECK(!report()->outstanding);
  VG_STORE(&go_on, true);
  pthread_join(thread, NULL);
  end();
}

int main(void) {
  RUN(work_behind_a_wait_does_not_count_as_running);
  RUN(what_completes_before_the_helper_looks_is_reported);
  RUN(graphs_that_wait_at_once_have_run_one_after_the_other);
  RUN(a_graph_that_waits_for_another_one_has_not_run_before_it);
  RUN(a_graph_whose_executable_is_gone_has_come_to_wait);
  RUN(only_graphs_that_wait_and_are_known_have_a_limit);
  RUN(other_streams_run_meanwhile);
  RUN(another_thread_may_make_the_stream_wait);
  RUN(the_legacy_stream_waits_too);
  RUN(a_marker_behind_a_wait_of_the_legacy_stream_is_none_of_work);
  RUN(a_destroyed_blocking_stream_is_left_alone);
  RUN(a_drain_does_not_wait_for_what_waits);
  RUN(a_wait_beside_running_work_is_not_forgotten);
  RUN(a_wait_that_is_over_hides_no_work);
  RUN(long_work_before_a_wait_still_runs);
  RUN(a_destroyed_stream_is_left_alone);
  RUN(waits_hold_up_no_other_stream);
  RUN(how_long_it_ran_behind_a_wait_is_measured);
  RUN(a_launch_behind_its_drain_is_drained_again);
  RUN(a_drain_forgets_no_wait_of_a_launch_under_way);
  RUN(what_is_behind_no_marker_ends_while_the_next_launch_is_held_up);
  RUN(time_in_which_a_launch_is_held_up_does_not_run);
  RUN(a_timing_in_which_the_thread_is_held_up_is_not_believed);
  RUN(a_launch_that_blocks_is_timed);
  return 0;
}
