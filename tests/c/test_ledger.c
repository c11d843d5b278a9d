/*
 * test_ledger.c - the memory ledger of a process against a real arbiter: threads that reserve and release, exactly the
 * limit can be had, credit moves between two slices, and no byte is lost on the way.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "arbiter/arbiter.h"
#include "base/prim.h"
#include "check.h"
#include "ledger/credit.h"

#define THREADS 3
#define GRANULE_BYTES (2ull << 20)
#define LIMIT_BYTES (512ull << 20)
#define ROUNDS 120

struct pages {
  struct vg_control_header header;
  struct vg_control_device control;
  struct vg_report_device report;
};

struct vg_session vg_session;
static struct pages pages[2];
static uint32_t stop_serving;

/* The two devices of the session stand for two processes, in slices of their own, on one device. */
static struct vg_arbiter *begin(uint64_t min_bytes, uint64_t total_bytes) {
  struct vg_arbiter_params params = {.quantum_ns = 5 * VG_NS_PER_MS,
                                     .quantum_min_ns = VG_NS_PER_MS,
                                     .bound_ns = 2 * VG_NS_PER_MS,
                                     .open_bound_ns = 20 * VG_NS_PER_MS,
                                     .overrun_ns = 2 * VG_NS_PER_MS,
                                     .guarantee_depth_ns = 50 * VG_NS_PER_MS,
                                     .cap_depth_ns = 15 * VG_NS_PER_MS,
                                     .heartbeat_ns = 20 * VG_NS_PER_MS,
                                     .memory_total_bytes = total_bytes};
  struct vg_arbiter *arbiter = vg_arbiter_new(&params);
  CHECK(arbiter && vg_arbiter_start(arbiter) == 0);
  memset(pages, 0, sizeof pages);
  memset(&vg_session, 0, sizeof vg_session);
  stop_serving = 0;
  vg_session.attached = true;
  vg_session.device_count = 2;
  for (uint64_t i = 0; i < 2; i++) {
    struct vg_slice_params slice = {
        .min_milli = 500, .max_milli = 1000, .mem_min_bytes = min_bytes, .mem_max_bytes = LIMIT_BYTES};
    CHECK(vg_arbiter_slice_set(arbiter, 1 + i, &slice) == 0);
    struct vg_device *device = &vg_session.devices[i];
    device->doorbell_fd = vg_prim_eventfd();
    device->resolved.granule_bytes = GRANULE_BYTES;
    device->resolved.mem_max_bytes = LIMIT_BYTES;
    CHECK(vg_arbiter_process_add(arbiter, 1 + i, 1 + i, &pages[i].header, &pages[i].control, &pages[i].report,
                                 device->doorbell_fd, 0) == 0);
    CHECK(vg_memory_attach(device) == 0);
    vg_memory_rebind(device, &pages[i].control, &pages[i].report);
  }
  return arbiter;
}

static void end(struct vg_arbiter *arbiter) {
  vg_arbiter_free(arbiter);
  for (int i = 0; i < 2; i++) {
    vg_prim_close(vg_session.devices[i].doorbell_fd);
    free(vg_session.devices[i].memory);
  }
}

/* Both processes' helper threads: pressure is answered although no thread allocates. */
static void *serving(void *unused) {
  (void)unused;
  while (!VG_LOAD(&stop_serving)) {
    vg_memory_service(vg_prim_now_ns());
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  }
  return NULL;
}

static void exactly_the_limit(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  uint64_t taken_bytes = 0;
  while (vg_memory_reserve(device, GRANULE_BYTES) == 0) taken_bytes += GRANULE_BYTES;
  CHECK(taken_bytes == LIMIT_BYTES);
  CHECK(vg_memory_reserve(device, 1) == -ENOMEM);
  vg_memory_release(device, GRANULE_BYTES);
  CHECK(vg_memory_reserve(device, GRANULE_BYTES) == 0);
  CHECK(VG_LOAD(&pages[0].report.used_bytes) == LIMIT_BYTES);
  CHECK(VG_LOAD(&pages[0].report.denied) >= 2);
  vg_memory_release(device, LIMIT_BYTES);
  CHECK(vg_memory_reserve(device, LIMIT_BYTES) == 0); /* in one piece, too */
  end(arbiter);
}

