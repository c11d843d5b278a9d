/*
 * places.c - which processes hold the connections of the simulated device. Called by client.c at each accept and end,
 * and by main.c. Processes are counted where they are listed: there are a few thousand at most, and they come rarely.
 */
#define _GNU_SOURCE
#include "simgpu/server/places.h"
#include "simgpu/server/server.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t descriptors_max; /* connections for which there are descriptors */
static int spare = -1;

int places_open(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return -errno;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  getrlimit(RLIMIT_NOFILE, &limit);
  uint64_t fit = limit.rlim_cur > DESCRIPTORS_KEPT ? (limit.rlim_cur - DESCRIPTORS_KEPT) / DESCRIPTORS_OF_PROCESS : 1;
  descriptors_max = fit < UINT32_MAX ? (uint32_t)fit : UINT32_MAX;
  spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return spare < 0 ? -errno : 0;
}

bool places_free(uid_t uid) {
  uint32_t more = uid == 0 || uid == geteuid() ? PLACES_MORE : 0, all = 0, own = 0;
  for (const struct process *process = server.processes; process; process = process->next) {
    if (process->dead) continue;
    all++;
    own += process->uid == uid;
  }
  return all < PLACES_MAX + more && own < PLACES_OF_USER_MAX + more && all < descriptors_max;
}

uint64_t places_late_ns(void) {
  uint64_t late_ns = NEVER;
  if (!server.silent) return late_ns;
  for (const struct process *process = server.processes; process; process = process->next)
    if (!process->spoke && !process->dead && process->accepted_ns + GREETING_NS < late_ns)
      late_ns = process->accepted_ns + GREETING_NS;
  return late_ns;
}

void places_close_late(uint64_t now_ns) {
  if (!server.silent) return;
  for (struct process *process = server.processes; process; process = process->next)
    if (!process->spoke && !process->dead && process->accepted_ns + GREETING_NS <= now_ns) server.process_died(process);
}

/* The connection would stay in the backlog, and the listener would be ready for ever. */
void places_refuse_one(int listener) {
  close(spare);
  int refused = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (refused >= 0) close(refused);
  spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}
