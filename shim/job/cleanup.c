/* cleanup.c - has the engine remove a job's containers, which we cannot kill ourselves. Called by supervise.c when the
 * grace is over, and whenever the engine's client has ended. */
#define _GNU_SOURCE
#include "job/job.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX (VJ_MEMBERS_MAX + 16)
#define PATIENCE_NS (60 * VJ_NS_PER_S)
#define LOOK_US 5000

static _Noreturn void become(char *command, char **environment, int null_fd) {
  static char *words[WORDS_MAX + 1];
  char *rest = NULL;
  size_t count = 0;
  for (char *word = strtok_r(command, " ", &rest); word && count < WORDS_MAX; word = strtok_r(NULL, " ", &rest))
    words[count++] = word;
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  for (int fd = 0; fd < 3; fd++) dup2(null_fd, fd);
  setsid();
  execve(words[0], words, environment);
  _exit(VJ_CODE_NOT_RUNNABLE);
}

void vj_cleanup(const struct vj_launch *launch, int null_fd) {
  if (!launch->cleanup) return;
  pid_t pid = fork();
  if (!pid) become(launch->cleanup, launch->members[0].env, null_fd);
  uint64_t deadline_ns = vj_now_ns() + PATIENCE_NS;
  while (pid > 0 && !waitpid(pid, NULL, WNOHANG)) {
    if (vj_now_ns() >= deadline_ns) kill(pid, SIGKILL);
    usleep(LOOK_US);
  }
}
