/*
 * record.h - a recording of all inputs and decisions of the core of a device, in order, so that they can be played to
 * the core, or to its reference model, again (tests/arbiter/replay.py). Called by
 * arbiter.c under its lock; costs nothing while nothing is recorded. A file that cannot be written ends it.
 *
 * The file: one vg_record_header, then vg_record after vg_record, in the machine's byte order. It begins with a device
 * without slices, so the whole state is known. Inputs and outputs of a slice are recorded when they differ from the
 * last ones: an input from its value after the last step, since the core itself changes some, an output from its last
 * record.
 */
#ifndef VG_ARBITER_RECORD_H
#define VG_ARBITER_RECORD_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "arbiter/device.h"

#define VG_RECORD_MAGIC 0x4345525550475600ull
#define VG_RECORD_VERSION 1
#define VG_RECORD_VALUES 11

/*
 * The types of records, and their values in order:
 * PARAMS  quantum_ns, quantum_min_ns, bound_ns, open_bound_ns, overrun_ns, latency_bound_ns, lookahead_ns,
 *         guarantee_depth_ns, cap_depth_ns
 * SET     min_milli, max_milli, weight, priority, latency, gang, paused, rotates
 * REMOVE  nothing
 * INPUT   one value with the bits attached, wants, outstanding, quiet, gave_up_while_waiting, noticed, gang_go,
 *         gang_turns, gang_stop, gang_busy, counted_ahead, lowest first;
 *         running, drained_ns, drain_expected_ns, busy_total_ns, active_total_ns, done_total_ns
 * STEP    deadline_ns, regime; its outputs follow
 * OUTPUT  word, state, lease_end_ns, bound_ns, neighbour_waits, watch, entitlement_ppm, saturating, throttled,
 *         virtual_ns, charged_ns
 */
#define VG_RECORD_PARAMS 1
#define VG_RECORD_SET 2
#define VG_RECORD_REMOVE 3
#define VG_RECORD_INPUT 4
#define VG_RECORD_STEP 5
#define VG_RECORD_OUTPUT 6

struct vg_record_header {
  uint64_t magic;
  uint32_t version;
  uint32_t record_bytes;
  uint64_t begin_ns; /* CLOCK_MONOTONIC */
};

struct vg_record {
  uint32_t kind; /* VG_RECORD_* */
  uint32_t padding;
  uint64_t time_ns; /* of a step, else 0 */
  uint64_t slice_id;
  uint64_t values[VG_RECORD_VALUES]; /* signed ones as two's complement; 0 beyond those of the kind */
};

struct vg_recorder {
  FILE *file;                                                     /* NULL: nothing is recorded */
  struct vg_record inputs[VG_SLICES_MAX], outputs[VG_SLICES_MAX]; /* the last ones, by the core's slices */
};

/* Begins with a core that has no slices and has just been initialised; a descriptor of its own is made of fd. */
int vg_record_begin(struct vg_recorder *recorder, const struct vg_core *core, int fd);
void vg_record_end(struct vg_recorder *recorder);
void vg_record_params(struct vg_recorder *recorder, const struct vg_core *core);
void vg_record_set(struct vg_recorder *recorder, uint64_t slice_id, const struct vg_slice_params *params);
void vg_record_remove(struct vg_recorder *recorder, uint64_t slice_id);
void vg_record_inputs(struct vg_recorder *recorder, const struct vg_core *core); /* before a step */
void vg_record_step(struct vg_recorder *recorder, const struct vg_core *core, uint64_t now_ns, uint64_t deadline_ns);

#endif
