/*
 * submit.c - writing commands into the ring: order between streams, the bounded launch queue, the host's cost of a
 * call. Called by every entry point that gives work to the device. Any thread; the ring lock is never held while
 * waiting.
 */
#include "simgpu/process/current.h"
#include "simgpu/process/process.h"
#include "simgpu/streams/stream.h"
#include <pthread.h>
#include <stdlib.h>

#define OUTSTANDING_MAX                                                                                                \
  (SIM_STREAM_TIMES - 64) /* commands of one stream that may not be done: times[] must hold them */

static struct slot {
  uint64_t seq;        /* of the last command; grows over all streams that have had the slot */
  uint64_t known_done; /* everything up to here is done */
  uint64_t launches;
  uint64_t launches_done; /* lower bound */
  uint64_t *launch_seqs;  /* of the last SIM_LAUNCH_QUEUE launches */
} slots[SIM_STREAMS_MAX];

static pthread_mutex_t ring_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t ring_head;
static uint64_t last_submit_ns;
static uint32_t woken_asleep;                /* the sleep of the server that was already ended */
static uint32_t generations[SIM_EVENTS_MAX]; /* of every event slot, over all events that had it */

static void wait_for_ring(void) {
  while (ring_head - VG_LOAD(&sim_link.done->tail) >= SIM_RING_COMMANDS && !VG_LOAD_RELAXED(&sim_link.gone)) {
    pthread_mutex_unlock(&ring_lock);
    sim_link_kick();
    vg_prim_sleep_until_ns(vg_prim_now_ns() + SIM_QUEUE_FULL_WAIT_NS);
    sim_link_check();
    pthread_mutex_lock(&ring_lock);
  }
}

static bool takes_place(unsigned op) {
  return op != SIM_OP_OPEN && op != SIM_OP_RELEASE && op != SIM_OP_DISBAND;
}

/* Writes one command; its sequence number in the stream is returned. */
static uint64_t push(const struct sim_command *command) {
  struct slot *slot = &slots[command->stream];
  pthread_mutex_lock(&ring_lock);
  wait_for_ring();
  uint64_t now_ns = vg_prim_now_ns();
  if (now_ns > last_submit_ns) last_submit_ns = now_ns;
  struct sim_command *place = &sim_link.ring->commands[ring_head % SIM_RING_COMMANDS];
  *place = *command;
  place->submit_ns = last_submit_ns;
  uint64_t seq = slot->seq;
  if (takes_place(command->op)) VG_STORE_RELAXED(&slot->seq, ++seq);
  if (command->op == SIM_OP_KERNEL && slot->launch_seqs) slot->launch_seqs[slot->launches++ % SIM_LAUNCH_QUEUE] = seq;
  __atomic_store_n(&sim_link.ring->head, ++ring_head, __ATOMIC_SEQ_CST);
  uint32_t asleep = __atomic_load_n(&sim_link.done->asleep, __ATOMIC_SEQ_CST);
  bool wake = (asleep & 1) && asleep != woken_asleep;
  if (wake) woken_asleep = asleep;
  pthread_mutex_unlock(&ring_lock);
  if (wake) sim_link_wake();
  return seq;
}

/* Blocks while the stream has as many commands outstanding as completion times can be kept for. */
static void wait_for_place(uint32_t index) {
  struct slot *slot = &slots[index];
  uint64_t seq = VG_LOAD_RELAXED(&slot->seq);
  if (seq - VG_LOAD_RELAXED(&slot->known_done) < OUTSTANDING_MAX) return;
  uint64_t must = seq - OUTSTANDING_MAX + 1;
  sim_point_wait((struct sim_point){index, must});
  VG_STORE_RELAXED(&slot->known_done, must);
}

static uint64_t seq_of_launch(const struct slot *slot, uint64_t launch) {
  return VG_LOAD_RELAXED(&slot->launch_seqs[launch % SIM_LAUNCH_QUEUE]);
}

/* The 1025th launch blocks until the first is done. A blocked thread looks again only after a while, as a driver does
 * that finds its ring full; the device has a thousand launches to run. */
static void wait_for_launch(uint32_t index) {
  struct slot *slot = &slots[index];
  uint64_t launches = VG_LOAD_RELAXED(&slot->launches), done = VG_LOAD_RELAXED(&slot->launches_done);
  if (launches - done < SIM_LAUNCH_QUEUE) return;
  done = launches - SIM_LAUNCH_QUEUE + 1;
  struct sim_point oldest = {index, seq_of_launch(slot, done - 1)};
  if (!sim_point_done(oldest)) {
    uint64_t begin_ns = vg_prim_now_ns();
    sim_point_wait(oldest);
    vg_prim_sleep_until_ns(begin_ns + SIM_QUEUE_FULL_WAIT_NS);
  }
  for (int i = 0; i < 64 && done < launches; i++, done++)
    if (!sim_point_done((struct sim_point){index, seq_of_launch(slot, done)})) break;
  VG_STORE_RELAXED(&slot->launches_done, done);
}

static uint64_t in_order(struct sim_stream *stream, struct sim_command command) {
  command.stream = stream->slot;
  wait_for_place(stream->slot);
  return push(&command);
}