static void sizes_that_wrap_are_refused(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  CHECK(vg_memory_reserve(device, GRANULE_BYTES) == 0);
  CHECK(vg_memory_reserve(device, UINT64_MAX) == -ENOMEM);
  CHECK(vg_memory_reserve(device, UINT64_MAX - GRANULE_BYTES + 1) == -ENOMEM);
  CHECK(VG_LOAD(&pages[0].report.used_bytes) == GRANULE_BYTES);
  end(arbiter);
}

static void *asking_for_all(void *device) {
  while (!VG_LOAD(&stop_serving)) CHECK(vg_memory_reserve(device, UINT64_MAX - LIMIT_BYTES + 1) == -ENOMEM);
  return NULL;
}

/* Bytes set aside for the asking thread are available to no other, however many they are. */
static void nor_is_anybody_let_in_beside_them(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  pthread_t thread;
  CHECK(vg_memory_reserve(device, LIMIT_BYTES) == 0);
  CHECK(pthread_create(&thread, NULL, asking_for_all, device) == 0);
  for (int i = 0; i < 100 * ROUNDS; i++) CHECK(vg_memory_reserve(device, GRANULE_BYTES) == -ENOMEM);
  VG_STORE(&stop_serving, 1);
  pthread_join(thread, NULL);
  CHECK(VG_LOAD(&pages[0].report.used_bytes) == LIMIT_BYTES);
  end(arbiter);
}

static void the_minimum_is_there_beside_a_borrower(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES / 2, LIMIT_BYTES);
  struct vg_device *greedy = &vg_session.devices[0], *modest = &vg_session.devices[1];
  pthread_t helper;
  CHECK(pthread_create(&helper, NULL, serving, NULL) == 0);
  while (vg_memory_reserve(greedy, GRANULE_BYTES) == 0) {
  }
  CHECK(VG_LOAD(&pages[0].report.used_bytes) == LIMIT_BYTES / 2);
  CHECK(vg_memory_reserve(modest, LIMIT_BYTES / 2) == 0);
  CHECK(vg_memory_reserve(modest, GRANULE_BYTES) == -ENOMEM);
  VG_STORE(&stop_serving, 1);
  pthread_join(helper, NULL);
  end(arbiter);
}

static uint64_t free_bytes(struct vg_device *device) {
  uint64_t free_bytes, total_bytes;
  vg_memory_info(device, &free_bytes, &total_bytes);
  return free_bytes;
}

static void *one_chunk_often(void *device) {
  for (int i = 0; i < 100 * ROUNDS; i++) {
    CHECK(vg_memory_reserve(device, GRANULE_BYTES) == 0);
    vg_memory_release(device, GRANULE_BYTES);
  }
  return NULL;
}

static uint64_t used_bytes(void) {
  return VG_LOAD(&pages[0].report.used_bytes);
}

static uint64_t really_used_bytes; /* while no thread runs; the page says more as long as something is in stock */

static bool is_stocked(void) {
  return used_bytes() != really_used_bytes;
}

/* Lets threads meet at the ledger until one of them has kept something. */
static void fill_stocks(struct vg_device *device) {
  for (int i = 0; i < 1000 && !is_stocked(); i++) {
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, one_chunk_often, device) == 0);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
  }
  CHECK(is_stocked());
}

static void what_threads_keep_is_free_memory(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  fill_stocks(device);
  CHECK(free_bytes(device) == LIMIT_BYTES); /* to the process itself, at once */
  CHECK(!is_stocked());                     /* and to others from then on */
  fill_stocks(device);
  CHECK(vg_memory_reserve(device, LIMIT_BYTES) == 0); /* an allocation gets all of it */
  CHECK(VG_LOAD(&pages[0].report.used_bytes) == LIMIT_BYTES);
  CHECK(vg_memory_reserve(device, 1) == -ENOMEM);
  end(arbiter);
}

/* The arbiter asks only processes with unused credit for it. */
static void what_threads_keep_can_be_asked_back(void) {
  struct vg_arbiter *arbiter = begin(0, LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0], *other = &vg_session.devices[1];
  uint64_t held_bytes = LIMIT_BYTES / 2;
  CHECK(vg_memory_reserve(device, held_bytes) == 0);
  really_used_bytes = held_bytes;
  fill_stocks(device);
  really_used_bytes = 0;
  uint64_t unused_bytes =
      VG_LOAD(&pages[0].control.granted_bytes) - VG_LOAD(&pages[0].report.returned_bytes) - used_bytes();
  CHECK(vg_memory_reserve(device, unused_bytes) == 0);
  held_bytes += unused_bytes;
  CHECK(used_bytes() == held_bytes); /* nothing is in stock */
  pthread_t helper;
  CHECK(pthread_create(&helper, NULL, serving, NULL) == 0);
  CHECK(vg_memory_reserve(other, LIMIT_BYTES - held_bytes) == 0);
  VG_STORE(&stop_serving, 1);
  pthread_join(helper, NULL);
  end(arbiter);
}

