/*
 * backing.c - see backing.h. The server grants host memory to processes in total and says no beyond its budget
 * (server/host_memory.c). What is backed already is the size of the arena's file, so it need not be counted here; what
 * has been or is being touched since it was last looked at is taken for new until that does not fit the grant. Only
 * then are file and range looked at: ranges that are there already cost nothing.
 */
#define _GNU_SOURCE
#include "simgpu/arena/backing.h"
#include "simgpu/arena/map.h"
#include "simgpu/process/process.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>

#define STEP_BYTES (16ull << 20) /* grants are asked for in steps */
#define PAGE_BYTES 4096ull
#define PAGES_A_LOOK (1ull << 14)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t granted_bytes, backed_bytes; /* written under the lock */
static uint64_t unmeasured_bytes;            /* claimed, and not known to be in backed_bytes */
static uint64_t pending_bytes;               /* of these: not touched yet, for all that is known */

static uint64_t file_bytes(void) {
  struct stat state;
  int fd = sim_arena_fd();
  return fd >= 0 && vg_prim_fstat(fd, &state) == 0 ? (uint64_t)state.st_blocks * 512 : 0;
}

/* Looks at the file; what was touched before is in it. Returns what is backed or may be soon. Under the lock. */
static uint64_t measure(void) {
  uint64_t unmeasured = __atomic_load_n(&unmeasured_bytes, __ATOMIC_ACQUIRE);
  uint64_t pending = __atomic_load_n(&pending_bytes, __ATOMIC_ACQUIRE);
  VG_STORE_RELAXED(&backed_bytes, file_bytes());
  if (unmeasured > pending) __atomic_sub_fetch(&unmeasured_bytes, unmeasured - pending, __ATOMIC_RELAXED);
  return backed_bytes + VG_LOAD_RELAXED(&unmeasured_bytes);
}

/* How much of the range has no page yet. */
static uint64_t missing_bytes(CUdeviceptr address, uint64_t bytes) {
  unsigned char there[PAGES_A_LOOK];
  uint64_t missing = 0, end = sim_round_up(address + bytes, PAGE_BYTES);
  for (uint64_t at = address / PAGE_BYTES * PAGE_BYTES; at < end;) {
    uint64_t pages = (end - at) / PAGE_BYTES;
    if (pages > PAGES_A_LOOK) pages = PAGES_A_LOOK;
    if (mincore((void *)at, pages * PAGE_BYTES, there) != 0) return missing + (end - at);
    for (uint64_t i = 0; i < pages; i++) missing += there[i] & 1 ? 0 : PAGE_BYTES;
    at += pages * PAGE_BYTES;
  }
  return missing;
}

static int grant(uint64_t bytes) {
  int rc = sim_link_request(SIM_REQUEST_HOST_MEMORY, 0, 0, bytes);
  if (rc == 0) VG_STORE_RELAXED(&granted_bytes, bytes);
  return rc;
}

static void tell(uint64_t bytes) {
  static bool told;
  if (!told)
    fprintf(stderr,
            "vgpu-sim: what this program touches of device memory would take %llu MiB of host memory, more than the "
            "simulator may use for all programs: it gets CUDA_ERROR_OUT_OF_MEMORY; use less, or start the "
            "simulator with a larger --host-memory\n",
            (unsigned long long)(bytes >> 20));
  told = true;
}

/* Under the lock. */
static CUresult reach(uint64_t bytes) {
  if (bytes <= granted_bytes) return CUDA_SUCCESS;
  int rc = grant(sim_round_up(bytes, STEP_BYTES));
  if (rc == -ENOMEM) rc = grant(bytes);
  if (rc == -ENOMEM) tell(bytes);
  return rc == 0 ? CUDA_SUCCESS : rc == -EPIPE ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
}

static void forget(uint64_t claimed) {
  __atomic_sub_fetch(&pending_bytes, claimed, __ATOMIC_RELEASE);
  __atomic_sub_fetch(&unmeasured_bytes, claimed, __ATOMIC_RELAXED);
}

/* Pages that a row of so many bytes can touch, in bytes. */
static uint64_t pages_of(uint64_t bytes) {
  return sim_round_up(bytes, PAGE_BYTES) + PAGE_BYTES;
}

CUresult sim_backing_begin_rows(CUdeviceptr address, uint64_t bytes, uint64_t rows, uint64_t row_bytes,
                                uint64_t *ret_claimed) {
  uint64_t most = pages_of(bytes), in_rows;
  if (!__builtin_mul_overflow(rows, pages_of(row_bytes), &in_rows) && in_rows < most) most = in_rows;
  uint64_t unmeasured = __atomic_add_fetch(&unmeasured_bytes, most, __ATOMIC_RELAXED);
  __atomic_add_fetch(&pending_bytes, most, __ATOMIC_RELAXED);
  *ret_claimed = most;
  if (VG_LIKELY(VG_LOAD_RELAXED(&backed_bytes) + unmeasured <= VG_LOAD_RELAXED(&granted_bytes))) return CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  CUresult result = CUDA_SUCCESS;
  if (measure() > granted_bytes) {
    *ret_claimed = missing_bytes(address, bytes);
    if (*ret_claimed > most) *ret_claimed = most;
    forget(most - *ret_claimed);
    result = reach(backed_bytes + VG_LOAD_RELAXED(&unmeasured_bytes));
  }
  pthread_mutex_unlock(&lock);
  if (result != CUDA_SUCCESS) {
    forget(*ret_claimed);
    *ret_claimed = 0;
  }
  return result;
}

CUresult sim_backing_begin(CUdeviceptr address, uint64_t bytes, uint64_t *ret_claimed) {
  return sim_backing_begin_rows(address, bytes, 1, bytes, ret_claimed);
}

void sim_backing_end(uint64_t claimed) {
  __atomic_sub_fetch(&pending_bytes, claimed, __ATOMIC_RELEASE);
}

/* The server may let other processes have what was given back. */
static void shrink_grant(void) {
  if (VG_LOAD_RELAXED(&granted_bytes) <= STEP_BYTES) return;
  pthread_mutex_lock(&lock);
  uint64_t kept = sim_round_up(measure(), STEP_BYTES);
  if (kept < granted_bytes) grant(kept);
  pthread_mutex_unlock(&lock);
}

void sim_backing_drop(int arena_fd, uint64_t offset, uint64_t bytes) {
  fallocate(arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes);
  if (sim_arena_is_own(arena_fd)) shrink_grant();
}
