/*
 * status.h - how functions of the library answer: a status, and for what failed a sentence that
 * cudnnGetLastErrorString gives to the same thread.
 */
#ifndef SC_CUDNN_STATUS_H
#define SC_CUDNN_STATUS_H
#include "simcuda/cudnn/cudnn_abi.h"

/* Keeps what failed for the thread. reason: whole, without a full stop. Returns status. */
int sc_dnn_fail(int status, const char *reason);

/* The status that a result of the driver (CUresult) stands for. */
int sc_dnn_driver_status(int result);

#endif