static void the_helper_takes_it_in(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  fill_stocks(device);
  uint64_t now_ns = vg_prim_now_ns(), due_ns = vg_memory_service(now_ns);
  CHECK(due_ns > now_ns && due_ns <= now_ns + 50 * VG_NS_PER_MS);
  CHECK(vg_memory_service(due_ns - 1) == due_ns && is_stocked());
  CHECK(vg_memory_service(due_ns) == UINT64_MAX && !is_stocked());
  fill_stocks(device);
  VG_STORE(&pages[0].control.memory_pressure, 1); /* another process waits for it */
  CHECK(vg_memory_service(due_ns) == UINT64_MAX && !is_stocked());
  end(arbiter);
}

static void what_threads_keep_is_no_part_of_the_peak(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES, 2 * LIMIT_BYTES);
  struct vg_device *device = &vg_session.devices[0];
  uint64_t more_bytes = (THREADS + 1) * GRANULE_BYTES; /* than the threads ever use together */
  fill_stocks(device);
  CHECK(VG_LOAD(&pages[0].report.peak_bytes) < more_bytes);
  CHECK(vg_memory_reserve(device, more_bytes) == 0);
  CHECK(VG_LOAD(&pages[0].report.peak_bytes) == more_bytes);
  end(arbiter);
}

struct churn {
  struct vg_device *device;
  uint64_t seed;
  uint64_t held_bytes;
  uint64_t refused;
};

static void *churning(void *argument) {
  struct churn *churn = argument;
  struct check_random random = {churn->seed};
  for (int i = 0; i < ROUNDS; i++) {
    uint64_t bytes = GRANULE_BYTES * (1 + check_below(&random, 40));
    if (check_below(&random, 2) && churn->held_bytes >= bytes) {
      vg_memory_release(churn->device, bytes);
      churn->held_bytes -= bytes;
    } else if (vg_memory_reserve(churn->device, bytes) == 0) {
      churn->held_bytes += bytes;
    } else if (churn->held_bytes) {
      churn->refused++;
      vg_memory_release(churn->device, churn->held_bytes);
      churn->held_bytes = 0;
    }
  }
  return NULL;
}

static void no_byte_is_lost_between_threads(void) {
  struct vg_arbiter *arbiter = begin(LIMIT_BYTES / 4, LIMIT_BYTES);
  struct churn churns[2 * THREADS];
  pthread_t threads[2 * THREADS], helper;
  CHECK(pthread_create(&helper, NULL, serving, NULL) == 0);
  for (int i = 0; i < 2 * THREADS; i++) {
    churns[i] = (struct churn){.device = &vg_session.devices[i % 2], .seed = 31 + (uint64_t)i};
    CHECK(pthread_create(&threads[i], NULL, churning, &churns[i]) == 0);
  }
  uint64_t held_bytes[2] = {0, 0};
  for (int i = 0; i < 2 * THREADS; i++) {
    pthread_join(threads[i], NULL);
    held_bytes[i % 2] += churns[i].held_bytes;
  }
  VG_STORE(&stop_serving, 1);
  pthread_join(helper, NULL);
  for (int i = 0; i < 2; i++) {
    free_bytes(&vg_session.devices[i]); /* what is in stock is free from here on */
    CHECK(VG_LOAD(&pages[i].report.used_bytes) == held_bytes[i]);
    CHECK(VG_LOAD(&pages[i].control.granted_bytes) - VG_LOAD(&pages[i].report.returned_bytes) >= held_bytes[i]);
    CHECK(held_bytes[i] <= LIMIT_BYTES);
  }
  CHECK(held_bytes[0] + held_bytes[1] <= LIMIT_BYTES);
  end(arbiter);
}

int main(void) {
  RUN(exactly_the_limit);
  RUN(sizes_that_wrap_are_refused);
  RUN(nor_is_anybody_let_in_beside_them);
  RUN(the_minimum_is_there_beside_a_borrower);
  RUN(what_threads_keep_is_free_memory);
  RUN(what_threads_keep_can_be_asked_back);
  RUN(what_threads_keep_is_no_part_of_the_peak);
  RUN(the_helper_takes_it_in);
  RUN(no_byte_is_lost_between_threads);
  return 0;
}
