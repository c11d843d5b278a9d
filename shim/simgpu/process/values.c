/*
 * values.c - see values.h. The last writes are kept in a ring, and the newest one decides about a byte; what is older
 * than the last kernel, or no longer in the ring, has no meaning. Before the first such kernel everything has one.
 */
#include "simgpu/process/values.h"
#include "base/prim.h"
#include "simgpu/process/notice.h"
#include <pthread.h>
#include <string.h>

#define WRITES 4096

struct write {
  uint64_t begin, end;
  uint64_t kernels; /* how many had run before it */
  bool has_meaning;
};

bool sim_values_watched;

static struct write writes[WRITES];
static uint64_t write_count;
static uint64_t kernel_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void sim_values_watch(void) {
  sim_notify_of_zeros_only();
  VG_STORE_RELAXED(&sim_values_watched, true);
}

void sim_values_kernel(void) {
  if (VG_LOAD_RELAXED(&sim_values_watched)) __atomic_fetch_add(&kernel_count, 1, __ATOMIC_RELAXED);
}

/* Under the lock. From the newest write backwards, each takes its part from one end of what is not decided yet; one
 * that leaves parts on both sides has not written all of it. */
static bool have_meaning(uint64_t begin, uint64_t end) {
  uint64_t kernels = VG_LOAD_RELAXED(&kernel_count);
  for (uint64_t i = 0; i < WRITES && i < write_count && kernels != 0; i++) {
    const struct write *write = &writes[(write_count - 1 - i) % WRITES];
    if (write->kernels != kernels) return false;
    if (write->end <= begin || write->begin >= end) continue;
    if (!write->has_meaning || (write->begin > begin && write->end < end)) return false;
    if (write->begin <= begin)
      begin = write->end;
    else
      end = write->begin;
    if (begin >= end) return true;
  }
  return kernels == 0;
}

static void keep(uint64_t to, uint64_t bytes, bool has_meaning) {
  writes[write_count++ % WRITES] = (struct write){to, to + bytes, VG_LOAD_RELAXED(&kernel_count), has_meaning};
}

void sim_values_write(uint64_t to, uint64_t bytes) {
  if (!VG_LOAD_RELAXED(&sim_values_watched)) return;
  pthread_mutex_lock(&lock);
  keep(to, bytes, true);
  pthread_mutex_unlock(&lock);
}

void sim_values_copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (!VG_LOAD_RELAXED(&sim_values_watched)) return;
  pthread_mutex_lock(&lock);
  keep(to, bytes, have_meaning(from, from + bytes));
  pthread_mutex_unlock(&lock);
}

void sim_values_read(void *to, uint64_t from, uint64_t bytes) {
  if (!VG_LOAD_RELAXED(&sim_values_watched)) return;
  pthread_mutex_lock(&lock);
  bool is_lost = !have_meaning(from, from + bytes);
  pthread_mutex_unlock(&lock);
  if (!is_lost) return;
  sim_notify_of_zeros();
  if (bytes <= SIM_VALUES_READ_BYTES) memset(to, 0, bytes);
}
