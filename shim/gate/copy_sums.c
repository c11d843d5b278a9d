/* copy_sums.c - counts calls that make several copies: batches, operations in three dimensions, prefetches,
 * launches of graphs. */
#include "gate/copies.h"

void vg_copy_count_batch(CUstream stream, bool per_thread, const CUdeviceptr *to, const CUdeviceptr *from,
                         const size_t *bytes, size_t count) {
  uint64_t sums[VG_COPY_ELSEWHERE + 1] = {0};
  for (size_t i = 0; i < count; i++)
    sums[vg_copy_direction(CU_MEMORYTYPE_UNIFIED, to[i], CU_MEMORYTYPE_UNIFIED, from[i])] += bytes[i];
  for (int way = 0; way < VG_COPY_ELSEWHERE; way++)
    if (sums[way]) vg_copy_count(stream, per_thread, (enum vg_copy_direction)way, sums[way]);
}

static CUmemorytype type_of(const CUmemcpy3DOperand *operand) {
  return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_ARRAY;
}

static CUdeviceptr address_of(const CUmemcpy3DOperand *operand) {
  return operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER ? operand->op.ptr.ptr : 0;
}

/* Extents are in elements where an array takes part, and which size these have is not asked: counted as bytes. */
void vg_copy_count_operations(CUstream stream, bool per_thread, const CUDA_MEMCPY3D_BATCH_OP *operations,
                              size_t count) {
  for (size_t i = 0; i < count; i++) {
    const CUDA_MEMCPY3D_BATCH_OP *one = &operations[i];
    uint64_t bytes = (uint64_t)one->extent.width * one->extent.height * one->extent.depth;
    vg_copy_count(
        stream, per_thread,
        vg_copy_direction(type_of(&one->dst), address_of(&one->dst), type_of(&one->src), address_of(&one->src)), bytes);
  }
}

/* places[i] is that of the ranges from runs[i] on. */
void vg_copy_count_prefetches(CUstream stream, bool per_thread, const CUmemLocation *places, const size_t *runs,
                              size_t run_count, const size_t *bytes, size_t count) {
  size_t run = 0;
  for (size_t i = 0; i < count; i++) {
    while (run + 1 < run_count && runs[run + 1] <= i) run++;
    vg_copy_count(stream, per_thread, vg_copy_direction_to(places[run]), bytes[i]);
  }
}

void vg_copy_wait_graph(CUgraphExec exec, CUstream stream, bool per_thread) {
  uint64_t bytes[VG_COPY_ELSEWHERE];
  if (VG_LIKELY(!vg_copy_is_paced())) return;
  vg_gate_find_graph_copies(exec, bytes);
  for (int way = 0; way < VG_COPY_ELSEWHERE; way++)
    if (bytes[way]) vg_copy_wait(stream, per_thread, (enum vg_copy_direction)way);
}

void vg_copy_count_graph(CUgraphExec exec, CUstream stream, bool per_thread) {
  uint64_t bytes[VG_COPY_ELSEWHERE];
  vg_gate_find_graph_copies(exec, bytes);
  for (int way = 0; way < VG_COPY_ELSEWHERE; way++)
    if (bytes[way]) vg_copy_count(stream, per_thread, (enum vg_copy_direction)way, bytes[way]);
}
