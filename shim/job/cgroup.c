/* cgroup.c - cgroups of an attempt and its members, in version 2, version 1 or both. Called by main.c and tree.c.
 *
 * One hierarchy tracks the tree: version 2, which can kill it at once, else version 1's freezer, where it can be frozen
 * and killed. Limits are where their controllers are. None of this is needed to run a job: without cgroups tree.c walks
 * /proc, and `note` names what could not be set up. Users cannot leave a cgroup that is not theirs. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BASE "vgpud-jobs"
#define SUPERVISORS                                                                                                    \
  "supervisors" /* the leaf that they all are in, outside of every job and of the daemon's service                     \
                 */

static const char *const names[VJ_CONTROLLERS] = {"cpu", "memory", "pids"};
static const char *const flags[VJ_CONTROLLERS] = {"--cpus", "--ram", "the limit on processes"};

/* Whether a list has the word, separated by `separator` or the end of a line. */
static bool has_word(const char *list, const char *word, const char *separators) {
  size_t length = strlen(word);
  for (const char *at = list; *at;) {
    size_t here = strcspn(at, separators);
    if (here == length && !strncmp(at, word, length)) return true;
    at += here + !!at[here];
  }
  return false;
}

/* Where a hierarchy is mounted: version 2 for controller NULL, else version 1 with that controller. */
static bool find_mount(const char *controller, char *ret_path) {
  FILE *mounts = fopen("/proc/self/mountinfo", "re");
  char *line = NULL;
  size_t bytes = 0;
  bool found = false;
  while (mounts && !found && getline(&line, &bytes, mounts) > 0) {
    char point[PATH_MAX], type[32], options[1024];
    const char *rest = strstr(line, " - ");
    if (!rest || sscanf(line, "%*s %*s %*s %*s %4095s", point) != 1 ||
        sscanf(rest, " - %31s %*s %1023s", type, options) != 2 || strchr(point, '\\'))
      continue;
    found = controller ? !strcmp(type, "cgroup") && has_word(options, controller, ",\n") : !strcmp(type, "cgroup2");
    if (found) strcpy(ret_path, point);
  }
  free(line);
  if (mounts) fclose(mounts);
  return found;
}

/* Our own path in version 2, "" when it is the root. */
static void own_path(char *ret_path) {
  char text[PATH_MAX + 1024];
  *ret_path = 0;
  if (vj_read_file("/proc/self/cgroup", text, sizeof text) < 0) return;
  char *at = strncmp(text, "0::/", 4) ? strstr(text, "\n0::/") : text - 1;
  if (!at) return;
  at += 4; /* the slash */
  at[strcspn(at, "\n")] = 0;
  if (strlen(at) > 1 && strlen(at) < PATH_MAX) strcpy(ret_path, at);
}

static bool make(const char *path) {
  return !mkdir(path, 0755) || errno == EEXIST;
}

static bool put(const char *value, const char *directory, const char *file) {
  char path[PATH_MAX];
  return !vj_path(path, "%s/%s", directory, file) && !vj_write_file(path, value);
}

static bool exists(const char *directory, const char *file) {
  char path[PATH_MAX];
  return !vj_path(path, "%s/%s", directory, file) && !access(path, F_OK);
}

/* The directory base/NAME.PID, new, with a leaf for each member; base holds the supervisors' leaf too. */
static bool make_attempt(const char *base, const struct vj_launch *launch, char *ret_path) {
  char path[PATH_MAX];
  if (vj_path(ret_path, "%s/%s.%d", base, launch->name, (int)getpid())) return false;
  if (mkdir(ret_path, 0755)) return *ret_path = 0, false;
  for (size_t i = 0; i < launch->member_count; i++)
    if (vj_path(path, "%s/%zu", ret_path, i) || mkdir(path, 0755)) return false;
  return true;
}

void vj_cgroups_walk(const char *directory, void (*visit)(const char *directory, void *data), void *data) {
  char *roots[] = {(char *)directory, NULL};
  FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
  for (FTSENT *entry; tree && (entry = fts_read(tree));)
    if (entry->fts_info == FTS_DP) visit(entry->fts_path, data);
  if (tree) fts_close(tree);
}

static void remove_directory(const char *directory, void *unused) {
  (void)unused;
  rmdir(directory);
}

static void remove_attempt(char *path) {
  vj_cgroups_walk(path, remove_directory, NULL);
  *path = 0;
}

/* Enables the controllers below a directory. One write each: a missing controller would fail them all. */
static void hand_down(const char *directory) {
  for (size_t i = 0; i < VJ_CONTROLLERS; i++) {
    char word[16];
    snprintf(word, sizeof word, "+%s", names[i]);
    put(word, directory, "cgroup.subtree_control");
  }
}

