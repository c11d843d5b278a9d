/* tree.c - every process of a job: finds them, sends them signals, kills them. Called by supervise.c.
 *
 * By cgroup where there is one; else they are our descendants, since orphans become our children (subreaper). A pid may
 * be another process's by the time it is signalled: its pidfd is opened first, and its start time compared again. */
#define _GNU_SOURCE
#include "job/job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open /* the same number on every architecture */
#define SYS_pidfd_open 434
#define SYS_pidfd_send_signal 424
#endif

#define CHILDREN "/proc/thread-self/children"
#define STOP_ROUNDS 50 /* of SIGSTOP, for processes that forked while others were stopped */

struct process {
  pid_t pid, parent;
  unsigned long long start;
  bool ended, ours; /* ended: only its parent has not reaped it yet */
};

struct processes {
  struct process *items;
  size_t count, capacity;
};

static bool read_stat(pid_t pid, struct process *ret_process) {
  char path[64], text[4096];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  if (vj_read_file(path, text, sizeof text) <= 0) return false;
  const char *at = strrchr(text, ')');
  char state;
  int parent, threads;
  *ret_process = (struct process){.pid = pid};
  if (!at || sscanf(at + 1, " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d %*d %llu", &state,
                    &parent, &threads, &ret_process->start) != 4)
    return false;
  ret_process->parent = parent;
  ret_process->ended = (state == 'Z' || state == 'X') && threads <= 1; /* its first thread may end before others */
  return true;
}

static void add(struct processes *all, const struct process *process) {
  if (all->count == all->capacity) {
    size_t capacity = all->capacity ? 2 * all->capacity : 256;
    struct process *items = realloc(all->items, capacity * sizeof *items);
    if (!items) return; /* the next round finds the rest */
    *all = (struct processes){items, all->count, capacity};
  }
  all->items[all->count++] = *process;
}

/* ---- by cgroup ---- */

static void collect_one(const char *directory, void *data) {
  char procs[PATH_MAX];
  FILE *list = vj_path(procs, "%s/cgroup.procs", directory) ? NULL : fopen(procs, "re");
  int pid;
  while (list && fscanf(list, "%d", &pid) == 1) {
    struct process process;
    if (pid > 0 && read_stat(pid, &process)) add(data, &process);
  }
  if (list) fclose(list);
}

/* ---- by parent ---- */

static void mark_descendants(struct processes *all, pid_t ancestor) {
  for (bool more = true; more;) {
    more = false;
    for (size_t i = 0; i < all->count; i++) {
      struct process *child = &all->items[i];
      bool found = !child->ours && child->parent == ancestor;
      for (size_t j = 0; !child->ours && !found && j < all->count; j++)
        found = all->items[j].ours && all->items[j].pid == child->parent;
      if (found) child->ours = more = true;
    }
  }
  size_t kept = 0;
  for (size_t i = 0; i < all->count; i++)
    if (all->items[i].ours) all->items[kept++] = all->items[i];
  all->count = kept;
}

static void collect_descendants(struct processes *all, pid_t ancestor) {
  DIR *proc = opendir("/proc");
  for (struct dirent *entry; proc && (entry = readdir(proc));) {
    struct process process;
    pid_t pid = atoi(entry->d_name);
    if (pid > 0 && read_stat(pid, &process)) add(all, &process);
  }
  if (proc) closedir(proc);
  mark_descendants(all, ancestor);
}

static struct processes collect(const struct vj_cgroups *cgroups) {
  struct processes all = {0};
  if (*cgroups->track)
    vj_cgroups_walk(cgroups->track, collect_one, &all);
  else
    collect_descendants(&all, getpid());
  return all;
}

static void send_signal(const struct process *process, int signal) {
  int pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);
  struct process now;
  if (pidfd < 0) {
    if (errno == ENOSYS) kill(process->pid, signal); /* Linux before 5.3 has no better way */
    return;
  }
  if (read_stat(process->pid, &now) && now.start == process->start)
    syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
  close(pidfd);
}

/* Returns how many there were. */
static size_t send_all(const struct vj_cgroups *cgroups, int signal) {
  struct processes all = collect(cgroups);
  for (size_t i = 0; i < all.count; i++)
    if (!all.items[i].ended) send_signal(&all.items[i], signal);
  free(all.items);
  return all.count;
}

void vj_tree_signal(const struct vj_cgroups *cgroups, int signal) {
  send_all(cgroups, signal);
}

/* Whether a signal is in this mask of a process, "\nSigIgn:" or "\nSigCgt:". */
static bool is_in(int signal, const char *mask, pid_t pid) {
  char path[64], text[8192];
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (vj_read_file(path, text, sizeof text) <= 0) return false;
  const char *line = strstr(text, mask);
  return line && (strtoull(line + strlen(mask), NULL, 16) >> (signal - 1) & 1);
}

