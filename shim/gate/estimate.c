/* estimate.c - see estimate.h. */
#include "gate/estimate.h"

#define FIRST_GUESS_NS 500000 /* high: a few launches of unknown functions must not fill the device for seconds */
#define CALIBRATE_FIRST 2     /* one launch in this many is timed until there are some samples */
#define CALIBRATE_EVERY 4096  /* which take about as long to launch */
#define CALIBRATE_EVERY_NS (10 * VG_NS_PER_MS) /* long kernels more often: a timing costs little beside them */
#define SAMPLE_SLACK_NS 10000
#define SHORT_NS 10000 /* by its estimate: a timing takes as long as a few of these */
#define AGREEING 3     /* this many samples that differ by no more than the part and the slack */
#define AGREEMENT_PART 64
#define AGREEMENT_SLACK_NS 1000

/* What first launches of functions have turned out to take lately, in the whole process: the next one may take as long.
 */
static uint64_t unknown_ns;

static void note_unknown(uint64_t sample_ns) {
  uint64_t before_ns = VG_LOAD_RELAXED(&unknown_ns);
  VG_STORE_RELAXED(&unknown_ns, sample_ns > before_ns ? sample_ns : before_ns - (before_ns - sample_ns) / 8);
}

void vg_estimate_limit(struct vg_estimate *estimate, bool limited, uint64_t most_ns) {
  estimate->most_us = limited ? (uint32_t)(most_ns / 1000 < UINT32_MAX ? most_ns / 1000 + 1 : UINT32_MAX) : 0;
  uint64_t cost_ns = estimate->cost_ns;
  if (limited && (!cost_ns || vg_estimate_limited(estimate, cost_ns) != cost_ns))
    vg_estimate_set_cost(estimate, most_ns + 1);
}

uint64_t vg_estimate_guess(void) {
  uint64_t guess_ns = VG_LOAD_RELAXED(&unknown_ns);
  return guess_ns > FIRST_GUESS_NS ? guess_ns : FIRST_GUESS_NS;
}

/* A pair of events around one launch of a kernel that is shorter than its launch has the host's time between them; one
 * around many has it, too, but little of what the events themselves take. */
static uint64_t within_row(const struct vg_estimate *estimate, uint64_t sample_ns) {
  return estimate->row_ns && sample_ns > estimate->row_ns ? estimate->row_ns : sample_ns;
}

static uint32_t sort(const struct vg_estimate *estimate, uint64_t *ret_sorted_ns) {
  uint32_t count = estimate->count < VG_ESTIMATE_SAMPLES ? estimate->count : VG_ESTIMATE_SAMPLES;
  for (uint32_t i = 0; i < count; i++) {
    uint32_t place = i;
    uint64_t sample_ns = within_row(estimate, estimate->samples_ns[i]);
    for (; place && ret_sorted_ns[place - 1] > sample_ns; place--) ret_sorted_ns[place] = ret_sorted_ns[place - 1];
    ret_sorted_ns[place] = sample_ns;
  }
  return count;
}

/* The lowest sample that others agree with; if none agree, a low one. */
static uint64_t lowest_agreed(const uint64_t *sorted_ns, uint32_t count) {
  for (uint32_t i = 0; i + AGREEING <= count; i++) {
    uint64_t limit_ns = sorted_ns[i] + sorted_ns[i] / AGREEMENT_PART + AGREEMENT_SLACK_NS;
    if (sorted_ns[i + AGREEING - 1] <= limit_ns) return sorted_ns[i];
  }
  return sorted_ns[(count - 1) * 3 / 8];
}

/* A pair of events measures more than the launch when others had the device in between, or when this thread lost its
 * processor: such samples are too long, by a multiple of a short kernel or by about the others' share of a long one.
 * Nothing makes a sample too short. So the lowest value that a few samples agree on is how long the launch takes, and
 * the mean of the samples near it is the estimate. It stays right with four of five samples too long, as for long
 * launches beside a tenant that is hardly ever idle, and follows a rise once most samples are new. */
static uint64_t average(struct vg_estimate *estimate) {
  uint64_t sorted_ns[VG_ESTIMATE_SAMPLES], sum_ns = 0, near = 0;
  uint32_t count = sort(estimate, sorted_ns);
  uint64_t low_ns = lowest_agreed(sorted_ns, count);
  uint64_t slack_ns = low_ns < SAMPLE_SLACK_NS ? low_ns : SAMPLE_SLACK_NS, limit_ns = low_ns + low_ns / 4 + slack_ns;
  for (; near < count && sorted_ns[near] <= limit_ns; near++) sum_ns += sorted_ns[near];
  vg_estimate_set_cost(estimate, sum_ns / near + 1);
  return limit_ns;
}

uint64_t vg_estimate_sample(struct vg_estimate *estimate, uint64_t sample_ns, bool without_call) {
  sample_ns = vg_estimate_limited(estimate, sample_ns);
  if (without_call && !estimate->without_call) VG_STORE_RELAXED(&estimate->count, 0); /* those before were too long */
  estimate->without_call |= without_call;
  if (!estimate->count) note_unknown(sample_ns);
  estimate->samples_ns[estimate->count % VG_ESTIMATE_SAMPLES] = sample_ns;
  VG_STORE_RELAXED(&estimate->count, estimate->count + 1); /* launching threads look at it without the lock */
  uint64_t limit_ns = average(estimate);
  sample_ns = within_row(estimate, sample_ns);
  return sample_ns <= limit_ns ? sample_ns : estimate->cost_ns;
}

void vg_estimate_row(struct vg_estimate *estimate, uint32_t launches, uint64_t elapsed_ns) {
  uint64_t row_ns = launches ? elapsed_ns / launches + 1 : 0;
  if (estimate->count < VG_ESTIMATE_SAMPLES_FIRST) return;               /* another function has its place by now */
  estimate->row_ns = row_ns < VG_ESTIMATE_ROW_NS ? (uint32_t)row_ns : 0; /* else no row would end this one's limit */
  average(estimate);
}

/* Any number below 2^32, by an xorshift of Marsaglia's; threads that draw at once may draw the same. */
static uint64_t draw(void) {
  static uint64_t state;
  uint64_t drawn = VG_LOAD_RELAXED(&state);
  if (!drawn) drawn = vg_prim_now_ns() | 1;
  drawn ^= drawn << 13;
  drawn ^= drawn >> 7;
  drawn ^= drawn << 17;
  VG_STORE_RELAXED(&state, drawn);
  return drawn >> 32;
}

uint32_t vg_estimate_next_timing(const struct vg_estimate *estimate, uint64_t likely_ns) {
  if (!estimate->count) return 1;
  if (estimate->count < VG_ESTIMATE_SAMPLES_FIRST) return CALIBRATE_FIRST;
  uint64_t each_ns = estimate->cost_ns < SHORT_NS ? estimate->cost_ns : likely_ns;
  uint64_t every = CALIBRATE_EVERY_NS / (each_ns ? each_ns : 1);
  if (every <= 1) return 1;
  if (every > CALIBRATE_EVERY) every = CALIBRATE_EVERY;
  return (uint32_t)(every / 2 + 1 + (draw() * every >> 32)); /* that in the mean: a program must not know which one */
}
