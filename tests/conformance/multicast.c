/*
 * multicast: objects that reach memory of several devices: their team, what may be bound, and that they take nothing.
 */
#include "row.h"

#define TEAM 2u

static CUmulticastObjectProp prop = {.numDevices = TEAM};
static CUmemGenericAllocationHandle object;

static void begin_team(void) {
  size_t granularity = 0;
  int count = 0, supported = 0;
  begin();
  NEED(cuDeviceGetCount(&count));
  if (count < (int)TEAM) skip("needs two devices");
  for (int i = 0; i < (int)TEAM; i++) {
    NEED(cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, i));
    if (!supported) skip("the device has no multicast");
  }
  prop.size = GRANULE;
  NEED(cuMulticastGetGranularity(&granularity, &prop, CU_MULTICAST_GRANULARITY_RECOMMENDED));
  prop.size = granularity;
}

static CUmemGenericAllocationHandle memory_of(int device) {
  CUmemAllocationProp of = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  CUmemGenericAllocationHandle handle;
  NEED(cuMemCreate(&handle, prop.size, &of, 0));
  return handle;
}

static void multicast_object(void) {
  begin_team();
  size_t before = free_bytes();
  CODE("create", cuMulticastCreate(&object, &prop));
  CODE("add", cuMulticastAddDevice(object, 0));
  CODE("add", cuMulticastAddDevice(object, 1));
  taken("created", before);
  CUmemGenericAllocationHandle here = memory_of(0), there = memory_of(1);
  before = free_bytes();
  CODE("bind", cuMulticastBindMem(object, 0, here, 0, prop.size, 0));
  CODE("bind", cuMulticastBindMem(object, 0, there, 0, prop.size, 0));
  taken("bound", before);
  CODE("unbind", cuMulticastUnbind(object, 0, 0, prop.size));
  CODE("unbind", cuMulticastUnbind(object, 1, 0, prop.size));
  CODE("release", cuMemRelease(object));
  taken("released", before);
}

/* What is bound stays until it is unbound. */
static void multicast_holds(void) {
  begin_team();
  NEED(cuMulticastCreate(&object, &prop));
  NEED(cuMulticastAddDevice(object, 0));
  NEED(cuMulticastAddDevice(object, 1));
  CUmemGenericAllocationHandle here = memory_of(0);
  NEED(cuMulticastBindMem(object, 0, here, 0, prop.size, 0));
  size_t before = free_bytes();
  CODE("release", cuMemRelease(here));
  taken("held", before);
  CODE("unbind", cuMulticastUnbind(object, 0, 0, prop.size));
  fact("freed", free_bytes() >= before + prop.size);
}

static void multicast_refused(void) {
  begin_team();
  CUmulticastObjectProp none = prop;
  none.numDevices = 0;
  fact("no_team_refused", cuMulticastCreate(&object, &none) != CUDA_SUCCESS);
  none = prop;
  none.size += 1;
  CODE("uneven", cuMulticastCreate(&object, &none));
  NEED(cuMulticastCreate(&object, &prop));
  CODE("device", cuMulticastAddDevice(object, 99));
  fact("early_refused", cuMulticastBindMem(object, 0, memory_of(0), 0, prop.size, 0) != CUDA_SUCCESS);
  CODE("not_one", cuMulticastAddDevice(memory_of(0), 0));
}

ROWS(ROW(multicast_object), ROW(multicast_holds), ROW(multicast_refused))
