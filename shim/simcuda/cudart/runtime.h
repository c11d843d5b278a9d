/*
 * runtime.h - what the files of the simulated device's libcudart share: a thread's error and device, and how an entry
 * point reaches the driver. An entry point that needs a context is SC_CALL(driver's function, arguments).
 */
#ifndef SC_CUDART_RUNTIME_H
#define SC_CUDART_RUNTIME_H
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/cudart/cudart_abi.h"
#include <stdbool.h>

#define SC_DEVICES_MAX 64

/* ---- error.c ---- */

/* Keeps an error for cudaGetLastError of this thread, and returns it. The end of every entry point. */
cudaError_t sc_end(cudaError_t error);

/* ---- context.c ---- */

/* The driver, initialised. */
cudaError_t sc_start(const struct sc_driver **ret_driver);
/* The same, and the thread has a context: the primary one of its device where no other is current. */
cudaError_t sc_enter(const struct sc_driver **ret_driver);
/* The device that the thread's calls go to. */
cudaError_t sc_current_device(const struct sc_driver *driver, CUdevice *ret_device);
/* The primary context of a device, made if it is not there. */
cudaError_t sc_primary_context(const struct sc_driver *driver, int device, CUcontext *ret_context);
/* It is not the runtime's any more. device: below SC_DEVICES_MAX. */
void sc_drop_primary_context(const struct sc_driver *driver, int device);

/* ---- library.c ---- */

/* An entry point of the driver, as a program of so new a runtime knows it. */
cudaError_t sc_find_entry_point(const char *name, void **ret_function, unsigned version, unsigned long long flags,
                                CUdriverProcAddressQueryResult *ret_status);

#define SC_VIA(begin, name, ...)                                                                                       \
  ({                                                                                                                   \
    const struct sc_driver *sc_via;                                                                                    \
    cudaError_t sc_error = begin(&sc_via);                                                                             \
    if (sc_error == cudaSuccess) sc_error = (cudaError_t)sc_via->name(__VA_ARGS__);                                    \
    sc_end(sc_error);                                                                                                  \
  })
#define SC_CALL(name, ...) SC_VIA(sc_enter, name, __VA_ARGS__)
/* For what needs no context. */
#define SC_ASK(name, ...) SC_VIA(sc_start, name, __VA_ARGS__)

#endif
