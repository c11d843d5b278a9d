/*
 * probe WAY:WHAT...: says for each argument, on a line of its own, what a program of the container meets. open:NAME and
 * namespace:NAME (dlmopen) open a library: "shim", "driver" or the loader's error; stat:PATH: "char M:N", "file" or
 * "none"; write:PATH: "writable" or the error; text:PATH: the file's lines, joined by commas.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void library(const char *name, int namespace) {
  void *handle = namespace ? dlmopen(LM_ID_NEWLM, name, RTLD_NOW) : dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) {
    printf("%s\n", dlerror());
    return;
  }
  printf("%s\n", dlsym(handle, "vg_shim_marker") != NULL ? "shim" : "driver");
}

static void status(const char *path) {
  struct stat info;
  if (stat(path, &info) != 0)
    printf("none\n");
  else if (S_ISCHR(info.st_mode))
    printf("char %u:%u\n", major(info.st_rdev), minor(info.st_rdev));
  else
    printf("file\n");
}

static void writable(const char *path) {
  int file = open(path, O_WRONLY | O_CREAT, 0600);
  printf("%s\n", file < 0 ? strerror(errno) : "writable");
  if (file >= 0) close(file);
}

static void text(const char *path) {
  FILE *file = fopen(path, "re");
  int sign;
  while (file != NULL && (sign = getc(file)) != EOF) putchar(sign == '\n' ? ',' : sign);
  putchar('\n');
}

int main(int count, char **words) {
  for (int i = 1; i < count; i++) {
    char *what = strchr(words[i], ':');
    if (what == NULL) return 2;
    *what++ = '\0';
    printf("%s: ", what);
    if (strcmp(words[i], "open") == 0) library(what, 0);
    if (strcmp(words[i], "namespace") == 0) library(what, 1);
    if (strcmp(words[i], "stat") == 0) status(what);
    if (strcmp(words[i], "write") == 0) writable(what);
    if (strcmp(words[i], "text") == 0) text(what);
  }
  return 0;
}
