/*
 * process.h - the ground of the simulated driver: the process's connection to vgpu-simd, its state, its devices.
 *
 * One process = one connection to vgpu-simd; work is written into a ring that only this process writes, completion
 * times come back in memory that only the server writes. Must hold, in all of the driver: entry points check
 * sim_enter() first; nothing is started before cuInit; effects of copies and kernels on memory are applied at
 * submission, in program order, only time is simulated; no busy waiting but the launch cost.
 *
 * Folders, each with the entry points of its things and the headers of what it defines, from the ground up: base,
 * process, arena (what device memory is made of), streams, memory (what programs allocate), arrays, copies, textures,
 * images, modules, graphs, capture, ipc; contexts, which end with all that is in them; entries has what comes before
 * every entry point. tests/rules/test_includes.py has the rule.
 */
#ifndef VG_SIM_PROCESS_H
#define VG_SIM_PROCESS_H
#include "gen/abi/simgpu_bodies.h" /* first: in the files that include this, cuX is the body of cuX */

#include "base/prim.h"
#include "gen/abi/cuda_abi.h"
#include "simgpu/base/slab.h"
#include "simgpu/constants.h"
#include "simgpu/wire.h"
#include <stddef.h>
#include <sys/types.h>

#define SIM_PUBLIC __attribute__((visibility("default")))

static inline uint64_t sim_round_up(uint64_t bytes, uint64_t step) {
  return (bytes + step - 1) / step * step;
}

/* ---- link.c ---- */

struct sim_link {
  int socket;
  int kick; /* eventfd of the server */
  struct sim_ring *ring;
  const struct sim_completions *done;
  const struct sim_page *page;
  bool gone; /* the server has ended: nothing completes any more, waiters are let go */
};
extern struct sim_link sim_link;

CUresult sim_link_open(void); /* CUDA_ERROR_NO_DEVICE: no server there */
/* 0 or -errno: -ENOMEM as the server decides, -EPIPE when it is gone. */
int sim_link_request(enum sim_request_kind kind, int device, uint32_t context, uint64_t bytes);
/* The whole of it: send_fd goes along unless it is -1; ret_fd may be NULL, else the answer brings a descriptor. */
int sim_link_exchange(struct sim_request *request, int send_fd, struct sim_reply *ret_reply, int *ret_fd);
void sim_link_wake(void); /* the server is to look at the ring again */
void sim_link_kick(void);
void sim_link_check(void); /* sets gone when the server has ended */
CUresult sim_waited(void); /* CUDA_SUCCESS, or what a wait answers once the server is gone */

/* ---- state.c ---- */

/* cuInit was called: CUDA_SUCCESS, NOT_INITIALIZED (also in a forked child). Blocks while the process is locked. */
CUresult sim_ready(void);
CUresult sim_started(void);           /* as sim_ready(), but never blocks */
void sim_start(const uint32_t *page); /* cuInit has succeeded: *page is 1 from now on, and 0 in a forked child */
void sim_lock(void);                  /* the process-wide lock of the object lists; short, never held while waiting */
void sim_unlock(void);

/* ---- device.c: devices of this process, in the order and number that CUDA_VISIBLE_DEVICES leaves ---- */

struct sim_device {
  int index; /* the server's */
  char name[64];
  CUuuid uuid;
  uint64_t memory_bytes;
  int sm_count;
  int compute_major, compute_minor;
  CUcontext primary; /* NULL while not retained */
  int primary_references;
  unsigned primary_flags;
};
void sim_devices_find(void); /* applies CUDA_VISIBLE_DEVICES */
int sim_device_count(void);
struct sim_device *sim_device(CUdevice ordinal); /* NULL: no such device */
void sim_device_memory(int index, uint64_t *ret_free_bytes,
                       uint64_t *ret_total_bytes); /* as the cgroup's limit shows */
const char *sim_model_path(void); /* the kernel model file named in the server's configuration, or "" */

void sim_log(const char *text); /* logs.c */

#endif
