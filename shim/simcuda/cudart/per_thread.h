/* per_thread.h - how per_thread.c makes its forms; the files of the major versions make theirs of it as well. */
#ifndef SC_CUDART_PER_THREAD_H
#define SC_CUDART_PER_THREAD_H
#include "simcuda/cudart/runtime.h"

/* One form: the entry point that it is a form of, the parameters of both, and the arguments that it passes on. */
#define SC_DEFINE_FORM(form, name, parameters, ...)                                                                    \
  cudaError_t name parameters;                                                                                         \
  SC_PUBLIC cudaError_t form parameters {                                                                              \
    return name(__VA_ARGS__);                                                                                          \
  }
/* The same of one that has no stream and waits: async is the name in a stream, its parameters come last. */
#define SC_DEFINE_WAIT(form, async, parameters, async_parameters, ...)                                                 \
  cudaError_t async async_parameters;                                                                                  \
  SC_PUBLIC cudaError_t form parameters {                                                                              \
    cudaError_t error = async(__VA_ARGS__, CU_STREAM_PER_THREAD);                                                      \
    return error == cudaSuccess ? SC_CALL(cuStreamSynchronize, CU_STREAM_PER_THREAD) : error;                          \
  }

/* Where there is a parameter of this name. */
#define OWN ((stream) == NULL ? CU_STREAM_PER_THREAD : (stream))

#endif
