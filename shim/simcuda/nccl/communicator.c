/*
 * communicator.c - communicators: how they are made of a unique id, for one rank or for all devices of a process, what
 * programs can ask of them, and their end. Called by programs; split.c makes communicators of communicators.
 */
#define _GNU_SOURCE /* secure_getenv */
#include "simcuda/nccl/communicator.h"
#include "base/prim.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/failure.h"
#include "simcuda/nccl/group.h"
#include "simcuda/nccl/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMM_MAGIC 0x4d4d4f43u
#define COMPUTE_BYTES (256ull << 10) /* more takes the host longer than a step of a training may */
#define COMPUTE_BYTES_MAX (1ull << 30)
#define ABORT_WAIT_NS (5 * VG_NS_PER_S)
#define INTRODUCTION_NS (60 * VG_NS_PER_S)

ncclResult_t sc_comm_check(const struct ncclComm *comm, const char *function) {
  if (comm == NULL) return sc_nccl_fail(ncclInvalidArgument, "%s: the communicator is NULL", function);
  if (VG_LOAD(&comm->magic) == COMM_MAGIC) return ncclSuccess;
  return sc_nccl_fail(ncclInvalidArgument, "%s: %p is no communicator, or a destroyed one", function, (void *)comm);
}

/* ---- making ---- */

static uint64_t choose_compute_bytes(void) {
  const char *text = secure_getenv("VGPU_SIM_NCCL_COMPUTE_BYTES");
  uint64_t bytes = text != NULL && text[0] != 0 ? strtoull(text, NULL, 0) : COMPUTE_BYTES;
  if (bytes > COMPUTE_BYTES_MAX) bytes = COMPUTE_BYTES_MAX;
  return bytes;
}

/* The caller's context; where there is none, the first device's primary one, as the runtime does it. */
static ncclResult_t find_context(const struct sc_driver *driver, CUcontext *ret_context) {
  CUdevice first;
  CUresult result = driver->cuInit(0);
  if (result == CUDA_SUCCESS) result = driver->cuCtxGetCurrent(ret_context);
  if (result != CUDA_SUCCESS || *ret_context != NULL) return sc_nccl_check(result, "cuCtxGetCurrent");
  result = driver->cuDeviceGet(&first, 0);
  if (result == CUDA_SUCCESS) result = driver->cuDevicePrimaryCtxRetain(ret_context, first);
  if (result == CUDA_SUCCESS) result = driver->cuCtxSetCurrent(*ret_context);
  return sc_nccl_check(result, "cuDevicePrimaryCtxRetain");
}

struct ncclComm *sc_comm_make(uint32_t rank, uint32_t rank_count) {
  const struct sc_driver *driver = sc_driver();
  CUcontext context;
  if (driver == NULL) {
    sc_nccl_fail(ncclUnhandledCudaError, "there is no CUDA driver");
    return NULL;
  }
  if (find_context(driver, &context) != ncclSuccess) return NULL;
  struct ncclComm *comm = calloc(1, sizeof *comm);
  if (comm == NULL) {
    sc_nccl_fail(ncclSystemError, "no memory for a communicator");
    return NULL;
  }
  comm->rank = rank;
  comm->rank_count = rank_count;
  comm->context = context;
  comm->fd = -1;
  comm->async_error = ncclInProgress;
  driver->cuCtxGetDevice(&comm->device);
  comm->magic = COMM_MAGIC;
  return comm;
}

static void discard(struct ncclComm *comm) {
  comm->magic = 0;
  free(comm);
}

/* The number of a device as NCCL writes it: of "0000:1b:00.0" the digits 1b000. */
static uint32_t number_of_device(const struct sc_driver *driver, CUdevice device) {
  char text[32] = "";
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (driver->cuDeviceGetPCIBusId(text, sizeof text, device) != CUDA_SUCCESS) return 0;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return 0;
  return domain << 20 | bus << 12 | slot << 4 | function;
}

