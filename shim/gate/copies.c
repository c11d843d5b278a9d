/*
 * copies.c - see copies.h. While the arbiter paces no slice of the device, a copy costs one addition here. Otherwise
 * each direction has a token bucket: it fills at the rate that the control page says, a copy takes its bytes out of it,
 * and the next one waits until it holds some. So small copies pass at once and are paid for later. A thread that waits
 * looks again every 10 ms, as the rate may have risen.
 */
#include "gate/copies.h"

#include "context/context.h"
#include "gate/state.h"

#define PIECE_LEAST_BYTES (4ull << 20)
#define PIECE_MOST_BYTES (16ull << 20)
#define PIECE_NS VG_NS_PER_MS        /* at the slice's rate, within these bounds */
#define DEPTH_NS (20 * VG_NS_PER_MS) /* of the bucket, which holds at least two pieces */
#define LOOK_NS (10 * VG_NS_PER_MS)
#define DEBT_MOST_BYTES (1ll << 42) /* a copy that is not cut is paid for in whole */

/* 0: copies are not paced. Without a daemon no slice's rate follows what the others do. */
static uint64_t rate_of(const struct vg_device *device, enum vg_copy_direction direction) {
  const struct vg_control_device *control = VG_LOAD(&device->control);
  if (!control || direction == VG_COPY_ELSEWHERE) return 0;
  uint64_t bytes_per_ms = VG_LOAD_RELAXED(&control->copy_bytes_per_ms[direction]);
  return VG_UNLIKELY(bytes_per_ms) && !VG_LOAD_RELAXED(&vg_session.daemon_gone) ? bytes_per_ms : 0;
}

static uint64_t piece_of(uint64_t bytes_per_ms) {
  uint64_t bytes = bytes_per_ms * PIECE_NS / VG_NS_PER_MS;
  if (bytes < PIECE_LEAST_BYTES) return PIECE_LEAST_BYTES;
  return bytes < PIECE_MOST_BYTES ? bytes & ~(PIECE_LEAST_BYTES - 1) : PIECE_MOST_BYTES;
}

/* Fills the bucket up to now. Under its lock. */
static void fill(struct vg_copy_bucket *bucket, uint64_t bytes_per_ms, uint64_t now_ns) {
  uint64_t depth = bytes_per_ms * DEPTH_NS / VG_NS_PER_MS, pieces = 2 * piece_of(bytes_per_ms);
  int64_t most = (int64_t)(depth > pieces ? depth : pieces); /* so a thread that wakes late catches up */
  uint64_t passed_ns = now_ns - bucket->filled_ns;
  if (passed_ns > VG_NS_PER_S) passed_ns = VG_NS_PER_S;
  bucket->bytes += (int64_t)(bytes_per_ms * passed_ns / VG_NS_PER_MS);
  if (bucket->bytes > most) bucket->bytes = most;
  bucket->filled_ns = now_ns;
}

static void charge(struct vg_device *device, enum vg_copy_direction direction, uint64_t bytes, uint64_t bytes_per_ms) {
  struct vg_copy_bucket *bucket = &device->gate->copies[direction];
  uint64_t now_ns = vg_prim_now_ns();
  vg_lock(&bucket->lock);
  fill(bucket, bytes_per_ms, now_ns);
  int64_t left = bucket->bytes + DEBT_MOST_BYTES;
  bucket->bytes = bytes < (uint64_t)left ? bucket->bytes - (int64_t)bytes : -DEBT_MOST_BYTES;
  vg_unlock(&bucket->lock);
}

void vg_copy_count(CUstream stream, bool per_thread, enum vg_copy_direction direction, uint64_t bytes) {
  struct vg_device *device = vg_context_device();
  if (!device || direction == VG_COPY_ELSEWHERE || vg_gate_is_captured(stream, per_thread)) return;
  struct vg_report_device *report = VG_LOAD(&device->report);
  __atomic_add_fetch(&report->copy_bytes[direction], bytes, __ATOMIC_RELAXED);
  vg_report_changes(device);
  uint64_t bytes_per_ms = rate_of(device, direction);
  if (VG_UNLIKELY(bytes_per_ms)) charge(device, direction, bytes, bytes_per_ms);
}

/* 0: the bucket holds something; else when it will. */
static uint64_t due_ns(struct vg_copy_bucket *bucket, uint64_t bytes_per_ms) {
  uint64_t now_ns = vg_prim_now_ns();
  vg_lock(&bucket->lock);
  fill(bucket, bytes_per_ms, now_ns);
  int64_t owed = 1 - bucket->bytes;
  vg_unlock(&bucket->lock);
  if (owed <= 0) return 0;
  if ((uint64_t)owed / bytes_per_ms >= LOOK_NS / VG_NS_PER_MS) return now_ns + LOOK_NS;
  return now_ns + (uint64_t)owed * VG_NS_PER_MS / bytes_per_ms + 1;
}

static void wait_for_bytes(struct vg_device *device, enum vg_copy_direction direction) {
  struct vg_copy_bucket *bucket = &device->gate->copies[direction];
  uint64_t bytes_per_ms, at_ns;
  while ((bytes_per_ms = rate_of(device, direction)) && (at_ns = due_ns(bucket, bytes_per_ms))) {
    struct vg_report_device *report = VG_LOAD(&device->report);
    __atomic_add_fetch(&report->copies_delayed[direction], 1, __ATOMIC_RELAXED);
    vg_report_changes(device);
    vg_prim_sleep_until_ns(at_ns);
  }
}

void vg_copy_wait(CUstream stream, bool per_thread, enum vg_copy_direction direction) {
  struct vg_device *device = vg_context_device();
  if (VG_LIKELY(!device || !rate_of(device, direction)) || vg_gate_is_captured(stream, per_thread)) return;
  wait_for_bytes(device, direction);
}

bool vg_copy_is_paced(void) {
  const struct vg_device *device = vg_context_device();
  return device && (rate_of(device, VG_COPY_TO_DEVICE) || rate_of(device, VG_COPY_FROM_DEVICE));
}

size_t vg_copy_next(CUstream stream, bool per_thread, enum vg_copy_direction direction, const void *host,
                    size_t bytes) {
  struct vg_device *device = vg_context_device();
  uint64_t bytes_per_ms = device ? rate_of(device, direction) : 0;
  if (VG_LIKELY(!bytes_per_ms) || vg_gate_is_captured(stream, per_thread)) return bytes;
  wait_for_bytes(device, direction);
  uint64_t piece = piece_of(bytes_per_ms);
  return bytes > piece && vg_copy_is_pinned(host) ? piece : bytes;
}
