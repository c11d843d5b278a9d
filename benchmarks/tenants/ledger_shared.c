/*
 * ledger_shared.c - see ledger.h: what processes of a slice share. A shelf in shared memory holds what is offered, each
 * offer by the process that made it; "opened" takes one that another process offers, opens it, uses it and closes it.
 *
 * A maker takes its offer back before it frees what was offered, and waits for its present opener: memory of
 * cuMemAlloc may not be freed before it is closed elsewhere. Of processes that were killed nothing stays on the shelf.
 */
#define _GNU_SOURCE
#include "ledger.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTOR CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

enum kind { MEMORY, PHYSICAL, POOL, EVENT };
enum { OFFERS = 32, EMPTY = 0, OFFERED = 1 }; /* -pid: its maker writes; pid: its opener */

struct offer {
  int32_t state;
  int32_t maker;
  enum kind kind;
  int fd; /* of its maker */
  uint64_t bytes;
  union {
    CUipcMemHandle memory;
    CUipcEventHandle event;
    CUmemPoolPtrExportData pointer;
  };
};

static struct offer *shelf;

void shelf_open(const char *path) {
  size_t bytes = OFFERS * sizeof *shelf;
  int fd = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : memfd_create("shelf", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, (off_t)bytes)) exit(1);
  shelf = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shelf == MAP_FAILED) exit(1);
  close(fd);
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* others take descriptors from here */
}

static bool change(struct offer *offer, int32_t from, int32_t to) {
  return __atomic_compare_exchange_n(&offer->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static int32_t state_of(const struct offer *offer) {
  return __atomic_load_n(&offer->state, __ATOMIC_ACQUIRE);
}

/* True as soon as that process has ended, after at most so long. */
static bool is_dead(int32_t pid, int within_ms) {
  int fd = (int)syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return errno == ESRCH;
  struct pollfd ended = {fd, POLLIN, 0};
  bool dead = poll(&ended, 1, within_ms) > 0;
  close(fd);
  return dead;
}

static bool is_left_behind(const struct offer *offer, int32_t state) {
  return state < 0 ? is_dead(-state, 0) : state == OFFERED && is_dead(offer->maker, 0);
}

/* A place on the shelf, to be written to; NULL: it is full. */
static struct offer *claim(void) {
  for (int pass = 0; pass < 2; pass++) {
    for (struct offer *offer = shelf; offer < shelf + OFFERS; offer++) {
      int32_t state = state_of(offer);
      bool free_place = state == EMPTY || (pass == 1 && is_left_behind(offer, state));
      if (free_place && change(offer, state, -getpid())) return offer;
    }
  }
  return NULL;
}

static void leave(struct offer *offer) {
  __atomic_store_n(&offer->state, EMPTY, __ATOMIC_RELEASE);
}

/* The object's last part is its offer, which has all but the descriptor. */
static void put_up(struct object *object, struct offer *offer, enum kind kind, int fd) {
  offer->maker = getpid();
  offer->kind = kind;
  offer->fd = fd;
  offer->bytes = object->bytes;
  object->parts[PARTS_MAX - 1] = (uintptr_t)offer;
  __atomic_store_n(&offer->state, OFFERED, __ATOMIC_RELEASE);
}

static void take_down(struct object *object) {
  struct offer *offer = (struct offer *)object->parts[PARTS_MAX - 1];
  int fd = offer->fd;
  while (!change(offer, OFFERED, EMPTY)) {
    int32_t state = state_of(offer);
    if (state > OFFERED && is_dead(state, 0) && change(offer, state, EMPTY)) break;
    usleep(100);
  }
  if (fd >= 0) close(fd);
}

/* ---- made and offered ---- */

bool make_shared_memory(struct worker *worker, struct object *object) {
  struct offer *offer = claim();
  if (!offer) return false;
  bool made = MAY(cuMemAlloc_v2(&object->parts[0], object->bytes));
  if (made && MAY(cuIpcGetMemHandle(&offer->memory, object->parts[0]))) {
    put_up(object, offer, MEMORY, -1);
    return true;
  }
  if (made) MUST(cuMemFree_v2(object->parts[0]));
  leave(offer);
  return false;
}

void drop_shared_memory(struct worker *worker, struct object *object) {
  (void)worker;
  take_down(object);
  MUST(cuMemFree_v2(object->parts[0]));
}

bool make_shared_physical(struct worker *worker, struct object *object) {
  const CUmemAllocationProp props = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .requestedHandleTypes = DESCRIPTOR,
                                     .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int fd;
  struct offer *offer = claim();
  if (!offer) return false;
  object->bytes = in_granules(object->bytes);
  bool made = MAY(cuMemCreate(&object->parts[0], object->bytes, &props, 0));
  if (made && MAY(cuMemExportToShareableHandle(&fd, object->parts[0], DESCRIPTOR, 0))) {
    put_up(object, offer, PHYSICAL, fd);
    return true;
  }
  if (made) MUST(cuMemRelease(object->parts[0]));
  leave(offer);
  return false;
}

void drop_shared_physical(struct worker *worker, struct object *object) {
  (void)worker;
  take_down(object);
  MUST(cuMemRelease(object->parts[0]));
}

/* parts: pool, pointer, stream */
static bool make_exported(struct worker *worker, struct object *object, struct offer *offer, int *ret_fd) {
  CUmemoryPool pool = (CUmemoryPool)object->parts[0];
  CUstream stream = stream_of(worker);
  object->parts[2] = (uintptr_t)stream;
  if (!MAY(cuMemAllocFromPoolAsync(&object->parts[1], object->bytes, pool, stream))) return false;
  if (MAY(cuMemPoolExportToShareableHandle(ret_fd, pool, DESCRIPTOR, 0))) {
    if (MAY(cuMemPoolExportPointer(&offer->pointer, object->parts[1]))) return true;
    close(*ret_fd);
  }
  MUST(cuMemFreeAsync(object->parts[1], stream));
  return false;
}

bool make_shared_pool(struct worker *worker, struct object *object) {
  const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .handleTypes = DESCRIPTOR,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemoryPool pool;
  int fd;
  struct offer *offer = claim();
  if (!offer) return false;
  bool made = MAY(cuMemPoolCreate(&pool, &props));
  object->parts[0] = made ? (uintptr_t)pool : 0;
  if (made && make_exported(worker, object, offer, &fd)) {
    put_up(object, offer, POOL, fd);
    return true;
  }
  if (made) MUST(cuMemPoolDestroy(pool));
  leave(offer);
  return false;
}

void drop_shared_pool(struct worker *worker, struct object *object) {
  take_down(object);
  MUST(cuMemFreeAsync(object->parts[1], (CUstream)object->parts[2]));
  if (draw(worker, 2)) (void)MAY(cuStreamSynchronize((CUstream)object->parts[2]));
  MUST(cuMemPoolDestroy((CUmemoryPool)object->parts[0]));
}

bool make_shared_event(struct worker *worker, struct object *object) {
  CUevent event;
  struct offer *offer = claim();
  if (!offer) return false;
  bool made = MAY(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
  object->parts[0] = made ? (uintptr_t)event : 0;
  if (made && MAY(cuIpcGetEventHandle(&offer->event, event))) {
    put_up(object, offer, EVENT, -1);
    return true;
  }
  if (made) MUST(cuEventDestroy_v2(event));
  leave(offer);
  return false;
}

void drop_shared_event(struct worker *worker, struct object *object) {
  (void)worker;
  take_down(object);
  MUST(cuEventDestroy_v2((CUevent)object->parts[0]));
}

/* ---- opened ---- */

/* As MAY, but any code is good once the maker has been killed. */
static bool opens(struct worker *worker, const struct offer *offer, CUresult code, const char *call) {
  if (code == CUDA_SUCCESS) return true;
  return !is_dead(offer->maker, 1000) && may(worker, code, call);
}
#define OPENS(call) opens(worker, offer, (call), #call)

static int maker_fd(const struct offer *offer) {
  int pidfd = (int)syscall(SYS_pidfd_open, offer->maker, 0);
  int fd = pidfd < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, pidfd, offer->fd, 0);
  if (pidfd >= 0) close(pidfd);
  return fd;
}

static void open_memory(struct worker *worker, const struct offer *offer) {
  CUdeviceptr pointer;
  if (!OPENS(cuIpcOpenMemHandle_v2(&pointer, offer->memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))) return;
  (void)MAY(cuMemsetD8Async(pointer, 1, 1, stream_of(worker)));
  MUST(cuIpcCloseMemHandle(pointer));
}

static void open_physical(struct worker *worker, const struct offer *offer, int fd) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  if (!OPENS(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, DESCRIPTOR))) return;
  if (MAY(cuMemAddressReserve(&address, offer->bytes, 0, 0, 0))) {
    if (MAY(cuMemMap(address, offer->bytes, 0, handle, 0))) MUST(cuMemUnmap(address, offer->bytes));
    MUST(cuMemAddressFree(address, offer->bytes));
  }
  MUST(cuMemRelease(handle));
}

