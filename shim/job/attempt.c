/* attempt.c - the attempt's directory: its supervisor (`begun`), when to end (`stop`) and how it ended (`result`).
 * Called by main.c and supervise.c.
 *
 * The directory is made under another name and renamed: rename(2) does not replace a directory that is not empty, so of
 * two supervisors one begins, and a directory without `begun` is never visible. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
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

static void sync_directory(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

/* Lines for one of our files, as many as fit. */
struct lines {
  char text[FILE_BYTES_MAX];
  size_t count;
};

__attribute__((format(printf, 2, 3))) static void add(struct lines *lines, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(lines->text + lines->count, sizeof lines->text - lines->count, format, arguments);
  va_end(arguments);
  if (length > 0 && (size_t)length < sizeof lines->text - lines->count) lines->count += (size_t)length;
}

/* Writes a new file; durable: it is on the disk when this returns. */
static int write_new(const char *path, const struct lines *lines, bool durable) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return -errno;
  int error = vj_write_all(fd, lines->text, lines->count);
  if (!error && durable && fsync(fd)) error = -errno;
  if (close(fd) && !error) error = -errno;
  return error;
}

/* Our identity, and what has to be cleaned up should we be killed: the cgroups of the job, its containers. */
static void describe(const struct vj_launch *launch, const struct vj_cgroups *cgroups, struct lines *lines) {
  char boot[64];
  if (vj_read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot) < 0) *boot = 0;
  boot[strcspn(boot, "\n")] = 0;
  add(lines, "pid %d\nstart %llu\nboot %s\n", (int)getpid(), (unsigned long long)vj_own_start(), boot);
  add(lines, "began_wall_ns %lld\n", (long long)vj_wall_ns());
  if (*cgroups->track) add(lines, "cgroup %s\n", cgroups->track);
  for (size_t i = 0; i < VJ_CONTROLLERS; i++)
    if (*cgroups->limit[i] && strcmp(cgroups->limit[i], cgroups->track)) add(lines, "limit %s\n", cgroups->limit[i]);
  if (*cgroups->note) add(lines, "note %s\n", cgroups->note);
  if (launch->cleanup) add(lines, "cleanup %s\n", launch->cleanup);
}

int vj_attempt_begin(const struct vj_launch *launch, const struct vj_cgroups *cgroups, struct vj_attempt *ret_attempt,
                     char *text) {
  char made[PATH_MAX], begun[PATH_MAX];
  static struct lines content;
  if (vj_path(ret_attempt->path, "%s/%s", launch->directory, launch->name) ||
      vj_path(made, "%s/.%s.%d", launch->directory, launch->name, (int)getpid()) || vj_path(begun, "%s/begun", made))
    return vj_say(text, ENAMETOOLONG, "the path %.200s is too long", launch->directory);
  unlink(begun); /* of a supervisor that died here with the pid that is now ours */
  rmdir(made);
  describe(launch, cgroups, &content);
  int error = mkdir(made, 0700) ? -errno : 0;
  if (!error) error = write_new(begun, &content, false);
  if (!error && rename(made, ret_attempt->path)) error = errno == ENOTEMPTY ? -EEXIST : -errno;
  if (!error) return 0;
  unlink(begun);
  rmdir(made);
  if (error == -EEXIST) return vj_say(text, EEXIST, "attempt %s has already begun", launch->name);
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
  static struct lines content;
  char made[PATH_MAX], result[PATH_MAX];
  if (vj_path(made, "%s/.result", attempt->path) || vj_path(result, "%s/result", attempt->path)) return -ENAMETOOLONG;
  content.count = 0;
  add(&content, "exit_code %d\nsignal %d\nstopped %d\n", outcome->code, outcome->signal, outcome->stopped);
  add(&content, "cpu_ns %llu\n", (unsigned long long)outcome->cpu_ns);
  add(&content, "ram_peak_bytes %llu\n", (unsigned long long)outcome->ram_peak_bytes);
  add(&content, "began_wall_ns %lld\nended_wall_ns %lld\nmembers", (long long)outcome->began_wall_ns,
      (long long)outcome->ended_wall_ns);
  for (size_t i = 0; i < member_count; i++) add(&content, " %d", members[i].code);
  add(&content, "\nwhy %s\n", outcome->why);
  unlink(made);
  int error = write_new(made, &content, true);
  if (!error && rename(made, result)) error = -errno;
  sync_directory(attempt->path);
  return error;
}
