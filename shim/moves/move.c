/*
 * move.c - see move.h. In order, each allocation by itself within a phase:
 *
 *   out: SAVING: pinned memory of the host, and a copy into it; then CLEARING: unmapped, its physical memory is free.
 *   in:  MAPPING: new physical memory at the same address; then LOADING: the copy back, and last the host's is freed.
 *
 * Contents are on the device until all of them are on the host, and on the host until all are on the device: whatever
 * fails, the phase before is undone and nothing is lost. From SAVING to the end of LOADING calls of the program wait
 * (vg_residence_set_out), also where the daemon that asked has died or has given up. A process that ends takes both
 * along.
 */
#include "moves/move.h"

#include "gen/abi/real.h"
#include "ledger/credit.h"
#include "ledger/records.h"
#include "moves/movable.h"

#define CHUNK_BYTES (128ull << 20) /* of a copy: some milliseconds */

#define LOOKS 100
#define LOOK_NS 200000ull

enum phase { HERE, SAVING, CLEARING, AWAY, MAPPING, LOADING };

static struct {
  enum phase phase;
  const struct vg_control_device *control; /* of the daemon whose words are taken up now */
  uint32_t word;                           /* the last one that was */
  uint32_t reason;                         /* VG_STAYS_* */
  struct vg_movable *cursor;               /* in SAVING .. LOADING: the next one */
  uint64_t done_bytes;                     /* of it */
  CUcontext context;                       /* of the stream */
  CUstream stream;
} mover;

/* ---- copies ---- */

static void end_stream(void) {
  if (mover.stream) REAL(cuStreamDestroy_v2)(mover.stream);
  mover.stream = NULL;
  mover.context = NULL;
}

/* The context becomes current, and the stream is one of it: no other stream waits for it, nor it for them. */
static CUresult enter(CUcontext context) {
  CUcontext unused;
  CUresult result = REAL(cuCtxPushCurrent_v2)(context);
  if (result != CUDA_SUCCESS || context == mover.context) return result;
  end_stream();
  result = REAL(cuStreamCreate)(&mover.stream, CU_STREAM_NON_BLOCKING);
  if (result == CUDA_SUCCESS)
    mover.context = context;
  else
    REAL(cuCtxPopCurrent_v2)(&unused);
  return result;
}

static CUresult copy_chunk(const struct vg_movable *movable, uint64_t bytes, bool is_out) {
  CUdeviceptr address = movable->address + mover.done_bytes;
  char *host = (char *)movable->host + mover.done_bytes;
  CUresult result = is_out ? REAL(cuMemcpyDtoHAsync_v2)(host, address, bytes, mover.stream)
                           : REAL(cuMemcpyHtoDAsync_v2)(address, host, bytes, mover.stream);
  CUresult ended = REAL(cuStreamSynchronize)(mover.stream);
  return result != CUDA_SUCCESS ? result : ended;
}

static void free_host(struct vg_movable *movable) {
  CUcontext unused;
  bool is_entered = movable->host && REAL(cuCtxPushCurrent_v2)(movable->context) == CUDA_SUCCESS;
  if (movable->host) REAL(cuMemFreeHost)(movable->host);
  if (is_entered) REAL(cuCtxPopCurrent_v2)(&unused);
  movable->host = NULL;
}

/* One chunk of the cursor's, which is passed when all of it is copied. 0 or VG_STAYS_*. */
static uint32_t copy(bool is_out) {
  struct vg_movable *movable = mover.cursor;
  CUcontext unused;
  uint32_t reason = VG_STAYS_NOT;
  uint64_t left_bytes = movable->bytes - mover.done_bytes, bytes = left_bytes < CHUNK_BYTES ? left_bytes : CHUNK_BYTES;
  if (enter(movable->context) != CUDA_SUCCESS) return VG_STAYS_COPY;
  if (!movable->host &&
      REAL(cuMemHostAlloc)(&movable->host, movable->bytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
    movable->host = NULL;
    reason = VG_STAYS_HOST;
  } else if (copy_chunk(movable, bytes, is_out) != CUDA_SUCCESS) {
    reason = VG_STAYS_COPY;
  }
  REAL(cuCtxPopCurrent_v2)(&unused);
  mover.done_bytes += bytes;
  if (mover.done_bytes < movable->bytes) return reason;
  mover.done_bytes = 0;
  mover.cursor = movable->next;
  return reason;
}

/* ---- what is not moved ---- */

static void note_reason(const struct vg_record *record, void *argument) {
  uint32_t *reason = argument;
  if (record->kind == VG_RECORD_POOLED) *reason = VG_STAYS_POOL;
  if (record->kind == VG_RECORD_ARRAY) *reason = VG_STAYS_ARRAY;
  if (record->kind == VG_RECORD_HANDLE) *reason = VG_STAYS_HANDLE;
  if (record->kind == VG_RECORD_POINTER && record->count == VG_POINTER_MANAGED) *reason = VG_STAYS_MANAGED;
}

/* A thread that was about to enter the driver may be marked for a moment yet: it looks again before it does. */
static bool has_left(struct vg_device *device) {
  for (int i = 0; i < LOOKS; i++) {
    if (vg_residence_has_left(device)) return true;
    vg_prim_sleep_until_ns(vg_prim_now_ns() + LOOK_NS);
  }
  return false;
}

static uint32_t find_reason(struct vg_device *device) {
  static const enum vg_record_kind kinds[] = {VG_RECORD_POOLED, VG_RECORD_ARRAY, VG_RECORD_HANDLE, VG_RECORD_POINTER};
  uint32_t reason = VG_STAYS_NOT;
  if (vg_movable_are_shared()) return VG_STAYS_SHARED;
  if (!has_left(device)) return VG_STAYS_CALLS;
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) vg_table_each(kinds[i], note_reason, &reason);
  return reason;
}