static void open_pool(struct worker *worker, const struct offer *offer, int fd) {
  CUmemPoolPtrExportData data = offer->pointer;
  CUmemoryPool pool;
  CUdeviceptr pointer;
  if (!OPENS(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, DESCRIPTOR, 0))) return;
  if (OPENS(cuMemPoolImportPointer(&pointer, pool, &data))) {
    if (draw(worker, 2))
      MUST(cuMemFree_v2(pointer));
    else
      MUST(cuMemFreeAsync(pointer, stream_of(worker)));
  }
  MUST(cuMemPoolDestroy(pool));
}

static void open_event(struct worker *worker, const struct offer *offer) {
  CUevent event;
  if (!OPENS(cuIpcOpenEventHandle(&event, offer->event))) return;
  CUresult done = cuEventQuery(event);
  if (done != CUDA_ERROR_NOT_READY) (void)MAY(done);
  (void)MAY(cuEventRecord(event, stream_of(worker))); /* not waited for: its last recorder may have been killed */
  MUST(cuEventDestroy_v2(event));
}

static void open_offer(struct worker *worker, const struct offer *offer) {
  int fd = offer->fd >= 0 ? maker_fd(offer) : -1;
  if (offer->kind == MEMORY) open_memory(worker, offer);
  if (offer->kind == EVENT) open_event(worker, offer);
  if (offer->kind == PHYSICAL && fd >= 0) open_physical(worker, offer, fd);
  if (offer->kind == POOL && fd >= 0) open_pool(worker, offer, fd);
  if (offer->fd >= 0 && fd < 0 && !is_dead(offer->maker, 1000)) worker->unsupported++;
  if (fd >= 0) close(fd);
}

bool make_opened(struct worker *worker, struct object *object) {
  (void)object;
  for (unsigned i = 0; i < OFFERS; i++) {
    struct offer *offer = &shelf[worker->next_offer++ % OFFERS];
    if (!change(offer, OFFERED, getpid())) continue;
    bool others = offer->maker != getpid();
    if (others) open_offer(worker, offer);
    __atomic_store_n(&offer->state, is_dead(offer->maker, 0) ? EMPTY : OFFERED, __ATOMIC_RELEASE);
    worker->opened += others;
    if (others) break;
  }
  return false;
}
