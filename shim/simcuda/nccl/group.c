/*
 * group.c - ncclGroupStart, ncclGroupEnd, ncclGroupSimulateEnd, and how the operations of a group are done.
 *
 * The bytes of an operation are moved while the call lasts, in the order of the program's calls, because the simulated
 * device moves all bytes so: a program that copies a result to the host gets it at the copy, not when the stream has
 * come so far. So a call waits for the calls of the ranks that it needs something of; time is another thing, and passes
 * on the devices (launch.c). Nothing waits in the thread that calls host functions, and a rank that only gives
 * something does not wait.
 *
 * An operation has two parts: it is published (the rank's bytes go to shared memory), and finished (the other ranks'
 * bytes are there, the result is written). All that a group can publish is published before it waits, and whatever is
 * complete is finished: so ranks of one thread, and sends and receives in any order, do not wait for each other for
 * ever. Collectives are finished in the order of their calls, since their kernels meet those of other devices.
 *
 * Communicators that a group makes are connected by a thread each, since each waits for the others.
 */
#include "simcuda/nccl/group.h"
#include "base/prim.h"
#include "simcuda/common/driver.h"
#include "simcuda/common/public.h"
#include "simcuda/nccl/failure.h"
#include "simcuda/nccl/launch.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLEEP_NS VG_NS_PER_MS       /* while ranks of several communicators are waited for */
#define LOOK_NS (50 * VG_NS_PER_MS) /* how often ranks are looked at that do not come */

struct job {
  struct job *next;
  ncclResult_t (*run)(void *argument);
  void *argument;
  CUcontext context;
  pthread_t thread;
  bool has_thread;
  ncclResult_t result;
};

struct group {
  uint32_t depth;
  ncclResult_t result; /* of calls inside */
  struct sc_operation *operations, **last_operation;
  struct job *jobs, **last_job;
};

static __thread struct group group;

/* ---- operations ---- */

/* Operations of one communicator, or of a pair, are published in the order of their calls. */
static bool share_channel(const struct sc_operation *one, const struct sc_operation *other) {
  if (one->comm != other->comm || sc_is_pair(one) != sc_is_pair(other)) return false;
  return !sc_is_pair(one) || (one->kind == other->kind && one->peer == other->peer);
}

static bool is_first(const struct sc_operation *operation, size_t flag_offset) {
  for (const struct sc_operation *other = group.operations; other != operation; other = other->next)
    if (!((const bool *)other)[flag_offset] && share_channel(other, operation)) return false;
  return true;
}

static bool collectives_before_are_finished(const struct sc_operation *operation) {
  for (const struct sc_operation *other = group.operations; other != operation; other = other->next)
    if (!other->is_finished && !sc_is_pair(other)) return false;
  return true;
}

#define FIRST(operation, flag) is_first(operation, offsetof(struct sc_operation, flag))

static ncclResult_t publish(struct sc_operation *operation) {
  operation->is_published = true;
  return sc_launch_publish(operation);
}

static ncclResult_t finish(struct sc_operation *operation) {
  operation->is_finished = true;
  return sc_launch_finish(operation);
}

/* One look at all operations. Returns whether any went on; *ret_blocked: one that waits, *ret_rank for whom. */
static ncclResult_t look(bool *ret_moved, struct sc_operation **ret_blocked, uint32_t *ret_rank) {
  ncclResult_t result = ncclSuccess;
  *ret_moved = false;
  *ret_blocked = NULL;
  for (struct sc_operation *one = group.operations; one != NULL && result == ncclSuccess; one = one->next) {
    if (one->is_published || !FIRST(one, is_published) || !(one->is_captured || sc_can_publish(one))) continue;
    result = publish(one);
    *ret_moved = true;
  }
  for (struct sc_operation *one = group.operations; one != NULL && result == ncclSuccess; one = one->next) {
    uint32_t rank = one->comm->rank;
    if (one->is_finished) continue;
    bool has_turn = sc_is_pair(one) ? FIRST(one, is_finished) : collectives_before_are_finished(one);
    if (one->is_published && has_turn && (one->is_captured || sc_can_finish(one, &rank))) {
      result = finish(one);
      *ret_moved = true;
    } else if (*ret_blocked == NULL) {
      *ret_blocked = one;
      *ret_rank = rank;
    }
  }
  return result;
}

static ncclResult_t check_abort(const struct sc_operation *blocked, uint32_t rank, bool is_long) {
  if (VG_LOAD(&blocked->comm->is_aborted)) return sc_nccl_fail(ncclInternalError, "the communicator is aborted");
  if (!is_long) return ncclSuccess;
  for (uint32_t other = 0; other < blocked->comm->rank_count; other++) {
    /* One that has said goodbye has posted what it had to: only of the rank that is waited for this matters. */
    if (other != rank && !sc_area_is_lost(blocked->comm->area, blocked->comm->fd, other)) continue;
    ncclResult_t result = sc_comm_check_rank(blocked->comm, other);
    if (result != ncclSuccess) return result;
  }
  return ncclSuccess;
}

static ncclResult_t run_operations(bool has_several) {
  uint64_t look_ns = vg_prim_now_ns() + LOOK_NS;
  for (;;) {
    bool moved;
    struct sc_operation *blocked;
    uint32_t rank = 0;
    /* The bell of the communicator that will be waited for is read before the look. */
    struct sc_area *area = group.operations->comm->area;
    uint32_t heard = VG_LOAD(&area->bell);
    ncclResult_t result = look(&moved, &blocked, &rank);
    if (result != ncclSuccess || blocked == NULL) return result;
    if (moved) continue;
    bool is_long = vg_prim_now_ns() > look_ns;
    if (is_long) look_ns = vg_prim_now_ns() + LOOK_NS;
    uint32_t needed = rank;
    result = check_abort(blocked, needed, is_long);
    if (result != ncclSuccess) return result;
    sc_area_sleep(area, heard, has_several ? SLEEP_NS : LOOK_NS);
  }
}

