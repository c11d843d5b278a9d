/*
 * measured.h - programs of one or two processes that are compared with themselves: the same work without a hook, on a
 * slower device, in a slice. Everything is set up before a common start; from there to the end of all work counts. One
 * JSON line on stdout says how long that took, which processes computed, and what kernels were given to each device:
 *
 *   {"seconds": 0.512, "begin_ns": 1, "end_ns": 2, "pids": [7, 8], "kernels_ns": [100, 0], "launches": [1, 0]}
 *
 * A program that is not done after its limit says on stderr where its threads are, and ends with exit code STUCK. One
 * translation unit per program includes this. Linked to libcuda.so.1, as most programs are.
 */
#ifndef BENCH_MEASURED_H
#define BENCH_MEASURED_H
#include "gen/abi/cuda_abi.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STUCK = 3, PROCESSES_MAX = 2, DEVICES_MAX = 2, WORDS_MAX = 4096, LENGTHS_MAX = 16 };
enum { REST_NS = 100000000, POLL_US = 100 };

/* Ends the program with one line when a driver call fails. */
#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    int code_ = (int)(call);                                                                                           \
    if (code_ != CUDA_SUCCESS) {                                                                                       \
      fprintf(stderr, "%s:%d: %s answered %d\n", __FILE__, __LINE__, #call, code_);                                    \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

/* The file that all processes of a program have mapped. */
struct shared {
  uint64_t start_ns;
  uint32_t ready, ended;
  struct {
    int32_t pid;
    uint64_t end_ns, kernels_ns[DEVICES_MAX], launches[DEVICES_MAX];
  } process[PROCESSES_MAX];
  uint64_t words[WORDS_MAX];
};

struct measured {
  struct shared *shared;
  int process, processes, devices;
  double limit_s;
  uint64_t stay_us;         /* how long processes stay when all work is done */
  void (*describe)(FILE *); /* where this process's threads are */
  CUcontext contexts[DEVICES_MAX];
  int lengths_us[LENGTHS_MAX];
  CUfunction spins[DEVICES_MAX][LENGTHS_MAX];
  int lengths;
};

static struct measured measured;

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void sleep_us(uint64_t us) {
  struct timespec left = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
  while (nanosleep(&left, &left) < 0 && errno == EINTR) {
  }
}

static void *watch_time(void *nothing) {
  sleep_us((uint64_t)(measured.limit_s * 1e6));
  flockfile(stderr);
  fprintf(stderr, "process %d is not done after %g s\n", measured.process, measured.limit_s);
  if (measured.describe) measured.describe(stderr);
  funlockfile(stderr);
  if (measured.process == 0) sleep_us(200000); /* the other one says where it is, too */
  _exit(STUCK);
  return nothing;
}

/* The number behind an option of the command line. */
static inline double number_after(int argc, char **argv, const char *name, double otherwise) {
  for (int i = 1; i + 1 < argc; i++)
    if (!strcmp(argv[i], name)) return strtod(argv[i + 1], NULL);
  return otherwise;
}

static inline const char *word_after(int argc, char **argv, const char *name) {
  for (int i = 1; i + 1 < argc; i++)
    if (!strcmp(argv[i], name)) return argv[i + 1];
  fprintf(stderr, "%s: give it %s\n", argv[0], name);
  exit(2);
}

/* Maps the file in the folder and makes the processes; before the first driver call. Options of every program:
 * --folder DIR, for files of its own; --limit SECONDS; --stay MS. */
static inline void begin_processes(int argc, char **argv, int processes, void (*describe)(FILE *)) {
  char path[4096];
  snprintf(path, sizeof path, "%s/shared", word_after(argc, argv, "--folder"));
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *measured.shared) < 0) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(2);
  }
  measured.shared = mmap(NULL, sizeof *measured.shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (measured.shared == MAP_FAILED) exit(2);
  measured.processes = processes;
  measured.limit_s = number_after(argc, argv, "--limit", 60);
  measured.stay_us = (uint64_t)(number_after(argc, argv, "--stay", 0) * 1000);
  measured.describe = describe;
  if (processes == 2 && fork() == 0) {
    measured.process = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  measured.shared->process[measured.process].pid = getpid();
  pthread_t watch;
  pthread_create(&watch, NULL, watch_time, NULL);
}

static inline CUfunction load_spin(int us) {
  char text[256], name[32];
  CUmodule module;
  CUfunction function;
  snprintf(name, sizeof name, "spin_%d", us);
  snprintf(text, sizeof text, ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry %s()\n{\nret;\n}\n",
           name);
  CHECK(cuModuleLoadData(&module, text));
  CHECK(cuModuleGetFunction(&function, module, name));
  return function;
}

/* A context on each device, which may use the others' memory; the words of the file are known to all. Loads kernels of
 * these lengths everywhere and runs each once. */
static inline void open_devices(int devices, const int *lengths_us, int lengths) {
  CHECK(cuInit(0));
  measured.devices = devices;
  measured.lengths = lengths;
  memcpy(measured.lengths_us, lengths_us, (size_t)lengths * sizeof *lengths_us);
  for (int i = 0; i < devices; i++) {
    CUdevice device;
    CHECK(cuDeviceGet(&device, i));
    CHECK(cuDevicePrimaryCtxRetain(&measured.contexts[i], device));
    CHECK(cuCtxSetCurrent(measured.contexts[i]));
    for (int k = 0; k < lengths; k++) {
      measured.spins[i][k] = load_spin(lengths_us[k]);
      CHECK(cuLaunchKernel(measured.spins[i][k], 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    }
    CHECK(cuCtxSynchronize());
  }
  for (int i = 0; devices > 1 && i < devices; i++) {
    CHECK(cuCtxSetCurrent(measured.contexts[i]));
    CHECK(cuCtxEnablePeerAccess(measured.contexts[1 - i], 0));
  }
  CHECK(cuCtxSetCurrent(measured.contexts[0]));
  CHECK(cuMemHostRegister_v2(measured.shared, sizeof *measured.shared,
                             CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

static inline CUdeviceptr address_of_word(int word) {
  CUdeviceptr address;
  CHECK(cuMemHostGetDevicePointer_v2(&address, &measured.shared->words[word], 0));
  return address;
}

static inline CUfunction spin_of(int device, int us) {
  int k = 0;
  while (k < measured.lengths && measured.lengths_us[k] != us) k++;
  if (k == measured.lengths) {
    fprintf(stderr, "no kernel of %d us was loaded\n", us);
    exit(2);
  }
  return measured.spins[device][k];
}

/* What is given to a device. Any thread. */
static inline void count_kernels(int device, uint64_t launches, uint64_t ns) {
  __atomic_fetch_add(&measured.shared->process[measured.process].kernels_ns[device], ns, __ATOMIC_RELAXED);
  __atomic_fetch_add(&measured.shared->process[measured.process].launches[device], launches, __ATOMIC_RELAXED);
}

static inline void launch_spin(int device, int us, CUstream stream) {
  CHECK(cuLaunchKernel(spin_of(device, us), 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
  count_kernels(device, 1, (uint64_t)us * 1000);
}

static inline void write_word(int word) {
  __atomic_store_n(&measured.shared->words[word], 1, __ATOMIC_SEQ_CST);
}

static inline void poll_word(int word) {
  while (!__atomic_load_n(&measured.shared->words[word], __ATOMIC_SEQ_CST)) sleep_us(POLL_US);
}

/* All processes are ready; the warm-up's device time is over. */
static inline void wait_for_start(void) {
  struct shared *shared = measured.shared;
  if (__atomic_add_fetch(&shared->ready, 1, __ATOMIC_SEQ_CST) == (uint32_t)measured.processes)
    __atomic_store_n(&shared->start_ns, now_ns() + REST_NS, __ATOMIC_SEQ_CST);
  while (!__atomic_load_n(&shared->start_ns, __ATOMIC_SEQ_CST)) sleep_us(POLL_US);
  while (now_ns() < shared->start_ns) sleep_us(POLL_US);
}

static inline void print_numbers(const char *name, const uint64_t *numbers, int count) {
  printf(", \"%s\": [", name);
  for (int i = 0; i < count; i++) printf("%s%llu", i ? ", " : "", (unsigned long long)numbers[i]);
  printf("]");
}

/* Waits for all of this process's work, then for the other process; the first one prints. Returns main's exit code. */
static inline int end_work(void) {
  struct shared *shared = measured.shared;
  for (int i = 0; i < measured.devices; i++) {
    CHECK(cuCtxSetCurrent(measured.contexts[i]));
    CHECK(cuCtxSynchronize());
  }
  shared->process[measured.process].end_ns = now_ns();
  __atomic_add_fetch(&shared->ended, 1, __ATOMIC_SEQ_CST);
  sleep_us(measured.stay_us);
  if (measured.process != 0) return 0;
  int status = 0;
  if (measured.processes > 1 && (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status)))
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  uint64_t end_ns = 0, pids[PROCESSES_MAX], kernels_ns[DEVICES_MAX] = {0}, launches[DEVICES_MAX] = {0};
  for (int i = 0; i < measured.processes; i++) {
    if (shared->process[i].end_ns > end_ns) end_ns = shared->process[i].end_ns;
    pids[i] = (uint64_t)shared->process[i].pid;
    for (int k = 0; k < measured.devices; k++) {
      kernels_ns[k] += shared->process[i].kernels_ns[k];
      launches[k] += shared->process[i].launches[k];
    }
  }
  printf("{\"seconds\": %.6f, \"begin_ns\": %llu, \"end_ns\": %llu", (double)(end_ns - shared->start_ns) / 1e9,
         (unsigned long long)shared->start_ns, (unsigned long long)end_ns);
  print_numbers("pids", pids, measured.processes);
  print_numbers("kernels_ns", kernels_ns, measured.devices);
  print_numbers("launches", launches, measured.devices);
  printf("}\n");
  return 0;
}

#endif
