/*
 * arena.c - what device memory is made of: one sparse file per process, so that any part of it can be mapped into
 * another process that is to share it (share.c). Memory at an address lies at the same offset of the file; physical
 * memory without an address (vmm.c) lies behind all addresses. Called by all files that map device memory.
 */
#define _GNU_SOURCE
#include "simgpu/arena/map.h"
#include "simgpu/process/process.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_BYTES (1ull << 62)
#define BEYOND_ADDRESSES (1ull << 57) /* also with five levels of page tables */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int fd = -1;
static uint64_t next_offset = BEYOND_ADDRESSES;

static void make(void) {
  int made = vg_prim_memfd("vgpu-sim-memory", false);
  if (made >= 0 && ftruncate(made, (off_t)ARENA_BYTES) < 0) {
    close(made);
    return;
  }
  fd = made;
}

int sim_arena_fd(void) {
  pthread_once(&once, make);
  return fd;
}

bool sim_arena_is_own(int arena_fd) {
  return arena_fd == fd;
}

uint64_t sim_arena_take(uint64_t bytes) {
  return __atomic_fetch_add(&next_offset, sim_round_up(bytes, SIM_GRANULE_BYTES), __ATOMIC_RELAXED);
}

bool sim_arena_place(int arena_fd, uint64_t offset, void *place, uint64_t bytes, int protection) {
  void *map = mmap(place, bytes, protection, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, arena_fd, (off_t)offset);
  if (map == MAP_FAILED) return false;
  madvise(map, bytes, MADV_DONTFORK);
  madvise(map, bytes, MADV_DONTDUMP);
  return true;
}
