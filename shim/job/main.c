/* main.c - vgpu-job, the supervisor of one attempt of a job (job.h). vgpud/jobs/runner.py starts it and speaks with it.
 *
 * Answer on the socket: "ok PID START\n" with perhaps "note TEXT\n", or "no TEXT\n" ("later TEXT\n" where a later try
 * may succeed), or "begun\n" when another supervisor has the attempt; then the socket is closed, and only files and
 * signals are left. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Leaves the daemon's session, ignores signals of terminals, is exempt from the OOM killer, reaps orphans. */
static void detach(void) {
  static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTSTP, SIGUSR1, SIGUSR2};
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigprocmask(SIG_SETMASK, &stop, NULL); /* pending until it is read from the signalfd */
  for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) signal(ignored[i], SIG_IGN);
  signal(SIGCHLD, SIG_DFL);
  setsid();
  umask(077);
  if (chdir("/")) return; /* cannot fail; a failure would only keep a file system busy */
  vj_write_file("/proc/self/oom_score_adj", "-1000");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void answer(const char *text) {
  vj_write_all(1, text, strlen(text));
}

static int refuse(int error, const char *reason) {
  char text[VJ_TEXT_BYTES + 8];
  bool never = error == -EINVAL || error == -EPROTO || error == -E2BIG || error == -EPERM;
  snprintf(text, sizeof text, "%s %s\n", never ? "no" : "later", reason);
  answer(error == -EEXIST ? "begun\n" : text);
  return 1;
}

static void accept_job(const struct vj_cgroups *cgroups) {
  char text[VJ_TEXT_BYTES + 128];
  int length = snprintf(text, sizeof text, "ok %d %llu\n", (int)getpid(), (unsigned long long)vj_own_start());
  if (*cgroups->note) snprintf(text + length, sizeof text - (size_t)length, "note %s\n", cgroups->note);
  answer(text);
}

int main(int argc, char **argv) {
  static char text[VJ_TEXT_BYTES];
  static struct vj_launch launch;
  static struct vj_cgroups cgroups;
  static struct vj_attempt attempt;
  static struct vj_outcome outcome;
  bool here = argc > 1 && !strcmp(argv[1], "--here");
  vj_close_above(3);
  detach();
  int error = vj_launch_read(0, &launch, text);
  if (error) return refuse(error, text);
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) return refuse(-errno, "cannot open /dev/null");
  vj_cgroups_make(&launch, here, &cgroups);
  if ((error = vj_attempt_begin(&launch, &cgroups, &attempt, text))) {
    vj_cgroups_remove(&cgroups);
    return refuse(error, text);
  }
  launch.daemon_uid = geteuid();
  if (launch.has_terminal) vj_terminal_prepare(&launch, attempt.path);
  accept_job(&cgroups);
  for (int fd = 0; fd < 3; fd++) dup2(null_fd, fd);
  vj_supervise(&launch, &cgroups, &attempt, null_fd, &outcome);
  vj_cgroups_remove(&cgroups);
  return 0;
}
