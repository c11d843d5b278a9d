from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Device(_message.Message):
    __slots__ = ("node", "index", "uuid", "name", "pci_bus_id", "memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes", "milli_reserved", "sm_count", "simulated", "context_bytes", "granule_bytes", "utilization_ratio")
    NODE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UUID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PCI_BUS_ID_FIELD_NUMBER: _ClassVar[int]
    MEMORY_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_RESERVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    MILLI_RESERVED_FIELD_NUMBER: _ClassVar[int]
    SM_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GRANULE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_RATIO_FIELD_NUMBER: _ClassVar[int]
    node: str
    index: int
    uuid: str
    name: str
    pci_bus_id: str
    memory_total_bytes: int
    memory_used_bytes: int
    memory_reserved_bytes: int
    milli_reserved: int
    sm_count: int
    simulated: bool
    context_bytes: int
    granule_bytes: int
    utilization_ratio: float
    def __init__(self, node: _Optional[str] = ..., index: _Optional[int] = ..., uuid: _Optional[str] = ..., name: _Optional[str] = ..., pci_bus_id: _Optional[str] = ..., memory_total_bytes: _Optional[int] = ..., memory_used_bytes: _Optional[int] = ..., memory_reserved_bytes: _Optional[int] = ..., milli_reserved: _Optional[int] = ..., sm_count: _Optional[int] = ..., simulated: bool = ..., context_bytes: _Optional[int] = ..., granule_bytes: _Optional[int] = ..., utilization_ratio: _Optional[float] = ...) -> None: ...

class Node(_message.Message):
    __slots__ = ("name", "version", "driver_version", "simulated", "abi_version", "mode", "started_at", "runtime_dir", "sim_dir", "driver", "nvml", "runtime_socket", "cdi_dir", "unwatched")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DRIVER_VERSION_FIELD_NUMBER: _ClassVar[int]
    SIMULATED_FIELD_NUMBER: _ClassVar[int]
    ABI_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_DIR_FIELD_NUMBER: _ClassVar[int]
    SIM_DIR_FIELD_NUMBER: _ClassVar[int]
    DRIVER_FIELD_NUMBER: _ClassVar[int]
    NVML_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_SOCKET_FIELD_NUMBER: _ClassVar[int]
    CDI_DIR_FIELD_NUMBER: _ClassVar[int]
    UNWATCHED_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    driver_version: str
    simulated: bool
    abi_version: int
    mode: str
    started_at: _timestamp_pb2.Timestamp
    runtime_dir: str
    sim_dir: str
    driver: str
    nvml: str
    runtime_socket: str
    cdi_dir: str
    unwatched: bool
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., driver_version: _Optional[str] = ..., simulated: bool = ..., abi_version: _Optional[int] = ..., mode: _Optional[str] = ..., started_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., runtime_dir: _Optional[str] = ..., sim_dir: _Optional[str] = ..., driver: _Optional[str] = ..., nvml: _Optional[str] = ..., runtime_socket: _Optional[str] = ..., cdi_dir: _Optional[str] = ..., unwatched: bool = ...) -> None: ...

