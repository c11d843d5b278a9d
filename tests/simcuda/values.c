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

/* A kernel of PyTorch in an image that cannot be read: kernels.model says what its parameters are. */
static void check_fill(void) {
  static struct stub_container packed;
  static char fill[1];
  static const char name[] =
      "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_";
  struct sc_fatbin_wrapper wrapper = {SC_FATBIN_MAGIC, 1, &packed, NULL};
  packed = stub_container;
  packed.entry.flags = 0x8000; /* Zstandard */
  void **handle = __cudaRegisterFatBinary(&wrapper);
  __cudaRegisterFunction(handle, fill, fill, name, -1, NULL, NULL, NULL, NULL, NULL);
  int n = 3;
  float value = 2.5f, got[4];
  void *arguments[] = {&n, &value, &array};
  launch_train(array);
  CHECK(cudaMemset(array, 0, sizeof got));
  CHECK(launch(fill, 1, 1, arguments, NULL));
  CHECK(cudaMemcpy(got, array, sizeof got, cudaMemcpyDeviceToHost));
  TRUE(got[0] == 2.5f && got[2] == 2.5f && got[3] == 0);
  __cudaUnregisterFatBinary(handle);
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
  check_fill();
  check_large();
  puts("ok");
  return 0;
}