/* It has said who it is, or is late. */
static bool has_come(const struct ncclComm *comm, uint32_t rank, uint64_t deadline_ns) {
  return VG_LOAD(&comm->area->ranks[rank].state) != SC_RANK_ABSENT || vg_prim_now_ns() > deadline_ns;
}

/* Says who this rank is, and waits until all others have: they have the file by now. */

static ncclResult_t introduce(struct ncclComm *comm, const struct sc_driver *driver) {
  struct sc_rank *own = &comm->area->ranks[comm->rank];
  own->pci = number_of_device(driver, comm->device);
  own->process = sc_area_process();
  CUuuid uuid = {{0}};
  driver->cuDeviceGetUuid_v2(&uuid, comm->device);
  memcpy(own->uuid, &uuid, sizeof own->uuid);
  VG_STORE(&own->state, SC_RANK_PRESENT);
  sc_area_ring(comm->area);
  uint64_t deadline_ns = vg_prim_now_ns() + INTRODUCTION_NS;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    ncclResult_t result = sc_comm_wait(comm, has_come, rank, deadline_ns);
    if (result != ncclSuccess) return result;
    if (VG_LOAD(&comm->area->ranks[rank].state) == SC_RANK_ABSENT)
      return sc_nccl_fail(ncclSystemError, "rank %u of %u ended while it was connected", rank, comm->rank_count);
  }
  return ncclSuccess;
}

static ncclResult_t refuse_duplicates(const struct ncclComm *comm) {
  const struct sc_rank *ranks = comm->area->ranks;
  for (uint32_t one = 0; one < comm->rank_count; one++)
    for (uint32_t other = one + 1; other < comm->rank_count; other++)
      if (memcmp(ranks[one].uuid, ranks[other].uuid, sizeof ranks[one].uuid) == 0)
        return sc_nccl_fail(ncclInvalidUsage, "Duplicate GPU detected : rank %u and rank %u both on CUDA device %x",
                            one, other, ranks[one].pci);
  return ncclSuccess;
}

ncclResult_t sc_comm_connect(struct ncclComm *comm, const struct sc_token *token) {
  const struct sc_driver *driver = sc_driver();
  driver->cuCtxSetCurrent(comm->context); /* the thread is a new one */
  ncclResult_t result =
      sc_rendezvous(token, comm->rank, comm->rank_count, choose_compute_bytes(), &comm->area, &comm->fd);
  if (result == ncclSuccess) {
    comm->link_bytes_per_ns = sc_find_link(comm->device);
    memcpy(&comm->token, comm->area->secret, sizeof comm->token); /* for those that are made of it */
    result = introduce(comm, driver);
    if (result == ncclSuccess) result = refuse_duplicates(comm);
    if (result == ncclSuccess) {
      comm->async_error = ncclSuccess;
      return ncclSuccess;
    }
    VG_STORE(&comm->area->ranks[comm->rank].state, SC_RANK_ABORTED);
    sc_area_ring(comm->area);
    sc_area_unmap(comm->area, comm->fd);
  }
  discard(comm);
  return result;
}

struct connection {
  struct ncclComm *comm;
  struct sc_token token;
  ncclComm_t *ret_comm;
};

static ncclResult_t connect_rank(void *argument) {
  struct connection *job = argument;
  ncclResult_t result = sc_comm_connect(job->comm, &job->token);
  if (result == ncclSuccess) *job->ret_comm = job->comm;
  return result;
}

static ncclResult_t add_rank(int rank, int rank_count, const struct sc_token *token, ncclComm_t *ret_comm) {
  struct ncclComm *comm = sc_comm_make((uint32_t)rank, (uint32_t)rank_count);
  *ret_comm = NULL;
  if (comm == NULL) return ncclUnhandledCudaError;
  return sc_group_add_job(connect_rank, &(struct connection){comm, *token, ret_comm}, sizeof(struct connection));
}

