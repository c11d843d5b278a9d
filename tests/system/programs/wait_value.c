/*
 * wait_value: one stream waits for a word in memory with 41 launches behind it; the same thread then writes the word
 * from another stream. A bound on outstanding work that blocks, or a lease that waits for the first stream, would hang
 * here.
 */
#include "program.h"

int main(void) {
  CUstream waiting, writing;
  CUdeviceptr word;
  unsigned value = 0;
  begin();
  CUfunction function = spin(1000);
  CHECK(cuStreamCreate(&waiting, CU_STREAM_NON_BLOCKING));
  CHECK(cuStreamCreate(&writing, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc_v2(&word, sizeof value));
  CHECK(cuMemsetD32_v2(word, 0, 1));
  CHECK(cuCtxSynchronize());
  for (int round = 1; round <= 3; round++) {
    CHECK(cuStreamWaitValue32_v2(waiting, word, (cuuint32_t)round, CU_STREAM_WAIT_VALUE_EQ));
    for (int i = 0; i < 41; i++) launch(function, waiting);
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(waiting));
    CHECK(cuStreamWriteValue32_v2(writing, word, (cuuint32_t)round, CU_STREAM_WRITE_VALUE_DEFAULT));
    CHECK(cuStreamSynchronize(waiting));
  }
  CHECK(cuMemcpyDtoH_v2(&value, word, sizeof value));
  TRUE(value == 3);
  printf("{\"done\": 1}\n");
  return 0;
}
