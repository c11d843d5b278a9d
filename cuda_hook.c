/*
 * cuda_hook.c - the launch path: hooks of kernel and graph launches, which wait at the gate and count as outstanding
 * work. The hooks of other families are in shim/hooks/; entry points that only pass are generated (shim/gen/).
 *
 * Every launch first asks vg_gate_solo_fast(): alone on the device it is a jump to the driver. A launch that is counted
 * takes the short path of gate/short_path.h, or the long one: vg_gate_enter() (gate/enter.c), the driver and
 * vg_gate_leave() (gate/count.c).
 */
#include "gate/copies.h"
#include "gate/short_path.h"
#include "gen/abi/real.h"
#include "hooks/graph_memory.h"

/* In 32 bits what the driver accepts: blocks have 1024 threads at most, grids 65535 along y and z. */
static inline uint64_t threads_of(uint32_t grid_x, uint32_t grid_y, uint32_t grid_z, uint32_t block_x, uint32_t block_y,
                                  uint32_t block_z) {
  return (uint64_t)(block_x * block_y * block_z) * (grid_y * grid_z) * grid_x;
}

/* ---- plain and cooperative launches ---- */

#define FIRST_PARAMETERS                                                                                               \
  CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,           \
      unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream
/* The two numbers on x86-64's stack are declared as wide as their places: one instruction passes each on. */
#define LAUNCH_PARAMETERS                                                                                              \
  CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,           \
      unsigned int blockDimY, uintptr_t blockDimZ, uintptr_t sharedMemBytes, CUstream hStream, void **kernelParams
#define LAUNCH_ARGUMENTS                                                                                               \
  f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes, hStream, kernelParams

/* The arguments that are passed in registers. The others are on the stack and stay there: a jump need not know them,
 * and a compiler that knows them loads and stores each one, which costs more than all the rest. */
#if defined(__x86_64__)
#define IN_REGISTERS                                                                                                   \
  CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,           \
      unsigned int blockDimY
#define REGISTERS f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY
#elif defined(__aarch64__)
#define IN_REGISTERS                                                                                                   \
  CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX,           \
      unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes
#define REGISTERS f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes
#endif

typedef CUresult (*launch_jump)(IN_REGISTERS);

/* A call instead of the jump would lose the arguments on the stack. Compilers jump where the prototypes agree and no
 * code follows, but only when they optimize; from gcc 15 on an attribute demands it. For older compilers a test checks
 * the built library (tests/shim/test_library.py). */
#ifndef __OPTIMIZE__
#error "launches are passed on by jumps: to be compiled with -O2"
#endif
#if defined(__has_attribute) && __has_attribute(musttail)
#define JUMP __attribute__((musttail)) return
#else
#define JUMP return
#endif

/* The function that the program calls only jumps: to the driver's function, or to one that looks whether the launch
 * takes the short path and jumps, too, to one that counts it there or to the long path. Four functions in C, so that
 * each saves and moves what it needs itself, and two names for each, since a jump has another prototype. Tests with
 * marked arguments check that none are lost (tests/shim/test_arguments.py). The first one lies within a cache line:
 * across two of them a launch that passes uncounted would cost a third more. */