static void notify(const struct processes *all, int signal) {
  bool is_handled = false;
  for (size_t i = 0; i < all->count; i++)
    is_handled = is_handled || (!all->items[i].ended && is_in(signal, "\nSigCgt:", all->items[i].pid));
  for (size_t i = 0; i < all->count; i++)
    if (!all->items[i].ended && (!is_handled || is_in(signal, "\nSigCgt:", all->items[i].pid)))
      send_signal(&all->items[i], signal);
}

void vj_tree_notify(const struct vj_cgroups *cgroups, int signal) {
  struct processes all = collect(cgroups);
  notify(&all, signal);
  free(all.items);
}

void vj_tree_notify_below(pid_t first, int signal) {
  struct processes all = {0};
  struct process process;
  collect_descendants(&all, first);
  if (read_stat(first, &process)) add(&all, &process);
  notify(&all, signal);
  free(all.items);
}

static bool has_children(const struct processes *all, pid_t pid) {
  for (size_t i = 0; i < all->count; i++)
    if (all->items[i].parent == pid && !all->items[i].ended) return true;
  return false;
}

void vj_tree_end_below(pid_t first) {
  struct processes all = {0};
  collect_descendants(&all, first);
  for (size_t i = 0; i < all.count; i++) {
    const struct process *process = &all.items[i];
    if (process->ended || (has_children(&all, process->pid) && !is_in(SIGTERM, "\nSigCgt:", process->pid))) continue;
    send_signal(process, SIGTERM);
    send_signal(process, SIGCONT);
  }
  free(all.items);
}

bool vj_tree_hang_up(const struct vj_cgroups *cgroups, bool now) {
  struct processes all = collect(cgroups);
  size_t living = 0, ignoring = 0;
  for (size_t i = 0; i < all.count; i++) {
    if (all.items[i].ended) continue;
    living++;
    if (is_in(SIGTERM, "\nSigIgn:", all.items[i].pid)) all.items[ignoring++] = all.items[i];
  }
  bool is_done = now || ignoring == living;
  for (size_t i = 0; i < ignoring && is_done; i++) send_signal(&all.items[i], SIGHUP);
  free(all.items);
  return is_done;
}

static bool put(const struct vj_cgroups *cgroups, const char *file, const char *value) {
  char path[PATH_MAX];
  return !vj_path(path, "%s/%s", cgroups->track, file) && !vj_write_file(path, value);
}

static void kill_frozen(const struct vj_cgroups *cgroups) {
  if (cgroups->unified ? put(cgroups, "cgroup.freeze", "1") : put(cgroups, "freezer.state", "FROZEN"))
    usleep(1000); /* a process that still runs when the list is read is killed in the next round */
  send_all(cgroups, SIGKILL);
  if (cgroups->unified)
    put(cgroups, "cgroup.freeze", "0");
  else
    put(cgroups, "freezer.state", "THAWED");
}

/* For a process that forks and ends again and again: it is gone before all of /proc has been read; but each time its
 * parent ends it becomes our child, and listing our children is fast enough to hit one before all pids are used up.
 * waitid() checks that a listed pid is our child, since /proc may be of another pid namespace. */
static void kill_children(void) {
  FILE *list = fopen(CHILDREN, "re");
  siginfo_t info;
  int pid;
  while (list && fscanf(list, "%d", &pid) == 1)
    if (!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT)) kill(pid, SIGKILL);
  if (list) fclose(list);
}

/* A stopped process cannot fork: stops processes until no more are found, and kills them then. */
static void kill_descendants(const struct vj_cgroups *cgroups) {
  size_t before = 0;
  for (int round = 0; round < STOP_ROUNDS; round++) {
    size_t found = send_all(cgroups, SIGSTOP);
    if (found == before) break;
    before = found;
  }
  send_all(cgroups, SIGKILL);
  kill_children();
}

void vj_tree_kill(const struct vj_cgroups *cgroups) {
  if (!*cgroups->track) {
    kill_descendants(cgroups);
    return;
  }
  if (!cgroups->unified || !put(cgroups, "cgroup.kill", "1")) kill_frozen(cgroups);
}

/* Whether all our children have ended (a traced child cannot be reaped before its tracer has). An ended process has no
 * children: if all of ours have ended, and there are no others afterwards, no process of the tree lives. */
static bool children_have_ended(void) {
  char before[4096], after[sizeof before];
  if (vj_read_file(CHILDREN, before, sizeof before) <= 0 || strlen(before) == sizeof before - 1) return false;
  char *at = before;
  for (long pid; (pid = strtol(at, &at, 10)) > 0;) {
    struct process child;
    if (!read_stat((pid_t)pid, &child) || !child.ended) return false;
  }
  return vj_read_file(CHILDREN, after, sizeof after) > 0 && !strcmp(before, after);
}

bool vj_tree_is_empty(const struct vj_cgroups *cgroups) {
  if (*cgroups->track) return !vj_cgroups_populated(cgroups);
  /* Every living process has us as an ancestor, so we have a child. A list of /proc could miss a process that forks. */
  siginfo_t info = {0};
  if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) return errno == ECHILD;
  return !info.si_pid && children_have_ended();
}
