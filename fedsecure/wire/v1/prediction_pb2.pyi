from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HelloAnalystRequest(_message.Message):
    __slots__ = ("analyst_id", "version", "protocol", "unix_ms")
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    analyst_id: str
    version: str
    protocol: int
    unix_ms: int
    def __init__(self, analyst_id: _Optional[str] = ..., version: _Optional[str] = ..., protocol: _Optional[int] = ..., unix_ms: _Optional[int] = ...) -> None: ...

class HelloAnalystReply(_message.Message):
    __slots__ = ("federation", "version", "protocol", "unix_ms", "max_wait_ms", "max_query_bytes")
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUERY_BYTES_FIELD_NUMBER: _ClassVar[int]
    federation: str
    version: str
    protocol: int
    unix_ms: int
    max_wait_ms: int
    max_query_bytes: int
    def __init__(self, federation: _Optional[str] = ..., version: _Optional[str] = ..., protocol: _Optional[int] = ..., unix_ms: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_query_bytes: _Optional[int] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("analyst_id",)
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    analyst_id: str
    def __init__(self, analyst_id: _Optional[str] = ...) -> None: ...

class ListModelsReply(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ServedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[ServedModel, _Mapping]]] = ...) -> None: ...

class ServedModel(_message.Message):
    __slots__ = ("plan_digest", "canonical", "routing_digest", "routing_bytes", "nodes")
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CANONICAL_FIELD_NUMBER: _ClassVar[int]
    ROUTING_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROUTING_BYTES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    plan_digest: str
    canonical: bytes
    routing_digest: str
    routing_bytes: int
    nodes: _containers.RepeatedCompositeFieldContainer[ServingNode]
    def __init__(self, plan_digest: _Optional[str] = ..., canonical: _Optional[bytes] = ..., routing_digest: _Optional[str] = ..., routing_bytes: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[ServingNode, _Mapping]]] = ...) -> None: ...

class ServingNode(_message.Message):
    __slots__ = ("node_id", "reachable", "key")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    REACHABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    reachable: bool
    key: SignedStatement
    def __init__(self, node_id: _Optional[str] = ..., reachable: _Optional[bool] = ..., key: _Optional[_Union[SignedStatement, _Mapping]] = ...) -> None: ...

