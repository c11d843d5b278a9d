/* attempt.c - the attempt's directory: who supervises it (`begun`), when to end (`stop`) and how it ended (`result`).
 * Called by main.c and supervise.c.
 *
 * The directory is made under another name and renamed: rename(2) does not replace a directory that holds something, so
 * of two supervisors one begins, and nobody ever sees a directory without `begun`. */
#define _GNU_SOURCE
#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX (64u << 10)

uint64_t vj_own_start(void) {
  char stat[4096];
  if (vj_read_file("/proc/self/stat", stat, sizeof stat) < 0) return 0;
  const char *at = strrchr(stat, ')'); /* the name in parentheses may hold anything */
  for (int field = 2; at && field < 22; field++) at = strchr(at + 1, ' ');
  return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* Writes a new file and sees to it that it is on the disk. */
static int write_new(const char *path, const char *bytes, size_t count, bool durable) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -errno;
  int error = vj_write_all(fd, bytes, count);
  if (!error && durable && fsync(fd)) error = -errno;
  if (close(fd) && !error) error = -errno;
  return error;
}

static void sync_directory(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

/* The directories of cgroups that hold processes of ours, so that they are found should we be killed. */
static int describe(const struct vj_cgroups *cgroups, char *ret_text, size_t text_bytes) {
  char boot[64];
  if (vj_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) *boot = 0;
  boot[strcspn(boot, "\n")] = 0;
  int length = snprintf(ret_text, text_bytes, "pid %d\nstart %llu\nboot %s\nbegan_wall_ns %lld\n", (int)getpid(),
                        (unsigned long long)vj_own_start(), boot, (long long)vj_wall_ns());
  if (*cgroups->track)
    length += snprintf(ret_text + length, text_bytes - (size_t)length, "cgroup %s\n", cgroups->track);
  for (size_t i = 0; i < VJ_CONTROLLERS; i++)
    if (*cgroups->limit[i] && strcmp(cgroups->limit[i], cgroups->track))
      length += snprintf(ret_text + length, text_bytes - (size_t)length, "limit %s\n", cgroups->limit[i]);
  if (*cgroups->note) length += snprintf(ret_text + length, text_bytes - (size_t)length, "note %s\n", cgroups->note);
  return length;
}

int vj_attempt_begin(const struct vj_launch *launch, const struct vj_cgroups *cgroups, struct vj_attempt *ret_attempt,
                     char *text) {
  char made[PATH_MAX], begun[PATH_MAX], content[8 * PATH_MAX];
  if (vj_path(ret_attempt->path, "%s/%s", launch->directory, launch->name) ||
      vj_path(made, "%s/.%s.%d", launch->directory, launch->name, (int)getpid()) || vj_path(begun, "%s/begun", made))
    return vj_say(text, ENAMETOOLONG, "%.200s is too long a path", launch->directory);
  unlink(begun); /* of a supervisor that died here with the pid that is now ours */
  rmdir(made);
  int error = mkdir(made, 0700) ? -errno : 0;
  if (!error) error = write_new(begun, content, (size_t)describe(cgroups, content, sizeof content), false);
  if (!error && rename(made, ret_attempt->path)) error = errno == ENOTEMPTY ? -EEXIST : -errno;
  if (!error) return 0;
  unlink(begun);
  rmdir(made);
  if (error == -EEXIST) return vj_say(text, EEXIST, "attempt %s has begun already", launch->name);
  return vj_say(text, -error, "cannot make %s: %s", ret_attempt->path, strerror(-error));
}

uint64_t vj_attempt_grace_ns(const struct vj_attempt *attempt, uint64_t fallback_ns) {
  char path[PATH_MAX], text[64];
  unsigned long long grace_ms;
  if (vj_path(path, "%s/stop", attempt->path) || vj_read_file(path, text, sizeof text) < 0) return fallback_ns;
  if (sscanf(text, "grace_ms %llu", &grace_ms) != 1 || grace_ms > UINT32_MAX) return fallback_ns;
  return grace_ms * VJ_NS_PER_MS;
}

int vj_attempt_end(const struct vj_attempt *attempt, const struct vj_outcome *outcome,
                   const struct vj_member_end *members, size_t member_count) {
  static char content[FILE_BYTES_MAX];
  char made[PATH_MAX], result[PATH_MAX];
  if (vj_path(made, "%s/.result", attempt->path) || vj_path(result, "%s/result", attempt->path)) return -ENAMETOOLONG;
  int length = snprintf(content, sizeof content,
                        "exit_code %d\nsignal %d\nstopped %d\ncpu_ns %llu\nram_peak_bytes %llu\n"
                        "began_wall_ns %lld\nended_wall_ns %lld\nmembers",
                        outcome->code, outcome->signal, outcome->stopped, (unsigned long long)outcome->cpu_ns,
                        (unsigned long long)outcome->ram_peak_bytes, (long long)outcome->began_wall_ns,
                        (long long)outcome->ended_wall_ns);
  for (size_t i = 0; i < member_count; i++)
    length += snprintf(content + length, sizeof content - (size_t)length, " %d", members[i].code);
  length += snprintf(content + length, sizeof content - (size_t)length, "\nwhy %s\n", outcome->why);
  unlink(made);
  int error = write_new(made, content, (size_t)length, true);
  if (!error && rename(made, result)) error = -errno;
  sync_directory(attempt->path);
  return error;
}
