/*
 * event_page.c - events of several processes (CU_EVENT_INTERPROCESS). Such an event lies in a page that all of them map
 * from its creation on: how often it was recorded, and up to which of these records it is done. A record is a value
 * that the stream writes there, a wait is a stream that waits for it; any of the processes may record. Called by
 * record.c, event.c and the entry points in ipc/ipc_event.c.
 */
#include "simgpu/streams/event_page.h"
#include "simgpu/arena/map.h"
#include "simgpu/arena/share.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"
#include <stdlib.h>
#include <unistd.h>

#define PAGE_BYTES SIM_GRANULE_BYTES /* lazily backed: one page of it */
#define POLL_NS 20000ull

struct shared_event { /* the page */
  uint64_t recorded;
  uint64_t done;
};

struct sim_ipc_event {
  struct sim_share share;
  struct shared_event *page;
  uint64_t own; /* the last record that this process made: its stream continues a moment after the page says so */
};

static struct sim_ipc_event *map(const struct sim_share *share) {
  struct sim_ipc_event *ipc = calloc(1, sizeof *ipc);
  char *page = ipc ? sim_reserve_bytes(PAGE_BYTES, 0) : NULL;
  if (page && sim_arena_place(share->fd, share->offset, page, PAGE_BYTES, SIM_READ_WRITE)) {
    *ipc = (struct sim_ipc_event){.share = *share, .page = (struct shared_event *)page};
    return ipc;
  }
  if (page) sim_unmap_bytes(page, PAGE_BYTES);
  free(ipc);
  return NULL;
}

CUresult sim_ipc_event_begin(struct sim_event *event) {
  struct sim_share share = {.kind = SIM_SHARE_EVENT, .bytes = PAGE_BYTES, .offset = sim_arena_take(PAGE_BYTES)};
  CUresult result = sim_share_make(&share);
  if (result != CUDA_SUCCESS) return result;
  struct sim_ipc_event *ipc = map(&share);
  if (!ipc) {
    sim_share_close(&share);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  event->ipc = ipc;
  return CUDA_SUCCESS;
}

uint64_t sim_ipc_event_key(const struct sim_event *event) {
  return event->ipc->share.key;
}

CUresult sim_ipc_event_open(uint64_t key, struct sim_ipc_event **ret_ipc) {
  struct sim_share share;
  CUresult result = sim_share_open(key, SIM_SHARE_EVENT, &share);
  if (result != CUDA_SUCCESS) return result;
  *ret_ipc = map(&share);
  if (*ret_ipc) return CUDA_SUCCESS;
  sim_share_close(&share);
  close(share.fd);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void sim_ipc_event_close(struct sim_ipc_event *ipc) {
  struct sim_share share = ipc->share;
  sim_unmap_bytes(ipc->page, PAGE_BYTES);
  free(ipc);
  sim_share_close(&share);
  close(share.fd);
}

/* The page stays mapped: a stream may still be about to write into it. */
void sim_ipc_event_end(struct sim_event *event) {
  if (!event->ipc) return;
  struct sim_share *share = &event->ipc->share;
  bool opened = share->fd != sim_arena_fd();
  share->bytes = 0; /* nor are its contents dropped */
  sim_share_close(share);
  if (opened) close(share->fd);
  free(event->ipc);
  event->ipc = NULL;
}

CUresult sim_ipc_event_record(struct sim_stream *stream, struct sim_event *event) {
  uint64_t number = __atomic_add_fetch(&event->ipc->page->recorded, 1, __ATOMIC_SEQ_CST);
  CUresult result = sim_agent_write(stream, (CUdeviceptr)&event->ipc->page->done, number, sizeof number);
  event->point = sim_stream_point(stream);
  VG_STORE(&event->ipc->own, number);
  return result;
}

CUresult sim_ipc_event_wait(struct sim_stream *stream, const struct sim_event *event) {
  struct shared_event *page = event->ipc->page;
  uint64_t number = VG_LOAD(&page->recorded);
  if (VG_LOAD(&page->done) >= number) return CUDA_SUCCESS;
  return sim_agent_wait(stream, (CUdeviceptr)&page->done, number, sizeof number, CU_STREAM_WAIT_VALUE_GEQ);
}

bool sim_ipc_event_done(const struct sim_event *event) {
  uint64_t number = VG_LOAD(&event->ipc->page->recorded);
  if (VG_LOAD(&event->ipc->page->done) < number) return false;
  return VG_LOAD(&event->ipc->own) != number || sim_point_query(event->point);
}

/* Its writer may be another process, which can end without writing. */
void sim_ipc_event_synchronize(const struct sim_event *event) {
  uint64_t number = VG_LOAD(&event->ipc->page->recorded);
  while (VG_LOAD(&event->ipc->page->done) < number && !VG_LOAD(&sim_link.gone)) {
    sim_link_check();
    vg_prim_sleep_until_ns(vg_prim_now_ns() + POLL_NS);
  }
  if (VG_LOAD(&event->ipc->own) == number) sim_point_wait(event->point);
}
