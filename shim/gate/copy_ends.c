/*
 * copy_ends.c - which way a copy goes whose call does not say it: by the types of memory that it names, or by
 * addresses, of which the driver knows the types. A thread remembers its last two addresses by their 2 MiB: memory that
 * becomes another type there is counted in the wrong direction for a while.
 */
#include "gate/copies.h"
#include "gen/abi/real.h"

#define REMEMBERED_SHIFT 21

enum side { SIDE_DEVICE = 1, SIDE_PINNED, SIDE_PAGEABLE };

static enum side ask(CUdeviceptr address) {
  unsigned type = 0;
  if (REAL(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS || type == 0)
    return SIDE_PAGEABLE;
  return type == CU_MEMORYTYPE_HOST ? SIDE_PINNED : SIDE_DEVICE;
}

/* number: of the copy's two addresses. */
static enum side side_of(CUdeviceptr address, int number) {
  static __thread struct {
    CUdeviceptr block;
    enum side side;
  } remembered[2] __attribute__((tls_model("initial-exec")));
  CUdeviceptr block = address >> REMEMBERED_SHIFT;
  if (remembered[number].side && remembered[number].block == block) return remembered[number].side;
  enum side side = ask(address);
  remembered[number].block = block;
  remembered[number].side = side;
  return side;
}

static bool is_on_device(CUmemorytype type, CUdeviceptr address, int number) {
  return type == CU_MEMORYTYPE_UNIFIED ? side_of(address, number) == SIDE_DEVICE : type != CU_MEMORYTYPE_HOST;
}

enum vg_copy_direction vg_copy_direction(CUmemorytype to, CUdeviceptr to_address, CUmemorytype from,
                                         CUdeviceptr from_address) {
  bool to_device = is_on_device(to, to_address, 0), from_device = is_on_device(from, from_address, 1);
  if (to_device == from_device) return VG_COPY_ELSEWHERE;
  return to_device ? VG_COPY_TO_DEVICE : VG_COPY_FROM_DEVICE;
}

bool vg_copy_is_pinned(const void *host) {
  return ask((CUdeviceptr)host) == SIDE_PINNED;
}
