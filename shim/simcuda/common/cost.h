/*
 * cost.h - how long a GPU works: the roofline. The longer of its arithmetic and its traffic with memory, each at the
 * part of the data sheet's figure that good kernels reach, and what any kernel takes. Used by all libraries here that
 * know what they compute.
 */
#ifndef SC_COST_H
#define SC_COST_H
#include "simcuda/common/devices.h"
#include <stdbool.h>
#include <stdint.h>

struct sc_cost {
  double flops; /* multiplications and additions */
  double bytes; /* read and written, each tensor once */
  enum sc_math math;
};

/* Device time of that work on the current context's device; an instance of a divided GPU has its part of the SMs. */
uint64_t sc_estimate_ns(const struct sc_cost *cost);
/* The same on a device that is given. sm_count: how many it has, or 0 for all of its model. */
uint64_t sc_estimate_on_ns(const struct sc_device_model *model, int sm_count, const struct sc_cost *cost);

/* batch products of an m x k matrix with one of k x n. element_bytes: of A and B; output_bytes: of an element of C.
 * has_input: C is read, too. For complex numbers multiply flops by 4. Sizes below 0 count as 0. */
struct sc_cost sc_cost_gemm(int64_t m, int64_t n, int64_t k, int64_t batch, double element_bytes, double output_bytes,
                            bool has_input, enum sc_math math);

struct sc_convolution {
  int64_t batch, groups;
  int64_t input_channels, output_channels; /* of all groups */
  int64_t input_pixels, output_pixels;     /* of an image: the product of its 2 or 3 sizes */
  int64_t filter_pixels;                   /* of a filter and channel */
};

/* A convolution, or one of its two gradients, which cost the same. */
struct sc_cost sc_cost_convolution(const struct sc_convolution *shape, double element_bytes, enum sc_math math);

struct sc_attention {
  int64_t batch, heads, key_heads; /* key_heads: fewer than heads where some share theirs */
  int64_t queries, keys;           /* lengths of the sequences */
  int64_t head_size, value_size;
  bool is_causal;   /* about half of the products are left out */
  bool is_backward; /* five products instead of two */
};

struct sc_cost sc_cost_attention(const struct sc_attention *shape, double element_bytes, enum sc_math math);

/* Work without products worth counting: so many bytes in all. */
struct sc_cost sc_cost_bytes(double bytes);

#endif