static ncclResult_t check_ranks(const char *function, const void *ret_comm, int rank_count, int rank) {
  if (ret_comm == NULL) return sc_nccl_fail(ncclInvalidArgument, "%s: the pointer is NULL", function);
  if (rank_count < 1 || rank < 0 || rank >= rank_count)
    return sc_nccl_fail(ncclInvalidArgument, "%s: there is no rank %d of %d", function, rank, rank_count);
  if (rank_count > SC_NCCL_RANKS_MAX)
    return sc_nccl_fail(ncclInvalidUsage, "%s: %d ranks, but a simulated node has at most %d devices", function,
                        rank_count, SC_NCCL_RANKS_MAX);
  return ncclSuccess;
}

static ncclResult_t init_rank(const char *function, ncclComm_t *ret_comm, int rank_count, const ncclUniqueId *id,
                              int rank) {
  struct sc_token token;
  ncclResult_t result = check_ranks(function, ret_comm, rank_count, rank);
  if (result != ncclSuccess) return result;
  if (!sc_token_read(id, &token))
    return sc_nccl_fail(ncclInvalidArgument, "%s: the unique id was not made by ncclGetUniqueId here", function);
  return add_rank(rank, rank_count, &token, ret_comm);
}

static ncclResult_t check_config(const char *function, const ncclConfig_t *config) {
  if (config == NULL || (config->magic == NCCL_API_MAGIC && config->size >= sizeof *config)) return ncclSuccess;
  return sc_nccl_fail(ncclInvalidArgument, "%s: the configuration was not initialized", function);
}

ncclResult_t ncclCommInitRank(ncclComm_t *ret_comm, int rank_count, ncclUniqueId id, int rank);
SC_PUBLIC ncclResult_t ncclCommInitRank(ncclComm_t *ret_comm, int rank_count, ncclUniqueId id, int rank) {
  return init_rank("ncclCommInitRank", ret_comm, rank_count, &id, rank);
}

/* All communicators are blocking ones: a program that asked for another is answered when it is connected. */
ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret_comm, int rank_count, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
SC_PUBLIC ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret_comm, int rank_count, ncclUniqueId id, int rank,
                                              ncclConfig_t *config) {
  ncclResult_t result = check_config("ncclCommInitRankConfig", config);
  return result == ncclSuccess ? init_rank("ncclCommInitRankConfig", ret_comm, rank_count, &id, rank) : result;
}

/* Several ids, of which each serves a part of the ranks; here the first serves all. */
ncclResult_t ncclCommInitRankScalable(ncclComm_t *ret_comm, int rank_count, int rank, int id_count, ncclUniqueId *ids,
                                      ncclConfig_t *config);
SC_PUBLIC ncclResult_t ncclCommInitRankScalable(ncclComm_t *ret_comm, int rank_count, int rank, int id_count,
                                                ncclUniqueId *ids, ncclConfig_t *config) {
  ncclResult_t result = check_config("ncclCommInitRankScalable", config);
  if (result != ncclSuccess) return result;
  if (ids == NULL || id_count < 1)
    return sc_nccl_fail(ncclInvalidArgument, "ncclCommInitRankScalable: there is no unique id");
  return init_rank("ncclCommInitRankScalable", ret_comm, rank_count, ids, rank);
}

static ncclResult_t init_one(ncclComm_t *ret_comm, const struct sc_token *token, int rank, int rank_count,
                             int ordinal) {
  const struct sc_driver *driver = sc_driver();
  CUcontext context;
  CUdevice device;
  CUresult result = driver->cuDeviceGet(&device, ordinal);
  if (result == CUDA_SUCCESS) result = driver->cuDevicePrimaryCtxRetain(&context, device);
  if (result == CUDA_SUCCESS) result = driver->cuCtxSetCurrent(context);
  if (result != CUDA_SUCCESS) return sc_nccl_check(result, "cuDevicePrimaryCtxRetain");
  return add_rank(rank, rank_count, token, ret_comm);
}

