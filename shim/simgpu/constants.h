/*
 * constants.h - every figure of the simulated device, each with its source. Read by the server (defaults of its
 * configuration) and by the client library. No commit changes this file and the arbiter together.
 *
 * Source marks: [published] a manufacturer's or a public benchmark's figure, [kernel module] NVIDIA's open kernel
 * module, [assumed] plausible and not yet measured: `make qualify` measures it on a real device.
 */
#ifndef VG_SIM_CONSTANTS_H
#define VG_SIM_CONSTANTS_H

/* ---- the device ---- */
#define SIM_DRIVER_VERSION 13000 /* the header this was written for */
#define SIM_DEVICE_NAME "SIMULATED H200"
#define SIM_COMPUTE_MAJOR 9 /* [published] compute capability 9.0 */
#define SIM_COMPUTE_MINOR 0
#define SIM_SM_COUNT 132                   /* [published] H200 data sheet */
#define SIM_MEMORY_BYTES (143771ull << 20) /* [published] total that nvidia-smi shows for an H200 (141 GB) */
#define SIM_GRANULE_BYTES (2ull << 20)     /* [published] cuMemGetAllocationGranularity: 2 MiB */
#define SIM_SMALL_ALIGN_BYTES 512ull       /* [published] cuMemAlloc inside one granule: 512-byte steps */
#define SIM_ARRAY_PAGE_BYTES (64ull << 10) /* [assumed] arrays take whole tiles of sparse ones, which are 64 KiB */
#define SIM_CONTEXT_BYTES (512ull << 20)   /* [assumed] a context with CUDA 13 takes about half a GiB on Hopper */
#define SIM_MIG_SLICES 7                   /* [published] compute slices of a GPU in MIG mode */
#define SIM_MIG_SM_PARTS 8                 /* [assumed] a slice has such a part of the SMs: 16 of 132 are published */
#define SIM_PCI_BUS_FIRST 0x1b             /* [assumed] any number; devices follow one after the other */

/* ---- time on the device ---- */
#define SIM_SLICE_NS 1024000ull  /* [kernel module] default channel-group timeslice since Volta: 1024 us */
#define SIM_SLICE_SHORT_PART 2   /* [assumed] "short" is this part of the default one; no length is published */
#define SIM_SLICE_MEDIUM_TIMES 2 /* [assumed] "medium" is so many default ones */
#define SIM_SLICE_LONG_TIMES 4   /* [assumed] "long" is so many */
#define SIM_SLICE_DRIFT 32     /* [assumed] by such a part of a slice those of each device are longer than the last's */
#define SIM_SWITCH_NS 20000ull /* [assumed] change of context; preemption alone is published as 32-40 us at worst */
#define SIM_COPY_ENGINES 3     /* [published] H100/H200 asyncEngineCount; here: to device, from device, on device */
#define SIM_COPY_LATENCY_NS 1500ull         /* [assumed] start of one copy on an engine */
#define SIM_HOST_LINK_BYTES_PER_US 50000ull /* [published] PCIe 5.0 x16, about 50 GB/s in practice */
/* Of the link, by memory that is not pinned: [published] 2.3 of 5.8 GB/s in NVIDIA's "How to Optimize Data Transfers in
 * CUDA C/C++" (the driver's thread fills a pinned buffer); that it is the same part of a faster link is [assumed]. */
#define SIM_PAGEABLE_PART 0.4
/* [published] Zheng et al., "Towards High Performance Paged Memory for GPUs", HPCA 2016: a fault over PCIe takes 20 to
 * 50 us beside its transfer. The least; that one fault fetches a whole block of 2 MiB is [assumed]. */
#define SIM_MANAGED_FAULT_NS 20000ull
#define SIM_DEVICE_COPY_BYTES_PER_US 2000000ull /* [published] 4.8 TB/s memory, half of it each way, less losses */
#define SIM_MEMSET_BYTES_PER_US 3500000ull      /* [published] 4.8 TB/s memory, writes only */
#define SIM_MEMSET_LATENCY_NS 1500ull           /* [assumed] the smallest kernel */

/* ---- time on the host ---- */
#define SIM_LAUNCH_COST_NS                                                                                             \
  2500ull /* [published] 3 to 5 us for cuLaunchKernel on older devices; 2.5 us on Hopper hosts */
#define SIM_RECORD_COST_NS 250ull         /* [published] cuda_event_benchmark, V100: 0.244 us with timing disabled */
#define SIM_RECORD_TIMING_COST_NS 2500ull /* [published] the same: 2.5 us with timing */
#define SIM_COPY_COST_NS 2500ull          /* [assumed] as a launch */
#define SIM_MALLOC_COST_NS 0ull           /* the round trip to the server is cost enough */

/* ---- queues ---- */
#define SIM_LAUNCH_QUEUE 1024 /* [published] about 1000 launches per stream before the host blocks */
#define SIM_QUEUE_FULL_WAIT_NS                                                                                         \
  200000ull /* [assumed] how long a blocked launch sleeps at least before it looks again                               \
             */

#endif
