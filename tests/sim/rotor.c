/*
 * rotor MIB PART [busy]: fills so much device memory, with contents of this part's own, then says for each line on
 * stdin, or with `busy` all the time, how many rounds it has done and how often a byte was not what it wrote. A round
 * launches a kernel, reads a block back, and writes another one's contents.
 */
#include "program.h"

#define BLOCK (1ull << 20)

static unsigned char *block;

static unsigned seed_of(int part, size_t at, unsigned round) {
  return (unsigned)(at * 31 + (size_t)part * 7 + round);
}

static void put(CUdeviceptr memory, int part, size_t at, unsigned round) {
  memset(block, (int)(seed_of(part, at, round) & 255), BLOCK);
  memcpy(block, &round, sizeof round);
  CHECK(cuMemcpyHtoD_v2(memory + at * BLOCK, block, BLOCK));
}

static int is_same(CUdeviceptr memory, int part, size_t at, unsigned round) {
  CHECK(cuMemcpyDtoH_v2(block, memory + at * BLOCK, BLOCK));
  if (memcmp(block, &round, sizeof round) != 0) return 0;
  unsigned char wanted = (unsigned char)(seed_of(part, at, round) & 255);
  for (size_t byte = sizeof round; byte < BLOCK; byte++)
    if (block[byte] != wanted) return 0;
  return 1;
}

int main(int argc, char **argv) {
  size_t blocks = (size_t)atoll(argv[1]);
  int part = atoi(argv[2]), busy = argc > 3 && strcmp(argv[3], "busy") == 0;
  unsigned *rounds = calloc(blocks, sizeof *rounds), wrong = 0, done = 0;
  CUdeviceptr memory;
  block = malloc(BLOCK);
  begin();
  CUfunction function = spin(1000);
  CHECK(cuMemAlloc_v2(&memory, blocks * BLOCK));
  for (size_t at = 0; at < blocks; at++) put(memory, part, at, 0);
  unsigned long long said_ns = 0;
  for (;;) {
    if (!busy || now_ns() - said_ns > 100000000ull) {
      printf("{\"rounds\": %u, \"wrong\": %u, \"pid\": %d, \"ns\": %llu}\n", done, wrong, (int)getpid(), now_ns());
      fflush(stdout);
      said_ns = now_ns();
    }
    if (!busy && getchar() == EOF) return 0;
    launch(function, NULL);
    CHECK(cuStreamSynchronize(NULL));
    size_t at = (done * 7919u) % blocks;
    wrong += !is_same(memory, part, at, rounds[at]);
    put(memory, part, at, ++rounds[at]);
    done++;
  }
}
