/* values.c - what small reads give: what the host wrote, what a kernel computed, and zeros for all else. */
#include "stub.h"

static unsigned *array;

static unsigned read_word(int index) {
  unsigned value = 1;
  CHECK(cudaMemcpy(&value, array + index, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

static void write_word(int index, unsigned value) {
  CHECK(cudaMemcpy(array + index, &value, sizeof value, cudaMemcpyHostToDevice));
}

static void check_writes(void) {
  unsigned pair[2];
  write_word(0, 5);
  write_word(1, 6);
  TRUE(read_word(0) == 5 && read_word(1) == 6);
  launch_train(array);
  TRUE(read_word(0) == 0 && read_word(1) == 0);
  write_word(0, 5);
  TRUE(read_word(0) == 5 && read_word(1) == 0);
  CHECK(cudaMemcpy(pair, array, sizeof pair, cudaMemcpyDeviceToHost));
  TRUE(pair[0] == 0 && pair[1] == 0); /* a part of them has no meaning */
  write_word(1, 6);
  CHECK(cudaMemcpy(pair, array, sizeof pair, cudaMemcpyDefault));
  TRUE(pair[0] == 5 && pair[1] == 6);
}

static void check_copies(void) {
  launch_train(array);
  write_word(0, 5);
  CHECK(cudaMemcpy(array + 1, array, 4, cudaMemcpyDeviceToDevice));
  TRUE(read_word(1) == 5);
  CHECK(cudaMemcpy(array + 1, array + 2, 4, cudaMemcpyDeviceToDevice));
  TRUE(read_word(1) == 0);
  CHECK(cudaMemset(array, 1, 4));
  TRUE(read_word(0) == 0x01010101);
}

static void check_graph(void) {
  CUstream stream;
  CUgraph graph;
  CUgraphExec exec;
  void *arguments[] = {&array};
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, 0));
  CHECK(launch(train, 1, 1, arguments, stream));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  write_word(0, 5);
  TRUE(read_word(0) == 5);
  CHECK(cudaGraphLaunch(exec, stream));
  TRUE(read_word(0) == 0);
}

static void check_computed(void) {
  float ones[4] = {1, 1, 1, 1}, sum;
  int n = 4;
  float *to = (float *)array + 4, *from = (float *)array;
  void *arguments[] = {&n, &from, &to};
  CHECK(cudaMemcpy(array, ones, sizeof ones, cudaMemcpyHostToDevice));
  CHECK(launch(reduce_f32, 1, 1, arguments, NULL));
  CHECK(cudaMemcpy(&sum, to, sizeof sum, cudaMemcpyDeviceToHost));
  TRUE(sum == 4);
}

/* Large reads are what memory holds. */
static void check_large(void) {
  static unsigned char much[1 << 16], back[sizeof much];
  void *large;
  memset(much, 7, sizeof much);
  CHECK(cudaMalloc(&large, sizeof much));
  CHECK(cudaMemcpy(large, much, sizeof much, cudaMemcpyHostToDevice));
  launch_train(large);
  CHECK(cudaMemcpy(back, large, sizeof back, cudaMemcpyDeviceToHost));
  TRUE(memcmp(much, back, sizeof much) == 0);
}

int main(void) {
  CHECK(cudaMalloc((void **)&array, 4096));
  TRUE(read_word(0) == 0);
  check_writes();
  check_copies();
  check_graph();
  check_computed();
  check_large();
  puts("ok");
  return 0;
}
