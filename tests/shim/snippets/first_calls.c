/* Many threads, and a forked child, make the first call of the same functions at the same time. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "report.h"
#define THREADS 8

static pthread_barrier_t together;

static void *caller(void *library) {
  pthread_barrier_wait(&together);
  uintptr_t sum = 0;
  for (size_t i = 0; i < NAME_COUNT; i++) {
    any_function *function = (any_function *)dlsym(library, names[i]);
    sum += (uintptr_t)function(i, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0.5, 1.5, 2.5, 3.5);
  }
  return (void *)sum;
}

int main(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  pthread_t threads[THREADS];
  uintptr_t first = 0, sum = 0;
  int status = 0;
  if (library == NULL || pthread_barrier_init(&together, NULL, THREADS) != 0) return 3;
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, caller, library);
  pid_t child = fork();
  if (child == 0) {
    pthread_barrier_init(&together, NULL, 1);
    _exit(caller(library) == NULL);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], (void **)&sum);
    if (i == 0) first = sum;
    if (sum != first) return 1;
  }
  if (waitpid(child, &status, 0) != child || status != 0) return 4;
  printf("%lu\n", (unsigned long)first);
  return 0;
}
