/* lowlevel.c - finds the low-level OCI runtime and becomes it. Called by main.c.
 *
 * Names are looked up in fixed directories, not in PATH: that is whatever the engine was started with. */
#define _GNU_SOURCE
#include "runtime/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const directories[] = {"/usr/local/sbin", "/usr/local/bin", "/usr/sbin",
                                          "/usr/bin",        "/sbin",          "/bin"};
static const char *const usual_names[] = {"runc", "crun"};

static bool is_ourselves(const char *path) {
  struct stat candidate, running;
  return !stat(path, &candidate) && !stat("/proc/self/exe", &running) && candidate.st_dev == running.st_dev &&
         candidate.st_ino == running.st_ino;
}

static bool find(const char *name, char *ret_path) {
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
    int length = snprintf(ret_path, PATH_MAX, "%s/%s", directories[i], name);
    if (length < PATH_MAX && !access(ret_path, X_OK) && !is_ourselves(ret_path)) return true;
  }
  return false;
}

static int locate(const char *wanted, char *ret_path, char *text) {
  if (*wanted == '/') {
    strcpy(ret_path, wanted);
    if (!is_ourselves(wanted)) return 0;
    return vr_say(text, ELOOP, "`runtime = %s` in vgpu-runtime.conf is vgpu-runtime itself: name runc or crun", wanted);
  }
  if (*wanted) {
    if (find(wanted, ret_path)) return 0;
    return vr_say(
        text, ENOENT,
        "no `%s` in /usr/local/{sbin,bin}, /usr/{sbin,bin}, /{sbin,bin}: correct `runtime` in vgpu-runtime.conf",
        wanted);
  }
  for (size_t i = 0; i < sizeof usual_names / sizeof *usual_names; i++)
    if (find(usual_names[i], ret_path)) return 0;
  return vr_say(text, ENOENT,
                "neither runc nor crun is installed: install one, or name another as `runtime` in vgpu-runtime.conf");
}

int vr_lowlevel_exec(const struct vr_conf *conf, char **argv, char *text) {
  static char path[PATH_MAX];
  int error = locate(conf->runtime, path, text);
  if (error) return error;
  argv[0] = path; /* what `ps` shows, and how crun knows which of its flavours is wanted */
  execv(path, argv);
  return vr_say(text, errno, "cannot run %s: %s: correct `runtime` in vgpu-runtime.conf", path, vr_reason(errno));
}