/* ---- phases ---- */

static void begin(enum phase phase) {
  mover.phase = phase;
  mover.cursor = vg_movable_first();
  mover.done_bytes = 0;
}

static void end_here(void) {
  for (struct vg_movable *one = vg_movable_first(); one; one = one->next) free_host(one);
  end_stream();
  vg_residence_set_out(false);
  mover.phase = HERE;
}

static void end_away(struct vg_device *device) {
  end_stream();
  mover.phase = AWAY;
  vg_memory_return_unused(device); /* others are lent what it does not use */
}

/* On the way in: what was mapped is given back, the contents are on the host. */
static void go_back_away(struct vg_device *device, uint32_t reason) {
  mover.reason = reason;
  for (struct vg_movable *one = vg_movable_first(); one; one = one->next) vg_movable_unmap(one);
  end_away(device);
}

static void step_saving(void) {
  uint32_t reason = mover.cursor ? copy(true) : VG_STAYS_NOT;
  if (reason) {
    mover.reason = reason;
    end_here();
  } else if (!mover.cursor) {
    begin(CLEARING);
  }
}

static void step_clearing(struct vg_device *device) {
  if (!mover.cursor) {
    end_away(device);
  } else if (vg_movable_unmap(mover.cursor) != CUDA_SUCCESS) {
    mover.reason = VG_STAYS_DRIVER;
    begin(MAPPING);
  } else {
    mover.cursor = mover.cursor->next;
  }
}

/* What could not be unmapped on the way out is mapped still. */
static void step_mapping(struct vg_device *device) {
  CUresult result = CUDA_SUCCESS;
  if (mover.cursor && !mover.cursor->is_mapped) result = vg_movable_map(mover.cursor);
  if (result != CUDA_SUCCESS) {
    go_back_away(device, result == CUDA_ERROR_OUT_OF_MEMORY ? VG_STAYS_DEVICE : VG_STAYS_DRIVER);
    return;
  }
  if (mover.cursor) mover.cursor = mover.cursor->next;
  if (!mover.cursor) begin(LOADING);
}

static void step_loading(struct vg_device *device) {
  uint32_t reason = mover.cursor ? copy(false) : VG_STAYS_NOT;
  if (reason)
    go_back_away(device, reason);
  else if (!mover.cursor)
    end_here();
}

static void step(struct vg_device *device) {
  if (mover.phase == SAVING)
    step_saving();
  else if (mover.phase == CLEARING)
    step_clearing(device);
  else if (mover.phase == MAPPING)
    step_mapping(device);
  else
    step_loading(device);
}

static bool is_moving(void) {
  return mover.phase != HERE && mover.phase != AWAY;
}

static void take_up(struct vg_device *device, uint32_t word) {
  uint32_t wanted = word & VG_MOVE_MASK;
  mover.word = word;
  mover.reason = VG_STAYS_NOT;
  if (wanted == VG_MOVE_OUT && mover.phase == HERE) {
    vg_residence_set_out(true);
    mover.reason = find_reason(device);
    if (mover.reason)
      vg_residence_set_out(false);
    else
      begin(SAVING);
  } else if (wanted == VG_MOVE_IN && mover.phase == AWAY) {
    begin(MAPPING);
  }
}

/* On the present page, which may be a new daemon's. */
static void show(struct vg_device *device, uint32_t word) {
  struct vg_report_device *report = VG_LOAD(&device->report);
  uint32_t state = mover.phase == AWAY ? VG_MOVED_AWAY : VG_MOVED_HERE;
  uint32_t answered = mover.word == word ? word : 0; /* the number is the daemon's own */
  if (VG_LOAD_RELAXED(&report->moved_state) == state && VG_LOAD_RELAXED(&report->moved_word) == answered) return;
  vg_movable_show(device);
  VG_STORE_RELAXED(&report->stays_reason, mover.reason);
  VG_STORE(&report->moved_state, state);
  VG_STORE(&report->moved_word, answered);
}

/* Slices whose memory moves have one device. */
uint64_t vg_move_service(uint64_t now_ns) {
  struct vg_device *device = &vg_session.devices[0];
  const struct vg_control_device *control = VG_LOAD(&device->control);
  bool is_known = mover.control == control; /* else it is a daemon's that has not been told where the memory is */
  if (VG_LIKELY(is_known && !VG_LOAD(&vg_residence_moves) && mover.phase == HERE)) return UINT64_MAX;
  if (vg_session.device_count != 1 || !control) return UINT64_MAX;
  if (!is_known) mover.word = 0;                                         /* its numbers are its own */
  if (!is_known && mover.phase == AWAY) vg_memory_return_unused(device); /* it has granted what was held for coasting */
  mover.control = control;
  uint32_t word = VG_LOAD(&control->move_word);
  if (!is_moving() && word != mover.word) take_up(device, word);
  if (is_moving()) step(device);
  if (is_moving()) return now_ns;
  show(device, word);
  return VG_LOAD(&control->move_word) == mover.word ? UINT64_MAX : now_ns;
}

void vg_move_forked_child(void) {
  mover.phase = HERE;
  mover.word = 0;
  mover.stream = NULL;
  mover.context = NULL;
  vg_residence_set_out(false);
}
