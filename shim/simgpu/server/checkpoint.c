/*
 * checkpoint.c - processes that are stopped and moved off their devices (cuCheckpointProcess*): locked, their calls
 * block; checkpointed, what they had of device memory is free, and parked_bytes remember it; restored, they have it
 * again. Contents need no moving: they lie in the process's arena, in host memory. What would be moved takes its time
 * on the devices' links, beside all other copies. Called by client.c.
 */
#include "simgpu/server/server.h"
#include <errno.h>

static void calls_block(struct process *target, bool block) {
  VG_STORE(&target->completions->locked, block);
  if (!block) vg_prim_futex_wake(&target->completions->locked, 1 << 30);
}

/* Processes of another user cannot be named, except by root. */
static struct process *target_of(const struct process *caller, uint32_t pid) {
  for (struct process *process = server.processes; process; process = process->next)
    if (process->greeted && !process->dead && (uint32_t)process->pid == pid)
      return caller->uid == 0 || caller->uid == process->uid ? process : NULL;
  return NULL;
}

static bool moves(const struct process *target) {
  for (uint32_t i = 0; i < server.config.device_count; i++)
    if (target->moves[i].link) return true;
  return false;
}

static int lock(struct process *caller, struct process *target) {
  if (target->checkpoint != CHECKPOINT_RUNNING || (target->locker && target->locker != caller)) return -EALREADY;
  target->locker = caller;
  calls_block(target, true);
  queue_wake(target);
  queue_take(target);
  if (target->dead) return -ESRCH;
  if (target->queued) return -EAGAIN;
  target->locker = NULL;
  target->checkpoint = CHECKPOINT_LOCKED;
  return 0;
}

static int unlock(const struct process *caller, struct process *target) {
  bool is_ours = target->locker && target->locker == caller;
  if ((target->checkpoint != CHECKPOINT_LOCKED || moves(target)) && !is_ours) return -EALREADY;
  target->locker = NULL;
  target->checkpoint = CHECKPOINT_RUNNING;
  calls_block(target, false);
  return 0;
}

static void move(struct process *target, struct device *device, enum sim_engine direction, uint64_t bytes) {
  struct transfer *transfer = &target->moves[device->index];
  if (bytes == 0) return;
  *transfer = (struct transfer){
      .user = &target->move_users[device->index],
      .process = target,
      .device = device,
      .bytes = bytes,
      .ready_ns = vg_prim_now_ns(),
      .most_part = 1,
      .left_ns = (double)bytes * 1000 / (double)server.config.link_bytes_per_us / (double)server.config.speed,
  };
  link_add(&device->links[direction], transfer);
}

/* -EAGAIN: for at least *ret_left_ns some of its memory is on the way. */
static int moved(const struct process *target, uint64_t *ret_left_ns) {
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    const struct transfer *transfer = &target->moves[i];
    uint64_t since_ns = transfer->link ? vg_prim_now_ns() - transfer->link->decided_ns : 0;
    uint64_t left_ns = transfer->link ? (uint64_t)transfer->left_ns : 0;
    left_ns = left_ns > since_ns ? left_ns - since_ns : 0;
    if (left_ns > *ret_left_ns) *ret_left_ns = left_ns;
  }
  return moves(target) ? -EAGAIN : 0;
}

static int save(struct process *target, uint64_t *ret_bytes) {
  if (target->checkpoint != CHECKPOINT_LOCKED) return -EALREADY;
  if (VG_LOAD(&target->ring->managed) || target->managed || share_is_party(target)) return -EOPNOTSUPP;
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    *ret_bytes += target->parked_bytes[i] = target->used_bytes[i];
    server.devices[i].used_bytes -= target->used_bytes[i];
    target->used_bytes[i] = 0;
    move(target, &server.devices[i], SIM_ENGINE_FROM_DEVICE, target->parked_bytes[i]);
    report_crowd(&server.devices[i]);
  }
  target->checkpoint = CHECKPOINT_SAVED;
  return 0;
}

static int restore(struct process *target, uint64_t *ret_bytes) {
  if (target->checkpoint != CHECKPOINT_SAVED || moves(target)) return -EALREADY;
  for (uint32_t i = 0; i < server.config.device_count; i++)
    if (target->parked_bytes[i] > server.devices[i].memory_bytes - server.devices[i].used_bytes) return -ENOMEM;
  for (uint32_t i = 0; i < server.config.device_count; i++) {
    *ret_bytes += target->parked_bytes[i];
    target->used_bytes[i] += target->parked_bytes[i]; /* it may pay by now for what it holds with others */
    server.devices[i].used_bytes += target->parked_bytes[i];
    move(target, &server.devices[i], SIM_ENGINE_TO_DEVICE, target->parked_bytes[i]);
    target->parked_bytes[i] = 0;
    report_crowd(&server.devices[i]);
  }
  target->checkpoint = CHECKPOINT_LOCKED;
  return 0;
}

int checkpoint_request(struct process *caller, const struct sim_request *request, uint64_t *ret_bytes) {
  struct process *target = target_of(caller, request->context);
  *ret_bytes = 0;
  if (!server.config.checkpoint) return -EOPNOTSUPP;
  if (!target) return -ESRCH;
  switch (request->kind) {
  case SIM_REQUEST_CHECKPOINT_STATE:
    *ret_bytes = target->checkpoint;
    return 0;
  case SIM_REQUEST_CHECKPOINT_LOCK:
    return lock(caller, target);
  case SIM_REQUEST_CHECKPOINT_SAVE:
    return save(target, ret_bytes);
  case SIM_REQUEST_CHECKPOINT_RESTORE:
    return restore(target, ret_bytes);
  case SIM_REQUEST_CHECKPOINT_MOVED:
    return moved(target, ret_bytes);
  default:
    return unlock(caller, target);
  }
}

void checkpoint_process_died(const struct process *caller) {
  for (struct process *process = server.processes; process; process = process->next)
    if (!process->dead && process->locker == caller) unlock(caller, process);
}
