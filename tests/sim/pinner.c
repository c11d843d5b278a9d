/*
 * pinner MIB...: pins so many MiB of host memory at a time, in turn by cuMemAllocHost, cuMemHostAlloc and
 * cuMemHostRegister, and says what each call answered. At each line that it reads it frees the first block that it has
 * and tries once more to pin the last size; "end" ends it.
 */
#include "program.h"

#define MIB ((size_t)1 << 20)
#define BLOCKS_MAX 64

static void *blocks[BLOCKS_MAX], *pages[BLOCKS_MAX]; /* pages: memory of our own that is registered */
static int first, count;

static CUresult pin(size_t bytes) {
  void *block = NULL, *own = NULL;
  CUresult result;
  if (count % 3 == 0)
    result = cuMemAllocHost_v2(&block, bytes);
  else if (count % 3 == 1)
    result = cuMemHostAlloc(&block, bytes, 0);
  else
    result = cuMemHostRegister_v2(own = block = aligned_alloc(4096, bytes), bytes, 0);
  blocks[count] = block;
  pages[count] = own;
  if (result == CUDA_SUCCESS)
    count++;
  else
    free(own);
  return result;
}

static void unpin(void) {
  if (pages[first]) CHECK(cuMemHostUnregister(pages[first]));
  if (!pages[first]) CHECK(cuMemFreeHost(blocks[first]));
  free(pages[first++]);
}

int main(int argc, char **argv) {
  char line[16];
  size_t bytes = 0;
  begin();
  printf("{\"answers\": [");
  for (int i = 1; i < argc && i < BLOCKS_MAX; i++) {
    bytes = (size_t)atol(argv[i]) * MIB;
    printf("%s%d", i > 1 ? ", " : "", pin(bytes));
  }
  printf("]}\n");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin) && line[0] != 'e') {
    unpin();
    printf("{\"answers\": [%d]}\n", pin(bytes));
    fflush(stdout);
  }
  return 0;
}
