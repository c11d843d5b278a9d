/*
 * copies.h - copies between host and device: counted by bytes and direction in the report page, and paced where the
 * arbiter has given the slice a part of the link (DESIGN: docs/design/copies.md). Called by the generated hooks of
 * copies. Copies on a device, and between devices, do not cross its link: they are not counted.
 */
#ifndef VG_GATE_COPIES_H
#define VG_GATE_COPIES_H
#include "base/lock.h"
#include "gate/gate.h"

enum vg_copy_direction { VG_COPY_TO_DEVICE, VG_COPY_FROM_DEVICE, VG_COPY_ELSEWHERE };

/* Bytes that the slice may move before it waits, in one direction; below 0 it owes some. */
struct vg_copy_bucket {
  struct vg_lock lock;
  int64_t bytes;
  uint64_t filled_ns;
};

static inline bool vg_copy_counts(void) { /* without a slice nothing is looked at */
  return VG_LOAD_RELAXED(&vg_session.attached);
}
/* A copy went to the driver. VG_GATE_ALL_STREAMS: it has completed. What a stream captures is not counted. */
void vg_copy_count(CUstream stream, bool per_thread, enum vg_copy_direction direction, uint64_t bytes);
/* Before a copy of so many bytes, from or to that host memory: waits while the slice is beyond its part of the link.
 * Returns how many bytes are to be copied now: large asynchronous copies of pinned memory are cut into pieces, so that
 * others get their parts between them. */
size_t vg_copy_next(CUstream stream, bool per_thread, enum vg_copy_direction direction, const void *host, size_t bytes);
bool vg_copy_is_paced(void); /* on the thread's device, in any direction */
/* The same before a copy that is not cut. */
void vg_copy_wait(CUstream stream, bool per_thread, enum vg_copy_direction direction);

/* ---- copy_ends.c ---- */

/* What a type or an address is: of CU_MEMORYTYPE_UNIFIED the driver knows. */
enum vg_copy_direction vg_copy_direction(CUmemorytype to, CUdeviceptr to_address, CUmemorytype from,
                                         CUdeviceptr from_address);
bool vg_copy_is_pinned(const void *host);

/* ---- graph_work.c ---- */

extern uint32_t vg_gate_graphs_that_copy __attribute__((visibility("hidden"))); /* executable graphs */
void vg_gate_find_graph_copies(CUgraphExec exec, uint64_t ret_bytes[2]);

/* ---- copy_sums.c ---- */

/* Before and after the launch of a graph: its copies are waited for, and counted, as if they were one in each
 * direction. */
void vg_copy_wait_graph(CUgraphExec exec, CUstream stream, bool per_thread);
void vg_copy_count_graph(CUgraphExec exec, CUstream stream, bool per_thread);

void vg_copy_count_batch(CUstream stream, bool per_thread, const CUdeviceptr *to, const CUdeviceptr *from,
                         const size_t *bytes, size_t count);
void vg_copy_count_operations(CUstream stream, bool per_thread, const CUDA_MEMCPY3D_BATCH_OP *operations, size_t count);
void vg_copy_count_prefetches(CUstream stream, bool per_thread, const CUmemLocation *places, const size_t *runs,
                              size_t run_count, const size_t *bytes, size_t count);
static inline enum vg_copy_direction vg_copy_direction_to(CUmemLocation place) {
  return place.type == CU_MEM_LOCATION_TYPE_DEVICE ? VG_COPY_TO_DEVICE : VG_COPY_FROM_DEVICE;
}

#endif
