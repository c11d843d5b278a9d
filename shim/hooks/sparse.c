/*
 * sparse.c - memory that is mapped into sparse arrays and arrays with deferred mapping: such a mapping keeps
 * physical memory alive without its handle, so it counts as references (vmm.c) until it is undone or the
 * array ends. Called by programs, any thread.
 */
#include "hooks/sparse.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/prim.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/array.h"
#include "hooks/vmm.h"
#include "ledger/array_boxes.h"
#include "ledger/records.h"

struct sparse {
  struct sparse *next;
  uint64_t array; /* CUarray or CUmipmappedArray */
  struct vg_box *boxes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sparse *arrays; /* that memory is mapped into */

static void count_references(uint64_t handle, int delta) {
  if (delta > 0)
    vg_handle_enter(handle);
  else
    vg_handle_leave(handle);
}

static struct sparse **link_of(uint64_t array) { /* under lock */
  struct sparse **link = &arrays;
  while (*link && (*link)->array != array) link = &(*link)->next;
  return link;
}

static void follow(const CUarrayMapInfo *info) {
  struct vg_record known;
  uint64_t array = (uint64_t)(uintptr_t)info->resource.array; /* or mipmap: one union */
  bool whole = vg_table_look(VG_RECORD_ARRAY, array, &known) && known.count == VG_ARRAY_DEFERRED;
  struct vg_box box = vg_box_of(info, whole);
  uint64_t handle = info->memOperationType == CU_MEM_OPERATION_TYPE_MAP ? info->memHandle.memHandle : 0;
  if (!vg_table_look(VG_RECORD_HANDLE, handle, &known)) handle = 0;
  pthread_mutex_lock(&lock);
  struct sparse **link = link_of(array);
  if (!*link && handle && (*link = calloc(1, sizeof **link))) (*link)->array = array;
  if (*link && handle) vg_boxes_put(&(*link)->boxes, &box, handle, count_references);
  if (*link && !handle) vg_boxes_cut(&(*link)->boxes, &box, count_references);
  pthread_mutex_unlock(&lock);
}

/* References for the time of the call: while the driver maps the handles, another thread may release them. */
static void hold(const CUarrayMapInfo *list, unsigned int count, int delta) {
  for (unsigned int i = 0; i < count; i++)
    if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP) count_references(list[i].memHandle.memHandle, delta);
}

typedef CUresult map_call(CUarrayMapInfo *list, unsigned int count, CUstream stream);

static CUresult map(map_call *call, CUarrayMapInfo *list, unsigned int count, CUstream stream) {
  size_t bytes = count * sizeof *list;
  if (!VG_LOAD(&vg_session.ledger) || !count || !vg_prim_readable(list, bytes)) return call(list, count, stream);
  CUarrayMapInfo *known = malloc(bytes); /* a copy, so that we count what the driver is asked for */
  if (!known) return CUDA_ERROR_OUT_OF_MEMORY;
  memcpy(known, list, bytes);
  /* Alone, so that no mapped handle is unknown, and no unmapped one is given to another thread. */
  unsigned entered = vg_handles_begin_alone();
  hold(known, count, 1);
  CUresult result = call(known, count, stream);
  for (unsigned int i = 0; result == CUDA_SUCCESS && i < count; i++) follow(&known[i]);
  hold(known, count, -1);
  vg_handles_done(entered);
  free(known);
  return result;
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
  return map(REAL(cuMemMapArrayAsync), mapInfoList, count, hStream);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream) {
  return map(REAL(cuMemMapArrayAsync_ptsz), mapInfoList, count, hStream);
}

void vg_sparse_gone(uint64_t array) {
  pthread_mutex_lock(&lock);
  struct sparse **link = link_of(array), *gone = *link;
  if (gone) *link = gone->next;
  pthread_mutex_unlock(&lock);
  if (gone) vg_boxes_clear(&gone->boxes, count_references);
  free(gone);
}

void vg_sparse_forked_child(void) {
  pthread_mutex_init(&lock, NULL);
  arrays = NULL;
}
