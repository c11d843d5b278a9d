/*
 * agent.c - what a stream has done by the host or in host-backed memory at its simulated time: host functions,
 * cuStreamWriteValue, cuStreamWaitValue. Each is a marker and a hold in the stream; a thread of this process waits for
 * the marker, acts, and releases the hold. Two threads, started when first needed: host functions may block, values may
 * not wait for them. Called by value.c and submit.c.
 */
#define _GNU_SOURCE
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define POLL_FIRST_NS 20000ull /* a value that no call announces is looked at this soon, then ever less often */
#define POLL_MAX_NS 1000000ull

enum kind { KIND_CALL, KIND_WRITE, KIND_WAIT, KIND_FAULT };

struct job {
  struct job *next;
  enum kind kind;
  struct sim_context *context;
  struct sim_point reached;
  uint64_t reached_ns; /* 0: not yet */
  void (*callback)(void *);
  void *argument;
  bool even_then; /* called also once the context has faulted */
  void *address;
  uint64_t value;
  unsigned bytes;
  unsigned flags;
};

struct agent {
  const char *name;
  pthread_mutex_t lock;
  struct job *jobs; /* in order of submission */
  uint32_t news;    /* futex: bumped when a job is added */
  bool started;
  uint64_t poll_ns;
};

static struct agent caller = {.name = "simcuda-call", .lock = PTHREAD_MUTEX_INITIALIZER};
static struct agent valuer = {.name = "simcuda-value", .lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t load(const struct job *job) {
  return job->bytes == 4 ? VG_LOAD((uint32_t *)job->address) : VG_LOAD((uint64_t *)job->address);
}

static void store(const struct job *job) {
  if (job->bytes == 4)
    VG_STORE((uint32_t *)job->address, (uint32_t)job->value);
  else
    VG_STORE((uint64_t *)job->address, job->value);
}

static bool satisfied(const struct job *job) {
  uint64_t now = load(job), mask = job->bytes == 4 ? UINT32_MAX : UINT64_MAX;
  switch (job->flags & 3) {
  case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic comparison */
    return job->bytes == 4 ? (int32_t)(now - job->value) >= 0 : (int64_t)(now - job->value) >= 0;
  case CU_STREAM_WAIT_VALUE_EQ:
    return now == job->value;
  case CU_STREAM_WAIT_VALUE_AND:
    return (now & job->value) != 0;
  default:
    return (~(now | job->value) & mask) != 0;
  }
}

/* Does what is due; in a context that has faulted nothing is waited for, and no host function called. Returns true when
 * the job is over, then *ret_effective_ns is the simulated time of it. */
static bool act(struct job *job, uint64_t now_ns, uint64_t *last_write_ns, uint64_t *ret_effective_ns) {
  switch (job->kind) {
  case KIND_CALL:
    if (job->even_then || sim_context_state(job->context) == CUDA_SUCCESS) job->callback(job->argument);
    *ret_effective_ns = vg_prim_now_ns();
    return true;
  case KIND_WRITE:
    store(job);
    *last_write_ns = *ret_effective_ns = job->reached_ns;
    return true;
  case KIND_FAULT:
    sim_context_fault(job->context, (CUresult)job->value);
    *ret_effective_ns = job->reached_ns;
    return true;
  default:
    if (!satisfied(job) && sim_context_state(job->context) == CUDA_SUCCESS) return false;
    /* Satisfied by a write that was carried out in this same look: at the write's own time. */
    *ret_effective_ns = *last_write_ns > job->reached_ns ? *last_write_ns : now_ns;
    return true;
  }
}

static void retire(struct agent *agent, struct job *job, uint64_t effective_ns) {
  pthread_mutex_lock(&agent->lock);
  struct job **link = &agent->jobs;
  while (*link != job) link = &(*link)->next;
  *link = job->next;
  pthread_mutex_unlock(&agent->lock);
  sim_submit_release(job->reached.slot, effective_ns);
  free(job);
}

static struct job *first(struct agent *agent) {
  pthread_mutex_lock(&agent->lock);
  struct job *job = agent->jobs;
  pthread_mutex_unlock(&agent->lock);
  return job;
}

static struct job *after(struct agent *agent, struct job *job) {
  pthread_mutex_lock(&agent->lock);
  struct job *next = job->next;
  pthread_mutex_unlock(&agent->lock);
  return next;
}

/* One look at all jobs. Returns whether any was ended; *ret_deadline_ns: when to look again at the latest. */
static bool look(struct agent *agent, uint64_t *ret_deadline_ns) {
  bool ended = false, polls = false;
  uint64_t now_ns = vg_prim_now_ns(), last_write_ns = 0, time_ns, effective_ns;
  *ret_deadline_ns = now_ns + 100 * VG_NS_PER_MS;
  struct job *next;
  for (struct job *job = first(agent); job; job = next) {
    next = after(agent, job);
    if (!job->reached_ns) {
      if (!sim_point_time(job->reached, &time_ns)) continue;
      if (time_ns > now_ns) {
        if (time_ns < *ret_deadline_ns) *ret_deadline_ns = time_ns;
        continue;
      }
      job->reached_ns = time_ns ? time_ns : now_ns;
    }
    if (act(job, now_ns, &last_write_ns, &effective_ns)) {
      ended = true;
      retire(agent, job, effective_ns);
      next = first(agent); /* its end may satisfy an earlier one */
    } else {
      polls = true;
    }
  }
  agent->poll_ns = !polls || ended ? POLL_FIRST_NS : agent->poll_ns * 5 / 4;
  if (agent->poll_ns > POLL_MAX_NS) agent->poll_ns = POLL_MAX_NS;
  if (polls && now_ns + agent->poll_ns < *ret_deadline_ns) *ret_deadline_ns = now_ns + agent->poll_ns;
  return ended;
}

static void *run(void *argument) {
  struct agent *agent = argument;
  vg_prim_thread_name(agent->name);
  vg_prim_timer_slack_ns(1);
  for (;;) {
    uint32_t news = VG_LOAD(&agent->news);
    if (!first(agent)) {
      vg_prim_futex_wait(&agent->news, news, 0);
      continue;
    }
    uint64_t deadline_ns;
    uint32_t bell = sim_bell_announce();
    if (!look(agent, &deadline_ns)) sim_bell_sleep(bell, deadline_ns);
    sim_bell_retire();
  }
  return NULL;
}

static CUresult start(struct agent *agent) {
  sigset_t all, before;
  pthread_t thread;
  if (agent->started) return CUDA_SUCCESS;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int rc = pthread_create(&thread, NULL, run, agent);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (rc != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_detach(thread);
  agent->started = true;
  return CUDA_SUCCESS;
}

static CUresult add(struct agent *agent, struct sim_stream *stream, const struct job *wanted) {
  struct job *job = malloc(sizeof *job);
  if (!job) return CUDA_ERROR_OUT_OF_MEMORY;
  *job = *wanted;
  job->next = NULL;
  job->context = stream->context;
  sim_submit_hold(stream, &job->reached);
  pthread_mutex_lock(&agent->lock);
  CUresult result = start(agent);
  struct job **link = &agent->jobs;
  while (*link) link = &(*link)->next;
  *link = job;
  pthread_mutex_unlock(&agent->lock);
  __atomic_fetch_add(&agent->news, 1, __ATOMIC_SEQ_CST);
  vg_prim_futex_wake(&agent->news, 1);
  sim_link_kick();
  return result == CUDA_SUCCESS ? sim_waited() : result;
}

CUresult sim_stream_fault(struct sim_stream *stream, CUresult code) {
  return add(&valuer, stream, &(struct job){.kind = KIND_FAULT, .value = (uint64_t)code});
}

CUresult sim_agent_write(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes) {
  return add(&valuer, stream,
             &(struct job){.kind = KIND_WRITE, .address = (void *)address, .value = value, .bytes = bytes});
}

CUresult sim_agent_wait(struct sim_stream *stream, CUdeviceptr address, uint64_t value, unsigned bytes,
                        unsigned flags) {
  return add(
      &valuer, stream,
      &(struct job){.kind = KIND_WAIT, .address = (void *)address, .value = value, .bytes = bytes, .flags = flags});
}

CUresult sim_submit_callback(struct sim_stream *stream, void (*callback)(void *), void *argument, bool even_then) {
  sim_submit_order(stream);
  return add(&caller, stream,
             &(struct job){.kind = KIND_CALL, .callback = callback, .argument = argument, .even_then = even_then});
}
