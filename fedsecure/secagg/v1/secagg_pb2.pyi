from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Weighting(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHTING_NONE: _ClassVar[Weighting]
    WEIGHTING_PUBLIC: _ClassVar[Weighting]
    WEIGHTING_COUNTS: _ClassVar[Weighting]

class Keystream(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEYSTREAM_UNSPECIFIED: _ClassVar[Keystream]
    KEYSTREAM_AES_256_CTR: _ClassVar[Keystream]
    KEYSTREAM_CHACHA20: _ClassVar[Keystream]

class AbortCode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ABORT_CODE_UNSPECIFIED: _ClassVar[AbortCode]
    ABORT_CODE_BAD_CONFIG: _ClassVar[AbortCode]
    ABORT_CODE_BAD_COHORT: _ClassVar[AbortCode]
    ABORT_CODE_BAD_SIGNATURE: _ClassVar[AbortCode]
    ABORT_CODE_BAD_KEY: _ClassVar[AbortCode]
    ABORT_CODE_BAD_SHARE: _ClassVar[AbortCode]
    ABORT_CODE_BAD_VECTOR: _ClassVar[AbortCode]
    ABORT_CODE_BAD_TRANSCRIPT: _ClassVar[AbortCode]
    ABORT_CODE_TOO_FEW_NODES: _ClassVar[AbortCode]
    ABORT_CODE_REPLAYED: _ClassVar[AbortCode]
    ABORT_CODE_ALREADY_RELEASED: _ClassVar[AbortCode]
    ABORT_CODE_DEADLINE: _ClassVar[AbortCode]
    ABORT_CODE_BAD_SUM: _ClassVar[AbortCode]
    ABORT_CODE_WITHDRAWN: _ClassVar[AbortCode]
WEIGHTING_NONE: Weighting
WEIGHTING_PUBLIC: Weighting
WEIGHTING_COUNTS: Weighting
KEYSTREAM_UNSPECIFIED: Keystream
KEYSTREAM_AES_256_CTR: Keystream
KEYSTREAM_CHACHA20: Keystream
ABORT_CODE_UNSPECIFIED: AbortCode
ABORT_CODE_BAD_CONFIG: AbortCode
ABORT_CODE_BAD_COHORT: AbortCode
ABORT_CODE_BAD_SIGNATURE: AbortCode
ABORT_CODE_BAD_KEY: AbortCode
ABORT_CODE_BAD_SHARE: AbortCode
ABORT_CODE_BAD_VECTOR: AbortCode
ABORT_CODE_BAD_TRANSCRIPT: AbortCode
ABORT_CODE_TOO_FEW_NODES: AbortCode
ABORT_CODE_REPLAYED: AbortCode
ABORT_CODE_ALREADY_RELEASED: AbortCode
ABORT_CODE_DEADLINE: AbortCode
ABORT_CODE_BAD_SUM: AbortCode
ABORT_CODE_WITHDRAWN: AbortCode

class Signed(_message.Message):
    __slots__ = ("payload", "signature", "signer")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SIGNER_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    signature: bytes
    signer: str
    def __init__(self, payload: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., signer: _Optional[str] = ...) -> None: ...

class StreamSpec(_message.Message):
    __slots__ = ("name", "length", "ring_bits", "frac_bits", "clip_abs", "weighting", "layout_digest", "max_count")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    RING_BITS_FIELD_NUMBER: _ClassVar[int]
    FRAC_BITS_FIELD_NUMBER: _ClassVar[int]
    CLIP_ABS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTING_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    MAX_COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    length: int
    ring_bits: int
    frac_bits: int
    clip_abs: float
    weighting: Weighting
    layout_digest: bytes
    max_count: int
    def __init__(self, name: _Optional[str] = ..., length: _Optional[int] = ..., ring_bits: _Optional[int] = ..., frac_bits: _Optional[int] = ..., clip_abs: _Optional[float] = ..., weighting: _Optional[_Union[Weighting, str]] = ..., layout_digest: _Optional[bytes] = ..., max_count: _Optional[int] = ...) -> None: ...

class SessionConfig(_message.Message):
    __slots__ = ("experiment_id", "round", "purpose", "attempt", "cohort_digest", "global_state_digest", "prev_result_digest", "threshold", "min_survivors", "prg", "streams", "dp_digest", "coordinator_nonce", "deadline_unix_ms")
    EXPERIMENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    COHORT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PREV_RESULT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MIN_SURVIVORS_FIELD_NUMBER: _ClassVar[int]
    PRG_FIELD_NUMBER: _ClassVar[int]
    STREAMS_FIELD_NUMBER: _ClassVar[int]
    DP_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COORDINATOR_NONCE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    experiment_id: str
    round: int
    purpose: str
    attempt: int
    cohort_digest: bytes
    global_state_digest: bytes
    prev_result_digest: bytes
    threshold: int
    min_survivors: int
    prg: Keystream
    streams: _containers.RepeatedCompositeFieldContainer[StreamSpec]
    dp_digest: bytes
    coordinator_nonce: bytes
    deadline_unix_ms: int
    def __init__(self, experiment_id: _Optional[str] = ..., round: _Optional[int] = ..., purpose: _Optional[str] = ..., attempt: _Optional[int] = ..., cohort_digest: _Optional[bytes] = ..., global_state_digest: _Optional[bytes] = ..., prev_result_digest: _Optional[bytes] = ..., threshold: _Optional[int] = ..., min_survivors: _Optional[int] = ..., prg: _Optional[_Union[Keystream, str]] = ..., streams: _Optional[_Iterable[_Union[StreamSpec, _Mapping]]] = ..., dp_digest: _Optional[bytes] = ..., coordinator_nonce: _Optional[bytes] = ..., deadline_unix_ms: _Optional[int] = ...) -> None: ...

class Advertise(_message.Message):
    __slots__ = ("config_digest", "cohort_digest", "node_id", "share_pk", "mask_pk", "self_seed_commit")
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COHORT_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SHARE_PK_FIELD_NUMBER: _ClassVar[int]
    MASK_PK_FIELD_NUMBER: _ClassVar[int]
    SELF_SEED_COMMIT_FIELD_NUMBER: _ClassVar[int]
    config_digest: bytes
    cohort_digest: bytes
    node_id: str
    share_pk: bytes
    mask_pk: bytes
    self_seed_commit: bytes
    def __init__(self, config_digest: _Optional[bytes] = ..., cohort_digest: _Optional[bytes] = ..., node_id: _Optional[str] = ..., share_pk: _Optional[bytes] = ..., mask_pk: _Optional[bytes] = ..., self_seed_commit: _Optional[bytes] = ...) -> None: ...

class KeyList(_message.Message):
    __slots__ = ("advertise",)
    ADVERTISE_FIELD_NUMBER: _ClassVar[int]
    advertise: _containers.RepeatedCompositeFieldContainer[Signed]
    def __init__(self, advertise: _Optional[_Iterable[_Union[Signed, _Mapping]]] = ...) -> None: ...

class EncryptedShares(_message.Message):
    __slots__ = ("transcript1", "ct")
    TRANSCRIPT1_FIELD_NUMBER: _ClassVar[int]
    CT_FIELD_NUMBER: _ClassVar[int]
    transcript1: bytes
    ct: _containers.RepeatedCompositeFieldContainer[ShareCt]
    def __init__(self, transcript1: _Optional[bytes] = ..., ct: _Optional[_Iterable[_Union[ShareCt, _Mapping]]] = ...) -> None: ...

class ShareCt(_message.Message):
    __slots__ = ("to", "ct")
    TO_FIELD_NUMBER: _ClassVar[int]
    CT_FIELD_NUMBER: _ClassVar[int]
    to: str
    ct: bytes
    def __init__(self, to: _Optional[str] = ..., ct: _Optional[bytes] = ...) -> None: ...

class Inbox(_message.Message):
    __slots__ = ("u2",)
    IN_FIELD_NUMBER: _ClassVar[int]
    U2_FIELD_NUMBER: _ClassVar[int]
    u2: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, u2: _Optional[_Iterable[str]] = ..., **kwargs) -> None: ...

class ShareIn(_message.Message):
    __slots__ = ("ct",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    CT_FIELD_NUMBER: _ClassVar[int]
    ct: bytes
    def __init__(self, ct: _Optional[bytes] = ..., **kwargs) -> None: ...

class MaskedChunk(_message.Message):
    __slots__ = ("transcript1", "stream", "offset", "data")
    TRANSCRIPT1_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    transcript1: bytes
    stream: int
    offset: int
    data: bytes
    def __init__(self, transcript1: _Optional[bytes] = ..., stream: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class MaskedDone(_message.Message):
    __slots__ = ("transcript1", "stream_sha256")
    TRANSCRIPT1_FIELD_NUMBER: _ClassVar[int]
    STREAM_SHA256_FIELD_NUMBER: _ClassVar[int]
    transcript1: bytes
    stream_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, transcript1: _Optional[bytes] = ..., stream_sha256: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Survivors(_message.Message):
    __slots__ = ("u3", "vector_digests")
    U3_FIELD_NUMBER: _ClassVar[int]
    VECTOR_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    u3: _containers.RepeatedScalarFieldContainer[str]
    vector_digests: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, u3: _Optional[_Iterable[str]] = ..., vector_digests: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Consistency(_message.Message):
    __slots__ = ("transcript3",)
    TRANSCRIPT3_FIELD_NUMBER: _ClassVar[int]
    transcript3: bytes
    def __init__(self, transcript3: _Optional[bytes] = ...) -> None: ...

class ConsistencySet(_message.Message):
    __slots__ = ("consistency",)
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    consistency: _containers.RepeatedCompositeFieldContainer[Signed]
    def __init__(self, consistency: _Optional[_Iterable[_Union[Signed, _Mapping]]] = ...) -> None: ...

class UnmaskShares(_message.Message):
    __slots__ = ("transcript3", "item")
    TRANSCRIPT3_FIELD_NUMBER: _ClassVar[int]
    ITEM_FIELD_NUMBER: _ClassVar[int]
    transcript3: bytes
    item: _containers.RepeatedCompositeFieldContainer[Share]
    def __init__(self, transcript3: _Optional[bytes] = ..., item: _Optional[_Iterable[_Union[Share, _Mapping]]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("owner", "self_seed", "mask_sk")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    SELF_SEED_FIELD_NUMBER: _ClassVar[int]
    MASK_SK_FIELD_NUMBER: _ClassVar[int]
    owner: str
    self_seed: bytes
    mask_sk: bytes
    def __init__(self, owner: _Optional[str] = ..., self_seed: _Optional[bytes] = ..., mask_sk: _Optional[bytes] = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("transcript3", "sum_sha256", "u3", "next_state_digest", "round", "purpose")
    TRANSCRIPT3_FIELD_NUMBER: _ClassVar[int]
    SUM_SHA256_FIELD_NUMBER: _ClassVar[int]
    U3_FIELD_NUMBER: _ClassVar[int]
    NEXT_STATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    transcript3: bytes
    sum_sha256: _containers.RepeatedScalarFieldContainer[bytes]
    u3: _containers.RepeatedScalarFieldContainer[str]
    next_state_digest: bytes
    round: int
    purpose: str
    def __init__(self, transcript3: _Optional[bytes] = ..., sum_sha256: _Optional[_Iterable[bytes]] = ..., u3: _Optional[_Iterable[str]] = ..., next_state_digest: _Optional[bytes] = ..., round: _Optional[int] = ..., purpose: _Optional[str] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("transcript", "code", "detail", "peer")
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    transcript: bytes
    code: AbortCode
    detail: str
    peer: str
    def __init__(self, transcript: _Optional[bytes] = ..., code: _Optional[_Union[AbortCode, str]] = ..., detail: _Optional[str] = ..., peer: _Optional[str] = ...) -> None: ...
