from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_JOINING: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_COMPLETED: _ClassVar[RunState]
    RUN_STATE_ABORTED: _ClassVar[RunState]
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_JOINING: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_COMPLETED: RunState
RUN_STATE_ABORTED: RunState

class HelloRequest(_message.Message):
    __slots__ = ("node_id", "version", "protocol", "unix_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    version: str
    protocol: int
    unix_ms: int
    def __init__(self, node_id: _Optional[str] = ..., version: _Optional[str] = ..., protocol: _Optional[int] = ..., unix_ms: _Optional[int] = ...) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("federation", "version", "protocol", "unix_ms", "max_wait_ms", "chunk_bytes")
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    federation: str
    version: str
    protocol: int
    unix_ms: int
    max_wait_ms: int
    chunk_bytes: int
    def __init__(self, federation: _Optional[str] = ..., version: _Optional[str] = ..., protocol: _Optional[int] = ..., unix_ms: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., chunk_bytes: _Optional[int] = ...) -> None: ...

class ListPlansRequest(_message.Message):
    __slots__ = ("node_id",)
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    def __init__(self, node_id: _Optional[str] = ...) -> None: ...

class ListPlansReply(_message.Message):
    __slots__ = ("plans",)
    PLANS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[OfferedPlan]
    def __init__(self, plans: _Optional[_Iterable[_Union[OfferedPlan, _Mapping]]] = ...) -> None: ...

class OfferedPlan(_message.Message):
    __slots__ = ("digest", "canonical", "state", "joined")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    digest: str
    canonical: bytes
    state: RunState
    joined: bool
    def __init__(self, digest: _Optional[str] = ..., canonical: _Optional[bytes] = ..., state: _Optional[_Union[RunState, str]] = ..., joined: _Optional[bool] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("node_id", "plan_digest")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digest: str
    def __init__(self, node_id: _Optional[str] = ..., plan_digest: _Optional[str] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("state",)
    STATE_FIELD_NUMBER: _ClassVar[int]
    state: RunState
    def __init__(self, state: _Optional[_Union[RunState, str]] = ...) -> None: ...

class RefuseRequest(_message.Message):
    __slots__ = ("node_id", "plan_digest", "reason")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digest: str
    reason: str
    def __init__(self, node_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RefuseReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NextWorkRequest(_message.Message):
    __slots__ = ("node_id", "wait_ms", "plan_digests")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    wait_ms: int
    plan_digests: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node_id: _Optional[str] = ..., wait_ms: _Optional[int] = ..., plan_digests: _Optional[_Iterable[str]] = ...) -> None: ...

class NextWorkReply(_message.Message):
    __slots__ = ("nothing", "exchange", "ended", "leg")
    NOTHING_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    nothing: Nothing
    exchange: Exchange
    ended: Ended
    leg: Leg
    def __init__(self, nothing: _Optional[_Union[Nothing, _Mapping]] = ..., exchange: _Optional[_Union[Exchange, _Mapping]] = ..., ended: _Optional[_Union[Ended, _Mapping]] = ..., leg: _Optional[_Union[Leg, _Mapping]] = ...) -> None: ...

class Nothing(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Exchange(_message.Message):
    __slots__ = ("plan_digest", "round", "attempt", "exchange", "broadcast_digest", "broadcast_bytes", "deadline_unix_ms", "cohort_digest", "result")
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    COHORT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    plan_digest: str
    round: int
    attempt: int
    exchange: str
    broadcast_digest: str
    broadcast_bytes: int
    deadline_unix_ms: int
    cohort_digest: str
    result: bytes
    def __init__(self, plan_digest: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., exchange: _Optional[str] = ..., broadcast_digest: _Optional[str] = ..., broadcast_bytes: _Optional[int] = ..., deadline_unix_ms: _Optional[int] = ..., cohort_digest: _Optional[str] = ..., result: _Optional[bytes] = ...) -> None: ...

class Leg(_message.Message):
    __slots__ = ("plan_digest", "round", "attempt", "exchange", "config_digest", "leg", "message", "deadline_unix_ms")
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    plan_digest: str
    round: int
    attempt: int
    exchange: str
    config_digest: str
    leg: int
    message: bytes
    deadline_unix_ms: int
    def __init__(self, plan_digest: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., exchange: _Optional[str] = ..., config_digest: _Optional[str] = ..., leg: _Optional[int] = ..., message: _Optional[bytes] = ..., deadline_unix_ms: _Optional[int] = ...) -> None: ...

class Ended(_message.Message):
    __slots__ = ("plan_digest", "state", "reason", "serving_digest", "serving_bytes")
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SERVING_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SERVING_BYTES_FIELD_NUMBER: _ClassVar[int]
    plan_digest: str
    state: RunState
    reason: str
    serving_digest: str
    serving_bytes: int
    def __init__(self, plan_digest: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., reason: _Optional[str] = ..., serving_digest: _Optional[str] = ..., serving_bytes: _Optional[int] = ...) -> None: ...

class DownloadRequest(_message.Message):
    __slots__ = ("node_id", "digest", "offset")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    digest: str
    offset: int
    def __init__(self, node_id: _Optional[str] = ..., digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class UploadKey(_message.Message):
    __slots__ = ("node_id", "plan_digest", "round", "attempt", "exchange", "payload_digest", "summed_bytes", "released_bytes", "summed", "released")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SUMMED_BYTES_FIELD_NUMBER: _ClassVar[int]
    RELEASED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SUMMED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digest: str
    round: int
    attempt: int
    exchange: str
    payload_digest: str
    summed_bytes: int
    released_bytes: int
    summed: _containers.RepeatedCompositeFieldContainer[TensorHeader]
    released: _containers.RepeatedCompositeFieldContainer[TensorHeader]
    def __init__(self, node_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., round: _Optional[int] = ..., attempt: _Optional[int] = ..., exchange: _Optional[str] = ..., payload_digest: _Optional[str] = ..., summed_bytes: _Optional[int] = ..., released_bytes: _Optional[int] = ..., summed: _Optional[_Iterable[_Union[TensorHeader, _Mapping]]] = ..., released: _Optional[_Iterable[_Union[TensorHeader, _Mapping]]] = ...) -> None: ...

class TensorHeader(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class UploadOffsetRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: UploadKey
    def __init__(self, key: _Optional[_Union[UploadKey, _Mapping]] = ...) -> None: ...

class UploadOffsetReply(_message.Message):
    __slots__ = ("offset", "complete")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    complete: bool
    def __init__(self, offset: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...

class UploadHeader(_message.Message):
    __slots__ = ("key", "offset")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    key: UploadKey
    offset: int
    def __init__(self, key: _Optional[_Union[UploadKey, _Mapping]] = ..., offset: _Optional[int] = ...) -> None: ...

class UploadMessage(_message.Message):
    __slots__ = ("header", "data")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    header: UploadHeader
    data: bytes
    def __init__(self, header: _Optional[_Union[UploadHeader, _Mapping]] = ..., data: _Optional[bytes] = ...) -> None: ...

class UploadReply(_message.Message):
    __slots__ = ("offset", "complete")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    complete: bool
    def __init__(self, offset: _Optional[int] = ..., complete: _Optional[bool] = ...) -> None: ...

class CohortManifestRequest(_message.Message):
    __slots__ = ("node_id", "cohort_digest")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    COHORT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    cohort_digest: str
    def __init__(self, node_id: _Optional[str] = ..., cohort_digest: _Optional[str] = ...) -> None: ...

class CohortManifestReply(_message.Message):
    __slots__ = ("manifest",)
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    def __init__(self, manifest: _Optional[bytes] = ...) -> None: ...

class LegAnswer(_message.Message):
    __slots__ = ("node_id", "plan_digest", "config_digest", "leg", "message", "abort")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LEG_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digest: str
    config_digest: str
    leg: int
    message: bytes
    abort: bytes
    def __init__(self, node_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., config_digest: _Optional[str] = ..., leg: _Optional[int] = ..., message: _Optional[bytes] = ..., abort: _Optional[bytes] = ...) -> None: ...

class LegReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MaskedHeader(_message.Message):
    __slots__ = ("node_id", "plan_digest", "config_digest")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digest: str
    config_digest: str
    def __init__(self, node_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., config_digest: _Optional[str] = ...) -> None: ...

class MaskedMessage(_message.Message):
    __slots__ = ("header", "chunk", "done")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    header: MaskedHeader
    chunk: bytes
    done: bytes
    def __init__(self, header: _Optional[_Union[MaskedHeader, _Mapping]] = ..., chunk: _Optional[bytes] = ..., done: _Optional[bytes] = ...) -> None: ...
