/*
 * memory_limits.c - limits of cgroups on device memory, as NVIDIA's driver has them since r615. Called by client.c.
 *
 * Played is the driver's own accounting ("misc"), as its documents describe it: only the innermost limit above a
 * process counts, a limit goes with its cgroup, an allocation beyond the hard one fails. The soft limit is kept and
 * does nothing: only MPS acts on it.
 */
#define _GNU_SOURCE
#include "simgpu/server/server.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LIMITS_MAX 4096u
#define CGROUP2_MAGIC 0x63677270

struct memory_limit { /* of one cgroup */
  struct memory_limit *next;
  char *path; /* of its directory */
  dev_t filesystem;
  ino_t inode; /* another one at that path is another cgroup */
  uint64_t soft[SIM_DEVICES_MAX], hard[SIM_DEVICES_MAX];
};

static struct memory_limit *limits;
static uint64_t generation = 1; /* grows whenever a process may be under another limit */

static bool is_there(const struct memory_limit *limit) {
  struct stat now;
  return stat(limit->path, &now) == 0 && now.st_ino == limit->inode && now.st_dev == limit->filesystem;
}

/* Forgets the limits of cgroups that were removed. */
static void drop_removed(void) {
  for (struct memory_limit **link = &limits; *link;) {
    struct memory_limit *limit = *link;
    if (is_there(limit)) {
      link = &limit->next;
      continue;
    }
    *link = limit->next;
    free(limit->path);
    free(limit);
    generation++;
    VG_STORE(&server.page->limit_count, server.page->limit_count - 1);
  }
}

/* Whether a path is a directory or below it. */
static bool is_inside(const char *path, const char *directory) {
  size_t length = strlen(directory);
  return strncmp(path, directory, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static struct memory_limit *innermost(const char *path) {
  struct memory_limit *found = NULL;
  for (struct memory_limit *limit = limits; limit; limit = limit->next)
    if (is_inside(path, limit->path) && (!found || strlen(limit->path) > strlen(found->path))) found = limit;
  return found;
}

/* Where cgroups of version 2 are mounted; "": nowhere. */
static const char *mount_path(void) {
  static char found[PATH_MAX];
  char line[2 * PATH_MAX];
  FILE *mounts = found[0] ? NULL : fopen("/proc/self/mountinfo", "re");
  while (mounts && !found[0] && fgets(line, sizeof line, mounts)) {
    char point[PATH_MAX];
    if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1) strcpy(found, point);
  }
  if (mounts) fclose(mounts);
  return found;
}

/* The directory of the cgroup that a process is in. */
static int path_of(pid_t pid, char ret_path[2 * PATH_MAX]) {
  char name[64], line[PATH_MAX];
  snprintf(name, sizeof name, "/proc/%d/cgroup", (int)pid);
  FILE *file = fopen(name, "re");
  int rc = -ENOENT;
  while (file && rc < 0 && fgets(line, sizeof line, file)) {
    if (strncmp(line, "0::/", 4) != 0) continue;
    line[strcspn(line, "\n")] = 0;
    snprintf(ret_path, 2 * PATH_MAX, "%s%s", mount_path(), line[4] ? line + 3 : "");
    rc = 0;
  }
  if (file) fclose(file);
  return rc;
}

/* The limit that a process is under. */
static struct memory_limit *look_up(struct process *process) {
  char path[2 * PATH_MAX];
  process->limit = path_of(process->pid, path) == 0 ? innermost(path) : NULL;
  process->limits_generation = generation;
  return process->limit;
}

/* What the processes under a limit have of a device. One that has moved to another cgroup counts there once it
 * allocates. */
static uint64_t used_bytes(const struct memory_limit *limit, uint32_t device) {
  uint64_t used = 0;
  for (struct process *process = server.processes; process; process = process->next) {
    if (process->dead) continue;
    if (process->limits_generation != generation) look_up(process);
    if (process->limit == limit) used += process->used_bytes[device];
  }
  return used;
}

bool memory_limits_allow(struct process *process, const struct device *device, uint64_t bytes) {
  drop_removed();
  if (!limits) return true;
  const struct memory_limit *limit = look_up(process);
  if (!limit || limit->hard[device->index] == SIM_NO_LIMIT) return true;
  uint64_t used = used_bytes(limit, device->index), hard = limit->hard[device->index];
  return used <= hard && bytes <= hard - used;
}

static int make_limit(const char *path, const struct stat *directory, struct memory_limit **ret_limit) {
  for (struct memory_limit *limit = limits; limit; limit = limit->next)
    if (strcmp(limit->path, path) == 0) return *ret_limit = limit, 0;
  if (server.page->limit_count >= LIMITS_MAX) return -ENOSPC;
  struct memory_limit *limit = calloc(1, sizeof *limit);
  if (limit && !(limit->path = strdup(path))) {
    free(limit);
    limit = NULL;
  }
  if (!limit) return -ENOMEM;
  limit->filesystem = directory->st_dev;
  limit->inode = directory->st_ino;
  for (uint32_t i = 0; i < SIM_DEVICES_MAX; i++) limit->hard[i] = SIM_NO_LIMIT;
  limit->next = limits;
  limits = limit;
  generation++;
  VG_STORE(&server.page->limit_count, server.page->limit_count + 1);
  return *ret_limit = limit, 0;
}

/* The path of a descriptor, if it is the directory of a cgroup of version 2. */
static int directory_of(int fd, char ret_path[PATH_MAX], struct stat *ret_directory) {
  char link[64];
  struct statfs filesystem;
  if (fd < 0 || fstat(fd, ret_directory) < 0 || fstatfs(fd, &filesystem) < 0) return -EINVAL;
  if (!S_ISDIR(ret_directory->st_mode) || filesystem.f_type != CGROUP2_MAGIC) return -EINVAL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, ret_path, PATH_MAX - 1);
  if (length < 0) return -errno;
  ret_path[length] = 0;
  return 0;
}

static int report(const struct memory_limit *limit, uint32_t device, struct sim_wire_limits *ret_limits) {
  if (!limit) return -ENOENT;
  *ret_limits = (struct sim_wire_limits){limit->soft[device], limit->hard[device], used_bytes(limit, device)};
  return 0;
}

int memory_limits_request(struct process *process, const struct sim_request *request, int fd,
                          struct sim_wire_limits *ret_limits) {
  char path[PATH_MAX];
  struct stat directory;
  const struct config_device *device = &server.config.devices[request->device];
  if (!server.config.memory_limits || device->parent || device->instances[0]) return -EOPNOTSUPP;
  drop_removed();
  if (request->kind == SIM_REQUEST_LIMITS_OWN) return report(look_up(process), request->device, ret_limits);
  if (request->kind == SIM_REQUEST_LIMITS_SET && process->uid != 0) return -EPERM;
  int rc = directory_of(fd, path, &directory);
  if (rc < 0) return rc;
  if (request->kind == SIM_REQUEST_LIMITS_GET) return report(innermost(path), request->device, ret_limits);
  if (request->limits.soft > request->limits.hard) return -EINVAL;
  struct memory_limit *limit;
  if ((rc = make_limit(path, &directory, &limit)) < 0) return rc;
  limit->soft[request->device] = request->limits.soft;
  limit->hard[request->device] = request->limits.hard;
  return 0;
}