/* Version 2. Its directories can hold either processes or directories with controllers: so members have leaves. */
static void make_unified(const struct vj_launch *launch, bool here, struct vj_cgroups *cgroups) {
  char mount[PATH_MAX], own[PATH_MAX], base[PATH_MAX], leaf[PATH_MAX];
  if (!find_mount(NULL, mount)) return;
  own_path(own);
  here = here && *own;
  if (vj_path(base, "%s%s", mount, here ? own : "/" BASE) || !make(base)) return;
  if (!vj_path(leaf, "%s/%s", base, SUPERVISORS) && make(leaf)) put("0", leaf, "cgroup.procs");
  if (!here) hand_down(mount);
  hand_down(base);
  if (!make_attempt(base, launch, cgroups->track)) {
    remove_attempt(cgroups->track);
    return;
  }
  hand_down(cgroups->track);
  cgroups->unified = true;
  static const char *const probes[VJ_CONTROLLERS] = {"0/cpu.max", "0/memory.max", "0/pids.max"};
  for (size_t i = 0; i < VJ_CONTROLLERS; i++)
    if (exists(cgroups->track, probes[i])) strcpy(cgroups->limit[i], cgroups->track);
}

/* The attempt's directory in the version 1 hierarchy of a controller. */
static void make_split(const char *controller, const struct vj_launch *launch, char *ret_path) {
  char mount[PATH_MAX], base[PATH_MAX], leaf[PATH_MAX];
  if (!find_mount(controller, mount) || vj_path(base, "%s/%s", mount, BASE) || !make(base)) return;
  if (!vj_path(leaf, "%s/%s", base, SUPERVISORS) && make(leaf)) put("0", leaf, "cgroup.procs");
  if (!make_attempt(base, launch, ret_path)) remove_attempt(ret_path);
}

static bool limit_cpu(bool unified, const char *leaf, uint64_t cpu_milli) {
  char value[64];
  unsigned long long quota_us = cpu_milli * 100 < 1000 ? 1000 : cpu_milli * 100; /* the kernel's least is 1 ms */
  snprintf(value, sizeof value, unified ? "%llu 100000" : "%llu", quota_us);
  if (unified) return put(value, leaf, "cpu.max");
  return put("100000", leaf, "cpu.cfs_period_us") && put(value, leaf, "cpu.cfs_quota_us");
}

static bool limit_memory(bool unified, const char *leaf, uint64_t ram_bytes) {
  char value[64];
  snprintf(value, sizeof value, "%llu", (unsigned long long)ram_bytes);
  if (!unified) return put(value, leaf, "memory.limit_in_bytes");
  put("1", leaf, "memory.oom.group"); /* kill all of a program or nothing of it */
  return put(value, leaf, "memory.max");
}

static bool limit_pids(const char *leaf, uint64_t pids_max) {
  char value[64];
  snprintf(value, sizeof value, "%llu", (unsigned long long)pids_max);
  return put(value, leaf, "pids.max");
}

static bool limit(const struct vj_cgroups *cgroups, enum vj_controller which, size_t member, uint64_t amount) {
  char leaf[PATH_MAX];
  bool unified = cgroups->unified && !strcmp(cgroups->limit[which], cgroups->track);
  if (!*cgroups->limit[which] || vj_path(leaf, "%s/%zu", cgroups->limit[which], member)) return false;
  if (which == VJ_CPU) return limit_cpu(unified, leaf, amount);
  return which == VJ_MEMORY ? limit_memory(unified, leaf, amount) : limit_pids(leaf, amount);
}

static void note(struct vj_cgroups *cgroups, const char *format, const char *word) {
  size_t used = strlen(cgroups->note);
  if (used) used += (size_t)snprintf(cgroups->note + used, VJ_TEXT_BYTES - used, "; ");
  if (used < VJ_TEXT_BYTES) vj_say(cgroups->note + used, 0, format, word);
}

void vj_cgroups_make(const struct vj_launch *launch, bool here, struct vj_cgroups *ret_cgroups) {
  *ret_cgroups = (struct vj_cgroups){.leaves = launch->member_count};
  const uint64_t amounts[VJ_CONTROLLERS] = {launch->cpu_milli, launch->ram_bytes, launch->pids_max};
  make_unified(launch, here, ret_cgroups);
  if (!*ret_cgroups->track) make_split("freezer", launch, ret_cgroups->track);
  for (size_t i = 0; i < VJ_CONTROLLERS; i++)
    if (!*ret_cgroups->limit[i] && (amounts[i] || i == VJ_MEMORY)) make_split(names[i], launch, ret_cgroups->limit[i]);
  if (!*ret_cgroups->track)
    note(ret_cgroups, "%s: the job's processes are found by their parents", "no cgroup can be created here");
  for (size_t i = 0; i < VJ_CONTROLLERS; i++) {
    bool done = true;
    for (size_t member = 0; amounts[i] && done && member < launch->member_count; member++)
      done = limit(ret_cgroups, i, member, amounts[i]);
    if (!done) note(ret_cgroups, "%s is not enforced: its cgroup controller is not available here", flags[i]);
  }
}

