/*
 * context.c - contexts: which one the calling thread uses (the gate follows its device), and what they cost. A context
 * is charged before it is created; its charge is returned when it is gone, with all that it held. Called by programs,
 * any thread.
 */
#include "context/context.h"
#include "base/prim.h"
#include "gate/gate.h"
#include "gen/abi/real.h"
#include "gen/hooks/bodies.h"
#include "hooks/lifecycle.h"

/* ---- creation ---- */

static bool begin(CUdevice ordinal, enum vg_context_kind kind, struct vg_device **ret_device) {
  *ret_device = vg_context_ordinal(ordinal);
  return !*ret_device || vg_context_begin(*ret_device, kind) == 0;
}

static CUresult end(struct vg_device *device, CUresult result, const CUcontext *created, enum vg_context_kind kind) {
  vg_context_switched();
  if (device) vg_context_end(device, result == CUDA_SUCCESS && created ? *created : NULL, kind);
  return result;
}

/* The error where a reservation fails: OUT_OF_MEMORY, unless the driver would refuse the arguments anyway. */
static CUresult refused(const CUcontext *created, unsigned int flags) {
  return created && !(flags & ~(unsigned)CU_CTX_FLAGS_MASK) ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
}

#define CREATE(kind, ordinal, created, flags, call)                                                                    \
  struct vg_device *device;                                                                                            \
  if (!begin(ordinal, kind, &device)) return refused(created, flags);                                                  \
  return end(device, call, created, kind)

CUresult cuCtxCreate(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  CREATE(VG_CONTEXT_OWN, dev, pctx, flags, REAL(cuCtxCreate)(pctx, flags, dev));
}

CUresult cuCtxCreate_v2(CUcontext *pctx, unsigned int flags, CUdevice dev) {
  CREATE(VG_CONTEXT_OWN, dev, pctx, flags, REAL(cuCtxCreate_v2)(pctx, flags, dev));
}

CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
                        CUdevice dev) {
  CREATE(VG_CONTEXT_OWN, dev, pctx, flags, REAL(cuCtxCreate_v3)(pctx, paramsArray, numParams, flags, dev));
}

CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev) {
  CREATE(VG_CONTEXT_OWN, dev, pctx, flags, REAL(cuCtxCreate_v4)(pctx, ctxCreateParams, flags, dev));
}

CUresult cuGLCtxCreate(CUcontext *pCtx, unsigned int Flags, CUdevice ordinal) {
  CREATE(VG_CONTEXT_OWN, ordinal, pCtx, Flags, REAL(cuGLCtxCreate)(pCtx, Flags, ordinal));
}

CUresult cuGLCtxCreate_v2(CUcontext *pCtx, unsigned int Flags, CUdevice ordinal) {
  CREATE(VG_CONTEXT_OWN, ordinal, pCtx, Flags, REAL(cuGLCtxCreate_v2)(pCtx, Flags, ordinal));
}

CUresult cuVDPAUCtxCreate(CUcontext *pCtx, unsigned int flags, CUdevice ordinal, VdpDevice vdpDevice,
                          VdpGetProcAddress *vdpGetProcAddress) {
  CREATE(VG_CONTEXT_OWN, ordinal, pCtx, flags,
         REAL(cuVDPAUCtxCreate)(pCtx, flags, ordinal, vdpDevice, vdpGetProcAddress));
}

CUresult cuVDPAUCtxCreate_v2(CUcontext *pCtx, unsigned int flags, CUdevice ordinal, VdpDevice vdpDevice,
                             VdpGetProcAddress *vdpGetProcAddress) {
  CREATE(VG_CONTEXT_OWN, ordinal, pCtx, flags,
         REAL(cuVDPAUCtxCreate_v2)(pCtx, flags, ordinal, vdpDevice, vdpGetProcAddress));
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev) {
  CREATE(VG_CONTEXT_PRIMARY, dev, pctx, 0, REAL(cuDevicePrimaryCtxRetain)(pctx, dev));
}

/* ---- destruction ---- */

static void finish(struct vg_device *device, CUcontext context, bool gone) {
  if (gone) vg_lifecycle_context_gone(device, context);
  vg_context_retired(device, context, gone);
  vg_context_switched();
}

static bool retire(CUcontext context, bool all, struct vg_device **ret_device) {
  if (!context || !vg_context_retire(context, all, ret_device)) return false;
  if (VG_LOAD(&(*ret_device)->gate_word)) vg_gate_context_gone(*ret_device, context);
  return true;
}

static CUresult destroy(CUcontext context, CUresult (*call)(CUcontext)) {
  struct vg_device *device;
  if (!retire(context, true, &device)) {
    vg_context_switched();
    return call(context);
  }
  CUresult result = call(context);
  finish(device, context, result == CUDA_SUCCESS);
  return result;
}

CUresult cuCtxDestroy(CUcontext ctx) {
  return destroy(ctx, REAL(cuCtxDestroy));
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  return destroy(ctx, REAL(cuCtxDestroy_v2));
}

/* An old way to share a context of cuCtxCreate: it counts attaches and detaches. The current context is attached to; it
 * is counted here first, since another thread may detach from it as soon as the driver has counted. */
CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags) {
  struct vg_device *device;
  CUcontext context = NULL;
  if (!vg_session.ledger || REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || !context)
    return REAL(cuCtxAttach)(pctx, flags);
  vg_context_attached(context);
  CUresult result = REAL(cuCtxAttach)(pctx, flags);
  if (result != CUDA_SUCCESS && retire(context, false, &device)) finish(device, context, false);
  return result;
}

CUresult cuCtxDetach(CUcontext ctx) {
  struct vg_device *device;
  if (retire(ctx, false, &device)) {
    CUresult result = REAL(cuCtxDetach)(ctx);
    finish(device, ctx, result == CUDA_SUCCESS);
    return result;
  }
  vg_context_switched();
  CUresult result = REAL(cuCtxDetach)(ctx);
  if (result != CUDA_SUCCESS) vg_context_attached(ctx); /* refused: not current to this thread, for example */
  return result;
}

static bool primary_lives(CUdevice dev) {
  unsigned int flags;
  int active = 0;
  return REAL(cuDevicePrimaryCtxGetState)(dev, &flags, &active) == CUDA_SUCCESS && active;
}

/* Only the driver knows for sure whether this was the last reference: it is asked afterwards. */
static CUresult primary(CUdevice dev, bool all, CUresult (*call)(CUdevice)) {
  struct vg_device *device = vg_context_ordinal(dev);
  CUcontext context = device ? vg_context_primary(device) : NULL;
  bool last = retire(context, all, &device);
  CUresult result = call(dev);
  /* Of several that are released at once the last to count need not be the last to call. */
  if (!last && context && result == CUDA_SUCCESS && !primary_lives(dev)) last = retire(context, true, &device);
  if (last) finish(device, context, result == CUDA_SUCCESS && !primary_lives(dev));
  return result;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev) {
  return primary(dev, false, REAL(cuDevicePrimaryCtxRelease));
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return primary(dev, false, REAL(cuDevicePrimaryCtxRelease_v2));
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev) {
  return primary(dev, true, REAL(cuDevicePrimaryCtxReset));
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return primary(dev, true, REAL(cuDevicePrimaryCtxReset_v2));
}

/* ---- green contexts: a part of a device's SMs inside this process ---- */

/* A context that is not found is not accounted, so a failed call is repeated once. */
static CUcontext of_green(CUgreenCtx green) {
  CUcontext context = NULL;
  bool found = REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS ||
               REAL(cuCtxFromGreenCtx)(&context, green) == CUDA_SUCCESS;
  return found ? context : NULL;
}

/* The handle of the primary context, which only the driver knows. */
static CUcontext primary_of(CUdevice dev) {
  CUcontext context;
  if (REAL(cuDevicePrimaryCtxRetain)(&context, dev) != CUDA_SUCCESS) return NULL;
  REAL(cuDevicePrimaryCtxRelease_v2)(dev);
  return context;
}

/* A green context retains the primary context: that is its cost. One that cannot be accounted is destroyed again. */
CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags) {
  struct vg_device *device;
  CUgreenCtx made = NULL;
  if (!phCtx || !vg_context_ordinal(dev)) return REAL(cuGreenCtxCreate)(phCtx, desc, dev, flags);
  if (!begin(dev, VG_CONTEXT_PRIMARY, &device)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = REAL(cuGreenCtxCreate)(&made, desc, dev, flags);
  CUcontext context = result == CUDA_SUCCESS ? of_green(made) : NULL;
  CUcontext primary = context ? primary_of(dev) : NULL;
  if (primary) {
    vg_context_green(device, context);
    *phCtx = made;
  } else if (result == CUDA_SUCCESS) {
    REAL(cuGreenCtxDestroy)(made);
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return end(device, result, &primary, VG_CONTEXT_PRIMARY);
}

CUresult cuGreenCtxDestroy(CUgreenCtx hCtx) {
  CUcontext context = vg_session.ledger ? of_green(hCtx) : NULL;
  struct vg_device *device = context ? vg_context_device_of(context) : NULL;
  if (!device) return REAL(cuGreenCtxDestroy)(hCtx);
  if (VG_LOAD(&device->gate_word)) vg_gate_context_gone(device, context);
  CUcontext primary = vg_context_primary(device);
  bool last = retire(primary, false, &device);
  CUresult result = REAL(cuGreenCtxDestroy)(hCtx);
  if (result == CUDA_SUCCESS) vg_context_green_gone(context);
  if (last) finish(device, primary, result == CUDA_SUCCESS && !primary_lives(vg_context_handle(device)));
  vg_context_switched();
  return result;
}

/* ---- current ---- */

CUresult cuCtxSetCurrent(CUcontext ctx) {
  vg_context_switched();
  return REAL(cuCtxSetCurrent)(ctx);
}

CUresult cuCtxPushCurrent(CUcontext ctx) {
  vg_context_switched();
  return REAL(cuCtxPushCurrent)(ctx);
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  vg_context_switched();
  return REAL(cuCtxPushCurrent_v2)(ctx);
}

CUresult cuCtxPopCurrent(CUcontext *pctx) {
  vg_context_switched();
  return REAL(cuCtxPopCurrent)(pctx);
}

CUresult cuCtxPopCurrent_v2(CUcontext *pctx) {
  vg_context_switched();
  return REAL(cuCtxPopCurrent_v2)(pctx);
}