ncclResult_t ncclCommInitAll(ncclComm_t *ret_comms, int count, const int *ordinals);
SC_PUBLIC ncclResult_t ncclCommInitAll(ncclComm_t *ret_comms, int count, const int *ordinals) {
  const struct sc_driver *driver = sc_driver();
  struct sc_token token;
  CUcontext before = NULL;
  ncclResult_t result = check_ranks("ncclCommInitAll", ret_comms, count, 0);
  if (result != ncclSuccess) return result;
  if (driver == NULL || driver->cuInit(0) != CUDA_SUCCESS)
    return sc_nccl_fail(ncclUnhandledCudaError, "ncclCommInitAll: there is no CUDA driver");
  driver->cuCtxGetCurrent(&before);
  result = sc_token_make(&token);
  sc_group_begin();
  for (int i = 0; i < count && result == ncclSuccess; i++)
    result = init_one(&ret_comms[i], &token, i, count, ordinals != NULL ? ordinals[i] : i);
  if (result != ncclSuccess) sc_group_cancel();
  ncclResult_t ended = sc_group_end();
  if (before != NULL) driver->cuCtxSetCurrent(before);
  return result != ncclSuccess ? result : ended;
}

/* ---- questions ---- */

ncclResult_t ncclGetVersion(int *ret_version);
SC_PUBLIC ncclResult_t ncclGetVersion(int *ret_version) {
  if (ret_version == NULL) return sc_nccl_fail(ncclInvalidArgument, "ncclGetVersion: the pointer is NULL");
  *ret_version = NCCL_VERSION;
  return ncclSuccess;
}

static ncclResult_t answer(const char *function, int value, int *ret_value) {
  if (ret_value == NULL) return sc_nccl_fail(ncclInvalidArgument, "%s: the pointer is NULL", function);
  *ret_value = value;
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int *ret_value);
SC_PUBLIC ncclResult_t ncclCommCount(const ncclComm_t comm, int *ret_value) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommCount");
  return result == ncclSuccess ? answer("ncclCommCount", (int)comm->rank_count, ret_value) : result;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *ret_value);
SC_PUBLIC ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *ret_value) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommUserRank");
  return result == ncclSuccess ? answer("ncclCommUserRank", (int)comm->rank, ret_value) : result;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *ret_value);
SC_PUBLIC ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *ret_value) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommCuDevice");
  return result == ncclSuccess ? answer("ncclCommCuDevice", (int)comm->device, ret_value) : result;
}

/* Looks itself whether all ranks are still there: a program that waits for its device asks nothing else. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *ret_error);
SC_PUBLIC ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *ret_error) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommGetAsyncError");
  if (result != ncclSuccess) return result;
  if (ret_error == NULL) return sc_nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: the pointer is NULL");
  *ret_error = __atomic_load_n(&comm->async_error, __ATOMIC_ACQUIRE);
  if (*ret_error != ncclSuccess || !sc_comm_enter(comm)) return ncclSuccess;
  for (uint32_t rank = 0; rank < comm->rank_count && *ret_error == ncclSuccess; rank++)
    if (sc_area_is_lost(comm->area, comm->fd, rank)) *ret_error = sc_comm_check_rank(comm, rank);
  sc_comm_leave(comm);
  return ncclSuccess;
}

/* It holds no memory of the device. */
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t which, uint64_t *ret_value);
SC_PUBLIC ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t which, uint64_t *ret_value) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommMemStats");
  if (result != ncclSuccess) return result;
  if (ret_value == NULL || which > ncclStatGpuMemTotal)
    return sc_nccl_fail(ncclInvalidArgument, "ncclCommMemStats: there is no figure %d", (int)which);
  *ret_value = 0;
  return ncclSuccess;
}

/* ---- the end ---- */

