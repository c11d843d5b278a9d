/* instructions.c - vgpud's instructions: pairs of strings, each ended by a 0, the last key "end". Called by main.c.
 *
 * Instructions that are cut off, out of order or unknown are refused as a whole, before anything has begun. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SIGNAL_MAX 31 /* those with a meaning of their own */

static bool parse_number(const char *value, uint64_t *ret_number) {
  char *rest;
  if (*value < '0' || *value > '9') return false;
  errno = 0;
  *ret_number = strtoull(value, &rest, 10);
  return !errno && !*rest;
}

static bool parse_limit(const char *value, struct vj_launch *launch) {
  unsigned long long resource, soft, hard;
  char *rest;
  errno = 0;
  resource = strtoull(value, &rest, 10);
  soft = strtoull(rest, &rest, 10);
  hard = strtoull(rest, &rest, 10);
  if (errno || *rest || resource >= RLIM_NLIMITS || soft > hard) return false;
  launch->has_limit[resource] = true;
  launch->limits[resource] = (struct rlimit){.rlim_cur = soft, .rlim_max = hard};
  return true;
}

/* Digits and dots: neither a path nor a line. */
static bool is_name(const char *value) {
  size_t length = strspn(value, "0123456789.");
  return length && !value[length] && *value != '.' && length < VJ_NAME_BYTES;
}

static bool parse_id(const char *value, uint32_t *ret_id) {
  uint64_t number;
  if (!parse_number(value, &number) || number >= UINT32_MAX) return false; /* -1 means "leave as it is" to setresuid */
  *ret_id = (uint32_t)number;
  return true;
}

static bool parse_grace(const char *value, struct vj_launch *launch) {
  uint64_t grace_ms;
  if (!parse_number(value, &grace_ms) || grace_ms > UINT32_MAX) return false;
  launch->grace_ns = grace_ms * VJ_NS_PER_MS;
  return true;
}

static bool parse_signal(const char *value, struct vj_launch *launch) {
  uint64_t number;
  if (!parse_number(value, &number) || !number || number > SIGNAL_MAX || number == SIGKILL || number == SIGSTOP)
    return false;
  launch->signal = (int)number;
  return true;
}

/* Keys of the whole attempt. */
static bool parse_common(const char *key, char *value, struct vj_launch *launch) {
  uint64_t number;
  if (!strcmp(key, "directory")) return *(launch->directory = value) == '/';
  if (!strcmp(key, "name")) return is_name(launch->name = value);
  if (!strcmp(key, "cwd")) return *(launch->cwd = value) == '/';
  if (!strcmp(key, "uid")) return parse_id(value, &launch->uid);
  if (!strcmp(key, "gid")) return parse_id(value, &launch->gid);
  if (!strcmp(key, "group")) return parse_id(value, &launch->groups[launch->group_count++]);
  if (!strcmp(key, "limit")) return parse_limit(value, launch);
  if (!strcmp(key, "terminal")) return launch->has_terminal = !strcmp(value, "1");
  if (!strcmp(key, "client")) return launch->is_client = !strcmp(value, "1");
  if (!strcmp(key, "cleanup")) return *(launch->cleanup = value) == '/';
  if (!strcmp(key, "first")) return *(launch->first = value) == '/';
  if (!strcmp(key, "cpu_milli")) return parse_number(value, &launch->cpu_milli);
  if (!strcmp(key, "ram_bytes")) return parse_number(value, &launch->ram_bytes);
  if (!strcmp(key, "pids_max")) return parse_number(value, &launch->pids_max);
  if (!strcmp(key, "grace_ms")) return parse_grace(value, launch);
  if (!strcmp(key, "signal")) return parse_signal(value, launch);
  if (strcmp(key, "umask") || !parse_number(value, &number) || number > 0777) return false;
  launch->umask = (mode_t)number;
  return true;
}

/* Where the strings of the members are collected: env, NULL, argv, NULL, and so on. */
struct lists {
  char **next;
  bool in_argv;
};

static void close_member(struct vj_launch *launch, struct lists *lists) {
  if (!launch->member_count) return;
  if (!lists->in_argv) launch->members[launch->member_count - 1].argv = ++lists->next;
  lists->next++;
  lists->in_argv = false;
}

