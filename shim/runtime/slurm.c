/* slurm.c - `vgpu-runtime vgpu-slurm begin|end KEY=VALUE...`: a step of a Slurm job begins, or has ended. Called by
 * main.c; run as root by the SPANK plugin and by the scripts of integrations/slurm, which know nothing of vgpud's
 * protocol.
 *
 * begin prints the variables that the step's tasks need, end prints what the step has used, as lines NAME=VALUE. To
 * total=ask begin may print ask=total instead: it is to be called again with what the whole job has on this node. What
 * is wrong is one line on stderr, and exit status 1. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S 1000000000ull
#define BODY_BYTES 4096

/* Together less than the 10 s that the plugin gives us: our message says more than its own. */
static const struct vr_patience begin_patience = {.answer_ns = 6 * S, .missing_ns = 1 * S, .restart_ns = 3 * S};
/* Short: it delays the end of the step, which vgpud also notices by itself. */
static const struct vr_patience end_patience = {.answer_ns = 3 * S, .missing_ns = S / 5, .restart_ns = 1 * S};

/* The arguments as lines. Returns their length, -EINVAL for one that is no KEY=VALUE, or -E2BIG. */
static ssize_t body_of(int count, char **pairs, char *ret_body) {
  size_t used = 0;
  for (int i = 0; i < count; i++) {
    size_t length = strlen(pairs[i]);
    if (!strchr(pairs[i], '=') || strpbrk(pairs[i], "\n\r")) return -EINVAL;
    if (used + length + 1 > BODY_BYTES) return -E2BIG;
    memcpy(ret_body + used, pairs[i], length);
    used += length;
    ret_body[used++] = '\n';
  }
  return (ssize_t)used;
}

static int ask(const char *op, const struct vr_patience *patience, int count, char **pairs, const struct vr_conf *conf,
               char *text) {
  static char body[BODY_BYTES];
  ssize_t bytes = body_of(count, pairs, body);
  if (bytes < 0) return vr_say(text, (int)-bytes, "the arguments are not KEY=VALUE in %d bytes", BODY_BYTES);
  struct vr_request request = {op, "slurm", "/", conf->self, body, (size_t)bytes, "job"};
  struct vr_reply reply;
  int error = vr_ask(conf->socket, &request, patience, &reply, text);
  if (error) return error;
  if (reply.status == VR_REFUSED)
    error = vr_refusal(&reply, text);
  else if (reply.status != VR_OK)
    error = vr_say(text, EPROTO, "the process that answers at %s is not vgpud: correct `socket` in vgpu-runtime.conf",
                   conf->socket);
  else if ((error = vr_write_all(STDOUT_FILENO, reply.body, reply.body_bytes)))
    vr_say(text, -error, "cannot write vgpud's answer: %s", vr_reason(-error));
  free(reply.buffer);
  return error;
}

int vr_slurm(int argc, char **argv) {
  static char text[VR_TEXT_BYTES];
  static const struct vr_call nowhere; /* no log: Slurm shows our stderr, or the plugin does */
  static struct vr_conf conf;
  vr_conf_load(argv[0], &conf);
  const char *word = argc > 2 ? argv[2] : "";
  int error = -EINVAL;
  if (*conf.problem)
    memcpy(text, conf.problem, sizeof text);
  else if (!strcmp(word, "begin"))
    error = ask("step-begin", &begin_patience, argc - 3, argv + 3, &conf, text);
  else if (!strcmp(word, "end"))
    error = ask("step-end", &end_patience, argc - 3, argv + 3, &conf, text);
  else
    vr_say(text, 0, "usage: vgpu-runtime vgpu-slurm begin|end KEY=VALUE...");
  if (!error) return 0;
  vr_report(&nowhere, text);
  return 1;
}
