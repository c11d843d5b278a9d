/* What the kernels of kernels.model would compute on a real device: the programs check the numbers of either. */
extern "C" __global__ void fill_f32(int n, float value, float *out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = value;
}
extern "C" __global__ void saxpy(int n, float a, const float *x, float *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
extern "C" __global__ void reduce_f32(int n, const float *in, float *out) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += in[i];
  if (blockIdx.x == 0 && threadIdx.x == 0) *out = sum;
}
extern "C" __global__ void gemm_f32(int m, int n, int k, const float *a, const float *b, float *c) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float sum = 0;
  for (int l = 0; l < k; l++) sum += a[i / n * k + l] * b[l * n + i % n];
  c[i] = sum;
}
__device__ int answer = 42;
__constant__ float table[4] = {1.0f, 2.0f, 3.0f, 4.0f};
