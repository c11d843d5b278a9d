/*
 * redop.c - operators of a communicator: a sum of elements that each rank multiplies with a factor of its own before.
 * A factor in device memory is read when an operation is called, as all bytes here are.
 */
#include "simcuda/nccl/redop.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/failure.h"
#include <string.h>

static struct sc_redop *find(struct ncclComm *comm, ncclRedOp_t op) {
  int index = (int)op - ncclNumOps;
  return index >= 0 && index < SC_NCCL_REDOPS_MAX && comm->redops[index].is_used ? &comm->redops[index] : NULL;
}

static bool uses_operator(const struct sc_operation *operation) {
  return operation->kind == SC_ALL_REDUCE || operation->kind == SC_REDUCE || operation->kind == SC_REDUCE_SCATTER;
}

static ncclResult_t read_factor(const struct sc_redop *made, struct sc_operation *operation) {
  operation->factor = made->factor;
  if (!made->is_on_device) return ncclSuccess;
  if (operation->is_captured)
    return sc_nccl_fail(ncclInvalidUsage, "an operator with a factor in device memory cannot be captured here");
  const struct sc_driver *driver = sc_driver();
  CUcontext before = NULL;
  driver->cuCtxGetCurrent(&before);
  driver->cuCtxSetCurrent(operation->comm->context);
  operation->factor = 0;
  CUresult result =
      driver->cuMemcpyDtoHAsync_v2(&operation->factor, made->factor, sc_element_bytes(made->type), operation->stream);
  driver->cuCtxSetCurrent(before);
  return sc_nccl_check(result, "cuMemcpyDtoHAsync");
}

ncclResult_t sc_redop_resolve(struct sc_operation *operation, const char *function) {
  if (!uses_operator(operation) || (unsigned)operation->redop < ncclNumOps) return ncclSuccess;
  const struct sc_redop *made = find(operation->comm, operation->redop);
  if (made == NULL)
    return sc_nccl_fail(ncclInvalidArgument, "%s: there is no operator %d", function, (int)operation->redop);
  if (made->type != operation->type)
    return sc_nccl_fail(ncclInvalidArgument, "%s: the operator is one of type %d", function, (int)made->type);
  operation->redop = ncclSum;
  operation->has_factor = true;
  return read_factor(made, operation);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *ret_op, void *factor, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm);
SC_PUBLIC ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *ret_op, void *factor, ncclDataType_t type,
                                                ncclScalarResidence_t residence, ncclComm_t comm) {
  ncclResult_t result = sc_comm_check(comm, "ncclRedOpCreatePreMulSum");
  if (result != ncclSuccess) return result;
  if (ret_op == NULL || factor == NULL || sc_element_bytes(type) == 0 || (unsigned)residence > ncclScalarHostImmediate)
    return sc_nccl_fail(ncclInvalidArgument, "ncclRedOpCreatePreMulSum: a pointer is NULL, or an unknown type");
  int index = 0;
  while (index < SC_NCCL_REDOPS_MAX && comm->redops[index].is_used) index++;
  if (index == SC_NCCL_REDOPS_MAX)
    return sc_nccl_fail(ncclInvalidUsage, "ncclRedOpCreatePreMulSum: %d operators are not destroyed", index);
  struct sc_redop *made = &comm->redops[index];
  *made = (struct sc_redop){.is_used = true, .is_on_device = residence == ncclScalarDevice, .type = type};
  if (made->is_on_device)
    made->factor = (uint64_t)(uintptr_t)factor;
  else
    memcpy(&made->factor, factor, sc_element_bytes(type));
  *ret_op = (ncclRedOp_t)(ncclNumOps + index);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm);
SC_PUBLIC ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  ncclResult_t result = sc_comm_check(comm, "ncclRedOpDestroy");
  if (result != ncclSuccess) return result;
  struct sc_redop *made = find(comm, op);
  if (made == NULL) return sc_nccl_fail(ncclInvalidArgument, "ncclRedOpDestroy: there is no operator %d", (int)op);
  made->is_used = false;
  return ncclSuccess;
}
