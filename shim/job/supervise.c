/* supervise.c - a job from its first process to its last. Called by main.c.
 *
 * The job has ended when the commands of all members have ended and their process trees are empty: processes that a
 * command leaves behind get SIGTERM with its end, and SIGKILL soon after. A gang ends with the first of its members
 * that fails. SIGTERM to us ends the whole job. A job that is ended has the whole grace, also once its commands are
 * gone: a shell ends at SIGTERM at once, and the program that it ran may still be saving. */
#define _GNU_SOURCE
#include "job/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define LEFTOVER_GRACE_NS (2 * VJ_NS_PER_S)
#define TERMINAL_GRACE_NS (5 * VJ_NS_PER_S) /* its keeper passes the last output on */
#define HANG_UP_PART 4 /* at a terminal, what ignores SIGTERM gets SIGHUP for this last part of the grace */
/* Between checks of a tree that is ending; doubled each time, since a process may hang in a driver for long. */
#define LOOK_MS 5
#define LOOK_MS_MAX 320
#define LAST_LOOKS 20 /* for processes that have left their cgroups and are still ending */

enum phase { RUNNING, ENDING, KILLING };

struct job {
  const struct vj_launch *launch;
  const struct vj_cgroups *cgroups;
  const struct vj_attempt *attempt;
  struct vj_outcome *outcome;
  struct vj_member_end *ends;
  struct pollfd *failures; /* of each member, fd -1 once its program runs */
  pid_t *pids;
  size_t alive;
  enum phase phase;
  uint64_t deadline_ns, hang_up_ns;
  bool is_hung_up;
  int look_ms, null_fd;
};

/* SIGTERM to the whole job, which has grace_ns to end; later calls can only shorten that. */
static void end(struct job *job, uint64_t grace_ns) {
  uint64_t deadline_ns = vj_now_ns() + grace_ns;
  if (job->phase == KILLING || (job->phase == ENDING && job->deadline_ns <= deadline_ns)) return;
  job->deadline_ns = deadline_ns;
  job->hang_up_ns = deadline_ns - grace_ns / HANG_UP_PART;
  if (job->phase == ENDING) return;
  job->phase = ENDING;
  job->look_ms = LOOK_MS;
  if (job->launch->is_client) { /* which passes it on to the first process; its own helpers are not the job's */
    for (size_t i = 0; i < job->launch->member_count; i++)
      if (job->pids[i] > 0) kill(job->pids[i], SIGTERM);
    vj_containers_end(job->launch, job->null_fd);
    return;
  }
  vj_tree_signal(job->cgroups, SIGTERM);
  vj_tree_signal(job->cgroups, SIGCONT);
}

/* A shell ignores SIGTERM and ends with SIGHUP, as do the programs that it has started: those get their grace first. */
static void hang_up(struct job *job) {
  if (job->is_hung_up || !job->launch->has_terminal || job->launch->is_client) return;
  job->is_hung_up = vj_tree_hang_up(job->cgroups, vj_now_ns() >= job->hang_up_ns);
}

static void member_ended(struct job *job, size_t member, int code, int signal, const char *why) {
  struct vj_member_end *ended = &job->ends[member];
  if (ended->ended) return;
  *ended = (struct vj_member_end){true, code, signal};
  job->alive--;
  if (job->launch->has_terminal) vj_terminal_end(job->launch);
  if (!code || job->outcome->code) return;
  job->outcome->code = code;
  job->outcome->signal = signal;
  if (*why && !*job->outcome->why) vj_say(job->outcome->why, 0, "%s", why);
  if (!job->alive || job->phase != RUNNING) return;
  if (!*job->outcome->why)
    vj_say(job->outcome->why, 0, "member %zu exited with code %d; the other members of its gang were ended", member,
           code);
  end(job, job->launch->grace_ns);
}