/* The other ranks need not wait for this one any more. */
static void say_goodbye(struct ncclComm *comm, enum sc_rank_state state) {
  struct sc_area *area = comm->area;
  for (uint32_t rank = 0; rank < comm->rank_count; rank++) {
    VG_STORE(&area->pairs[rank][comm->rank].taken, UINT64_MAX);
    if (state == SC_RANK_ABORTED) VG_STORE(&area->sends[rank][comm->rank], UINT64_MAX);
  }
  VG_STORE(&area->ranks[comm->rank].done, UINT64_MAX);
  VG_STORE(&area->ranks[comm->rank].state, state);
  sc_area_ring(area);
}

/* What a graph may still point to stays, and so does memory that streams may look at. */
static void end(struct ncclComm *comm, enum sc_rank_state state, bool keeps_area) {
  const struct sc_driver *driver = sc_driver();
  __atomic_store_n(&comm->is_aborted, true, __ATOMIC_SEQ_CST);
  say_goodbye(comm, state);
  uint64_t until_ns = vg_prim_now_ns() + ABORT_WAIT_NS;
  while (__atomic_load_n(&comm->users, __ATOMIC_SEQ_CST) != 0 && vg_prim_now_ns() < until_ns)
    vg_prim_sleep_until_ns(vg_prim_now_ns() + VG_NS_PER_MS);
  bool is_in_use = __atomic_load_n(&comm->users, __ATOMIC_SEQ_CST) != 0;
  VG_STORE(&comm->magic, 0);
  if (keeps_area || is_in_use) return;
  if (comm->has_values) driver->cuMemHostUnregister(comm->area->sends);
  sc_area_unmap(comm->area, comm->fd);
  if (!comm->has_captured) free(comm);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm);
SC_PUBLIC ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommFinalize");
  if (result != ncclSuccess) return result;
  if (comm->is_finalized) return sc_nccl_fail(ncclInvalidArgument, "ncclCommFinalize: it was finalized before");
  comm->is_finalized = true;
  return ncclSuccess;
}

/* Streams that wait for values of the area, or will write some, are waited for. */
ncclResult_t ncclCommDestroy(ncclComm_t comm);
SC_PUBLIC ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const struct sc_driver *driver = sc_driver();
  if (comm == NULL) return ncclSuccess;
  ncclResult_t result = sc_comm_check(comm, "ncclCommDestroy");
  if (result != ncclSuccess) return result;
  CUcontext before = NULL;
  bool is_quiet = true;
  if (comm->has_values) {
    driver->cuCtxGetCurrent(&before);
    driver->cuCtxSetCurrent(comm->context);
    is_quiet = driver->cuCtxSynchronize() == CUDA_SUCCESS;
    driver->cuCtxSetCurrent(before);
  }
  end(comm, SC_RANK_DESTROYED, !is_quiet);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm);
SC_PUBLIC ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (comm == NULL) return ncclSuccess;
  ncclResult_t result = sc_comm_check(comm, "ncclCommAbort");
  if (result != ncclSuccess) return result;
  __atomic_store_n(&comm->is_aborted, true, __ATOMIC_SEQ_CST);
  sc_area_ring(comm->area); /* threads of this process that wait */
  sc_launch_disband(comm);
  end(comm, SC_RANK_ABORTED, comm->has_values);
  return ncclSuccess;
}

/* Ends operations that are under way; the communicator is of no more use, but to be destroyed or shrunk. */
ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags);
SC_PUBLIC ncclResult_t ncclCommRevoke(ncclComm_t comm, int flags) {
  ncclResult_t result = sc_comm_check(comm, "ncclCommRevoke");
  if (result != ncclSuccess) return result;
  if (flags != 0) return sc_nccl_fail(ncclInvalidArgument, "ncclCommRevoke: unknown flags %x", (unsigned)flags);
  sc_launch_disband(comm);
  return ncclSuccess;
}
