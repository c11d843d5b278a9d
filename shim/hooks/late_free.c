/* late_free.c - see late_free.h. Such memory keeps its record, marked: so the end of its context finds it as ever. */
#include "hooks/late_free.h"

#include "gate/gate.h"
#include "hooks/charge.h"
#include "moves/movable.h"

#define BATCH 64

static uint32_t marks; /* records that are marked, or more: those of contexts that have ended count until a search */

struct batch {
  uint64_t addresses[BATCH];
  int count;
};

static struct vg_movable *movable_of(const struct vg_record *record) {
  return (struct vg_movable *)(uintptr_t)record->other;
}

CUresult vg_late_free(struct vg_record *record) {
  CUresult result = CUDA_ERROR_INVALID_VALUE; /* a second time */
  vg_late_free_rest();
  if (record->count != VG_POINTER_FREED) result = vg_movable_free(movable_of(record));
  if (result == CUDA_SUCCESS) {
    vg_charge_return(record);
    return result;
  }
  bool is_late = result == CUDA_ERROR_NOT_READY;
  if (is_late) record->count = VG_POINTER_FREED;
  vg_table_put(record, record->key);
  if (is_late) __atomic_add_fetch(&marks, 1, __ATOMIC_RELEASE); /* behind it: whoever sees the mark finds it */
  return is_late ? CUDA_SUCCESS : result;
}

static void note(const struct vg_record *record, void *argument) {
  struct batch *batch = argument;
  if (record->count == VG_POINTER_FREED && batch->count < BATCH) batch->addresses[batch->count++] = record->key;
}

/* Another thread may end its context meanwhile, which then does not find the record. */
static bool has_ended(CUresult result) {
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT;
}

static void end_marked(uint64_t address) {
  struct vg_record *record = vg_table_take(VG_RECORD_POINTER, address);
  if (!record) return; /* another thread does it */
  bool is_marked = record->count == VG_POINTER_FREED;
  CUresult result = is_marked ? vg_movable_try_free(movable_of(record)) : CUDA_ERROR_NOT_READY;
  if (has_ended(result)) vg_movable_drop(movable_of(record));
  if (result != CUDA_SUCCESS && !has_ended(result)) {
    vg_table_put(record, record->key);
    return;
  }
  vg_charge_return(record);
  __atomic_sub_fetch(&marks, 1, __ATOMIC_RELAXED);
}

void vg_late_free_rest(void) {
  struct batch batch = {.count = 0};
  uint32_t before = VG_LOAD(&marks);
  if (VG_LIKELY(!before)) return;
  vg_table_each(VG_RECORD_POINTER, note, &batch);
  if (!batch.count) __atomic_compare_exchange_n(&marks, &before, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  for (int i = 0; i < batch.count; i++) end_marked(batch.addresses[i]);
}
