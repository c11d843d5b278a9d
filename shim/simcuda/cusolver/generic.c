/* generic.c - the functions of 64 bits, which take types as numbers (cusolverDnX...). */
#include "simcuda/cusolver/cusolver.h"

#define SIDE(size) ((double)(size))
#define SIZES size_t *ret_device_bytes, size_t *ret_host_bytes
#define BUFFERS void *device_buffer, size_t device_bytes, void *host_buffer, size_t host_bytes
#define ANSWER(elements) sc_solver_answer_bytes(handle, a_type, elements, ret_device_bytes, ret_host_bytes)

SC_PUBLIC enum sc_solver_status cusolverDnXgeqrf_bufferSize(struct sc_solver *handle, void *params, int64_t m,
                                                            int64_t n, int a_type, const void *a, int64_t lda,
                                                            int tau_type, const void *tau, int compute_type, SIZES) {
  return ANSWER(SIDE(n) * SC_SOLVER_BLOCK);
}

SC_PUBLIC enum sc_solver_status cusolverDnXgeqrf(struct sc_solver *handle, void *params, int64_t m, int64_t n,
                                                 int a_type, void *a, int64_t lda, int tau_type, void *tau,
                                                 int compute_type, BUFFERS, int *info) {
  return sc_solver_run(handle, a_type, sc_solver_qr(m, n), info, 1);
}

SC_PUBLIC enum sc_solver_status cusolverDnXpotrf_bufferSize(struct sc_solver *handle, void *params, int uplo, int64_t n,
                                                            int a_type, const void *a, int64_t lda, int compute_type,
                                                            SIZES) {
  return ANSWER(SIDE(n) * SC_SOLVER_BLOCK);
}

SC_PUBLIC enum sc_solver_status cusolverDnXpotrf(struct sc_solver *handle, void *params, int uplo, int64_t n,
                                                 int a_type, void *a, int64_t lda, int compute_type, BUFFERS,
                                                 int *info) {
  return sc_solver_run(handle, a_type, sc_solver_cholesky(n), info, 1);
}

SC_PUBLIC enum sc_solver_status cusolverDnXpotrs(struct sc_solver *handle, void *params, int uplo, int64_t n,
                                                 int64_t nrhs, int a_type, const void *a, int64_t lda, int b_type,
                                                 void *b, int64_t ldb, int *info) {
  return sc_solver_run(handle, a_type, sc_solver_solve(n, nrhs), info, 1);
}

SC_PUBLIC enum sc_solver_status cusolverDnXsytrs_bufferSize(struct sc_solver *handle, int uplo, int64_t n, int64_t nrhs,
                                                            int a_type, const void *a, int64_t lda,
                                                            const int64_t *pivots, int b_type, void *b, int64_t ldb,
                                                            SIZES) {
  return ANSWER(SIDE(n) * (double)nrhs);
}

SC_PUBLIC enum sc_solver_status cusolverDnXsytrs(struct sc_solver *handle, int uplo, int64_t n, int64_t nrhs,
                                                 int a_type, const void *a, int64_t lda, const int64_t *pivots,
                                                 int b_type, void *b, int64_t ldb, BUFFERS, int *info) {
  return sc_solver_run(handle, a_type, sc_solver_solve(n, nrhs), info, 1);
}

/* As LAPACK's syevd and geev. */
static double eigen_elements(double order) {
  return order < 0 ? -1 : 1 + 6 * order + 2 * order * order;
}

SC_PUBLIC enum sc_solver_status cusolverDnXsyevd_bufferSize(struct sc_solver *handle, void *params, int jobz, int uplo,
                                                            int64_t n, int a_type, const void *a, int64_t lda,
                                                            int w_type, const void *w, int compute_type, SIZES) {
  return ANSWER(eigen_elements(SIDE(n)));
}

SC_PUBLIC enum sc_solver_status cusolverDnXsyevd(struct sc_solver *handle, void *params, int jobz, int uplo, int64_t n,
                                                 int a_type, void *a, int64_t lda, int w_type, void *w,
                                                 int compute_type, BUFFERS, int *info) {
  return sc_solver_run(handle, a_type, sc_solver_eigen(n, jobz != 0), info, 1);
}

/* Of a batch: small matrices are worked on side by side, so a copy of each. */
SC_PUBLIC enum sc_solver_status cusolverDnXsyevBatched_bufferSize(struct sc_solver *handle, void *params, int jobz,
                                                                  int uplo, int64_t n, int a_type, const void *a,
                                                                  int64_t lda, int w_type, const void *w,
                                                                  int compute_type, SIZES, int64_t batch) {
  return ANSWER(n < 0 ? -1 : SIDE(n) * SIDE(n) * (double)batch);
}

SC_PUBLIC enum sc_solver_status cusolverDnXsyevBatched(struct sc_solver *handle, void *params, int jobz, int uplo,
                                                       int64_t n, int a_type, void *a, int64_t lda, int w_type, void *w,
                                                       int compute_type, BUFFERS, int *info, int64_t batch) {
  return sc_solver_run(handle, a_type, sc_solver_eigen(n, jobz != 0), info, batch);
}

SC_PUBLIC enum sc_solver_status cusolverDnXgeev_bufferSize(struct sc_solver *handle, void *params, int jobvl, int jobvr,
                                                           int64_t n, int a_type, const void *a, int64_t lda,
                                                           int w_type, const void *w, int vl_type, const void *vl,
                                                           int64_t ldvl, int vr_type, const void *vr, int64_t ldvr,
                                                           int compute_type, SIZES) {
  return ANSWER(eigen_elements(SIDE(n)));
}

SC_PUBLIC enum sc_solver_status cusolverDnXgeev(struct sc_solver *handle, void *params, int jobvl, int jobvr, int64_t n,
                                                int a_type, void *a, int64_t lda, int w_type, void *w, int vl_type,
                                                void *vl, int64_t ldvl, int vr_type, void *vr, int64_t ldvr,
                                                int compute_type, BUFFERS, int *info) {
  return sc_solver_run(handle, a_type, sc_solver_general_eigen(n, jobvl != 0 || jobvr != 0), info, 1);
}
