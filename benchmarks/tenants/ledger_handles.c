/* ledger_handles.c - see ledger.h: physical memory by handle, where it is mapped and what is bound of it. */
#include "ledger.h"

static const CUmemAllocationProp physical = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                             .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* parts: handle (0: released already), address, size, whether it is mapped twice */
bool make_mapped(struct worker *worker, struct object *object) {
  size_t size = in_granules(object->bytes);
  CUmemGenericAllocationHandle handle, again;
  CUdeviceptr address;
  if (!MAY(cuMemCreate(&handle, size, &physical, 0))) return false;
  object->parts[3] = draw(worker, 2);
  if (!MAY(cuMemAddressReserve(&address, 2 * size, 0, 0, 0))) {
    MUST(cuMemRelease(handle));
    return false;
  }
  bool mapped = MAY(cuMemMap(address, size, 0, handle, 0));
  if (mapped && object->parts[3]) object->parts[3] = MAY(cuMemMap(address + size, size, 0, handle, 0));
  if (!mapped) {
    MUST(cuMemRelease(handle));
    MUST(cuMemAddressFree(address, 2 * size));
    return false;
  }
  if (draw(worker, 2) && MAY(cuMemRetainAllocationHandle(&again, (void *)address))) MUST(cuMemRelease(again));
  if (draw(worker, 2)) { /* the mapping alone keeps it */
    MUST(cuMemRelease(handle));
    handle = 0;
  }
  object->parts[0] = handle;
  object->parts[1] = address;
  object->parts[2] = size;
  return true;
}

void drop_mapped(struct worker *worker, struct object *object) {
  uint64_t handle = object->parts[0], address = object->parts[1], size = object->parts[2];
  if (handle && draw(worker, 2)) {
    MUST(cuMemRelease(handle));
    handle = 0;
  }
  MUST(cuMemUnmap(address, object->parts[3] ? 2 * size : size));
  MUST(cuMemAddressFree(address, 2 * size));
  if (handle) MUST(cuMemRelease(handle));
}

bool make_unmapped(struct worker *worker, struct object *object) {
  return MAY(cuMemCreate(&object->parts[0], in_granules(object->bytes), &physical, 0));
}

void drop_unmapped(struct worker *worker, struct object *object) {
  (void)worker;
  MUST(cuMemRelease(object->parts[0]));
}

/* ---- bound to a multicast object, whose handle is released: parts: object, mapping of it (0: none), size ---- */

bool make_bound(struct worker *worker, struct object *object) {
  size_t size = in_granules(object->bytes);
  CUmulticastObjectProp props = {.numDevices = 1, .size = size};
  CUmemGenericAllocationHandle team, memory;
  if (!MAY(cuMulticastCreate(&team, &props))) return false;
  bool made = MAY(cuMulticastAddDevice(team, 0)) && MAY(cuMemCreate(&memory, size, &physical, 0));
  bool bound = made && MAY(cuMulticastBindMem(team, 0, memory, 0, size, 0));
  if (made) MUST(cuMemRelease(memory));
  if (!bound) MUST(cuMemRelease(team));
  object->parts[0] = team;
  object->parts[2] = size;
  return bound;
}

void drop_bound(struct worker *worker, struct object *object) {
  if (draw(worker, 2)) (void)MAY(cuMulticastUnbind(object->parts[0], 0, 0, object->parts[2]));
  MUST(cuMemRelease(object->parts[0]));
}

/* ---- tiles of a sparse array: parts: the array ---- */

static CUarrayMapInfo whole_of(CUarray array, uint64_t side, CUmemGenericAllocationHandle handle) {
  CUarrayMapInfo info = {.resourceType = CU_RESOURCE_TYPE_ARRAY, .resource.array = array, .deviceBitMask = 1};
  info.subresource.sparseLevel.extentWidth = info.subresource.sparseLevel.extentHeight = (unsigned)side;
  info.subresource.sparseLevel.extentDepth = 1;
  info.memOperationType = handle ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  info.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  info.memHandle.memHandle = handle;
  return info;
}

bool make_sparse(struct worker *worker, struct object *object) {
  static const uint64_t tile = 128; /* of floats */
  uint64_t side = tile;
  while (side < 8192 && side * side * sizeof(float) < object->bytes) side += tile;
  CUmemAllocationProp props = physical;
  props.allocFlags.usage = CU_MEM_CREATE_USAGE_TILE_POOL;
  CUDA_ARRAY3D_DESCRIPTOR shape = {
      .Width = side, .Height = side, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1, .Flags = CUDA_ARRAY3D_SPARSE};
  uint64_t bytes = object->bytes >= LARGE_BYTES ? object->bytes : side * side * sizeof(float);
  CUmemGenericAllocationHandle handle;
  CUarray array;
  if (!MAY(cuArray3DCreate_v2(&array, &shape))) return false;
  bool made = MAY(cuMemCreate(&handle, in_granules(bytes), &props, 0));
  CUarrayMapInfo info = whole_of(array, side, made ? handle : 0);
  bool mapped = made && MAY(cuMemMapArrayAsync(&info, 1, stream_of(worker)));
  if (made) MUST(cuMemRelease(handle));
  if (!mapped) MUST(cuArrayDestroy(array));
  object->parts[0] = (uintptr_t)array;
  object->parts[1] = side;
  return mapped;
}

void drop_sparse(struct worker *worker, struct object *object) {
  CUarray array = (CUarray)object->parts[0];
  CUarrayMapInfo info = whole_of(array, object->parts[1], 0);
  if (draw(worker, 2)) (void)MAY(cuMemMapArrayAsync(&info, 1, stream_of(worker)));
  MUST(cuArrayDestroy(array));
}