/* Before a command of the legacy stream: everything that blocking streams of the context have been given. */
static void legacy_waits(struct sim_context *context) {
  struct sim_point points[64];
  int count;
  do {
    count = 0;
    sim_lock();
    for (struct sim_stream *stream = context->streams; stream && count < 64; stream = stream->next) {
      struct sim_point point = sim_stream_point(stream);
      if (stream->flags & CU_STREAM_NON_BLOCKING || point.seq <= stream->seen_by_legacy) continue;
      stream->seen_by_legacy = point.seq;
      points[count++] = point;
    }
    sim_unlock();
    for (int i = 0; i < count; i++) sim_submit_wait(&context->legacy, points[i]);
  } while (count == 64);
}

void sim_submit_order(struct sim_stream *stream) {
  struct sim_context *context = stream->context;
  if (stream == &context->legacy) {
    if (VG_LOAD_RELAXED(&context->streams)) legacy_waits(context);
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
    struct sim_point point = sim_stream_point(&context->legacy);
    if (point.seq <= stream->legacy_seen) return;
    stream->legacy_seen = point.seq;
    sim_submit_wait(stream, point);
  }
}

static void spin_until(uint64_t time_ns) {
  while (vg_prim_now_ns() < time_ns) {
  }
}

/* What the call costs the host, from its beginning. */
static void spend(uint64_t begin_ns, uint64_t cost_ns) {
  if (cost_ns) spin_until(begin_ns + cost_ns);
}

static CUresult kernel(struct sim_stream *stream, struct sim_work work, struct sim_meeting meeting) {
  in_order(stream, (struct sim_command){.op = SIM_OP_KERNEL,
                                        .cost_ns = work.cost_ns,
                                        .amount = work.flops,
                                        .meet = meeting.devices,
                                        .target = meeting.number,
                                        .group = meeting.group});
  return CUDA_SUCCESS;
}

void sim_submit_use(struct sim_stream *stream, CUdeviceptr base) {
  in_order(stream, (struct sim_command){.op = SIM_OP_USE, .value = base});
}

CUresult sim_submit_launch_begin(struct sim_stream *stream) {
  uint64_t cost_ns = sim_link.page->launch_cost_ns, begin_ns = cost_ns ? vg_prim_now_ns() : 0;
  wait_for_launch(stream->slot);
  sim_submit_order(stream);
  spend(begin_ns, cost_ns);
  return sim_waited();
}

CUresult sim_submit_kernel(struct sim_stream *stream, struct sim_work work, struct sim_meeting meeting) {
  CUresult result = sim_submit_launch_begin(stream);
  return result == CUDA_SUCCESS ? kernel(stream, work, meeting) : result;
}

CUresult sim_submit_node(struct sim_stream *stream, struct sim_work work, struct sim_meeting meeting) {
  wait_for_launch(stream->slot);
  return kernel(stream, work, meeting);
}

static enum sim_engine engine_of(enum sim_copy kind) {
  if (kind == SIM_COPY_TO_DEVICE) return SIM_ENGINE_TO_DEVICE;
  return kind == SIM_COPY_FROM_DEVICE ? SIM_ENGINE_FROM_DEVICE : SIM_ENGINE_ON_DEVICE;
}

/* Copies on the host, and between devices, take as long as over a link, but it does not see them. */
static uint64_t copy_cost(struct sim_copy_way way, uint64_t bytes) {
  uint64_t bytes_per_us = sim_link.page->link_bytes_per_us;
  if (way.kind == SIM_COPY_ON_DEVICE) bytes_per_us = SIM_DEVICE_COPY_BYTES_PER_US;
  uint64_t cost_ns = bytes * 1000 / bytes_per_us;
  return SIM_COPY_LATENCY_NS + (way.pageable ? (uint64_t)((double)cost_ns / SIM_PAGEABLE_PART) : cost_ns);
}

CUresult sim_submit_copy(struct sim_stream *stream, struct sim_copy_way way, uint64_t bytes) {
  sim_submit_order(stream);
  in_order(stream, (struct sim_command){.op = SIM_OP_COPY,
                                        .cost_ns = copy_cost(way, bytes),
                                        .amount = bytes,
                                        .engine = (uint16_t)engine_of(way.kind),
                                        .pageable = way.pageable});
  return sim_waited();
}

CUresult sim_submit_memset(struct sim_stream *stream, uint64_t bytes) {
  wait_for_launch(stream->slot);
  sim_submit_order(stream);
  struct sim_work work = {.cost_ns = SIM_MEMSET_LATENCY_NS + bytes * 1000 / SIM_MEMSET_BYTES_PER_US};
  return kernel(stream, work, (struct sim_meeting){0});
}

CUresult sim_submit_marker(struct sim_stream *stream, struct sim_point *ret_point) {
  sim_submit_order(stream);
  uint64_t seq = in_order(stream, (struct sim_command){.op = SIM_OP_MARKER});
  *ret_point = (struct sim_point){stream->slot, seq};
  return sim_waited();
}

