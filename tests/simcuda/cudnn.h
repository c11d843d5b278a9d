/*
 * cudnn.h - for the C programs that call cuDNN's interface as programs do that were compiled elsewhere: declarations of
 * their own, values as numbers where the library's header is not to be believed.
 */
#ifndef TEST_CUDNN_H
#define TEST_CUDNN_H
#include "program.h"
#include <stdbool.h>
#include <stdint.h>

enum { FLOAT, DOUBLE, HALF, BFLOAT16 = 9 };
enum { OK = 0, NOT_INITIALIZED = 1001, BAD = 2000, BAD_NULL = 2002, NOT_FINAL = 2004, OUT_OF_BOUND = 2005 };
enum { TOO_SMALL = 2006, MISMATCH = 2008, BAD_TYPE = 2010, BAD_DESCRIPTOR = 2012, NOT_SUPPORTED = 3000 };

int cudnnCreate(void **handle);
int cudnnDestroy(void *handle);
int cudnnSetStream(void *handle, CUstream stream);
int cudnnGetStream(void *handle, CUstream *stream);
void cudnnGetLastErrorString(char *message, size_t size);

#define SAYS(status, call)                                                                                             \
  do {                                                                                                                 \
    int got_ = (call);                                                                                                 \
    char why_[256] = "";                                                                                               \
    if (got_ != (status)) {                                                                                            \
      cudnnGetLastErrorString(why_, sizeof why_);                                                                      \
      fprintf(stderr, "%s:%d: %s: %d, expected %d (%s)\n", __FILE__, __LINE__, #call, got_, (status), why_);           \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* Milliseconds of the device from one point of the stream to the next: between two calls of it. */
static inline float lap_ms(CUstream stream) {
  static CUevent before, after;
  float ms = 0;
  if (before == NULL) {
    CHECK(cuEventCreate(&before, 0));
    CHECK(cuEventCreate(&after, 0));
    CHECK(cuEventRecord(before, stream));
    return 0;
  }
  CHECK(cuEventRecord(after, stream));
  CHECK(cuEventSynchronize(after));
  CHECK(cuEventElapsedTime_v2(&ms, before, after));
  CHECK(cuEventRecord(before, stream));
  return ms;
}

#endif