static void look_at_failure(struct job *job, size_t member) {
  char text[VJ_TEXT_BYTES] = "";
  int code = vj_child_failure(job->launch, member, job->failures[member].fd, text);
  close(job->failures[member].fd);
  job->failures[member].fd = -1;
  if (code) member_ended(job, member, code, 0, text);
}

static void reap(struct job *job) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (size_t i = 0; i < job->launch->member_count; i++) {
      if (job->pids[i] != pid) continue;
      job->pids[i] = -1;
      if (job->failures[i].fd >= 0) look_at_failure(job, i); /* its failure, if any, is in the pipe by now */
      int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      member_ended(job, i, signal ? 128 + signal : WEXITSTATUS(status), signal, "");
    }
}

static void start(struct job *job) {
  for (size_t i = 0; i < job->launch->member_count && job->phase == RUNNING; i++) {
    pid_t pid = vj_child_start(job->launch, job->cgroups, i, job->null_fd, &job->failures[i].fd);
    char text[VJ_TEXT_BYTES];
    if (pid > 0) {
      job->pids[i] = pid;
      continue;
    }
    vj_say(text, 0, "cannot start a process in its cgroups: %s", strerror((int)-pid));
    member_ended(job, i, VJ_CODE_NOT_RUNNABLE, 0, text);
  }
  if (job->launch->has_terminal) vj_terminal_hand_over(job->launch);
  for (size_t i = 0; i < job->launch->member_count; i++) /* the members that were not started */
    if (job->pids[i] < 0) member_ended(job, i, VJ_CODE_NOT_RUNNABLE, 0, "");
}

static void notify(struct job *job) {
  if (!job->launch->signal) return;
  if (job->launch->is_client)
    vj_containers_notify(job->launch, job->null_fd);
  else
    vj_tree_notify(job->cgroups, job->launch->signal);
}

static void take_signals(struct job *job, int signals) {
  struct signalfd_siginfo info;
  bool told = false;
  bool notified = false;
  while (read(signals, &info, sizeof info) == sizeof info) {
    told = told || info.ssi_signo == SIGTERM;
    notified = notified || info.ssi_signo == SIGUSR1;
  }
  reap(job);
  if (notified && job->phase == RUNNING) notify(job);
  if (!told) return;
  if (job->alive) job->outcome->stopped = true; /* else its commands had ended by themselves */
  end(job, vj_attempt_grace_ns(job->attempt, job->launch->grace_ns));
}

static int look_in_ms(struct job *job) {
  uint64_t now_ns = vj_now_ns();
  int look_ms = job->look_ms;
  if (job->look_ms < LOOK_MS_MAX) job->look_ms *= 2;
  uint64_t until_ns = job->hang_up_ns > now_ns ? job->hang_up_ns : job->deadline_ns;
  uint64_t left_ns = job->phase == ENDING && until_ns > now_ns ? until_ns - now_ns : UINT64_MAX;
  return left_ns < (uint64_t)look_ms * VJ_NS_PER_MS ? (int)(left_ns / VJ_NS_PER_MS) + 1 : look_ms;
}

/* Waits for the next event; a tree that is ending is polled. */
static void wait_for_event(struct job *job, int signals) {
  size_t count = job->launch->member_count;
  job->failures[count] = (struct pollfd){.fd = signals, .events = POLLIN};
  int timeout_ms = job->phase == RUNNING ? -1 : look_in_ms(job);
  if (poll(job->failures, count + 1, timeout_ms) <= 0) return;
  for (size_t i = 0; i < count; i++)
    if (job->failures[i].fd >= 0 && job->failures[i].revents) look_at_failure(job, i);
  if (job->failures[count].revents) take_signals(job, signals);
}

