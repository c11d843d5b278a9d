/*
 * costs.c - what factorizations cost (cusolver.h): the operations that LAPACK's working notes and Golub and Van Loan
 * ("Matrix Computations") count, the passes over memory of what works on vectors, and a wait for each column.
 *
 * The waits are assumed: columns are factored one after the other, each by kernels that take a few microseconds, which
 * is what small matrices take on a GPU.
 */
#include "simcuda/cusolver/cusolver.h"

#define FACTOR_WAIT_NS 2000.0  /* a column: a pivot or a reflection, and the update of its block */
#define REDUCE_WAIT_NS 15000.0 /* a column reduced to a diagonal or two: several kernels, each bound by memory */
#define SOLVE_WAIT_NS 500.0

/* -1 where a size is negative, which callers answer as invalid. */
static struct sc_solver_work make(double flops, double elements, double wait_ns, bool is_valid) {
  return (struct sc_solver_work){flops > 0 ? flops : 0, is_valid ? elements : -1, wait_ns};
}

struct sc_solver_work sc_solver_lu(int64_t m, int64_t n) {
  double rows = m, columns = n, least = m < n ? m : n;
  double flops = 2 * rows * columns * least - (rows + columns) * least * least + 2.0 / 3 * least * least * least;
  return make(flops, 2 * rows * columns, least * FACTOR_WAIT_NS, m >= 0 && n >= 0);
}

struct sc_solver_work sc_solver_cholesky(int64_t n) {
  double order = n;
  return make(order * order * order / 3, order * order, order / SC_SOLVER_BLOCK * FACTOR_WAIT_NS * 4, n >= 0);
}

struct sc_solver_work sc_solver_qr(int64_t m, int64_t n) {
  double rows = m, columns = n, least = m < n ? m : n;
  double flops = 4 * rows * columns * least - 2 * (rows + columns) * least * least + 4.0 / 3 * least * least * least;
  return make(flops, 2 * rows * columns, least * FACTOR_WAIT_NS, m >= 0 && n >= 0);
}

struct sc_solver_work sc_solver_reflect(int64_t m, int64_t n, int64_t k) {
  double rows = m, columns = n, count = k;
  double elements = 2 * rows * columns + (rows > columns ? rows : columns) * count;
  return make(4 * rows * columns * count - 2 * columns * count * count, elements,
              count / SC_SOLVER_BLOCK * FACTOR_WAIT_NS * 4, m >= 0 && n >= 0 && k >= 0);
}

struct sc_solver_work sc_solver_solve(int64_t n, int64_t nrhs) {
  double order = n, columns = nrhs;
  return make(2 * order * order * columns, order * order + 2 * order * columns,
              order / SC_SOLVER_BLOCK * SOLVE_WAIT_NS * 4, n >= 0 && nrhs >= 0);
}

/* Half of the operations of a reduction multiply the rest of the matrix, n columns to 0, with a vector: n^3/3 numbers
 * are read for that. */
struct sc_solver_work sc_solver_eigen(int64_t n, bool has_vectors) {
  double order = n, cube = order * order * order;
  return make((has_vectors ? 9 : 4.0 / 3) * cube, cube / 3, order * REDUCE_WAIT_NS, n >= 0);
}

struct sc_solver_work sc_solver_svd(int64_t m, int64_t n, bool has_vectors) {
  double most = m > n ? m : n, least = m > n ? n : m, cube = least * least * least;
  double flops = has_vectors ? 4 * most * least * least + 22 * cube : 4 * most * least * least - 4.0 / 3 * cube;
  double reads = most * least * least - cube / 3; /* of the rest, from both sides */
  return make(flops, reads + most * least, least * REDUCE_WAIT_NS * (has_vectors ? 3 : 2), m >= 0 && n >= 0);
}

struct sc_solver_work sc_solver_general_eigen(int64_t n, bool has_vectors) {
  double order = n, cube = order * order * order;
  return make((has_vectors ? 25 : 10) * cube, cube, order * REDUCE_WAIT_NS * 4, n >= 0);
}