#define HIDDEN __attribute__((visibility("hidden"))) CUresult
#define LAUNCH(name, per_thread, parameters, arguments)                                                                \
  HIDDEN jump_gated_##name(IN_REGISTERS) __asm__("vg_gated_" #name);                                                   \
  HIDDEN jump_short_##name(IN_REGISTERS) __asm__("vg_short_" #name);                                                   \
  HIDDEN jump_long_##name(IN_REGISTERS) __asm__("vg_long_" #name);                                                     \
  HIDDEN vg_gated_##name(FIRST_PARAMETERS);                                                                            \
  HIDDEN vg_short_##name parameters;                                                                                   \
  HIDDEN vg_long_##name parameters;                                                                                    \
  __attribute__((visibility("default"), aligned(64))) CUresult jump_##name(IN_REGISTERS) __asm__(#name);               \
  CUresult vg_long_##name parameters {                                                                                 \
    if (VG_UNLIKELY(!VG_LOAD_RELAXED(&vg_gate_only_device)) && vg_gate_solo_launch_slow())                             \
      return REAL(name) arguments;                                                                                     \
    struct vg_ticket ticket;                                                                                           \
    uint64_t threads = threads_of(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ);                      \
    vg_gate_enter(&ticket, hStream, per_thread, f, threads);                                                           \
    ticket.kernel = true;                                                                                              \
    CUresult result = REAL(name) arguments;                                                                            \
    return vg_gate_leave(&ticket, result);                                                                             \
  }                                                                                                                    \
  CUresult vg_short_##name parameters {                                                                                \
    struct vg_work *work = vg_context_here.work;                                                                       \
    __typeof__(&vg_short_##name) launch = (__typeof__(&vg_short_##name))(void *)REAL(name);                            \
    return vg_gate_leave_short(work, launch arguments, true, false);                                                   \
  }                                                                                                                    \
  CUresult vg_gated_##name(FIRST_PARAMETERS) {                                                                         \
    (void)sharedMemBytes;                                                                                              \
    uint64_t threads = threads_of(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ);                      \
    if (VG_LIKELY(vg_gate_enter_short(hStream, per_thread, f, threads) != NULL)) return jump_short_##name(REGISTERS);  \
    return jump_long_##name(REGISTERS);                                                                                \
  }                                                                                                                    \
  CUresult jump_##name(IN_REGISTERS) {                                                                                 \
    launch_jump jump = (launch_jump)(void *)REAL(name);                                                                \
    if (VG_LIKELY(vg_gate_solo_fast()) && vg_gate_solo_credit()) JUMP jump(REGISTERS);                                 \
    JUMP jump_gated_##name(REGISTERS);                                                                                 \
  }

LAUNCH(cuLaunchKernel, false, (LAUNCH_PARAMETERS, void **extra), (LAUNCH_ARGUMENTS, extra))
LAUNCH(cuLaunchKernel_ptsz, true, (LAUNCH_PARAMETERS, void **extra), (LAUNCH_ARGUMENTS, extra))
LAUNCH(cuLaunchCooperativeKernel, false, (LAUNCH_PARAMETERS), (LAUNCH_ARGUMENTS))
LAUNCH(cuLaunchCooperativeKernel_ptsz, true, (LAUNCH_PARAMETERS), (LAUNCH_ARGUMENTS))

/* ---- launches with attributes ---- */

/* A launch that may overlap with the one before it: a marker between the two would forbid just that. */
static bool is_programmatic(const CUlaunchConfig *config) {
  for (unsigned int i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        config->attrs[i].value.programmaticStreamSerializationAllowed)
      return true;
  return false;
}

static __attribute__((noinline)) CUresult gated_launch_ex(const CUlaunchConfig *config, CUfunction f,
                                                          void **kernelParams, void **extra, bool per_thread) {
  __typeof__(&cuLaunchKernelEx) launch = per_thread ? REAL(cuLaunchKernelEx_ptsz) : REAL(cuLaunchKernelEx);
  if (!config || vg_gate_solo_launch())
    return launch(config, f, kernelParams, extra); /* before cuInit config may be invalid */
  uint64_t threads = threads_of(config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                                config->blockDimY, config->blockDimZ);
  struct vg_work *again = vg_gate_enter_short(config->hStream, per_thread, f, threads);
  if (VG_LIKELY(again != NULL)) {
    CUresult result = launch(config, f, kernelParams, extra);
    bool programmatic = result == CUDA_SUCCESS && is_programmatic(config); /* the driver has read the attributes */
    return vg_gate_leave_short(again, result, true, programmatic);
  }
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, config->hStream, per_thread, f, threads);
  ticket.kernel = true;
  CUresult result = launch(config, f, kernelParams, extra);
  ticket.programmatic = result == CUDA_SUCCESS && is_programmatic(config);
  return vg_gate_leave(&ticket, result);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  bool plain = vg_gate_solo_fast() && vg_gate_solo_credit();
  if (VG_LIKELY(plain)) return REAL(cuLaunchKernelEx)(config, f, kernelParams, extra);
  return gated_launch_ex(config, f, kernelParams, extra, false);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra) {
  bool plain = vg_gate_solo_fast() && vg_gate_solo_credit();
  if (VG_LIKELY(plain)) return REAL(cuLaunchKernelEx_ptsz)(config, f, kernelParams, extra);
  return gated_launch_ex(config, f, kernelParams, extra, true);
}

