/* cleanup.c - what takes an engine: finding a job's containers, to tell their programs to end, and removing them, since
 * we cannot kill them ourselves. Called by supervise.c when a job is to end, when its grace is over, and whenever the
 * engine's client has ended. */
#define _GNU_SOURCE
#include "job/job.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX (VJ_MEMBERS_MAX + 16)
#define PATIENCE_S 60
#define LOOK_US 5000

static _Noreturn void become(char *command, char **environment, int null_fd, int output_fd) {
  static char *words[WORDS_MAX + 1];
  char *rest = NULL;
  size_t count = 0;
  for (char *word = strtok_r(command, " ", &rest); word && count < WORDS_MAX; word = strtok_r(NULL, " ", &rest))
    words[count++] = word;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  dup2(null_fd, 0);
  dup2(output_fd, 1);
  dup2(null_fd, 2);
  setsid();
  execve(words[0], words, environment);
  _exit(VJ_CODE_NOT_RUNNABLE);
}

void vj_cleanup(const struct vj_launch *launch, int null_fd) {
  if (!launch->cleanup) return;
  pid_t pid = fork();
  if (!pid) become(launch->cleanup, launch->members[0].env, null_fd, null_fd);
  uint64_t deadline_ns = vj_now_ns() + PATIENCE_S * VJ_NS_PER_S;
  while (pid > 0 && !waitpid(pid, NULL, WNOHANG)) {
    if (vj_now_ns() >= deadline_ns) kill(pid, SIGKILL);
    usleep(LOOK_US);
  }
}

/* Whether it is the first process of a pid namespace below ours: else the engine counts pids in another one. */
static bool is_first(pid_t pid) {
  char path[64], text[8192], *line, *end;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (vj_read_file(path, text, sizeof text) <= 0 || !(line = strstr(text, "\nNSpid:"))) return false;
  if ((end = strchr(line + 1, '\n'))) *end = 0;
  const char *own = strchr(line, '\t'), *last = strrchr(line, '\t');
  return last != own && !strcmp(last, "\t1");
}

static void end_below(pid_t first, int signal) {
  (void)signal;
  vj_tree_end_below(first);
}

/* Calls act, with launch's signal, for the first process of each container. */
static _Noreturn void visit_first(const struct vj_launch *launch, void (*act)(pid_t first, int signal), int null_fd) {
  int output[2];
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(PATIENCE_S); /* ends us, and the engine's client with us */
  if (pipe2(output, O_CLOEXEC)) _exit(1);
  pid_t client = fork();
  if (!client) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    become(launch->first, launch->members[0].env, null_fd, output[1]);
  }
  close(output[1]);
  FILE *pids = client > 0 ? fdopen(output[0], "r") : NULL;
  int pid;
  while (pids && fscanf(pids, "%d", &pid) == 1)
    if (pid > 0 && is_first((pid_t)pid)) act((pid_t)pid, launch->signal);
  waitpid(client, NULL, 0);
  _exit(0);
}

void vj_containers_end(const struct vj_launch *launch, int null_fd) {
  if (launch->first && !fork()) visit_first(launch, end_below, null_fd);
}

void vj_containers_notify(const struct vj_launch *launch, int null_fd) {
  if (launch->first && !fork()) visit_first(launch, vj_tree_notify_below, null_fd);
}