CUresult sim_submit_wait(struct sim_stream *stream, struct sim_point point) {
  if (point.slot == stream->slot || sim_point_done(point)) return CUDA_SUCCESS;
  in_order(stream, (struct sim_command){.op = SIM_OP_WAIT, .target = point.slot, .value = point.seq});
  return sim_waited();
}

static void record(struct sim_stream *stream, struct sim_event *event) {
  uint32_t generation = __atomic_add_fetch(&generations[event->slot], 1, __ATOMIC_RELAXED);
  uint64_t seq =
      in_order(stream, (struct sim_command){.op = SIM_OP_RECORD, .target = event->slot, .value = generation});
  event->generation = generation;
  event->point = (struct sim_point){stream->slot, seq};
}

void sim_submit_record_local(struct sim_stream *stream, struct sim_event *event) {
  uint64_t cost_ns = event->flags & CU_EVENT_DISABLE_TIMING ? SIM_RECORD_COST_NS : SIM_RECORD_TIMING_COST_NS;
  if (sim_link.page->launch_cost_ns == 0) cost_ns = 0; /* the switch for benchmarks of calls themselves */
  uint64_t begin_ns = cost_ns ? vg_prim_now_ns() : 0;
  sim_submit_order(stream);
  spend(begin_ns, cost_ns);
  record(stream, event);
}

void sim_submit_leave(struct sim_stream *stream) {
  struct sim_context *green = stream->green, *home = stream->context;
  sim_submit_wait(&home->join, sim_stream_point(stream));
  if (green) sim_submit_wait(&green->join, sim_stream_point(stream));
}

/* All points of a context's streams, a few at a time: calls use(argument, point) for each. Those that are destroyed are
 * in the point of `join`. */
static void each_point(struct sim_context *context, void (*use)(void *, struct sim_point), void *argument) {
  const struct sim_context *green = context->home == context ? NULL : context;
  use(argument, sim_stream_point(&context->home->legacy));
  use(argument, sim_stream_point(&context->join));
  struct sim_point points[64];
  for (int skip = 0, count = 64; count == 64; skip += count) {
    int index = count = 0;
    sim_lock();
    for (struct sim_stream *stream = context->home->streams; stream && count < 64; stream = stream->next) {
      if (green && stream->green != green) continue;
      if (index++ >= skip) points[count++] = sim_stream_point(stream);
    }
    sim_unlock();
    for (int i = 0; i < count; i++) use(argument, points[i]);
  }
}

static void wait_in_stream(void *stream, struct sim_point point) {
  sim_submit_wait(stream, point);
}

static void wait_here(void *nothing, struct sim_point point) {
  (void)nothing;
  sim_point_wait(point);
}

CUresult sim_submit_record_all(struct sim_context *context, struct sim_event *event) {
  each_point(context, wait_in_stream, &context->join);
  record(&context->join, event);
  return sim_waited();
}

CUresult sim_submit_wait_all(struct sim_context *context, struct sim_point point) {
  sim_submit_wait(&context->home->legacy, point);
  sim_lock();
  context->entry = point;
  for (struct sim_stream *stream = context->home->streams; stream; stream = stream->next)
    if (context->home == context || stream->green == context) sim_submit_wait(stream, point);
  sim_unlock();
  return sim_waited();
}

void sim_submit_hold(struct sim_stream *stream, struct sim_point *ret_reached) {
  uint64_t seq = in_order(stream, (struct sim_command){.op = SIM_OP_MARKER});
  *ret_reached = (struct sim_point){stream->slot, seq};
  in_order(stream, (struct sim_command){.op = SIM_OP_HOLD});
}

void sim_submit_release(uint32_t slot, uint64_t effective_ns) {
  __atomic_fetch_add(&sim_released, 1, __ATOMIC_RELEASE);
  push(&(struct sim_command){.op = SIM_OP_RELEASE, .stream = slot, .value = effective_ns});
  sim_link_kick();
}

void sim_submit_disband(uint64_t group) {
  push(&(struct sim_command){.op = SIM_OP_DISBAND, .value = group});
  sim_link_kick();
}

void sim_stream_open(struct sim_stream *stream) {
  struct slot *slot = &slots[stream->slot];
  if (!slot->launch_seqs) slot->launch_seqs = calloc(SIM_LAUNCH_QUEUE, sizeof *slot->launch_seqs);
  stream->seen_by_legacy = slot->seq;
  push(&(struct sim_command){
      .op = SIM_OP_OPEN, .stream = stream->slot, .target = stream->context->server_id, .priority = stream->priority});
}

struct sim_point sim_stream_point(const struct sim_stream *stream) {
  return (struct sim_point){stream->slot, VG_LOAD_RELAXED(&slots[stream->slot].seq)};
}

void sim_stream_wait(struct sim_stream *stream) {
  struct sim_point point = sim_stream_point(stream);
  if (stream == &stream->context->legacy && VG_LOAD_RELAXED(&stream->context->streams)) {
    legacy_waits(stream->context);
    point = sim_stream_point(stream);
  }
  sim_point_wait(point);
}

void sim_context_wait(struct sim_context *context) {
  each_point(context, wait_here, NULL);
}
