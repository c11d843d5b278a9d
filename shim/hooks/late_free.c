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

static CUresult end(struct vg_record *record) {
  return vg_movable_free((struct vg_movable *)(uintptr_t)record->other);
}

CUresult vg_late_free(struct vg_record *record) {
  CUresult result = CUDA_ERROR_INVALID_VALUE; /* a second time */
  vg_late_free_rest();
  if (record->count != VG_POINTER_FREED) result = end(record);
  if (result == CUDA_SUCCESS) {
    vg_charge_return(record);
    return result;
  }
  if (result == CUDA_ERROR_NOT_READY) {
    record->count = VG_POINTER_FREED;
    __atomic_add_fetch(&marks, 1, __ATOMIC_RELAXED);
    result = CUDA_SUCCESS;
  }
  vg_table_put(record, record->key);
  return result;
}

static void note(const struct vg_record *record, void *argument) {
  struct batch *batch = argument;
  if (record->count == VG_POINTER_FREED && batch->count < BATCH) batch->addresses[batch->count++] = record->key;
}

/* False: not now. */
static bool end_marked(uint64_t address) {
  struct vg_record *record = vg_table_take(VG_RECORD_POINTER, address);
  if (!record) return true; /* another thread does it */
  bool is_marked = record->count == VG_POINTER_FREED, is_free = is_marked && end(record) == CUDA_SUCCESS;
  if (!is_free) {
    vg_table_put(record, record->key);
    return !is_marked;
  }
  vg_charge_return(record);
  __atomic_sub_fetch(&marks, 1, __ATOMIC_RELAXED);
  return true;
}

void vg_late_free_rest(void) {
  struct batch batch;
  do {
    uint32_t before = VG_LOAD(&marks);
    if (VG_LIKELY(!before) || vg_gate_is_capturing()) return;
    batch.count = 0;
    vg_table_each(VG_RECORD_POINTER, note, &batch);
    if (!batch.count) __atomic_compare_exchange_n(&marks, &before, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    for (int i = 0; i < batch.count; i++)
      if (!end_marked(batch.addresses[i])) return;
  } while (batch.count == BATCH);
}
