"""Names of the driver in Kubernetes' API. They are an interface: users write them into claims and classes."""

from __future__ import annotations

DRIVER = "gpu.vgpu.dev"
API = "resource.k8s.io/v1"
#: capacities of a device that is shared: guaranteed milli-GPU and memory, slices, and the two maxima, which never bind
SM, MEMORY, SLICES, SM_MAX, MEMORY_MAX = "sm", "memory", "slices", "smMax", "memoryMax"
CAPACITIES = (SM, MEMORY, SLICES, SM_MAX, MEMORY_MAX)
#: attribute that says how a device may be asked for: FREE by capacities, the others as a whole
SIZE, FREE = "size", "free"
#: the same attribute of a MIG instance, which is asked for by capacities, too: half of it is not half of a GPU
MIG = "mig"
#: the same attribute of a device that is looked at and not used, by claims with adminAccess
MONITOR = "monitor"
#: attribute that GPUs of a node have in common when NVLink joins them, for matchAttribute
NVLINK_GROUP = "nvlinkGroup"
#: fixed sizes in milli-GPU, for extended resources (limits: {vgpu.dev/half: 1})
FIXED_MILLI = {"half": 500, "quarter": 250, "tenth": 100}
TAINT_DRAINED, TAINT_FAULTY, TAINT_TAKEN = "vgpu.dev/drained", "vgpu.dev/faulty", "vgpu.dev/taken"
CONFIG_API, CONFIG_KIND = "vgpu.dev/v1alpha1", "SliceConfig"
CDI_KIND = "vgpu.dev/gpu"
#: of kubelet's device plugin interface
RESOURCE = "vgpu.dev/tenth"
