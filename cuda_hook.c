/*
 * cuda_hook.c - the launch path: hooks of kernel and graph launches, which wait at the gate and count as outstanding
 * work, and of stream capture, during which our own driver calls rest. The other families' bodies are
 * shim/hook_<family>.c; what only passes is generated (shim/gen/).
 *
 * Every launch first asks vg_gate_solo(): alone on the device, or in no slice at all, it is a tail call.
 */
#include "gate.h"
#include "gen/real.h"
#include "hook_memory.h"

static uint64_t threads_of(unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                           unsigned int block_y, unsigned int block_z) {
  return (uint64_t)grid_x * grid_y * grid_z * block_x * block_y * block_z;
}

/* ---- plain and cooperative launches ---- */

#define LAUNCH_PARAMETERS                                                                                              \
  CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,           \
      unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,                   \
      void **kernelParams
#define LAUNCH_ARGUMENTS                                                                                               \
  f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams

#define GATED_LAUNCH(per_thread, call)                                                                                 \
  struct vg_ticket ticket;                                                                                             \
  uint64_t threads = threads_of(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ);                        \
  vg_gate_enter(&ticket, hStream, per_thread, f, threads);                                                             \
  ticket.kernel = true;                                                                                                \
  CUresult result = call;                                                                                              \
  vg_gate_leave(&ticket, result);                                                                                      \
  return result

CUresult cuLaunchKernel(LAUNCH_PARAMETERS, void **extra) {
  if (VG_LIKELY(vg_gate_solo())) return REAL(cuLaunchKernel)(LAUNCH_ARGUMENTS, extra);
  GATED_LAUNCH(false, REAL(cuLaunchKernel)(LAUNCH_ARGUMENTS, extra));
}

CUresult cuLaunchKernel_ptsz(LAUNCH_PARAMETERS, void **extra) {
  if (VG_LIKELY(vg_gate_solo())) return REAL(cuLaunchKernel_ptsz)(LAUNCH_ARGUMENTS, extra);
  GATED_LAUNCH(true, REAL(cuLaunchKernel_ptsz)(LAUNCH_ARGUMENTS, extra));
}

CUresult cuLaunchCooperativeKernel(LAUNCH_PARAMETERS) {
  if (VG_LIKELY(vg_gate_solo())) return REAL(cuLaunchCooperativeKernel)(LAUNCH_ARGUMENTS);
  GATED_LAUNCH(false, REAL(cuLaunchCooperativeKernel)(LAUNCH_ARGUMENTS));
}

CUresult cuLaunchCooperativeKernel_ptsz(LAUNCH_PARAMETERS) {
  if (VG_LIKELY(vg_gate_solo())) return REAL(cuLaunchCooperativeKernel_ptsz)(LAUNCH_ARGUMENTS);
  GATED_LAUNCH(true, REAL(cuLaunchCooperativeKernel_ptsz)(LAUNCH_ARGUMENTS));
}

/* ---- launches with attributes ---- */

/* A launch that may overlap with the one before it: a marker between the two would forbid just that. */
static bool is_programmatic(const CUlaunchConfig *config) {
  for (unsigned int i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        config->attrs[i].value.programmaticStreamSerializationAllowed)
      return true;
  return false;
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra,
                          bool per_thread) {
  __typeof__(&cuLaunchKernelEx) launch = per_thread ? REAL(cuLaunchKernelEx_ptsz) : REAL(cuLaunchKernelEx);
  if (!config || VG_LIKELY(vg_gate_solo())) return launch(config, f, kernelParams, extra);
  struct vg_ticket ticket;
  uint64_t threads = threads_of(config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                                config->blockDimY, config->blockDimZ);
  vg_gate_enter(&ticket, config->hStream, per_thread, f, threads);
  ticket.kernel = true;
  ticket.programmatic = is_programmatic(config);
  CUresult result = launch(config, f, kernelParams, extra);
  vg_gate_leave(&ticket, result);
  return result;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  return launch_ex(config, f, kernelParams, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  return launch_ex(config, f, kernelParams, extra, true);
}

/* ---- graphs: one launch whose estimate belongs to the executable graph ---- */

static CUresult launch_graph(CUgraphExec graph, CUstream stream, bool per_thread) {
  __typeof__(&cuGraphLaunch) launch = per_thread ? REAL(cuGraphLaunch_ptsz) : REAL(cuGraphLaunch);
  if (VG_LIKELY(vg_gate_solo())) return launch(graph, stream);
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, stream, per_thread, graph, 0);
  CUresult result = launch(graph, stream);
  if (ticket.device && result == CUDA_SUCCESS) vg_graph_launched(ticket.device, graph);
  vg_gate_leave(&ticket, result);
  return result;
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  return launch_graph(hGraph, hStream, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  return launch_graph(hGraphExec, hStream, true);
}

/* ---- stream capture: counted from before it begins until it has ended ---- */

static CUresult capture_begun(CUresult result) {
  if (result != CUDA_SUCCESS) vg_gate_capture_end();
  return result;
}

static CUresult capture_ended(CUresult result) {
  /* An invalidated capture has ended as well; a stream that never captured has not begun one. */
  if (result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
      result == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
    vg_gate_capture_end();
  return result;
}

CUresult cuStreamBeginCapture(CUstream hStream) {
  vg_gate_capture_begin();
  return capture_begun(REAL(cuStreamBeginCapture)(hStream));
}

CUresult cuStreamBeginCapture_ptsz(CUstream hStream) {
  vg_gate_capture_begin();
  return capture_begun(REAL(cuStreamBeginCapture_ptsz)(hStream));
}

CUresult cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode) {
  vg_gate_capture_begin();
  return capture_begun(REAL(cuStreamBeginCapture_v2)(hStream, mode));
}

CUresult cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode) {
  vg_gate_capture_begin();
  return capture_begun(REAL(cuStreamBeginCapture_v2_ptsz)(hStream, mode));
}

CUresult cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                     const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                     CUstreamCaptureMode mode) {
  vg_gate_capture_begin();
  return capture_begun(
      REAL(cuStreamBeginCaptureToGraph)(hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
                                          const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                          CUstreamCaptureMode mode) {
  vg_gate_capture_begin();
  return capture_begun(
      REAL(cuStreamBeginCaptureToGraph_ptsz)(hStream, hGraph, dependencies, dependencyData, numDependencies, mode));
}

CUresult cuStreamEndCapture(CUstream hStream, CUgraph *phGraph) {
  return capture_ended(REAL(cuStreamEndCapture)(hStream, phGraph));
}

CUresult cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph) {
  return capture_ended(REAL(cuStreamEndCapture_ptsz)(hStream, phGraph));
}