static ncclResult_t do_operations(void) {
  const struct sc_driver *driver = sc_driver();
  CUcontext before = NULL;
  bool has_several = false;
  ncclResult_t result = ncclSuccess;
  driver->cuCtxGetCurrent(&before);
  for (const struct sc_operation *one = group.operations; one != NULL; one = one->next) {
    if (!sc_comm_enter(one->comm)) result = sc_nccl_fail(ncclInvalidUsage, "the communicator is aborted");
    has_several |= one->comm != group.operations->comm;
    if (result != ncclSuccess) { /* leave those that were entered */
      for (const struct sc_operation *other = group.operations; other != one; other = other->next)
        sc_comm_leave(other->comm);
      return result;
    }
  }
  result = run_operations(has_several);
  for (const struct sc_operation *one = group.operations; one != NULL; one = one->next) sc_comm_leave(one->comm);
  if (before != NULL) driver->cuCtxSetCurrent(before);
  return result;
}

/* ---- jobs ---- */

static void *run_job(void *argument) {
  struct job *job = argument;
  if (job->context != NULL) sc_driver()->cuCtxSetCurrent(job->context);
  job->result = job->run(job->argument);
  return NULL;
}

static ncclResult_t do_jobs(void) {
  ncclResult_t result = ncclSuccess;
  if (group.jobs->next == NULL) {
    run_job(group.jobs);
    return group.jobs->result;
  }
  for (struct job *job = group.jobs; job != NULL; job = job->next) {
    job->has_thread = pthread_create(&job->thread, NULL, run_job, job) == 0;
    if (!job->has_thread) job->result = sc_nccl_fail(ncclSystemError, "no thread to connect a communicator");
  }
  for (struct job *job = group.jobs; job != NULL; job = job->next) {
    if (job->has_thread) pthread_join(job->thread, NULL);
    if (result == ncclSuccess) result = job->result;
  }
  return result;
}

/* ---- the group ---- */

static void forget(void) {
  for (struct sc_operation *next, *one = group.operations; one != NULL; one = next) {
    next = one->next;
    if (!one->is_captured) free(one); /* a graph has it */
  }
  for (struct job *next, *one = group.jobs; one != NULL; one = next) {
    next = one->next;
    free(one->argument);
    free(one);
  }
  group.operations = NULL;
  group.jobs = NULL;
  group.last_operation = &group.operations;
  group.last_job = &group.jobs;
  group.result = ncclSuccess;
}

void sc_group_begin(void) {
  if (group.depth++ == 0) forget();
}

void sc_group_cancel(void) {
  forget();
}

ncclResult_t sc_group_fail(ncclResult_t result) {
  if (group.depth > 0 && result != ncclSuccess) group.result = result;
  return result;
}

ncclResult_t sc_group_end(void) {
  if (group.depth == 0) return sc_nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  ncclResult_t result = group.result;
  if (result == ncclSuccess && group.jobs != NULL) result = do_jobs();
  if (result == ncclSuccess && group.operations != NULL) result = do_operations();
  forget();
  return result;
}

ncclResult_t sc_group_add(const struct sc_operation *operation) {
  bool is_alone = group.depth == 0;
  if (is_alone) sc_group_begin();
  struct sc_operation *copy = malloc(sizeof *copy);
  if (copy == NULL) {
    sc_group_fail(sc_nccl_fail(ncclSystemError, "no memory for an operation"));
  } else {
    *copy = *operation;
    copy->next = NULL;
    *group.last_operation = copy;
    group.last_operation = &copy->next;
  }
  return is_alone ? sc_group_end() : group.result;
}

ncclResult_t sc_group_add_job(ncclResult_t (*run)(void *argument), const void *argument, size_t bytes) {
  bool is_alone = group.depth == 0;
  if (is_alone) sc_group_begin();
  struct job *job = calloc(1, sizeof *job);
  void *copy = malloc(bytes);
  if (job == NULL || copy == NULL) {
    free(job);
    free(copy);
    sc_group_fail(sc_nccl_fail(ncclSystemError, "no memory for a communicator"));
  } else {
    memcpy(copy, argument, bytes);
    *job = (struct job){.run = run, .argument = copy};
    if (sc_driver() != NULL) sc_driver()->cuCtxGetCurrent(&job->context);
    *group.last_job = job;
    group.last_job = &job->next;
  }
  return is_alone ? sc_group_end() : group.result;
}

ncclResult_t ncclGroupStart(void);
SC_PUBLIC ncclResult_t ncclGroupStart(void) {
  sc_group_begin();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void);
SC_PUBLIC ncclResult_t ncclGroupEnd(void) {
  return sc_group_end();
}

/* Says how long the longest operation would take, and does none. */
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info);
SC_PUBLIC ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *info) {
  uint64_t longest_ns = 0;
  if (group.depth == 0) return sc_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
  if (info != NULL && (info->magic != NCCL_SIM_INFO_MAGIC || info->size < sizeof *info))
    return sc_nccl_fail(ncclInvalidArgument, "ncclGroupSimulateEnd: the structure was not initialized");
  if (--group.depth > 0) return ncclSuccess;
  for (const struct sc_operation *one = group.operations; one != NULL; one = one->next)
    if (sc_duration_ns(one) > longest_ns) longest_ns = sc_duration_ns(one);
  if (info != NULL) info->estimatedTime = (float)longest_ns / 1000;
  forget();
  return ncclSuccess;
}
