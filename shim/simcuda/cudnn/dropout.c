/* dropout.c - the descriptor of dropout, which networks take, and its generator's states in the device's memory. */
#include "simcuda/common/public.h"
#include "simcuda/cudnn/descriptors.h"
#include "simcuda/cudnn/handle.h"

/* the signatures are cuDNN's; what lies in memory is not looked at */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* A generator of 48 bytes (XORWOW's of cuRAND) for each thread of a full device; 132 multiprocessors as on Hopper. */
#define GENERATOR_BYTES 48
#define GENERATORS (132 * 2048)

SC_PUBLIC int cudnnDropoutGetStatesSize(const struct sc_dnn_handle *handle, size_t *ret_bytes) {
  if (!sc_dnn_is_handle(handle) || ret_bytes == NULL)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "states are asked for with a handle and a place for their size");
  *ret_bytes = (size_t)GENERATOR_BYTES * GENERATORS;
  return CUDNN_STATUS_SUCCESS;
}

SC_PUBLIC int cudnnRestoreDropoutDescriptor(struct sc_dnn_dropout *dropout, const struct sc_dnn_handle *handle,
                                            float probability, void *states, size_t state_bytes,
                                            unsigned long long seed) {
  if (!sc_dnn_is(dropout, SC_DNN_DROPOUT) || !sc_dnn_is_handle(handle))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "dropout needs a handle and its descriptor");
  if (!(probability >= 0 && probability <= 1))
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM, "the probability of dropout is from 0 to 1");
  if (states != NULL && state_bytes < (size_t)GENERATOR_BYTES * GENERATORS)
    return sc_dnn_fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "the memory for dropout's states is too small");
  dropout->probability = probability;
  dropout->states = states;
  return CUDNN_STATUS_SUCCESS;
}

/* Fills the states, where there are some. */
SC_PUBLIC int cudnnSetDropoutDescriptor(struct sc_dnn_dropout *dropout, const struct sc_dnn_handle *handle,
                                        float probability, void *states, size_t state_bytes, unsigned long long seed) {
  int status = cudnnRestoreDropoutDescriptor(dropout, handle, probability, states, state_bytes, seed);
  if (status != CUDNN_STATUS_SUCCESS || states == NULL) return status;
  return sc_dnn_launch(handle, SC_WORK_ELEMENTWISE, sc_cost_bytes((double)GENERATOR_BYTES * GENERATORS));
}