static bool is_other(const struct vj_cgroups *cgroups, size_t which) {
  return *cgroups->limit[which] && strcmp(cgroups->limit[which], cgroups->track);
}

int vj_cgroups_enter(const struct vj_cgroups *cgroups, size_t member, pid_t pid) {
  char path[PATH_MAX], value[16];
  int error = 0;
  snprintf(value, sizeof value, "%d", (int)pid);
  if (*cgroups->track && !(error = vj_path(path, "%s/%zu/cgroup.procs", cgroups->track, member)))
    error = vj_write_file(path, value);
  for (size_t i = 0; i < VJ_CONTROLLERS && !error; i++)
    if (is_other(cgroups, i) && !(error = vj_path(path, "%s/%zu/cgroup.procs", cgroups->limit[i], member)))
      error = vj_write_file(path, value);
  return error;
}

/* The number in a file: the first in it, or the one after a key in one of its lines. 0: none. */
static uint64_t number(const char *directory, const char *file, const char *key) {
  char path[PATH_MAX], text[4096];
  if (vj_path(path, "%s/%s", directory, file) || vj_read_file(path, text, sizeof text) < 0) return 0;
  char *rest;
  for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    size_t length = key ? strlen(key) : 0;
    if (!key || (!strncmp(line, key, length) && line[length] == ' ')) return strtoull(line + length, NULL, 10);
  }
  return 0;
}

/* Reads a file of a cgroup. 0: the cgroup is gone; -errno: it cannot be read. */
static ssize_t read_if_there(const char *directory, const char *file, char *ret_text, size_t text_bytes) {
  char path[PATH_MAX];
  ssize_t got = vj_path(path, "%s/%s", directory, file);
  if (!got) got = vj_read_file(path, ret_text, text_bytes);
  return got == -ENOENT || got == -ENODEV ? 0 : got;
}

static void look_for_one(const char *directory, void *data) {
  char pid[16];
  bool *found = data;
  *found = *found || read_if_there(directory, "cgroup.procs", pid, sizeof pid);
}

/* By the kernel's own flag, since a process in a list of pids may have forked and ended by the time it is read. Version
 * 1 has only such lists, but an empty list is certain: a child joins before its parent leaves. */
bool vj_cgroups_populated(const struct vj_cgroups *cgroups) {
  bool found = false;
  char text[256];
  if (!cgroups->unified) {
    vj_cgroups_walk(cgroups->track, look_for_one, &found);
    return found;
  }
  ssize_t got = read_if_there(cgroups->track, "cgroup.events", text, sizeof text);
  return got < 0 || (got && !strstr(text, "populated 0"));
}

void vj_cgroups_usage(const struct vj_cgroups *cgroups, uint64_t *cpu_ns, uint64_t *ram_peak_bytes) {
  uint64_t cpu_us = cgroups->unified ? number(cgroups->track, "cpu.stat", "usage_usec") : 0, peak = 0;
  for (size_t i = 0; *cgroups->limit[VJ_MEMORY] && i < cgroups->leaves; i++) {
    char leaf[PATH_MAX];
    if (vj_path(leaf, "%s/%zu", cgroups->limit[VJ_MEMORY], i)) continue;
    uint64_t most = number(leaf, "memory.peak", NULL);
    peak += most ? most : number(leaf, "memory.max_usage_in_bytes", NULL);
  }
  if (cpu_us) *cpu_ns = cpu_us * 1000;
  if (peak) *ram_peak_bytes = peak;
}

uint64_t vj_cgroups_oom_kills(const struct vj_cgroups *cgroups) {
  uint64_t kills = 0;
  for (size_t i = 0; *cgroups->limit[VJ_MEMORY] && i < cgroups->leaves; i++) {
    char leaf[PATH_MAX];
    if (vj_path(leaf, "%s/%zu", cgroups->limit[VJ_MEMORY], i)) continue;
    kills += number(leaf, "memory.events", "oom_kill") + number(leaf, "memory.oom_control", "oom_kill");
  }
  return kills;
}

void vj_cgroups_remove(const struct vj_cgroups *cgroups) {
  char path[PATH_MAX];
  for (size_t i = 0; i < VJ_CONTROLLERS; i++)
    if (is_other(cgroups, i)) remove_attempt(strcpy(path, cgroups->limit[i]));
  if (*cgroups->track) remove_attempt(strcpy(path, cgroups->track));
}
