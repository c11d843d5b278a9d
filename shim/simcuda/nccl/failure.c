/*
 * failure.c - see failure.h; ncclGetErrorString and ncclGetLastError. The last words are kept for the whole process, as
 * the thread that asks is seldom the one that failed.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "simcuda/nccl/failure.h"
#include "simcuda/common/public.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_BYTES 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char last_words[WORDS_BYTES];

ncclResult_t sc_nccl_fail(ncclResult_t result, const char *format, ...) {
  char words[WORDS_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&lock);
  memcpy(last_words, words, sizeof words);
  pthread_mutex_unlock(&lock);
  const char *level = secure_getenv("NCCL_DEBUG");
  if (level != NULL && strcmp(level, "VERSION") != 0) fprintf(stderr, "vgpu: SIMULATED NCCL: %s\n", words);
  return result;
}

ncclResult_t sc_nccl_check(CUresult result, const char *call) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  return sc_nccl_fail(ncclUnhandledCudaError, "%s failed with error %d of the CUDA driver", call, (int)result);
}

const char *ncclGetErrorString(ncclResult_t result);
SC_PUBLIC const char *ncclGetErrorString(ncclResult_t result) {
  static const char *const words[] = {
      [ncclSuccess] = "no error",
      [ncclUnhandledCudaError] = "unhandled cuda error (a call of CUDA failed)",
      [ncclSystemError] = "unhandled system error (a call of the system failed)",
      [ncclInternalError] = "internal error",
      [ncclInvalidArgument] = "invalid argument",
      [ncclInvalidUsage] = "invalid usage",
      [ncclRemoteError] = "remote process exited or could not be reached",
      [ncclInProgress] = "operation in progress",
      [ncclTimeout] = "operation timed out",
  };
  return (unsigned)result < sizeof words / sizeof *words ? words[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm);
SC_PUBLIC const char *ncclGetLastError(ncclComm_t comm) {
  static __thread char words[WORDS_BYTES]; /* another failure does not change what the caller reads */
  (void)comm;
  pthread_mutex_lock(&lock);
  memcpy(words, last_words, sizeof words);
  pthread_mutex_unlock(&lock);
  return words;
}
