/* When the helpers of idle processes look again. */
#include "attach/rest.h"

#include <stdbool.h>

#include "check.h"

#define HELPERS 1000
#define STEPS 100

static void helpers_that_were_woken_together_look_again_one_by_one(void) {
  uint64_t now_ns = 123456789 * VG_NS_PER_US;
  for (uint64_t first_id = 1; first_id < 1ull << 60; first_id = first_id * 1000 + 7) {
    int looks[STEPS] = {0};
    for (uint64_t id = first_id; id < first_id + HELPERS; id++) {
      uint64_t until_ns = vg_rest_until_ns(id, now_ns);
      CHECK(until_ns > now_ns && until_ns <= now_ns + VG_REST_NS);
      looks[(until_ns - now_ns - 1) * STEPS / VG_REST_NS]++;
    }
    for (int i = 0; i < STEPS; i++) CHECK(looks[i] <= 2 * HELPERS / STEPS);
  }
}

static void a_helper_looks_once_in_a_period(void) {
  for (uint64_t id = 0; id < HELPERS; id++) {
    uint64_t first_ns = vg_rest_until_ns(id, id * 7919);
    CHECK(vg_rest_until_ns(id, first_ns) == first_ns + VG_REST_NS);
  }
}

int main(void) {
  RUN(helpers_that_were_woken_together_look_again_one_by_one);
  RUN(a_helper_looks_once_in_a_period);
  return 0;
}
