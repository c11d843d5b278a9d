/*
 * share.c - what several processes hold: memory, physical allocations, events, pools. The server keeps each under a key
 * and knows which processes hold it; the contents are a part of its maker's arena, which an opener maps. Called by all
 * files that share something or open what is shared, and at the end of shared memory by charge.c.
 */
#define _GNU_SOURCE
#include "simgpu/arena/share.h"
#include "simgpu/arena/allocations.h"
#include "simgpu/arena/backing.h"
#include "simgpu/arena/map.h"
#include "simgpu/process/process.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct own { /* memory of this process that was shared by its address */
  struct own *next;
  struct sim_share share;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct own *owns;
static bool any; /* else the end of memory has nothing to look for */
static bool arena_known;

static CUresult code_of(int rc) {
  return rc >= 0         ? CUDA_SUCCESS
         : rc == -EPIPE  ? CUDA_ERROR_DEVICE_UNAVAILABLE
         : rc == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY
                         : CUDA_ERROR_INVALID_HANDLE;
}

/* The server is given the arena before the first share of it. Under lock. */
static int arena_tell(void) {
  struct sim_request request = {.kind = SIM_REQUEST_ARENA};
  struct sim_reply reply;
  if (arena_known) return 0;
  if (sim_arena_fd() < 0) return -ENOMEM;
  int rc = sim_link_exchange(&request, sim_arena_fd(), &reply, NULL);
  arena_known = rc == 0;
  return rc;
}

static CUresult make_locked(struct sim_share *share) {
  struct sim_request request = {
      .kind = SIM_REQUEST_SHARE_MAKE,
      .device = (uint32_t)share->device,
      .bytes = share->bytes,
      .share = {.offset = share->offset, .tag = share->tag, .kind = share->kind, .charged = share->charged}};
  struct sim_reply reply;
  int rc = arena_tell();
  if (rc == 0) rc = sim_link_exchange(&request, -1, &reply, NULL);
  if (rc < 0) return code_of(rc);
  share->key = reply.share.key;
  share->fd = sim_arena_fd();
  return CUDA_SUCCESS;
}

CUresult sim_share_make(struct sim_share *share) {
  pthread_mutex_lock(&lock);
  CUresult result = make_locked(share);
  pthread_mutex_unlock(&lock);
  return result;
}

CUresult sim_share_open(uint64_t key, enum sim_share_kind kind, struct sim_share *ret_share) {
  struct sim_request request = {.kind = SIM_REQUEST_SHARE_OPEN, .share = {.key = key, .kind = kind}};
  struct sim_reply reply;
  int fd, rc = sim_link_exchange(&request, -1, &reply, &fd);
  if (rc < 0) return code_of(rc);
  *ret_share = (struct sim_share){.key = key,
                                  .kind = kind,
                                  .device = (int)reply.device,
                                  .charged = reply.share.charged,
                                  .bytes = reply.bytes,
                                  .offset = reply.share.offset,
                                  .tag = reply.share.tag,
                                  .fd = fd};
  return CUDA_SUCCESS;
}

void sim_share_close(const struct sim_share *share) {
  struct sim_request request = {.kind = SIM_REQUEST_SHARE_CLOSE, .share.key = share->key};
  struct sim_reply reply;
  if (sim_link_exchange(&request, -1, &reply, NULL) == 1 && share->bytes)
    sim_backing_drop(share->fd, share->offset, share->bytes);
}

CUresult sim_share_ticket(uint64_t key, int *ret_fd) {
  struct sim_request request = {.kind = SIM_REQUEST_SHARE_TICKET, .share.key = key};
  struct sim_reply reply;
  return code_of(sim_link_exchange(&request, -1, &reply, ret_fd));
}

bool sim_share_ticket_key(int ticket, uint64_t *ret_key) {
  struct sim_ticket text;
  if (recv(ticket, &text, sizeof text, MSG_PEEK | MSG_DONTWAIT) != sizeof text || text.magic != SIM_TICKET_MAGIC)
    return false;
  *ret_key = text.key;
  return true;
}

/* ---- memory by its address ---- */

void sim_share_unit(const struct sim_allocation *allocation, uint64_t *ret_base, uint64_t *ret_bytes) {
  *ret_base = allocation->base / SIM_GRANULE_BYTES * SIM_GRANULE_BYTES; /* small ones share the whole granule */
  *ret_bytes = sim_round_up(allocation->bytes, SIM_GRANULE_BYTES);
}

CUresult sim_share_memory(int device, void *base, uint64_t bytes, uint64_t *ret_key) {
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&lock);
  struct own *own = owns;
  while (own && own->share.offset != (uintptr_t)base) own = own->next;
  if (!own) {
    own = calloc(1, sizeof *own);
    if (own) {
      own->share = (struct sim_share){
          .kind = SIM_SHARE_MEMORY, .device = device, .charged = true, .bytes = bytes, .offset = (uintptr_t)base};
      result = make_locked(&own->share);
    }
    if (!own || result != CUDA_SUCCESS) {
      free(own);
      own = NULL;
    } else {
      own->next = owns;
      owns = own;
      VG_STORE(&any, true);
    }
  }
  if (own) *ret_key = own->share.key;
  pthread_mutex_unlock(&lock);
  return own ? CUDA_SUCCESS : result != CUDA_SUCCESS ? result : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_share_leave(void *base, uint64_t bytes) {
  if (!VG_LOAD(&any)) return false;
  pthread_mutex_lock(&lock);
  struct own **link = &owns, *own;
  while (*link && (*link)->share.offset != (uintptr_t)base) link = &(*link)->next;
  own = *link;
  if (own) *link = own->next;
  pthread_mutex_unlock(&lock);
  if (!own) return false;
  mmap(base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
  sim_share_close(&own->share);
  free(own);
  return true;
}