/* ---- graphs: one launch whose estimate belongs to the executable graph ---- */

static CUresult launch_graph_whole(CUgraphExec graph, CUstream stream, bool per_thread) {
  __typeof__(&cuGraphLaunch) launch = per_thread ? REAL(cuGraphLaunch_ptsz) : REAL(cuGraphLaunch);
  if (vg_gate_solo_launch()) return vg_graph_paid_call(graph, stream, launch);
  struct vg_ticket ticket;
  vg_gate_enter(&ticket, stream, per_thread, graph, 0);
  CUresult result = vg_graph_paid_call(graph, stream, launch);
  if (ticket.device && result == CUDA_SUCCESS) vg_graph_launched(ticket.device, graph);
  return vg_gate_leave(&ticket, result);
}

static __attribute__((noinline)) CUresult launch_graph_long(CUgraphExec graph, CUstream stream, bool per_thread) {
  if (VG_LIKELY(!VG_LOAD_RELAXED(&vg_gate_graphs_that_copy))) return launch_graph_whole(graph, stream, per_thread);
  vg_copy_wait_graph(graph, stream, per_thread);
  CUresult result = launch_graph_whole(graph, stream, per_thread);
  if (result == CUDA_SUCCESS) vg_copy_count_graph(graph, stream, per_thread);
  return result;
}

/* Whether all graphs of the program are one launch and nothing else: none holds memory, and none copies. */
static inline bool are_graphs_plain(void) {
  return VG_LIKELY(!(VG_LOAD_RELAXED(&vg_graphs_with_memory) | VG_LOAD_RELAXED(&vg_gate_graphs_that_copy)));
}

/* The short path never opens in a gang, whose collectives are counted (vg_graph_launched()). */
static inline CUresult launch_graph_gated(CUgraphExec graph, CUstream stream, bool per_thread,
                                          __typeof__(&cuGraphLaunch) launch) {
  struct vg_work *again = NULL;
  if (are_graphs_plain()) again = vg_gate_enter_short(stream, per_thread, graph, 0);
  if (VG_UNLIKELY(!again)) return launch_graph_long(graph, stream, per_thread);
  return vg_gate_leave_short(again, launch(graph, stream), false, false);
}

static __attribute__((noinline)) CUresult gated_launch_graph(CUgraphExec graph, CUstream stream) {
  return launch_graph_gated(graph, stream, false, REAL(cuGraphLaunch));
}

static __attribute__((noinline)) CUresult gated_launch_graph_ptsz(CUgraphExec graph, CUstream stream) {
  return launch_graph_gated(graph, stream, true, REAL(cuGraphLaunch_ptsz));
}

CUresult cuGraphLaunch(CUgraphExec hGraph, CUstream hStream) {
  bool plain = are_graphs_plain() && vg_gate_solo_fast() && vg_gate_solo_credit();
  return VG_LIKELY(plain) ? REAL(cuGraphLaunch)(hGraph, hStream) : gated_launch_graph(hGraph, hStream);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream) {
  bool plain = are_graphs_plain() && vg_gate_solo_fast() && vg_gate_solo_credit();
  return VG_LIKELY(plain) ? REAL(cuGraphLaunch_ptsz)(hGraphExec, hStream)
                          : gated_launch_graph_ptsz(hGraphExec, hStream);
}
