/*
 * random_program.h - what a random program is: one sequence of operations in an order in which they may really be done,
 * so that no wait is for something later, and which thread does each. random_program_make.c makes it, random_program.c
 * runs it.
 */
#ifndef BENCH_RANDOM_PROGRAM_H
#define BENCH_RANDOM_PROGRAM_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS_MAX = 6, LANES_MAX = 24, OPERATIONS_MAX = 1024, EVENTS_MAX = 512, GRAPHS_MAX = 16, NODES_MAX = 8 };
enum {
  SEMAPHORES_MAX = 8,
  WORDS_OF_PROGRAM_MAX = OPERATIONS_MAX + GRAPHS_MAX * NODES_MAX,
  BATCH_WAITS_MAX = 2,
  LAUNCHES_MAX = 800
};

/* In a stream, those from SLEEP on by the thread. */
enum kind {
  KERNEL,        /* amount us */
  BURST,         /* count kernels of amount us */
  WAVES,         /* one kernel of amount waves of threads */
  HOST_FUNCTION, /* sleeps for amount us, then writes the word if there is one */
  CALLBACK,      /* the same by cuStreamAddCallback */
  WAIT,          /* for a word */
  WRITE,         /* of a word */
  BATCH,         /* waits for up to two words and writes one */
  SIGNAL,        /* of a semaphore: target */
  WAIT_SIGNAL,   /* for it */
  RECORD,        /* of an event: target */
  WAIT_EVENT,    /* for it */
  COPY,          /* amount MiB; count: to the device, from it, on it */
  MEMSET,        /* amount MiB */
  GRAPH,         /* a launch of graph target */
  SLEEP,         /* for amount us */
  HOST_WRITE,    /* of a word */
  POLL,          /* for a word */
  SYNC_STREAM,
  SYNC_EVENT, /* target */
  SYNC_CONTEXT,
  QUERY,
  KINDS
};

extern const char *const kind_names[KINDS];

enum { WIDE = 1, EQUAL = 2, AND = 4 }; /* variants of a wait */

struct operation {
  enum kind kind;
  int thread, lane, amount, count, target, word, waits[BATCH_WAITS_MAX], variant;
};

enum lane_kind { NON_BLOCKING, BLOCKING, LEGACY, PER_THREAD };

/* A stream, fed by one thread alone. */
struct lane {
  int thread, device;
  enum lane_kind kind;
  int launches, megabytes; /* in all; in its greatest copy */
};

/* A word is written once, from 0 to 1. In memory of a device it is of one process. */
struct word {
  bool on_device;
  int process, device, writer, lane; /* writer: which operation */
};

struct event {
  int lane, recorder, process;
};

struct node {
  enum kind kind; /* KERNEL, HOST_FUNCTION, BATCH, WAIT_EVENT, MEMSET */
  int amount, target, word, wait, after;
};

struct graph {
  int lane, count;
  bool captured;
  struct node nodes[NODES_MAX];
  int kernels;
  uint64_t kernels_us;
};

struct program {
  uint64_t seed;
  int processes, devices, threads, lanes, operations, words, events, semaphores, graphs;
  int process_of[THREADS_MAX];
  struct lane lane[LANES_MAX];
  struct operation operation[OPERATIONS_MAX];
  struct word word[WORDS_OF_PROGRAM_MAX];
  struct event event[EVENTS_MAX];
  int signaller[SEMAPHORES_MAX]; /* which operation */
  struct graph graph[GRAPHS_MAX];
  int order[OPERATIONS_MAX]; /* in which threads call: some waits are called before what they wait for */
};

#define KERNEL_LENGTHS_US {20, 50, 100, 200, 500, 1000, 2000, 5000}

/* The program of a seed, whatever machine this is. scale: about how much of everything, 1 is normal. */
void make_program(struct program *program, uint64_t seed, double scale);

void print_operation(FILE *file, const struct program *program, int number);
void print_program(FILE *file, const struct program *program);

#endif
