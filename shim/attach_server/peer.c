/* peer.c - see peer.h. */
#define _GNU_SOURCE
#include "attach_server/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/prim.h"

#define GET_USER_NAMESPACE _IO(0xFF, 9) /* PIDFD_GET_USER_NAMESPACE: Linux 6.11 */
#define GET_PARENT _IO(0xB7, 2)         /* of a namespace */
#define GET_OWNER_UID _IO(0xB7, 4)
#define DEPTH_MAX 33  /* the kernel nests no deeper */
#define PEER_PIDFD 77 /* SO_PEERPIDFD: Linux 6.5; older kernels answer ENOPROTOOPT */

static int pidfd_of(int socket_fd, pid_t pid) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (getsockopt(socket_fd, SOL_SOCKET, PEER_PIDFD, &pidfd, &size) == 0) return pidfd;
  if (errno != ENOPROTOOPT) return -errno;
  return vg_prim_pidfd(pid);
}

static bool has_ended(int pidfd) {
  struct pollfd entry = {.fd = pidfd, .events = POLLIN};
  return poll(&entry, 1, 0) != 0;
}

/* Of the process behind the pidfd itself, for less than half the time of a look into /proc. */
static int open_users(int pidfd) {
  int namespace = ioctl(pidfd, GET_USER_NAMESPACE, 0);
  return namespace < 0 ? -errno : namespace;
}

static int open_users_of(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
  int namespace = open(path, O_RDONLY | O_CLOEXEC);
  return namespace < 0 ? -errno : namespace;
}

/* 1: it is the daemon's, 0: another; -errno. */
static int is_ours(int namespace) {
  static struct stat ours; /* a process keeps its user namespace: threads cannot leave it */
  static int known = -1;
  struct stat theirs;
  if (known) known = vg_prim_stat("/proc/self/ns/user", &ours);
  if (known) return known;
  int result = vg_prim_fstat(namespace, &theirs);
  return result ? result : ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino;
}

/* *ret_by_pid: what was read is of the process that has this pid now. */
static int has_own_users(int pidfd, pid_t pid, bool *ret_own, bool *ret_by_pid) {
  int namespace = open_users(pidfd);
  *ret_by_pid = namespace < 0;
  if (*ret_by_pid) namespace = open_users_of(pid);
  if (namespace < 0) return namespace;
  int result = is_ours(namespace);
  close(namespace);
  *ret_own = result == 1;
  return result < 0 ? result : 0;
}

uint32_t vg_peer_responsible_uid(const struct vg_peer *peer) {
  uint32_t uid = peer->uid;
  if (peer->own_users) return uid;
  int namespace = open_users(peer->pidfd);
  if (namespace < 0) namespace = open_users_of(peer->pid);
  for (int depth = 0; depth < DEPTH_MAX && namespace >= 0 && is_ours(namespace) == 0; depth++) {
    if (ioctl(namespace, GET_OWNER_UID, &uid)) break;
    int parent = ioctl(namespace, GET_PARENT);
    close(namespace);
    namespace = parent;
  }
  if (namespace >= 0) close(namespace);
  return uid;
}

static int read_cgroups(pid_t pid, char *ret_text) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -errno;
  size_t length = 0;
  ssize_t got;
  while (length < VG_CGROUPS_BYTES && (got = read(fd, ret_text + length, VG_CGROUPS_BYTES - length)) > 0)
    length += (size_t)got;
  int result = got < 0 ? -errno : length == VG_CGROUPS_BYTES ? -E2BIG : 0; /* cut text could mean another container */
  close(fd);
  if (result == 0) ret_text[length] = 0;
  return result;
}

int vg_peer_identify(int socket_fd, bool with_cgroups, struct vg_peer *ret_peer) {
  struct ucred credentials;
  socklen_t size = sizeof credentials;
  ret_peer->cgroups[0] = 0;
  if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size)) return -errno;
  if (credentials.pid <= 0) return -ESRCH; /* in a pid namespace that is not visible from here */
  int pidfd = pidfd_of(socket_fd, credentials.pid);
  if (pidfd < 0) return pidfd;
  bool by_pid;
  int result = has_own_users(pidfd, credentials.pid, &ret_peer->own_users, &by_pid);
  if (result == 0 && with_cgroups) result = read_cgroups(credentials.pid, ret_peer->cgroups);
  if (result == 0 && (by_pid || with_cgroups) && has_ended(pidfd)) result = -ESRCH;
  if (result) {
    close(pidfd);
    return result;
  }
  ret_peer->pid = credentials.pid;
  ret_peer->uid = credentials.uid;
  ret_peer->pidfd = pidfd;
  return 0;
}

/* A line is HIERARCHY:CONTROLLERS:PATH. Rank 0: version 2; 1: with a controller; 2: without. -1: no such line. */
static int rank_of(const char *line, const char *end, const char **ret_path) {
  const char *first = memchr(line, ':', (size_t)(end - line));
  const char *second = first ? memchr(first + 1, ':', (size_t)(end - first - 1)) : NULL;
  if (!second) return -1;
  *ret_path = second + 1;
  if (first - line == 1 && *line == '0') return 0;
  return !strncmp(first + 1, "name=", 5) ? 2 : 1;
}

static int trimmed(const char *path, const char *end) {
  static const char deleted[] = " (deleted)";
  int length = (int)(end - path), extra = (int)sizeof deleted - 1;
  if (length >= extra && !memcmp(end - extra, deleted, (size_t)extra)) length -= extra;
  int slashes = 0;
  while (slashes < length && path[slashes] == '/') slashes++;
  return slashes == length ? 0 : length; /* every process is below "/" */
}

bool vg_peer_cgroup(const char *text, int n, const char **ret_path, int *ret_length) {
  for (int rank = 0; rank < 3; rank++)
    for (const char *line = text; *line;) {
      const char *end = line + strcspn(line, "\n"), *path = line;
      if (rank_of(line, end, &path) == rank && (*ret_length = trimmed(path, end)) && n-- == 0) {
        *ret_path = path;
        return true;
      }
      line = *end ? end + 1 : end;
    }
  return false;
}
