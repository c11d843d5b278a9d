/* record.c - see record.h. */
#include "arbiter/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static void put(struct vg_recorder *recorder, const void *bytes, size_t count) {
  if (recorder->file && fwrite(bytes, count, 1, recorder->file) != 1) vg_record_end(recorder);
}

void vg_record_end(struct vg_recorder *recorder) {
  if (recorder->file) fclose(recorder->file);
  recorder->file = NULL;
}

int vg_record_begin(struct vg_recorder *recorder, const struct vg_core *core, int fd) {
  int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own_fd < 0) return -errno;
  memset(recorder, 0, sizeof *recorder);
  recorder->file = fdopen(own_fd, "w");
  if (!recorder->file) {
    close(own_fd);
    return -ENOMEM;
  }
  struct vg_record_header header = {.magic = VG_RECORD_MAGIC,
                                    .version = VG_RECORD_VERSION,
                                    .record_bytes = sizeof(struct vg_record),
                                    .begin_ns = core->last_ns};
  put(recorder, &header, sizeof header);
  vg_record_params(recorder, core);
  return 0;
}

void vg_record_params(struct vg_recorder *recorder, const struct vg_core *core) {
  const struct vg_arbiter_params *params = &core->params;
  struct vg_record record = {
      .kind = VG_RECORD_PARAMS,
      .values = {params->quantum_ns, params->quantum_min_ns, params->bound_ns, params->open_bound_ns,
                 params->overrun_ns, params->latency_bound_ns, params->lookahead_ns, params->guarantee_depth_ns,
                 params->cap_depth_ns},
  };
  put(recorder, &record, sizeof record);
}

void vg_record_set(struct vg_recorder *recorder, uint64_t slice_id, const struct vg_slice_params *params) {
  struct vg_record record = {
      .kind = VG_RECORD_SET,
      .slice_id = slice_id,
      .values = {params->min_milli, params->max_milli, params->weight, params->priority, params->latency, params->gang,
                 params->paused, params->rotates},
  };
  put(recorder, &record, sizeof record);
}

void vg_record_remove(struct vg_recorder *recorder, uint64_t slice_id) {
  for (int i = 0; i < VG_SLICES_MAX; i++) /* a later slice with the same id is another one */
    if (recorder->inputs[i].slice_id == slice_id) recorder->inputs[i] = recorder->outputs[i] = (struct vg_record){0};
  struct vg_record record = {.kind = VG_RECORD_REMOVE, .slice_id = slice_id};
  put(recorder, &record, sizeof record);
}

static struct vg_record input_of(const struct vg_core_slice *slice) {
  uint64_t bits = slice->in.attached | slice->in.wants << 1 | slice->in.outstanding << 2 | slice->in.quiet << 3 |
                  slice->in.gave_up_while_waiting << 4 | slice->in.noticed << 5 | slice->in.gang_go << 6 |
                  slice->in.gang_turns << 7 | slice->in.gang_stop << 8 | slice->in.gang_busy << 9 |
                  slice->in.counted_ahead << 10;
  return (struct vg_record){
      .kind = VG_RECORD_INPUT,
      .slice_id = slice->id,
      .values = {bits, slice->in.running, slice->in.drained_ns, slice->in.drain_expected_ns, slice->in.busy_total_ns,
                 slice->in.active_total_ns, slice->in.done_total_ns},
  };
}

static struct vg_record output_of(const struct vg_core_slice *slice) {
  return (struct vg_record){
      .kind = VG_RECORD_OUTPUT,
      .slice_id = slice->id,
      .values = {slice->out.word, slice->gate.state, slice->out.lease_end_ns, slice->out.bound_ns,
                 slice->out.neighbour_waits, slice->out.watch, slice->out.entitlement_ppm, slice->saturating,
                 slice->free.throttled, slice->slot.virtual_ns, (uint64_t)slice->charged_ns},
  };
}

static void put_changed(struct vg_recorder *recorder, struct vg_record *known, const struct vg_record *now) {
  if (memcmp(known, now, sizeof *now) == 0) return;
  *known = *now;
  put(recorder, now, sizeof *now);
}

void vg_record_inputs(struct vg_recorder *recorder, const struct vg_core *core) {
  if (!recorder->file) return;
  for (int i = 0; i < core->slice_count; i++) {
    if (!core->slices[i].present) continue;
    struct vg_record now = input_of(&core->slices[i]);
    put_changed(recorder, &recorder->inputs[i], &now);
  }
}

void vg_record_step(struct vg_recorder *recorder, const struct vg_core *core, uint64_t now_ns, uint64_t deadline_ns) {
  if (!recorder->file) return;
  struct vg_record step = {.kind = VG_RECORD_STEP, .time_ns = now_ns, .values = {deadline_ns, core->regime}};
  put(recorder, &step, sizeof step);
  for (int i = 0; i < core->slice_count; i++) {
    if (!core->slices[i].present) continue;
    struct vg_record now = output_of(&core->slices[i]);
    put_changed(recorder, &recorder->outputs[i], &now);
    recorder->inputs[i] = input_of(&core->slices[i]);
  }
}