static void run(struct job *job, int signals) {
  for (;;) {
    reap(job);
    if (!job->alive) {
      if (vj_tree_is_empty(job->cgroups)) return;
      uint64_t grace_ns = job->launch->grace_ns < LEFTOVER_GRACE_NS ? job->launch->grace_ns : LEFTOVER_GRACE_NS;
      if (job->phase == RUNNING) end(job, job->launch->has_terminal ? TERMINAL_GRACE_NS : grace_ns);
    }
    if (job->phase != RUNNING && vj_now_ns() >= job->deadline_ns) {
      if (job->phase != KILLING) {
        vj_cleanup(job->launch, job->null_fd); /* while an engine's helpers live: they report their container's end */
        job->look_ms = LOOK_MS;
      }
      job->phase = KILLING;
      vj_tree_kill(job->cgroups);
    }
    if (job->phase == ENDING) hang_up(job);
    wait_for_event(job, signals);
  }
}

/* Reaps the last processes, whose rusage is only then counted. A process that has moved into a service's cgroups lives
 * on. */
static void reap_last(struct job *job) {
  siginfo_t info;
  for (int look = 0; look < LAST_LOOKS; look++) {
    reap(job);
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT)) return; /* there is none left */
    usleep(LOOK_MS * 1000);
  }
}

/* Also where the job itself has ended well, as a script may whose program was killed. */
static void say_oom_kills(struct job *job) {
  unsigned long long kills = vj_cgroups_oom_kills(job->cgroups), limit_mib = job->launch->ram_bytes >> 20;
  if (kills && job->outcome->code)
    vj_say(job->outcome->why, 0, "out of memory: the job reached its limit of %llu MiB (--ram)", limit_mib);
  else if (kills)
    vj_say(job->outcome->why, 0,
           "out of memory: the kernel ended %llu of the job's processes at its limit of %llu MiB (--ram)", kills,
           limit_mib);
}

/* Usage as the kernel has counted it: by cgroup where there is one, else by rusage. */
static void account(struct job *job) {
  struct vj_outcome *outcome = job->outcome;
  struct rusage used;
  if (!getrusage(RUSAGE_CHILDREN, &used)) {
    uint64_t us = (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000ull;
    outcome->cpu_ns = (us + (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec)) * 1000;
    outcome->ram_peak_bytes = (uint64_t)used.ru_maxrss * 1024;
  }
  vj_cgroups_usage(job->cgroups, &outcome->cpu_ns, &outcome->ram_peak_bytes);
  say_oom_kills(job);
  outcome->ended_wall_ns = vj_wall_ns();
}

void vj_supervise(const struct vj_launch *launch, const struct vj_cgroups *cgroups, const struct vj_attempt *attempt,
                  int null_fd, struct vj_outcome *outcome) {
  size_t count = launch->member_count;
  struct job job = {
      .launch = launch, .cgroups = cgroups, .attempt = attempt, .outcome = outcome, .alive = count, .null_fd = null_fd};
  job.ends = calloc(count, sizeof *job.ends);
  job.failures = calloc(count + 1, sizeof *job.failures);
  job.pids = calloc(count, sizeof *job.pids);
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wanted, NULL);
  int signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (!job.ends || !job.failures || !job.pids || signals < 0) {
    outcome->code = VJ_CODE_NOT_RUNNABLE;
    vj_say(outcome->why, 0, "the supervisor is out of memory or file descriptors");
  } else {
    for (size_t i = 0; i < count; i++) {
      job.failures[i] = (struct pollfd){.fd = -1, .events = POLLIN};
      job.pids[i] = -1;
    }
    outcome->began_wall_ns = vj_wall_ns();
    start(&job);
    run(&job, signals);
    vj_cleanup(launch, null_fd);
    reap_last(&job);
    account(&job);
  }
  /* A full disk may be freed later, and no other process knows how the job ended. */
  int error;
  while ((error = vj_attempt_end(attempt, outcome, job.ends, job.ends ? count : 0)) == -ENOSPC || error == -EDQUOT)
    sleep(1);
  if (signals >= 0) close(signals);
  free(job.ends);
  free(job.failures);
  free(job.pids);
}