class SignedStatement(_message.Message):
    __slots__ = ("label", "body", "certificate", "signature")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    label: str
    body: bytes
    certificate: bytes
    signature: bytes
    def __init__(self, label: _Optional[str] = ..., body: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class NodeKey(_message.Message):
    __slots__ = ("federation", "node_id", "public", "not_after_unix_ms")
    FEDERATION_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_FIELD_NUMBER: _ClassVar[int]
    NOT_AFTER_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    federation: str
    node_id: str
    public: bytes
    not_after_unix_ms: int
    def __init__(self, federation: _Optional[str] = ..., node_id: _Optional[str] = ..., public: _Optional[bytes] = ..., not_after_unix_ms: _Optional[int] = ...) -> None: ...

class DownloadRoutingRequest(_message.Message):
    __slots__ = ("analyst_id", "plan_digest", "offset")
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    analyst_id: str
    plan_digest: str
    offset: int
    def __init__(self, analyst_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class RoutingChunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class AskSealedRequest(_message.Message):
    __slots__ = ("analyst_id", "plan_digest", "node_id", "sealed", "wait_ms")
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    analyst_id: str
    plan_digest: str
    node_id: str
    sealed: bytes
    wait_ms: int
    def __init__(self, analyst_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., node_id: _Optional[str] = ..., sealed: _Optional[bytes] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AskSealedReply(_message.Message):
    __slots__ = ("sealed",)
    SEALED_FIELD_NUMBER: _ClassVar[int]
    sealed: bytes
    def __init__(self, sealed: _Optional[bytes] = ...) -> None: ...

class AskPlainRequest(_message.Message):
    __slots__ = ("analyst_id", "plan_digest", "query", "rank", "scores", "wait_ms")
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    analyst_id: str
    plan_digest: str
    query: SignedStatement
    rank: int
    scores: bool
    wait_ms: int
    def __init__(self, analyst_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., query: _Optional[_Union[SignedStatement, _Mapping]] = ..., rank: _Optional[int] = ..., scores: _Optional[bool] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class AskPlainReply(_message.Message):
    __slots__ = ("node_id", "answer", "nodes", "scores")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    answer: SignedStatement
    nodes: _containers.RepeatedScalarFieldContainer[str]
    scores: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, node_id: _Optional[str] = ..., answer: _Optional[_Union[SignedStatement, _Mapping]] = ..., nodes: _Optional[_Iterable[str]] = ..., scores: _Optional[_Iterable[float]] = ...) -> None: ...

class Query(_message.Message):
    __slots__ = ("plan_digest", "node_id", "analyst_id", "nonce", "unix_ms", "reply_key", "records", "padding")
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    REPLY_KEY_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    plan_digest: str
    node_id: str
    analyst_id: str
    nonce: bytes
    unix_ms: int
    reply_key: bytes
    records: bytes
    padding: bytes
    def __init__(self, plan_digest: _Optional[str] = ..., node_id: _Optional[str] = ..., analyst_id: _Optional[str] = ..., nonce: _Optional[bytes] = ..., unix_ms: _Optional[int] = ..., reply_key: _Optional[bytes] = ..., records: _Optional[bytes] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("prediction", "refusal", "padding")
    PREDICTION_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    prediction: PredictionBody
    refusal: Refusal
    padding: bytes
    def __init__(self, prediction: _Optional[_Union[PredictionBody, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class PlainAnswer(_message.Message):
    __slots__ = ("query_digest", "outcome")
    QUERY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    query_digest: str
    outcome: Outcome
    def __init__(self, query_digest: _Optional[str] = ..., outcome: _Optional[_Union[Outcome, _Mapping]] = ...) -> None: ...

class PredictionBody(_message.Message):
    __slots__ = ("node_id", "query_digest", "tensors")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    query_digest: str
    tensors: bytes
    def __init__(self, node_id: _Optional[str] = ..., query_digest: _Optional[str] = ..., tensors: _Optional[bytes] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("error", "message", "hint")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    error: str
    message: str
    hint: str
    def __init__(self, error: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class ServeRequest(_message.Message):
    __slots__ = ("node_id", "plan_digests", "key")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    plan_digests: _containers.RepeatedScalarFieldContainer[str]
    key: SignedStatement
    def __init__(self, node_id: _Optional[str] = ..., plan_digests: _Optional[_Iterable[str]] = ..., key: _Optional[_Union[SignedStatement, _Mapping]] = ...) -> None: ...

class ServeReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class NextQueryRequest(_message.Message):
    __slots__ = ("node_id", "wait_ms")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    wait_ms: int
    def __init__(self, node_id: _Optional[str] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class NextQueryReply(_message.Message):
    __slots__ = ("none", "query")
    NONE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    none: NoQuery
    query: RelayedQuery
    def __init__(self, none: _Optional[_Union[NoQuery, _Mapping]] = ..., query: _Optional[_Union[RelayedQuery, _Mapping]] = ...) -> None: ...

class NoQuery(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RelayedQuery(_message.Message):
    __slots__ = ("query_id", "plan_digest", "analyst_id", "sealed", "plain", "deadline_unix_ms")
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANALYST_ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_UNIX_MS_FIELD_NUMBER: _ClassVar[int]
    query_id: str
    plan_digest: str
    analyst_id: str
    sealed: bytes
    plain: SignedStatement
    deadline_unix_ms: int
    def __init__(self, query_id: _Optional[str] = ..., plan_digest: _Optional[str] = ..., analyst_id: _Optional[str] = ..., sealed: _Optional[bytes] = ..., plain: _Optional[_Union[SignedStatement, _Mapping]] = ..., deadline_unix_ms: _Optional[int] = ...) -> None: ...

class AnswerRequest(_message.Message):
    __slots__ = ("node_id", "query_id", "sealed", "signed", "refusal")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    SIGNED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    query_id: str
    sealed: bytes
    signed: SignedStatement
    refusal: Refusal
    def __init__(self, node_id: _Optional[str] = ..., query_id: _Optional[str] = ..., sealed: _Optional[bytes] = ..., signed: _Optional[_Union[SignedStatement, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class AnswerReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
