/* symbol.c - variables of the program: where they are, and copies from and to them. */
#include "simcuda/cudart/copy.h"
#include "simcuda/cudart/registry.h"

cudaError_t sc_locate_variable(const void *symbol, size_t offset, size_t bytes, void **ret_pointer) {
  const struct sc_driver *driver;
  CUdeviceptr address;
  size_t all_bytes;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess) error = sc_find_variable(driver, symbol, &address, &all_bytes);
  if (error != cudaSuccess) return sc_end(error);
  if (offset > all_bytes || bytes > all_bytes - offset) return sc_end(cudaErrorInvalidValue);
  *ret_pointer = (void *)(address + offset);
  return cudaSuccess;
}

SC_PUBLIC cudaError_t cudaGetSymbolAddress(void **ret_pointer, const void *symbol) {
  if (ret_pointer == NULL) return sc_end(cudaErrorInvalidValue);
  return sc_locate_variable(symbol, 0, 0, ret_pointer);
}

SC_PUBLIC cudaError_t cudaGetSymbolSize(size_t *ret_bytes, const void *symbol) {
  const struct sc_driver *driver;
  CUdeviceptr address;
  cudaError_t error = sc_enter(&driver);
  if (error == cudaSuccess && ret_bytes == NULL) error = cudaErrorInvalidValue;
  return sc_end(error == cudaSuccess ? sc_find_variable(driver, symbol, &address, ret_bytes) : error);
}

static bool leads_to_device(enum cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

static bool leads_from_device(enum cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
}

SC_PUBLIC cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                                         enum cudaMemcpyKind kind) {
  void *to;
  if (!leads_to_device(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &to);
  return error == cudaSuccess ? cudaMemcpy(to, from, bytes, kind) : error;
}

SC_PUBLIC cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *from, size_t bytes, size_t offset,
                                              enum cudaMemcpyKind kind, CUstream stream) {
  void *to;
  if (!leads_to_device(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &to);
  return error == cudaSuccess ? cudaMemcpyAsync(to, from, bytes, kind, stream) : error;
}

SC_PUBLIC cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset,
                                           enum cudaMemcpyKind kind) {
  void *from;
  if (!leads_from_device(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &from);
  return error == cudaSuccess ? cudaMemcpy(to, from, bytes, kind) : error;
}

SC_PUBLIC cudaError_t cudaMemcpyFromSymbolAsync(void *to, const void *symbol, size_t bytes, size_t offset,
                                                enum cudaMemcpyKind kind, CUstream stream) {
  void *from;
  if (!leads_from_device(kind)) return sc_end(cudaErrorInvalidMemcpyDirection);
  cudaError_t error = sc_locate_variable(symbol, offset, bytes, &from);
  return error == cudaSuccess ? cudaMemcpyAsync(to, from, bytes, kind, stream) : error;
}
