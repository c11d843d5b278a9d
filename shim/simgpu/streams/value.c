/*
 * value.c - cuStreamWaitValue, cuStreamWriteValue and their batches. The word really blocks the stream until it has the
 * value, whatever writes it: another stream, a copy or the host.
 */
#include "simgpu/arena/allocations.h"
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/process/values.h"
#include "simgpu/streams/stream.h"

static CUresult begin(CUstream handle, bool is_per_thread, CUdeviceptr address, unsigned bytes,
                      struct sim_stream **ret_stream) {
  struct sim_allocation allocation;
  CUresult result = sim_stream_find(handle, is_per_thread, ret_stream);
  if (result != CUDA_SUCCESS) return result;
  if (address % bytes || !sim_memory_covers(address, bytes, &allocation)) return CUDA_ERROR_INVALID_VALUE;
  return (*ret_stream)->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

static CUresult wait_value(CUstream handle, bool is_per_thread, CUdeviceptr address, uint64_t value, unsigned bytes,
                           unsigned flags) {
  struct sim_stream *stream;
  CUresult result = begin(handle, is_per_thread, address, bytes, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)) return CUDA_ERROR_INVALID_VALUE;
  return sim_agent_wait(stream, address, value, bytes, flags);
}

static CUresult write_value(CUstream handle, bool is_per_thread, CUdeviceptr address, uint64_t value, unsigned bytes,
                            unsigned flags) {
  struct sim_stream *stream;
  CUresult result = begin(handle, is_per_thread, address, bytes, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags & ~(unsigned)CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER) return CUDA_ERROR_INVALID_VALUE;
  sim_values_write(address, bytes);
  return sim_agent_write(stream, address, value, bytes);
}

static CUresult batch_one(CUstream stream, bool is_per_thread, const CUstreamBatchMemOpParams *op) {
  switch (op->operation) {
  case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    return wait_value(stream, is_per_thread, op->waitValue.address, op->waitValue.value, 4, op->waitValue.flags);
  case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    return wait_value(stream, is_per_thread, op->waitValue.address, op->waitValue.value64, 8, op->waitValue.flags);
  case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    return write_value(stream, is_per_thread, op->writeValue.address, op->writeValue.value, 4, op->writeValue.flags);
  case CU_STREAM_MEM_OP_WRITE_VALUE_64:
    return write_value(stream, is_per_thread, op->writeValue.address, op->writeValue.value64, 8, op->writeValue.flags);
  case CU_STREAM_MEM_OP_BARRIER:
  case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
    return CUDA_SUCCESS; /* host-backed memory has one order for all */
  default:
    return CUDA_ERROR_INVALID_VALUE;
  }
}

static CUresult batch(CUstream handle, bool is_per_thread, unsigned count, const CUstreamBatchMemOpParams *ops,
                      unsigned flags) {
  struct sim_stream *stream;
  CUresult result = sim_stream_find(handle, is_per_thread, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (flags != 0 || count > 256 || (count > 0 && !ops)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++) result = batch_one(handle, is_per_thread, &ops[i]);
  return result;
}

/* One operation has four names: both ABIs, each legacy and per thread. */
#define FOUR(bits, suffix, is_per_thread)                                                                              \
  SIM_PUBLIC CUresult cuStreamWaitValue##bits##suffix(CUstream stream, CUdeviceptr address, cuuint##bits##_t value,    \
                                                      unsigned flags) {                                                \
    return wait_value(stream, is_per_thread, address, value, bits / 8, flags);                                         \
  }                                                                                                                    \
  SIM_PUBLIC CUresult cuStreamWriteValue##bits##suffix(CUstream stream, CUdeviceptr address, cuuint##bits##_t value,   \
                                                       unsigned flags) {                                               \
    return write_value(stream, is_per_thread, address, value, bits / 8, flags);                                        \
  }

FOUR(32, , false)
FOUR(32, _ptsz, true)
FOUR(32, _v2, false)
FOUR(32, _v2_ptsz, true)
FOUR(64, , false)
FOUR(64, _ptsz, true)
FOUR(64, _v2, false)
FOUR(64, _v2_ptsz, true)

#define BATCH(name, is_per_thread)                                                                                     \
  SIM_PUBLIC CUresult name(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags) {           \
    return batch(stream, is_per_thread, count, ops, flags);                                                            \
  }

BATCH(cuStreamBatchMemOp, false)
BATCH(cuStreamBatchMemOp_ptsz, true)
BATCH(cuStreamBatchMemOp_v2, false)
BATCH(cuStreamBatchMemOp_v2_ptsz, true)
