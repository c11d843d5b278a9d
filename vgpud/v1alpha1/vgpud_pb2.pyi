from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TenantMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TENANT_MODE_UNSPECIFIED: _ClassVar[TenantMode]
    TENANT_MODE_COAST: _ClassVar[TenantMode]
    TENANT_MODE_OPEN: _ClassVar[TenantMode]
    TENANT_MODE_CLOSED: _ClassVar[TenantMode]

class Scheduling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULING_UNSPECIFIED: _ClassVar[Scheduling]
    SCHEDULING_FIFO: _ClassVar[Scheduling]
    SCHEDULING_NICE: _ClassVar[Scheduling]
    SCHEDULING_NORMAL: _ClassVar[Scheduling]

class Gate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GATE_UNSPECIFIED: _ClassVar[Gate]
    GATE_CLOSED: _ClassVar[Gate]
    GATE_COUNT: _ClassVar[Gate]
    GATE_SOLO: _ClassVar[Gate]

class Regime(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REGIME_UNSPECIFIED: _ClassVar[Regime]
    REGIME_IDLE: _ClassVar[Regime]
    REGIME_SOLO: _ClassVar[Regime]
    REGIME_OPEN: _ClassVar[Regime]
    REGIME_THROTTLED: _ClassVar[Regime]
    REGIME_ARBITRATED: _ClassVar[Regime]

class ServiceClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SERVICE_CLASS_UNSPECIFIED: _ClassVar[ServiceClass]
    SERVICE_CLASS_BATCH: _ClassVar[ServiceClass]
    SERVICE_CLASS_LATENCY: _ClassVar[ServiceClass]

class Residency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESIDENCY_UNSPECIFIED: _ClassVar[Residency]
    RESIDENCY_LEAVING: _ClassVar[Residency]
    RESIDENCY_AWAY: _ClassVar[Residency]
    RESIDENCY_COMING: _ClassVar[Residency]

class Suspension(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SUSPENSION_UNSPECIFIED: _ClassVar[Suspension]
    SUSPENSION_PAUSED: _ClassVar[Suspension]
    SUSPENSION_EVICTING: _ClassVar[Suspension]
    SUSPENSION_EVICTED: _ClassVar[Suspension]
    SUSPENSION_RESTORING: _ClassVar[Suspension]

class TraceEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACE_EVENT_KIND_UNSPECIFIED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_OPEN: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_CLOSE: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_DRAINED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_OVERLAP: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_WAITS: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_OUTSTANDING: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_LAUNCHES: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_CHARGED: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_REGIME: _ClassVar[TraceEventKind]
    TRACE_EVENT_KIND_LATE: _ClassVar[TraceEventKind]

class NotificationEvent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NOTIFICATION_EVENT_UNSPECIFIED: _ClassVar[NotificationEvent]
    NOTIFICATION_EVENT_START: _ClassVar[NotificationEvent]
    NOTIFICATION_EVENT_END: _ClassVar[NotificationEvent]
    NOTIFICATION_EVENT_FAILURE: _ClassVar[NotificationEvent]

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_PENDING: _ClassVar[JobState]
    JOB_STATE_HELD: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_SUSPENDED: _ClassVar[JobState]
    JOB_STATE_COMPLETED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_TIMED_OUT: _ClassVar[JobState]

class FactKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FACT_KIND_UNSPECIFIED: _ClassVar[FactKind]
    FACT_KIND_QUEUE: _ClassVar[FactKind]
    FACT_KIND_HELP: _ClassVar[FactKind]
    FACT_KIND_ANOMALY: _ClassVar[FactKind]
    FACT_KIND_DEVICE: _ClassVar[FactKind]
    FACT_KIND_NEIGHBOUR: _ClassVar[FactKind]
    FACT_KIND_SIZE: _ClassVar[FactKind]
    FACT_KIND_RESIZE: _ClassVar[FactKind]
    FACT_KIND_PREDICTION: _ClassVar[FactKind]
    FACT_KIND_ESTIMATE: _ClassVar[FactKind]
    FACT_KIND_ROTATION: _ClassVar[FactKind]

class UsageBy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    USAGE_BY_UNSPECIFIED: _ClassVar[UsageBy]
    USAGE_BY_JOB: _ClassVar[UsageBy]
    USAGE_BY_USER: _ClassVar[UsageBy]
    USAGE_BY_QUEUE: _ClassVar[UsageBy]
    USAGE_BY_NAMESPACE: _ClassVar[UsageBy]
    USAGE_BY_POD: _ClassVar[UsageBy]

class HistoryKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HISTORY_KIND_UNSPECIFIED: _ClassVar[HistoryKind]
    HISTORY_KIND_DEVICE: _ClassVar[HistoryKind]
    HISTORY_KIND_SLICE: _ClassVar[HistoryKind]
    HISTORY_KIND_JOB: _ClassVar[HistoryKind]
    HISTORY_KIND_QUEUE: _ClassVar[HistoryKind]
    HISTORY_KIND_USER: _ClassVar[HistoryKind]
    HISTORY_KIND_NODE: _ClassVar[HistoryKind]
TENANT_MODE_UNSPECIFIED: TenantMode
TENANT_MODE_COAST: TenantMode
TENANT_MODE_OPEN: TenantMode
TENANT_MODE_CLOSED: TenantMode
SCHEDULING_UNSPECIFIED: Scheduling
SCHEDULING_FIFO: Scheduling
SCHEDULING_NICE: Scheduling
SCHEDULING_NORMAL: Scheduling
GATE_UNSPECIFIED: Gate
GATE_CLOSED: Gate
GATE_COUNT: Gate
GATE_SOLO: Gate
REGIME_UNSPECIFIED: Regime
REGIME_IDLE: Regime
REGIME_SOLO: Regime
REGIME_OPEN: Regime
REGIME_THROTTLED: Regime
REGIME_ARBITRATED: Regime
SERVICE_CLASS_UNSPECIFIED: ServiceClass
SERVICE_CLASS_BATCH: ServiceClass
SERVICE_CLASS_LATENCY: ServiceClass
RESIDENCY_UNSPECIFIED: Residency
RESIDENCY_LEAVING: Residency
RESIDENCY_AWAY: Residency
RESIDENCY_COMING: Residency
SUSPENSION_UNSPECIFIED: Suspension
SUSPENSION_PAUSED: Suspension
SUSPENSION_EVICTING: Suspension
SUSPENSION_EVICTED: Suspension
SUSPENSION_RESTORING: Suspension
TRACE_EVENT_KIND_UNSPECIFIED: TraceEventKind
TRACE_EVENT_KIND_OPEN: TraceEventKind
TRACE_EVENT_KIND_CLOSE: TraceEventKind
TRACE_EVENT_KIND_DRAINED: TraceEventKind
TRACE_EVENT_KIND_OVERLAP: TraceEventKind
TRACE_EVENT_KIND_WAITS: TraceEventKind
TRACE_EVENT_KIND_OUTSTANDING: TraceEventKind
TRACE_EVENT_KIND_LAUNCHES: TraceEventKind
TRACE_EVENT_KIND_CHARGED: TraceEventKind
TRACE_EVENT_KIND_REGIME: TraceEventKind
TRACE_EVENT_KIND_LATE: TraceEventKind
NOTIFICATION_EVENT_UNSPECIFIED: NotificationEvent
NOTIFICATION_EVENT_START: NotificationEvent
NOTIFICATION_EVENT_END: NotificationEvent
NOTIFICATION_EVENT_FAILURE: NotificationEvent
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_PENDING: JobState
JOB_STATE_HELD: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_SUSPENDED: JobState
JOB_STATE_COMPLETED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_TIMED_OUT: JobState
FACT_KIND_UNSPECIFIED: FactKind
FACT_KIND_QUEUE: FactKind
FACT_KIND_HELP: FactKind
FACT_KIND_ANOMALY: FactKind
FACT_KIND_DEVICE: FactKind
FACT_KIND_NEIGHBOUR: FactKind
FACT_KIND_SIZE: FactKind
FACT_KIND_RESIZE: FactKind
FACT_KIND_PREDICTION: FactKind
FACT_KIND_ESTIMATE: FactKind
FACT_KIND_ROTATION: FactKind
USAGE_BY_UNSPECIFIED: UsageBy
USAGE_BY_JOB: UsageBy
USAGE_BY_USER: UsageBy
USAGE_BY_QUEUE: UsageBy
USAGE_BY_NAMESPACE: UsageBy
USAGE_BY_POD: UsageBy
HISTORY_KIND_UNSPECIFIED: HistoryKind
HISTORY_KIND_DEVICE: HistoryKind
HISTORY_KIND_SLICE: HistoryKind
HISTORY_KIND_JOB: HistoryKind
HISTORY_KIND_QUEUE: HistoryKind
HISTORY_KIND_USER: HistoryKind
HISTORY_KIND_NODE: HistoryKind

class Device(_message.Message):
    __slots__ = ("node", "index", "uuid", "name", "pci_bus_id", "mem_total_bytes", "mem_used_bytes", "mem_reserved_bytes", "reserved_milli", "sm_count", "simulated", "context_bytes", "granule_bytes", "utilization_ratio", "drained", "drained_by_fault", "taken_by", "offered", "kubernetes", "temperature_celsius", "power_milliwatts", "power_limit_milliwatts", "xids", "last_xid", "compute_capability", "nvlink_group", "parent_uuid", "profile", "link_bytes_per_s")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    MEM_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MILLI_FIELD_NUMBER: _ClassVar[int]
    SM_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRANULE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_RATIO_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    DRAINED_BY_FAULT_FIELD_NUMBER: _ClassVar[int]
    TAKEN_BY_FIELD_NUMBER: _ClassVar[int]
    OFFERED_FIELD_NUMBER: _ClassVar[int]
    KUBERNETES_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_CELSIUS_FIELD_NUMBER: _ClassVar[int]
    POWER_MILLIWATTS_FIELD_NUMBER: _ClassVar[int]
    POWER_LIMIT_MILLIWATTS_FIELD_NUMBER: _ClassVar[int]
    XIDS_FIELD_NUMBER: _ClassVar[int]
    LAST_XID_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    NVLINK_GROUP_FIELD_NUMBER: _ClassVar[int]
    PARENT_UUID_FIELD_NUMBER: _ClassVar[int]
    PROFILE_FIELD_NUMBER: _ClassVar[int]
    LINK_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    node: str
    index: int
    uuid: str
    name: str
    pci_bus_id: str
    mem_total_bytes: int
    mem_used_bytes: int
    mem_reserved_bytes: int
    reserved_milli: int
    sm_count: int
    simulated: bool
    context_bytes: int
    granule_bytes: int
    utilization_ratio: float
    drained: str
    drained_by_fault: bool
    taken_by: str
    offered: bool
    kubernetes: bool
    temperature_celsius: int
    power_milliwatts: int
    power_limit_milliwatts: int
    xids: int
    last_xid: int
    compute_capability: str
    nvlink_group: int
    parent_uuid: str
    profile: str
    link_bytes_per_s: int
    def __init__(self, node: _Optional[str] = ..., index: _Optional[int] = ..., uuid: _Optional[str] = ..., name: _Optional[str] = ..., pci_bus_id: _Optional[str] = ..., mem_total_bytes: _Optional[int] = ..., mem_used_bytes: _Optional[int] = ..., mem_reserved_bytes: _Optional[int] = ..., reserved_milli: _Optional[int] = ..., sm_count: _Optional[int] = ..., simulated: bool = ..., context_bytes: _Optional[int] = ..., granule_bytes: _Optional[int] = ..., utilization_ratio: _Optional[float] = ..., drained: _Optional[str] = ..., drained_by_fault: bool = ..., taken_by: _Optional[str] = ..., offered: bool = ..., kubernetes: bool = ..., temperature_celsius: _Optional[int] = ..., power_milliwatts: _Optional[int] = ..., power_limit_milliwatts: _Optional[int] = ..., xids: _Optional[int] = ..., last_xid: _Optional[int] = ..., compute_capability: _Optional[str] = ..., nvlink_group: _Optional[int] = ..., parent_uuid: _Optional[str] = ..., profile: _Optional[str] = ..., link_bytes_per_s: _Optional[int] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "version", "driver_version", "simulated", "abi_version", "mode", "start_time", "runtime_dir", "sim_dir", "driver", "nvml", "runtime_socket", "cdi_dir", "unwatched", "arbiters", "memory_fence", "memory_fence_problem", "time_slices", "memory_moves", "memory_moves_problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    ABI_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_DIR_FIELD_NUMBER: _ClassVar[int]
    SIM_DIR_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    NVML_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_SOCKET_FIELD_NUMBER: _ClassVar[int]
    CDI_DIR_FIELD_NUMBER: _ClassVar[int]
    UNWATCHED_FIELD_NUMBER: _ClassVar[int]
    ARBITERS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FENCE_FIELD_NUMBER: _ClassVar[int]
    MEMORY_FENCE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    TIME_SLICES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MOVES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MOVES_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    driver_version: str
    simulated: bool
    abi_version: int
    mode: TenantMode
    start_time: _timestamp_pb2.Timestamp
    runtime_dir: str
    sim_dir: str
    driver: str
    nvml: str
    runtime_socket: str
    cdi_dir: str
    unwatched: bool
    arbiters: _containers.RepeatedCompositeFieldContainer[ArbiterThread]
    memory_fence: bool
    memory_fence_problem: str
    time_slices: _containers.RepeatedCompositeFieldContainer[TimeSlice]
    memory_moves: str
    memory_moves_problem: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., driver_version: _Optional[str] = ..., simulated: bool = ..., abi_version: _Optional[int] = ..., mode: _Optional[_Union[TenantMode, str]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., runtime_dir: _Optional[str] = ..., sim_dir: _Optional[str] = ..., driver: _Optional[str] = ..., nvml: _Optional[str] = ..., runtime_socket: _Optional[str] = ..., cdi_dir: _Optional[str] = ..., unwatched: bool = ..., arbiters: _Optional[_Iterable[_Union[ArbiterThread, _Mapping]]] = ..., memory_fence: bool = ..., memory_fence_problem: _Optional[str] = ..., time_slices: _Optional[_Iterable[_Union[TimeSlice, _Mapping]]] = ..., memory_moves: _Optional[str] = ..., memory_moves_problem: _Optional[str] = ...) -> None: ...

class TimeSlice(_message.Message):
    __slots__ = ("device_uuid", "length", "problem")
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    length: str
    problem: str
    def __init__(self, device_uuid: _Optional[str] = ..., length: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class ArbiterThread(_message.Message):
    __slots__ = ("device_uuid", "scheduling", "locked_bytes", "unlocked_bytes", "late", "late_max_ns", "steps_down")
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    LOCKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNLOCKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    LATE_MAX_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_DOWN_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    scheduling: Scheduling
    locked_bytes: int
    unlocked_bytes: int
    late: int
    late_max_ns: int
    steps_down: int
    def __init__(self, device_uuid: _Optional[str] = ..., scheduling: _Optional[_Union[Scheduling, str]] = ..., locked_bytes: _Optional[int] = ..., unlocked_bytes: _Optional[int] = ..., late: _Optional[int] = ..., late_max_ns: _Optional[int] = ..., steps_down: _Optional[int] = ...) -> None: ...

class MemoryReclaim(_message.Message):
    __slots__ = ("asked_bytes", "remaining_bytes", "returned_bytes", "duration_ns", "late")
    ASKED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMAINING_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETURNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DURATION_NS_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    asked_bytes: int
    remaining_bytes: int
    returned_bytes: int
    duration_ns: int
    late: bool
    def __init__(self, asked_bytes: _Optional[int] = ..., remaining_bytes: _Optional[int] = ..., returned_bytes: _Optional[int] = ..., duration_ns: _Optional[int] = ..., late: bool = ...) -> None: ...

class SliceDevice(_message.Message):
    __slots__ = ("node", "device_uuid", "device_index", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes", "mem_used_bytes", "mem_peak_bytes", "share_ratio", "charged_ns", "throttled_ns", "grants", "overruns", "gate", "regime", "entitlement_milli", "share_10s_ratio", "share_60s_ratio", "lag_ns", "borrowed_ns", "early_releases", "drains", "drain_total_ns", "drain_max_ns", "wait_counts", "launches", "mem_denied", "mem_unattributed_bytes", "copy_to_device_bytes", "copy_from_device_bytes", "copy_to_device_bytes_per_s", "copy_from_device_bytes_per_s", "pinned_bytes", "pinned_denied", "copy_to_device_ns", "copy_from_device_ns", "reclaim")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    MIN_MILLI_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEM_MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHARE_RATIO_FIELD_NUMBER: _ClassVar[int]
    CHARGED_NS_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_NS_FIELD_NUMBER: _ClassVar[int]
    GRANTS_FIELD_NUMBER: _ClassVar[int]
    OVERRUNS_FIELD_NUMBER: _ClassVar[int]
    GATE_FIELD_NUMBER: _ClassVar[int]
    REGIME_FIELD_NUMBER: _ClassVar[int]
    ENTITLEMENT_MILLI_FIELD_NUMBER: _ClassVar[int]
    SHARE_10S_RATIO_FIELD_NUMBER: _ClassVar[int]
    SHARE_60S_RATIO_FIELD_NUMBER: _ClassVar[int]
    LAG_NS_FIELD_NUMBER: _ClassVar[int]
    BORROWED_NS_FIELD_NUMBER: _ClassVar[int]
    EARLY_RELEASES_FIELD_NUMBER: _ClassVar[int]
    DRAINS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_MAX_NS_FIELD_NUMBER: _ClassVar[int]
    WAIT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    MEM_DENIED_FIELD_NUMBER: _ClassVar[int]
    MEM_UNATTRIBUTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPY_FROM_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_DEVICE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    COPY_FROM_DEVICE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    PINNED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PINNED_DENIED_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    COPY_FROM_DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    RECLAIM_FIELD_NUMBER: _ClassVar[int]
    node: str
    device_uuid: str
    device_index: int
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int
    mem_used_bytes: int
    mem_peak_bytes: int
    share_ratio: float
    charged_ns: int
    throttled_ns: int
    grants: int
    overruns: int
    gate: Gate
    regime: Regime
    entitlement_milli: int
    share_10s_ratio: float
    share_60s_ratio: float
    lag_ns: int
    borrowed_ns: int
    early_releases: int
    drains: int
    drain_total_ns: int
    drain_max_ns: int
    wait_counts: _containers.RepeatedScalarFieldContainer[int]
    launches: int
    mem_denied: int
    mem_unattributed_bytes: int
    copy_to_device_bytes: int
    copy_from_device_bytes: int
    copy_to_device_bytes_per_s: int
    copy_from_device_bytes_per_s: int
    pinned_bytes: int
    pinned_denied: int
    copy_to_device_ns: int
    copy_from_device_ns: int
    reclaim: MemoryReclaim
    def __init__(self, node: _Optional[str] = ..., device_uuid: _Optional[str] = ..., device_index: _Optional[int] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., mem_min_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ..., mem_used_bytes: _Optional[int] = ..., mem_peak_bytes: _Optional[int] = ..., share_ratio: _Optional[float] = ..., charged_ns: _Optional[int] = ..., throttled_ns: _Optional[int] = ..., grants: _Optional[int] = ..., overruns: _Optional[int] = ..., gate: _Optional[_Union[Gate, str]] = ..., regime: _Optional[_Union[Regime, str]] = ..., entitlement_milli: _Optional[int] = ..., share_10s_ratio: _Optional[float] = ..., share_60s_ratio: _Optional[float] = ..., lag_ns: _Optional[int] = ..., borrowed_ns: _Optional[int] = ..., early_releases: _Optional[int] = ..., drains: _Optional[int] = ..., drain_total_ns: _Optional[int] = ..., drain_max_ns: _Optional[int] = ..., wait_counts: _Optional[_Iterable[int]] = ..., launches: _Optional[int] = ..., mem_denied: _Optional[int] = ..., mem_unattributed_bytes: _Optional[int] = ..., copy_to_device_bytes: _Optional[int] = ..., copy_from_device_bytes: _Optional[int] = ..., copy_to_device_bytes_per_s: _Optional[int] = ..., copy_from_device_bytes_per_s: _Optional[int] = ..., pinned_bytes: _Optional[int] = ..., pinned_denied: _Optional[int] = ..., copy_to_device_ns: _Optional[int] = ..., copy_from_device_ns: _Optional[int] = ..., reclaim: _Optional[_Union[MemoryReclaim, _Mapping]] = ...) -> None: ...

class SliceSpec(_message.Message):
    __slots__ = ("gpus_milli", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes", "weight", "priority", "device_uuids", "service_class", "spread", "mem_swap", "idle_after_ns", "copy_min_milli", "copy_max_milli")
    GPUS_MILLI_FIELD_NUMBER: _ClassVar[int]
    MIN_MILLI_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEM_MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    SERVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    MEM_SWAP_FIELD_NUMBER: _ClassVar[int]
    IDLE_AFTER_NS_FIELD_NUMBER: _ClassVar[int]
    COPY_MIN_MILLI_FIELD_NUMBER: _ClassVar[int]
    COPY_MAX_MILLI_FIELD_NUMBER: _ClassVar[int]
    gpus_milli: int
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int
    weight: int
    priority: int
    device_uuids: _containers.RepeatedScalarFieldContainer[str]
    service_class: ServiceClass
    spread: int
    mem_swap: bool
    idle_after_ns: int
    copy_min_milli: int
    copy_max_milli: int
    def __init__(self, gpus_milli: _Optional[int] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., mem_min_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ..., weight: _Optional[int] = ..., priority: _Optional[int] = ..., device_uuids: _Optional[_Iterable[str]] = ..., service_class: _Optional[_Union[ServiceClass, str]] = ..., spread: _Optional[int] = ..., mem_swap: bool = ..., idle_after_ns: _Optional[int] = ..., copy_min_milli: _Optional[int] = ..., copy_max_milli: _Optional[int] = ...) -> None: ...

class Rotation(_message.Message):
    __slots__ = ("claims_bytes", "capacity_bytes", "quantum_ns", "lost_ratio", "host_bytes", "bytes_per_second", "moves", "moved_bytes", "moved_by", "stays_bytes", "waiting_calls")
    CLAIMS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_NS_FIELD_NUMBER: _ClassVar[int]
    LOST_RATIO_FIELD_NUMBER: _ClassVar[int]
    HOST_BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MOVED_BY_FIELD_NUMBER: _ClassVar[int]
    STAYS_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_CALLS_FIELD_NUMBER: _ClassVar[int]
    claims_bytes: int
    capacity_bytes: int
    quantum_ns: int
    lost_ratio: float
    host_bytes: int
    bytes_per_second: int
    moves: int
    moved_bytes: int
    moved_by: str
    stays_bytes: int
    waiting_calls: int
    def __init__(self, claims_bytes: _Optional[int] = ..., capacity_bytes: _Optional[int] = ..., quantum_ns: _Optional[int] = ..., lost_ratio: _Optional[float] = ..., host_bytes: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., moves: _Optional[int] = ..., moved_bytes: _Optional[int] = ..., moved_by: _Optional[str] = ..., stays_bytes: _Optional[int] = ..., waiting_calls: _Optional[int] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("node", "name", "uid", "spec", "devices", "ephemeral", "owner_uid", "attach_socket", "processes", "create_time", "revision", "containers", "cdi_device", "queue", "job_id", "suspended", "claim", "job_name", "residency", "asleep_time", "rotation", "away_time")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    ATTACH_SOCKET_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    CDI_DEVICE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SUSPENDED_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    JOB_NAME_FIELD_NUMBER: _ClassVar[int]
    RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    ASLEEP_TIME_FIELD_NUMBER: _ClassVar[int]
    ROTATION_FIELD_NUMBER: _ClassVar[int]
    AWAY_TIME_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    uid: str
    spec: SliceSpec
    devices: _containers.RepeatedCompositeFieldContainer[SliceDevice]
    ephemeral: bool
    owner_uid: int
    attach_socket: str
    processes: int
    create_time: _timestamp_pb2.Timestamp
    revision: int
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    cdi_device: str
    queue: str
    job_id: int
    suspended: Suspension
    claim: Claim
    job_name: str
    residency: Residency
    asleep_time: _timestamp_pb2.Timestamp
    rotation: Rotation
    away_time: _timestamp_pb2.Timestamp
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., spec: _Optional[_Union[SliceSpec, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[SliceDevice, _Mapping]]] = ..., ephemeral: bool = ..., owner_uid: _Optional[int] = ..., attach_socket: _Optional[str] = ..., processes: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., revision: _Optional[int] = ..., containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., cdi_device: _Optional[str] = ..., queue: _Optional[str] = ..., job_id: _Optional[int] = ..., suspended: _Optional[_Union[Suspension, str]] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., job_name: _Optional[str] = ..., residency: _Optional[_Union[Residency, str]] = ..., asleep_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., rotation: _Optional[_Union[Rotation, _Mapping]] = ..., away_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("uid", "namespace", "name", "pod_uids", "granted", "boot_id", "device_ids", "pod_names")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POD_UIDS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
    POD_NAMES_FIELD_NUMBER: _ClassVar[int]
    uid: str
    namespace: str
    name: str
    pod_uids: _containers.RepeatedScalarFieldContainer[str]
    granted: _containers.RepeatedCompositeFieldContainer[ClaimShare]
    boot_id: str
    device_ids: _containers.RepeatedScalarFieldContainer[str]
    pod_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uid: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., pod_uids: _Optional[_Iterable[str]] = ..., granted: _Optional[_Iterable[_Union[ClaimShare, _Mapping]]] = ..., boot_id: _Optional[str] = ..., device_ids: _Optional[_Iterable[str]] = ..., pod_names: _Optional[_Iterable[str]] = ...) -> None: ...

class ClaimShare(_message.Message):
    __slots__ = ("device_uuid", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes")
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    MIN_MILLI_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEM_MIN_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    device_uuid: str
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int
    def __init__(self, device_uuid: _Optional[str] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., mem_min_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("node", "id", "pid", "cgroup", "create_time", "name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node: str
    id: str
    pid: int
    cgroup: str
    create_time: _timestamp_pb2.Timestamp
    name: str
    def __init__(self, node: _Optional[str] = ..., id: _Optional[str] = ..., pid: _Optional[int] = ..., cgroup: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., name: _Optional[str] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("node", "slice", "process_id", "pid", "uid", "program", "attach_time", "resumed", "devices", "container", "container_name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ATTACH_TIME_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_NAME_FIELD_NUMBER: _ClassVar[int]
    node: str
    slice: str
    process_id: int
    pid: int
    uid: int
    program: str
    attach_time: _timestamp_pb2.Timestamp
    resumed: bool
    devices: _containers.RepeatedCompositeFieldContainer[ProcessDevice]
    container: str
    container_name: str
    def __init__(self, node: _Optional[str] = ..., slice: _Optional[str] = ..., process_id: _Optional[int] = ..., pid: _Optional[int] = ..., uid: _Optional[int] = ..., program: _Optional[str] = ..., attach_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., resumed: bool = ..., devices: _Optional[_Iterable[_Union[ProcessDevice, _Mapping]]] = ..., container: _Optional[str] = ..., container_name: _Optional[str] = ...) -> None: ...

class ProcessDevice(_message.Message):
    __slots__ = ("node", "device_uuid", "device_index", "mem_used_bytes", "mem_peak_bytes", "mem_held_bytes", "launches", "throttled_ns", "denied", "mem_unattributed_bytes")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    MEM_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    THROTTLED_NS_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    MEM_UNATTRIBUTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    node: str
    device_uuid: str
    device_index: int
    mem_used_bytes: int
    mem_peak_bytes: int
    mem_held_bytes: int
    launches: int
    throttled_ns: int
    denied: int
    mem_unattributed_bytes: int
    def __init__(self, node: _Optional[str] = ..., device_uuid: _Optional[str] = ..., device_index: _Optional[int] = ..., mem_used_bytes: _Optional[int] = ..., mem_peak_bytes: _Optional[int] = ..., mem_held_bytes: _Optional[int] = ..., launches: _Optional[int] = ..., throttled_ns: _Optional[int] = ..., denied: _Optional[int] = ..., mem_unattributed_bytes: _Optional[int] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("node", "sequence", "create_time", "kind", "slice", "device_uuid", "process_id", "message", "owner_uid", "admins_only")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    ADMINS_ONLY_FIELD_NUMBER: _ClassVar[int]
    node: str
    sequence: int
    create_time: _timestamp_pb2.Timestamp
    kind: str
    slice: str
    device_uuid: str
    process_id: int
    message: str
    owner_uid: int
    admins_only: bool
    def __init__(self, node: _Optional[str] = ..., sequence: _Optional[int] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., slice: _Optional[str] = ..., device_uuid: _Optional[str] = ..., process_id: _Optional[int] = ..., message: _Optional[str] = ..., owner_uid: _Optional[int] = ..., admins_only: bool = ...) -> None: ...

class DrainDeviceRequest(_message.Message):
    __slots__ = ("node", "device_uuid", "reason")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node: str
    device_uuid: str
    reason: str
    def __init__(self, node: _Optional[str] = ..., device_uuid: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class DrainDeviceResponse(_message.Message):
    __slots__ = ("device",)
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    device: Device
    def __init__(self, device: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...

class UndrainDeviceRequest(_message.Message):
    __slots__ = ("node", "device_uuid")
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    node: str
    device_uuid: str
    def __init__(self, node: _Optional[str] = ..., device_uuid: _Optional[str] = ...) -> None: ...

class UndrainDeviceResponse(_message.Message):
    __slots__ = ("device",)
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    device: Device
    def __init__(self, device: _Optional[_Union[Device, _Mapping]] = ...) -> None: ...

class GetNodeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetNodeResponse(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: Node
    def __init__(self, node: _Optional[_Union[Node, _Mapping]] = ...) -> None: ...

class ListDevicesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDevicesResponse(_message.Message):
    __slots__ = ("devices", "next_page_token")
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    next_page_token: str
    def __init__(self, devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ArbiterParams(_message.Message):
    __slots__ = ("quantum_ns", "quantum_min_ns", "bound_ns", "open_bound_ns", "overrun_ns", "lookahead_ns", "latency_bound_ns", "guarantee_depth_ns", "cap_depth_ns")
    QUANTUM_NS_FIELD_NUMBER: _ClassVar[int]
    QUANTUM_MIN_NS_FIELD_NUMBER: _ClassVar[int]
    BOUND_NS_FIELD_NUMBER: _ClassVar[int]
    OPEN_BOUND_NS_FIELD_NUMBER: _ClassVar[int]
    OVERRUN_NS_FIELD_NUMBER: _ClassVar[int]
    LOOKAHEAD_NS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_BOUND_NS_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_DEPTH_NS_FIELD_NUMBER: _ClassVar[int]
    CAP_DEPTH_NS_FIELD_NUMBER: _ClassVar[int]
    quantum_ns: int
    quantum_min_ns: int
    bound_ns: int
    open_bound_ns: int
    overrun_ns: int
    lookahead_ns: int
    latency_bound_ns: int
    guarantee_depth_ns: int
    cap_depth_ns: int
    def __init__(self, quantum_ns: _Optional[int] = ..., quantum_min_ns: _Optional[int] = ..., bound_ns: _Optional[int] = ..., open_bound_ns: _Optional[int] = ..., overrun_ns: _Optional[int] = ..., lookahead_ns: _Optional[int] = ..., latency_bound_ns: _Optional[int] = ..., guarantee_depth_ns: _Optional[int] = ..., cap_depth_ns: _Optional[int] = ...) -> None: ...

class SetArbiterParamsRequest(_message.Message):
    __slots__ = ("params",)
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    params: ArbiterParams
    def __init__(self, params: _Optional[_Union[ArbiterParams, _Mapping]] = ...) -> None: ...

class SetArbiterParamsResponse(_message.Message):
    __slots__ = ("params",)
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    params: ArbiterParams
    def __init__(self, params: _Optional[_Union[ArbiterParams, _Mapping]] = ...) -> None: ...

class SuspendSliceRequest(_message.Message):
    __slots__ = ("node", "name", "evict", "deadline")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    EVICT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    evict: bool
    deadline: _duration_pb2.Duration
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., evict: bool = ..., deadline: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SuspendSliceResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class ResumeSliceRequest(_message.Message):
    __slots__ = ("node", "name", "deadline")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    deadline: _duration_pb2.Duration
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., deadline: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class ResumeSliceResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class CreateSliceRequest(_message.Message):
    __slots__ = ("request_id", "name", "spec", "ephemeral", "owner_uid", "node", "cdi_device", "queue", "every_user", "pending")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CDI_DEVICE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    EVERY_USER_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    spec: SliceSpec
    ephemeral: bool
    owner_uid: int
    node: str
    cdi_device: bool
    queue: str
    every_user: bool
    pending: bool
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., spec: _Optional[_Union[SliceSpec, _Mapping]] = ..., ephemeral: bool = ..., owner_uid: _Optional[int] = ..., node: _Optional[str] = ..., cdi_device: bool = ..., queue: _Optional[str] = ..., every_user: bool = ..., pending: bool = ...) -> None: ...

class CreateSliceResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class GetSliceRequest(_message.Message):
    __slots__ = ("node", "name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetSliceResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class ListSlicesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSlicesResponse(_message.Message):
    __slots__ = ("slices", "next_page_token")
    SLICES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    next_page_token: str
    def __init__(self, slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateSliceRequest(_message.Message):
    __slots__ = ("request_id", "node", "name", "spec", "update_mask")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    name: str
    spec: SliceSpec
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., name: _Optional[str] = ..., spec: _Optional[_Union[SliceSpec, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateSliceResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class DeleteSliceRequest(_message.Message):
    __slots__ = ("request_id", "node", "name", "force")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    node: str
    name: str
    force: bool
    def __init__(self, request_id: _Optional[str] = ..., node: _Optional[str] = ..., name: _Optional[str] = ..., force: bool = ...) -> None: ...

class DeleteSliceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchSlicesRequest(_message.Message):
    __slots__ = ("interval_ms",)
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    def __init__(self, interval_ms: _Optional[int] = ...) -> None: ...

class WatchSlicesResponse(_message.Message):
    __slots__ = ("slices", "devices")
    SLICES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    slices: _containers.RepeatedCompositeFieldContainer[Slice]
    devices: _containers.RepeatedCompositeFieldContainer[Device]
    def __init__(self, slices: _Optional[_Iterable[_Union[Slice, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[Device, _Mapping]]] = ...) -> None: ...

class WatchTraceRequest(_message.Message):
    __slots__ = ("node", "name")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class WatchTraceResponse(_message.Message):
    __slots__ = ("events", "now_ns", "node")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[TraceEvent]
    now_ns: int
    node: str
    def __init__(self, events: _Optional[_Iterable[_Union[TraceEvent, _Mapping]]] = ..., now_ns: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("time_ns", "device_index", "slice", "kind", "value", "text", "lost")
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDEX_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    time_ns: int
    device_index: int
    slice: str
    kind: TraceEventKind
    value: int
    text: str
    lost: int
    def __init__(self, time_ns: _Optional[int] = ..., device_index: _Optional[int] = ..., slice: _Optional[str] = ..., kind: _Optional[_Union[TraceEventKind, str]] = ..., value: _Optional[int] = ..., text: _Optional[str] = ..., lost: _Optional[int] = ...) -> None: ...

class ListProcessesRequest(_message.Message):
    __slots__ = ("slice", "page_size", "page_token", "node")
    SLICE_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    slice: str
    page_size: int
    page_token: str
    node: str
    def __init__(self, slice: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class ListProcessesResponse(_message.Message):
    __slots__ = ("processes", "next_page_token")
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    processes: _containers.RepeatedCompositeFieldContainer[Process]
    next_page_token: str
    def __init__(self, processes: _Optional[_Iterable[_Union[Process, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PrepareClaimRequest(_message.Message):
    __slots__ = ("node", "claim", "service_class", "weight", "priority", "tolerates_drain")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    SERVICE_CLASS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TOLERATES_DRAIN_FIELD_NUMBER: _ClassVar[int]
    node: str
    claim: Claim
    service_class: ServiceClass
    weight: int
    priority: int
    tolerates_drain: bool
    def __init__(self, node: _Optional[str] = ..., claim: _Optional[_Union[Claim, _Mapping]] = ..., service_class: _Optional[_Union[ServiceClass, str]] = ..., weight: _Optional[int] = ..., priority: _Optional[int] = ..., tolerates_drain: bool = ...) -> None: ...

class PrepareClaimResponse(_message.Message):
    __slots__ = ("slice",)
    SLICE_FIELD_NUMBER: _ClassVar[int]
    slice: Slice
    def __init__(self, slice: _Optional[_Union[Slice, _Mapping]] = ...) -> None: ...

class UnprepareClaimRequest(_message.Message):
    __slots__ = ("node", "claim_uid")
    NODE_FIELD_NUMBER: _ClassVar[int]
    CLAIM_UID_FIELD_NUMBER: _ClassVar[int]
    node: str
    claim_uid: str
    def __init__(self, node: _Optional[str] = ..., claim_uid: _Optional[str] = ...) -> None: ...

class UnprepareClaimResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEventsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchEventsRequest(_message.Message):
    __slots__ = ("after_sequence",)
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    after_sequence: int
    def __init__(self, after_sequence: _Optional[int] = ...) -> None: ...

class WatchEventsResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: Event
    def __init__(self, event: _Optional[_Union[Event, _Mapping]] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("slice", "members", "name", "queue", "priority", "time_limit", "expected_duration", "retries", "after", "after_any", "hold", "cpu_milli", "ram_bytes", "command", "image", "directory", "environment", "umask", "limits", "log", "skew", "not_preemptible", "elastic", "prediction", "array_indices", "array_limit", "notification", "begin_time", "terminal", "after_fail", "after_end", "signal", "signal_lead", "grace", "session", "idle_after", "session_ports", "environment_name", "volumes", "ports", "registry")
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SLICE_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TIME_LIMIT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DURATION_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    AFTER_ANY_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    CPU_MILLI_FIELD_NUMBER: _ClassVar[int]
    RAM_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    UMASK_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SKEW_FIELD_NUMBER: _ClassVar[int]
    NOT_PREEMPTIBLE_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_FIELD_NUMBER: _ClassVar[int]
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    ARRAY_INDICES_FIELD_NUMBER: _ClassVar[int]
    ARRAY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATION_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_FIELD_NUMBER: _ClassVar[int]
    AFTER_FAIL_FIELD_NUMBER: _ClassVar[int]
    AFTER_END_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_LEAD_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    IDLE_AFTER_FIELD_NUMBER: _ClassVar[int]
    SESSION_PORTS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_NAME_FIELD_NUMBER: _ClassVar[int]
    VOLUMES_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    REGISTRY_FIELD_NUMBER: _ClassVar[int]
    slice: SliceSpec
    members: int
    name: str
    queue: str
    priority: int
    time_limit: _duration_pb2.Duration
    expected_duration: _duration_pb2.Duration
    retries: int
    after: _containers.RepeatedScalarFieldContainer[int]
    after_any: bool
    hold: bool
    cpu_milli: int
    ram_bytes: int
    command: _containers.RepeatedScalarFieldContainer[str]
    image: str
    directory: str
    environment: _containers.ScalarMap[str, str]
    umask: int
    limits: _containers.RepeatedCompositeFieldContainer[ResourceLimit]
    log: str
    skew: float
    not_preemptible: bool
    elastic: ElasticSpec
    prediction: Prediction
    array_indices: _containers.RepeatedScalarFieldContainer[int]
    array_limit: int
    notification: Notification
    begin_time: _timestamp_pb2.Timestamp
    terminal: bool
    after_fail: _containers.RepeatedScalarFieldContainer[int]
    after_end: _containers.RepeatedScalarFieldContainer[int]
    signal: str
    signal_lead: _duration_pb2.Duration
    grace: _duration_pb2.Duration
    session: str
    idle_after: _duration_pb2.Duration
    session_ports: _containers.RepeatedScalarFieldContainer[str]
    environment_name: str
    volumes: _containers.RepeatedScalarFieldContainer[str]
    ports: _containers.RepeatedScalarFieldContainer[str]
    registry: str
    def __init__(self, slice: _Optional[_Union[SliceSpec, _Mapping]] = ..., members: _Optional[int] = ..., name: _Optional[str] = ..., queue: _Optional[str] = ..., priority: _Optional[int] = ..., time_limit: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., expected_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., retries: _Optional[int] = ..., after: _Optional[_Iterable[int]] = ..., after_any: bool = ..., hold: bool = ..., cpu_milli: _Optional[int] = ..., ram_bytes: _Optional[int] = ..., command: _Optional[_Iterable[str]] = ..., image: _Optional[str] = ..., directory: _Optional[str] = ..., environment: _Optional[_Mapping[str, str]] = ..., umask: _Optional[int] = ..., limits: _Optional[_Iterable[_Union[ResourceLimit, _Mapping]]] = ..., log: _Optional[str] = ..., skew: _Optional[float] = ..., not_preemptible: bool = ..., elastic: _Optional[_Union[ElasticSpec, _Mapping]] = ..., prediction: _Optional[_Union[Prediction, _Mapping]] = ..., array_indices: _Optional[_Iterable[int]] = ..., array_limit: _Optional[int] = ..., notification: _Optional[_Union[Notification, _Mapping]] = ..., begin_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., terminal: bool = ..., after_fail: _Optional[_Iterable[int]] = ..., after_end: _Optional[_Iterable[int]] = ..., signal: _Optional[str] = ..., signal_lead: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., session: _Optional[str] = ..., idle_after: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., session_ports: _Optional[_Iterable[str]] = ..., environment_name: _Optional[str] = ..., volumes: _Optional[_Iterable[str]] = ..., ports: _Optional[_Iterable[str]] = ..., registry: _Optional[str] = ...) -> None: ...

class Environment(_message.Message):
    __slots__ = ("node", "name", "description", "defaults", "members")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    description: str
    defaults: JobSpec
    members: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., description: _Optional[str] = ..., defaults: _Optional[_Union[JobSpec, _Mapping]] = ..., members: _Optional[_Iterable[str]] = ...) -> None: ...

class Notification(_message.Message):
    __slots__ = ("events", "mail", "webhook", "command")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    MAIL_FIELD_NUMBER: _ClassVar[int]
    WEBHOOK_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedScalarFieldContainer[NotificationEvent]
    mail: str
    webhook: str
    command: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, events: _Optional[_Iterable[_Union[NotificationEvent, str]]] = ..., mail: _Optional[str] = ..., webhook: _Optional[str] = ..., command: _Optional[_Iterable[str]] = ...) -> None: ...

class ElasticSpec(_message.Message):
    __slots__ = ("gpus_milli_min", "gpus_milli_max", "workers_min", "workers_max", "heuristic", "batch", "batch_max")
    GPUS_MILLI_MIN_FIELD_NUMBER: _ClassVar[int]
    GPUS_MILLI_MAX_FIELD_NUMBER: _ClassVar[int]
    WORKERS_MIN_FIELD_NUMBER: _ClassVar[int]
    WORKERS_MAX_FIELD_NUMBER: _ClassVar[int]
    HEURISTIC_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    gpus_milli_min: int
    gpus_milli_max: int
    workers_min: int
    workers_max: int
    heuristic: str
    batch: int
    batch_max: int
    def __init__(self, gpus_milli_min: _Optional[int] = ..., gpus_milli_max: _Optional[int] = ..., workers_min: _Optional[int] = ..., workers_max: _Optional[int] = ..., heuristic: _Optional[str] = ..., batch: _Optional[int] = ..., batch_max: _Optional[int] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("value", "low", "high")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    value: float
    low: float
    high: float
    def __init__(self, value: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class Prediction(_message.Message):
    __slots__ = ("model", "device", "utilisation", "sm_activity", "mem_bytes", "out_of_range", "features")
    class FeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    SM_ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    MEM_BYTES_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_RANGE_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    model: str
    device: str
    utilisation: Range
    sm_activity: Range
    mem_bytes: Range
    out_of_range: bool
    features: _containers.ScalarMap[str, float]
    def __init__(self, model: _Optional[str] = ..., device: _Optional[str] = ..., utilisation: _Optional[_Union[Range, _Mapping]] = ..., sm_activity: _Optional[_Union[Range, _Mapping]] = ..., mem_bytes: _Optional[_Union[Range, _Mapping]] = ..., out_of_range: bool = ..., features: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ResourceLimit(_message.Message):
    __slots__ = ("name", "soft", "hard")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOFT_FIELD_NUMBER: _ClassVar[int]
    HARD_FIELD_NUMBER: _ClassVar[int]
    name: str
    soft: int
    hard: int
    def __init__(self, name: _Optional[str] = ..., soft: _Optional[int] = ..., hard: _Optional[int] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("node", "job_id", "spec", "uid", "state", "reason", "submit_time", "start_time", "end_time", "estimated_start_time", "exit_code", "attempt", "preemptions", "array_id", "array_index", "slices", "device_indices", "log", "gpu_seconds_granted", "gpu_seconds_used", "position", "cpu_seconds", "ram_peak_bytes", "workers", "gpus_milli", "samples_per_second", "estimated_duration", "utilisation", "utilisation_measured", "session_port", "use_time", "named_ports")
    class NamedPortsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NODE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_START_TIME_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    ARRAY_ID_FIELD_NUMBER: _ClassVar[int]
    ARRAY_INDEX_FIELD_NUMBER: _ClassVar[int]
    SLICES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_INDICES_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_USED_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RAM_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    GPUS_MILLI_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_DURATION_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_FIELD_NUMBER: _ClassVar[int]
    UTILISATION_MEASURED_FIELD_NUMBER: _ClassVar[int]
    SESSION_PORT_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_FIELD_NUMBER: _ClassVar[int]
    NAMED_PORTS_FIELD_NUMBER: _ClassVar[int]
    node: str
    job_id: int
    spec: JobSpec
    uid: int
    state: JobState
    reason: str
    submit_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    estimated_start_time: _timestamp_pb2.Timestamp
    exit_code: int
    attempt: int
    preemptions: int
    array_id: int
    array_index: int
    slices: _containers.RepeatedScalarFieldContainer[str]
    device_indices: _containers.RepeatedScalarFieldContainer[int]
    log: str
    gpu_seconds_granted: float
    gpu_seconds_used: float
    position: int
    cpu_seconds: float
    ram_peak_bytes: int
    workers: int
    gpus_milli: int
    samples_per_second: float
    estimated_duration: _duration_pb2.Duration
    utilisation: float
    utilisation_measured: bool
    session_port: int
    use_time: _timestamp_pb2.Timestamp
    named_ports: _containers.ScalarMap[str, int]
    def __init__(self, node: _Optional[str] = ..., job_id: _Optional[int] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., uid: _Optional[int] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., submit_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., estimated_start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., exit_code: _Optional[int] = ..., attempt: _Optional[int] = ..., preemptions: _Optional[int] = ..., array_id: _Optional[int] = ..., array_index: _Optional[int] = ..., slices: _Optional[_Iterable[str]] = ..., device_indices: _Optional[_Iterable[int]] = ..., log: _Optional[str] = ..., gpu_seconds_granted: _Optional[float] = ..., gpu_seconds_used: _Optional[float] = ..., position: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., ram_peak_bytes: _Optional[int] = ..., workers: _Optional[int] = ..., gpus_milli: _Optional[int] = ..., samples_per_second: _Optional[float] = ..., estimated_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., utilisation: _Optional[float] = ..., utilisation_measured: bool = ..., session_port: _Optional[int] = ..., use_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., named_ports: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ListEnvironmentsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEnvironmentsResponse(_message.Message):
    __slots__ = ("environments", "problem")
    ENVIRONMENTS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    environments: _containers.RepeatedCompositeFieldContainer[Environment]
    problem: str
    def __init__(self, environments: _Optional[_Iterable[_Union[Environment, _Mapping]]] = ..., problem: _Optional[str] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("request_id", "spec")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    spec: JobSpec
    def __init__(self, request_id: _Optional[str] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "include_ended", "queue", "uid", "states", "since_time")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_ENDED_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    include_ended: bool
    queue: str
    uid: int
    states: _containers.RepeatedScalarFieldContainer[JobState]
    since_time: _timestamp_pb2.Timestamp
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., include_ended: bool = ..., queue: _Optional[str] = ..., uid: _Optional[int] = ..., states: _Optional[_Iterable[_Union[JobState, str]]] = ..., since_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("job_id", "whole_array")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    WHOLE_ARRAY_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    whole_array: bool
    def __init__(self, job_id: _Optional[int] = ..., whole_array: bool = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HoldJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class HoldJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReleaseJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ReleaseJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RequeueJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class RequeueJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SuspendJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class SuspendJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ResumeJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("job_id", "spec", "update_mask")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    spec: JobSpec
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, job_id: _Optional[int] = ..., spec: _Optional[_Union[JobSpec, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class UpdateJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, job_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class WatchJobsResponse(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ...) -> None: ...

class ExplainJobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class Fact(_message.Message):
    __slots__ = ("decision_time", "kind", "text")
    DECISION_TIME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    decision_time: _timestamp_pb2.Timestamp
    kind: FactKind
    text: str
    def __init__(self, decision_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[_Union[FactKind, str]] = ..., text: _Optional[str] = ...) -> None: ...

class ExplainJobResponse(_message.Message):
    __slots__ = ("job", "facts")
    JOB_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    job: Job
    facts: _containers.RepeatedCompositeFieldContainer[Fact]
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., facts: _Optional[_Iterable[_Union[Fact, _Mapping]]] = ...) -> None: ...

class ReportProgressRequest(_message.Message):
    __slots__ = ("job_id", "attempt", "worker", "samples", "seconds", "steps")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    attempt: int
    worker: int
    samples: int
    seconds: float
    steps: int
    def __init__(self, job_id: _Optional[int] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., samples: _Optional[int] = ..., seconds: _Optional[float] = ..., steps: _Optional[int] = ...) -> None: ...

class ReportProgressResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WorkRequest(_message.Message):
    __slots__ = ("job_id", "attempt", "worker", "generation", "store", "samples", "seconds", "steps", "lost", "joined", "idle_seconds", "waited_seconds")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAITED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    attempt: int
    worker: int
    generation: int
    store: str
    samples: int
    seconds: float
    steps: int
    lost: bool
    joined: bool
    idle_seconds: float
    waited_seconds: float
    def __init__(self, job_id: _Optional[int] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., generation: _Optional[int] = ..., store: _Optional[str] = ..., samples: _Optional[int] = ..., seconds: _Optional[float] = ..., steps: _Optional[int] = ..., lost: bool = ..., joined: bool = ..., idle_seconds: _Optional[float] = ..., waited_seconds: _Optional[float] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("generation", "workers", "store", "batch", "reason")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    generation: int
    workers: _containers.RepeatedScalarFieldContainer[int]
    store: str
    batch: int
    reason: str
    def __init__(self, generation: _Optional[int] = ..., workers: _Optional[_Iterable[int]] = ..., store: _Optional[str] = ..., batch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class AttachJobRequest(_message.Message):
    __slots__ = ("job_id", "as_admin", "input", "size")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    AS_ADMIN_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    as_admin: bool
    input: bytes
    size: TerminalSize
    def __init__(self, job_id: _Optional[int] = ..., as_admin: bool = ..., input: _Optional[bytes] = ..., size: _Optional[_Union[TerminalSize, _Mapping]] = ...) -> None: ...

class TerminalSize(_message.Message):
    __slots__ = ("rows", "columns")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    columns: int
    def __init__(self, rows: _Optional[int] = ..., columns: _Optional[int] = ...) -> None: ...

class AttachJobResponse(_message.Message):
    __slots__ = ("job", "replay", "output", "notice")
    JOB_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    NOTICE_FIELD_NUMBER: _ClassVar[int]
    job: Job
    replay: bytes
    output: bytes
    notice: str
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ..., replay: _Optional[bytes] = ..., output: _Optional[bytes] = ..., notice: _Optional[str] = ...) -> None: ...

class ReportSessionUseRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    def __init__(self, job_id: _Optional[int] = ...) -> None: ...

class ReportSessionUseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForwardSessionRequest(_message.Message):
    __slots__ = ("job_id", "port", "data", "end")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    job_id: int
    port: str
    data: bytes
    end: bool
    def __init__(self, job_id: _Optional[int] = ..., port: _Optional[str] = ..., data: _Optional[bytes] = ..., end: bool = ...) -> None: ...

class ForwardSessionResponse(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("name", "parent", "guarantee_milli", "limit_milli", "weight", "policy", "placement", "spread", "strict", "backfill", "min_run", "cpu_limit_milli", "ram_limit_bytes", "members", "elastic_wait", "elastic_idle", "elastic_eager", "used_milli", "running", "pending", "history_gpu_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARENT_FIELD_NUMBER: _ClassVar[int]
    GUARANTEE_MILLI_FIELD_NUMBER: _ClassVar[int]
    LIMIT_MILLI_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    PLACEMENT_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    MIN_RUN_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMIT_MILLI_FIELD_NUMBER: _ClassVar[int]
    RAM_LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_WAIT_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_IDLE_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_EAGER_FIELD_NUMBER: _ClassVar[int]
    USED_MILLI_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    HISTORY_GPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    parent: str
    guarantee_milli: int
    limit_milli: int
    weight: int
    policy: str
    placement: str
    spread: bool
    strict: bool
    backfill: bool
    min_run: _duration_pb2.Duration
    cpu_limit_milli: int
    ram_limit_bytes: int
    members: _containers.RepeatedScalarFieldContainer[str]
    elastic_wait: _duration_pb2.Duration
    elastic_idle: _duration_pb2.Duration
    elastic_eager: bool
    used_milli: int
    running: int
    pending: int
    history_gpu_seconds: float
    def __init__(self, name: _Optional[str] = ..., parent: _Optional[str] = ..., guarantee_milli: _Optional[int] = ..., limit_milli: _Optional[int] = ..., weight: _Optional[int] = ..., policy: _Optional[str] = ..., placement: _Optional[str] = ..., spread: bool = ..., strict: bool = ..., backfill: bool = ..., min_run: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., cpu_limit_milli: _Optional[int] = ..., ram_limit_bytes: _Optional[int] = ..., members: _Optional[_Iterable[str]] = ..., elastic_wait: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., elastic_idle: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., elastic_eager: bool = ..., used_milli: _Optional[int] = ..., running: _Optional[int] = ..., pending: _Optional[int] = ..., history_gpu_seconds: _Optional[float] = ...) -> None: ...

class Reservation(_message.Message):
    __slots__ = ("name", "node", "device_uuids", "begin_time", "end_time", "queue", "reason")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUIDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    name: str
    node: str
    device_uuids: _containers.RepeatedScalarFieldContainer[str]
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    queue: str
    reason: str
    def __init__(self, name: _Optional[str] = ..., node: _Optional[str] = ..., device_uuids: _Optional[_Iterable[str]] = ..., begin_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., queue: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ListReservationsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListReservationsResponse(_message.Message):
    __slots__ = ("reservations",)
    RESERVATIONS_FIELD_NUMBER: _ClassVar[int]
    reservations: _containers.RepeatedCompositeFieldContainer[Reservation]
    def __init__(self, reservations: _Optional[_Iterable[_Union[Reservation, _Mapping]]] = ...) -> None: ...

class CreateReservationRequest(_message.Message):
    __slots__ = ("reservation",)
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ...) -> None: ...

class CreateReservationResponse(_message.Message):
    __slots__ = ("reservation",)
    RESERVATION_FIELD_NUMBER: _ClassVar[int]
    reservation: Reservation
    def __init__(self, reservation: _Optional[_Union[Reservation, _Mapping]] = ...) -> None: ...

class DeleteReservationRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteReservationResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues", "next_page_token")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[Queue]
    next_page_token: str
    def __init__(self, queues: _Optional[_Iterable[_Union[Queue, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class SetQueueRequest(_message.Message):
    __slots__ = ("queue", "update_mask")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    update_mask: _field_mask_pb2.FieldMask
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ...) -> None: ...

class SetQueueResponse(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: Queue
    def __init__(self, queue: _Optional[_Union[Queue, _Mapping]] = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Usage(_message.Message):
    __slots__ = ("queue", "uid", "job_id", "slice", "gpu_seconds_asked", "gpu_seconds_granted", "gpu_seconds_used", "jobs", "node", "submit_time", "start_time", "end_time", "gpus_milli", "members", "run_duration", "state", "namespace", "pod", "copy_to_device_bytes", "copy_from_device_bytes")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_ASKED_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_GRANTED_FIELD_NUMBER: _ClassVar[int]
    GPU_SECONDS_USED_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    SUBMIT_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    GPUS_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    RUN_DURATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    COPY_TO_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COPY_FROM_DEVICE_BYTES_FIELD_NUMBER: _ClassVar[int]
    queue: str
    uid: int
    job_id: int
    slice: str
    gpu_seconds_asked: float
    gpu_seconds_granted: float
    gpu_seconds_used: float
    jobs: int
    node: str
    submit_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    gpus_milli: int
    members: int
    run_duration: _duration_pb2.Duration
    state: JobState
    namespace: str
    pod: str
    copy_to_device_bytes: int
    copy_from_device_bytes: int
    def __init__(self, queue: _Optional[str] = ..., uid: _Optional[int] = ..., job_id: _Optional[int] = ..., slice: _Optional[str] = ..., gpu_seconds_asked: _Optional[float] = ..., gpu_seconds_granted: _Optional[float] = ..., gpu_seconds_used: _Optional[float] = ..., jobs: _Optional[int] = ..., node: _Optional[str] = ..., submit_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., gpus_milli: _Optional[int] = ..., members: _Optional[int] = ..., run_duration: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., state: _Optional[_Union[JobState, str]] = ..., namespace: _Optional[str] = ..., pod: _Optional[str] = ..., copy_to_device_bytes: _Optional[int] = ..., copy_from_device_bytes: _Optional[int] = ...) -> None: ...

class GetUsageRequest(_message.Message):
    __slots__ = ("since_time", "until_time", "by", "page_size", "page_token", "uid")
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    since_time: _timestamp_pb2.Timestamp
    until_time: _timestamp_pb2.Timestamp
    by: UsageBy
    page_size: int
    page_token: str
    uid: int
    def __init__(self, since_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., until_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., by: _Optional[_Union[UsageBy, str]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., uid: _Optional[int] = ...) -> None: ...

class GetUsageResponse(_message.Message):
    __slots__ = ("usage", "next_page_token")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    usage: _containers.RepeatedCompositeFieldContainer[Usage]
    next_page_token: str
    def __init__(self, usage: _Optional[_Iterable[_Union[Usage, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("node", "kind", "name", "since_time", "until_time", "step")
    NODE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    node: str
    kind: HistoryKind
    name: str
    since_time: _timestamp_pb2.Timestamp
    until_time: _timestamp_pb2.Timestamp
    step: _duration_pb2.Duration
    def __init__(self, node: _Optional[str] = ..., kind: _Optional[_Union[HistoryKind, str]] = ..., name: _Optional[str] = ..., since_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., until_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., step: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HistoryPoint(_message.Message):
    __slots__ = ("begin_time", "used_milli", "used_peak_milli", "min_milli", "max_milli", "waiting_milli", "mem_used_bytes", "mem_peak_bytes", "mem_max_bytes")
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    USED_MILLI_FIELD_NUMBER: _ClassVar[int]
    USED_PEAK_MILLI_FIELD_NUMBER: _ClassVar[int]
    MIN_MILLI_FIELD_NUMBER: _ClassVar[int]
    MAX_MILLI_FIELD_NUMBER: _ClassVar[int]
    WAITING_MILLI_FIELD_NUMBER: _ClassVar[int]
    MEM_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEM_MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    begin_time: _timestamp_pb2.Timestamp
    used_milli: int
    used_peak_milli: int
    min_milli: int
    max_milli: int
    waiting_milli: int
    mem_used_bytes: int
    mem_peak_bytes: int
    mem_max_bytes: int
    def __init__(self, begin_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., used_milli: _Optional[int] = ..., used_peak_milli: _Optional[int] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., waiting_milli: _Optional[int] = ..., mem_used_bytes: _Optional[int] = ..., mem_peak_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ...) -> None: ...

class History(_message.Message):
    __slots__ = ("name", "node", "step", "points")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    node: str
    step: _duration_pb2.Duration
    points: _containers.RepeatedCompositeFieldContainer[HistoryPoint]
    def __init__(self, name: _Optional[str] = ..., node: _Optional[str] = ..., step: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., points: _Optional[_Iterable[_Union[HistoryPoint, _Mapping]]] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("history",)
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    history: History
    def __init__(self, history: _Optional[_Union[History, _Mapping]] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("token_id", "user", "uid", "note", "create_time", "expire_time")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    user: str
    uid: int
    note: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, token_id: _Optional[str] = ..., user: _Optional[str] = ..., uid: _Optional[int] = ..., note: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateTokenRequest(_message.Message):
    __slots__ = ("user", "ttl", "note")
    USER_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    user: str
    ttl: _duration_pb2.Duration
    note: str
    def __init__(self, user: _Optional[str] = ..., ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class CreateTokenResponse(_message.Message):
    __slots__ = ("token", "secret")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    token: Token
    secret: str
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class ListTokensRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTokensResponse(_message.Message):
    __slots__ = ("tokens",)
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ...) -> None: ...

class RevokeTokenRequest(_message.Message):
    __slots__ = ("token_id",)
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    def __init__(self, token_id: _Optional[str] = ...) -> None: ...

class RevokeTokenResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