class SliceDevice(_message.Message):
    __slots__ = ("node", "device_uuid", "device_index", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes", "mem_used_bytes", "mem_peak_bytes", "share_ratio", "charged_ns", "throttled_ns", "grants", "overruns", "gate", "regime", "entitlement_milli", "share_10s_ratio", "share_60s_ratio", "lag_ns", "borrowed_ns", "early_releases", "drains", "drain_total_ns", "drain_max_ns", "wait_counts", "launches", "mem_denied", "mem_unattributed_bytes")
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
    gate: str
    regime: str
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
    def __init__(self, node: _Optional[str] = ..., device_uuid: _Optional[str] = ..., device_index: _Optional[int] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., mem_min_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ..., mem_used_bytes: _Optional[int] = ..., mem_peak_bytes: _Optional[int] = ..., share_ratio: _Optional[float] = ..., charged_ns: _Optional[int] = ..., throttled_ns: _Optional[int] = ..., grants: _Optional[int] = ..., overruns: _Optional[int] = ..., gate: _Optional[str] = ..., regime: _Optional[str] = ..., entitlement_milli: _Optional[int] = ..., share_10s_ratio: _Optional[float] = ..., share_60s_ratio: _Optional[float] = ..., lag_ns: _Optional[int] = ..., borrowed_ns: _Optional[int] = ..., early_releases: _Optional[int] = ..., drains: _Optional[int] = ..., drain_total_ns: _Optional[int] = ..., drain_max_ns: _Optional[int] = ..., wait_counts: _Optional[_Iterable[int]] = ..., launches: _Optional[int] = ..., mem_denied: _Optional[int] = ..., mem_unattributed_bytes: _Optional[int] = ...) -> None: ...

class SliceSpec(_message.Message):
    __slots__ = ("gpus_milli", "min_milli", "max_milli", "mem_min_bytes", "mem_max_bytes", "weight", "priority", "device_uuids", "service_class", "spread")
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
    gpus_milli: int
    min_milli: int
    max_milli: int
    mem_min_bytes: int
    mem_max_bytes: int
    weight: int
    priority: int
    device_uuids: _containers.RepeatedScalarFieldContainer[str]
    service_class: str
    spread: int
    def __init__(self, gpus_milli: _Optional[int] = ..., min_milli: _Optional[int] = ..., max_milli: _Optional[int] = ..., mem_min_bytes: _Optional[int] = ..., mem_max_bytes: _Optional[int] = ..., weight: _Optional[int] = ..., priority: _Optional[int] = ..., device_uuids: _Optional[_Iterable[str]] = ..., service_class: _Optional[str] = ..., spread: _Optional[int] = ...) -> None: ...

class Slice(_message.Message):
    __slots__ = ("node", "name", "uid", "spec", "devices", "ephemeral", "owner_uid", "attach_socket", "processes", "created_at", "revision", "containers", "cdi_device")
    NODE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    ATTACH_SOCKET_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CONTAINERS_FIELD_NUMBER: _ClassVar[int]
    CDI_DEVICE_FIELD_NUMBER: _ClassVar[int]
    node: str
    name: str
    uid: str
    spec: SliceSpec
    devices: _containers.RepeatedCompositeFieldContainer[SliceDevice]
    ephemeral: bool
    owner_uid: int
    attach_socket: str
    processes: int
    created_at: _timestamp_pb2.Timestamp
    revision: int
    containers: _containers.RepeatedCompositeFieldContainer[Container]
    cdi_device: str
    def __init__(self, node: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., spec: _Optional[_Union[SliceSpec, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[SliceDevice, _Mapping]]] = ..., ephemeral: bool = ..., owner_uid: _Optional[int] = ..., attach_socket: _Optional[str] = ..., processes: _Optional[int] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., revision: _Optional[int] = ..., containers: _Optional[_Iterable[_Union[Container, _Mapping]]] = ..., cdi_device: _Optional[str] = ...) -> None: ...

class Container(_message.Message):
    __slots__ = ("node", "id", "pid", "cgroup", "created_at")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    CGROUP_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    node: str
    id: str
    pid: int
    cgroup: str
    created_at: _timestamp_pb2.Timestamp
    def __init__(self, node: _Optional[str] = ..., id: _Optional[str] = ..., pid: _Optional[int] = ..., cgroup: _Optional[str] = ..., created_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class Process(_message.Message):
    __slots__ = ("node", "slice", "process_id", "pid", "uid", "program", "attached_at", "resumed", "devices", "container")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    ATTACHED_AT_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    node: str
    slice: str
    process_id: int
    pid: int
    uid: int
    program: str
    attached_at: _timestamp_pb2.Timestamp
    resumed: bool
    devices: _containers.RepeatedCompositeFieldContainer[ProcessDevice]
    container: str
    def __init__(self, node: _Optional[str] = ..., slice: _Optional[str] = ..., process_id: _Optional[int] = ..., pid: _Optional[int] = ..., uid: _Optional[int] = ..., program: _Optional[str] = ..., attached_at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., resumed: bool = ..., devices: _Optional[_Iterable[_Union[ProcessDevice, _Mapping]]] = ..., container: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("node", "sequence", "at", "kind", "slice", "device_uuid", "process_id", "message")
    NODE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SLICE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_UUID_FIELD_NUMBER: _ClassVar[int]
    PROCESS_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    node: str
    sequence: int
    at: _timestamp_pb2.Timestamp
    kind: str
    slice: str
    device_uuid: str
    process_id: int
    message: str
    def __init__(self, node: _Optional[str] = ..., sequence: _Optional[int] = ..., at: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., kind: _Optional[str] = ..., slice: _Optional[str] = ..., device_uuid: _Optional[str] = ..., process_id: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

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

class CreateSliceRequest(_message.Message):
    __slots__ = ("request_id", "name", "spec", "ephemeral", "owner_uid", "node", "cdi_device")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    OWNER_UID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    CDI_DEVICE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    name: str
    spec: SliceSpec
    ephemeral: bool
    owner_uid: int
    node: str
    cdi_device: bool
    def __init__(self, request_id: _Optional[str] = ..., name: _Optional[str] = ..., spec: _Optional[_Union[SliceSpec, _Mapping]] = ..., ephemeral: bool = ..., owner_uid: _Optional[int] = ..., node: _Optional[str] = ..., cdi_device: bool = ...) -> None: ...

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
    kind: str
    value: int
    text: str
    lost: int
    def __init__(self, time_ns: _Optional[int] = ..., device_index: _Optional[int] = ..., slice: _Optional[str] = ..., kind: _Optional[str] = ..., value: _Optional[int] = ..., text: _Optional[str] = ..., lost: _Optional[int] = ...) -> None: ...

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