static bool parse_member(const char *key, char *value, struct vj_launch *launch, struct lists *lists) {
  if (!strcmp(key, "member")) {
    if (launch->member_count >= VJ_MEMBERS_MAX || (*value && *value != '/')) return false;
    close_member(launch, lists);
    launch->members[launch->member_count++] = (struct vj_member){.env = lists->next, .log = value};
    return true;
  }
  if (!launch->member_count) return false;
  if (!strcmp(key, "env") && !lists->in_argv) {
    *lists->next++ = value;
    return true;
  }
  if (strcmp(key, "arg")) return false;
  if (!lists->in_argv) {
    launch->members[launch->member_count - 1].argv = ++lists->next;
    lists->in_argv = true;
  }
  *lists->next++ = value;
  return true;
}

static int check(const struct vj_launch *launch, char *text) {
  if (!launch->directory || !launch->name || !launch->cwd || !launch->member_count)
    return vj_say(text, EINVAL, "the instructions have no directory, name, cwd or member");
  if (launch->has_terminal && launch->member_count != 1)
    return vj_say(text, EINVAL, "a terminal is for one member, not for %zu", launch->member_count);
  for (size_t i = 0; i < launch->member_count; i++)
    if (!*launch->members[i].argv) return vj_say(text, EINVAL, "member %zu has no command", i);
  return 0;
}

int vj_launch_parse(char *bytes, size_t count, struct vj_launch *ret_launch, char *text) {
  *ret_launch = (struct vj_launch){.uid = UINT32_MAX, .gid = UINT32_MAX, .bytes = bytes};
  size_t strings = 0;
  for (size_t i = 0; i < count; i++) strings += !bytes[i];
  ret_launch->strings = calloc(2 * strings + 2, sizeof *ret_launch->strings);
  ret_launch->groups = calloc(strings + 1, sizeof *ret_launch->groups);
  ret_launch->members = calloc(VJ_MEMBERS_MAX, sizeof *ret_launch->members);
  if (!ret_launch->strings || !ret_launch->groups || !ret_launch->members) return vj_say(text, ENOMEM, "out of memory");
  struct lists lists = {.next = ret_launch->strings};
  char *at = bytes, *end = bytes + count;
  while (strings >= 2) {
    char *key = at, *value = key + strlen(key) + 1;
    at = value + strlen(value) + 1;
    strings -= 2;
    if (!strcmp(key, "end")) {
      if (at != end) return vj_say(text, EINVAL, "the instructions continue after their end");
      close_member(ret_launch, &lists);
      if (ret_launch->uid == UINT32_MAX || ret_launch->gid == UINT32_MAX)
        return vj_say(text, EINVAL, "the instructions have no uid or gid");
      return check(ret_launch, text);
    }
    bool known = ret_launch->member_count
                     ? parse_member(key, value, ret_launch, &lists)
                     : parse_common(key, value, ret_launch) || parse_member(key, value, ret_launch, &lists);
    if (!known) return vj_say(text, EINVAL, "invalid line in the instructions: %.40s=%.200s", key, value);
  }
  return vj_say(text, EPROTO, "the instructions end too early");
}

static int check_peer(int fd, char *text) {
  struct ucred peer;
  socklen_t bytes = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes))
    return vj_say(text, errno, "stdin is not a socket: only vgpud starts vgpu-job");
  if (peer.uid != geteuid())
    return vj_say(text, EPERM, "uid %u may not start jobs of uid %u's daemon", (unsigned)peer.uid, (unsigned)geteuid());
  return 0;
}

int vj_launch_read(int fd, struct vj_launch *ret_launch, char *text) {
  int error = check_peer(fd, text);
  if (error) return error;
  size_t capacity = 64u << 10, used = 0;
  char *buffer = malloc(capacity + 1);
  while (buffer) {
    ssize_t got = read(fd, buffer + used, capacity - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return vj_say(text, errno, "cannot read the instructions: %s", strerror(errno));
    if (!got) break;
    used += (size_t)got;
    if (used > VJ_INSTRUCTIONS_BYTES_MAX) return vj_say(text, E2BIG, "the instructions are longer than 16 MiB");
    if (used == capacity) buffer = realloc(buffer, (capacity *= 2) + 1);
  }
  if (!buffer) return vj_say(text, ENOMEM, "out of memory");
  buffer[used] = 0;
  return vj_launch_parse(buffer, used, ret_launch, text);
}
