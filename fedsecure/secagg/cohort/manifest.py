"""The cohort's manifest: which nodes, with which identity keys, may ever be summed together.

The node operators exchange it out of band and each signs its digest; the coordinator relays it and cannot edit it.

    canonical = the JSON of everything but the signatures, keys sorted, no spaces, nodes in order of their ids
    digest    = H("cohort", canonical)
    signature = Ed25519 over LP("fedsecure/secagg/v1/cohort", digest)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from fedsecure.config import NodeId, Settings, canonical_json, named_pattern, validate
from fedsecure.crypto.names import check_federation
from fedsecure.crypto.signatures import SigningIdentity, identity_fingerprint
from fedsecure.crypto.transcripts import check_signature, sign_payload, transcript_hash
from fedsecure.errors import CertificateError, ConfigError, SecAggError
from fedsecure.files import PUBLIC_FILE, faults, shown, write_durably
from fedsecure.secagg.cohort.threshold import MAX_NODES, MIN_NODES, Threshold

__all__ = ["MAX_MANIFEST_BYTES", "CohortManifest", "Member", "parse_manifest", "read_manifest", "write_manifest"]

#: No manifest of ours comes near this size (bytes).
MAX_MANIFEST_BYTES = 128 << 10
_LABEL = "cohort"


def _federation(name: str) -> str:
    try:
        check_federation(name)
    except ConfigError as error:
        raise ValueError(str(error)) from None
    return name


def _hex(digits: int, what: str) -> str:
    return named_pattern(rf"^[0-9a-f]{{{digits}}}$", f"{what}: {digits} lower-case hexadecimal digits")


_Key = Annotated[str, Field(pattern=_hex(64, "a public key"))]
_Signature = Annotated[str, Field(pattern=_hex(128, "a signature"))]
_CohortName = Annotated[
    str,
    Field(
        pattern=named_pattern(
            r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
            "a cohort's name: lower-case letters, digits and inner hyphens, at most 63",
        )
    ),
]


class Member(Settings):
    """A node and its Ed25519 public identity key, as 64 hexadecimal digits."""

    node: NodeId
    key: _Key

    @property
    def public_bytes(self) -> bytes:
        """The key's 32 bytes."""
        return bytes.fromhex(self.key)

    @property
    def fingerprint(self) -> str:
        """``SHA256:ab:cd…`` of the key: what operators compare by another way than the coordinator."""
        return identity_fingerprint(self.public_bytes)


class CohortManifest(Settings):
    """The whole file. ``version`` rises with every change of the cohort. ``signatures``: node id -> signature.

    Invalid: fewer than 3 or more than 64 nodes, nodes that are not in order of their ids, a node or a key twice, a
    signature of a node that is not in it. Signatures are unchecked until ``missing_signatures`` or ``require_signed``.
    """

    format: Literal[1]
    federation: Annotated[str, AfterValidator(_federation)]
    cohort: _CohortName
    version: int = Field(ge=1, le=2**31 - 1)
    nodes: tuple[Member, ...] = Field(min_length=MIN_NODES, max_length=MAX_NODES)
    signatures: dict[NodeId, _Signature] = Field({}, max_length=MAX_NODES)

    @model_validator(mode="after")
    def _consistent(self) -> CohortManifest:
        ids, keys = [m.node for m in self.nodes], [m.key for m in self.nodes]
        for values, what in ((ids, "node"), (keys, "key")):
            if twice := sorted({value for value in values if values.count(value) > 1}):
                raise ValueError(f"{what} {twice[0]} is there twice")
        if ids != sorted(ids):
            raise ValueError("the nodes are not in order of their ids")
        if strangers := sorted(set(self.signatures) - set(ids)):
            raise ValueError(f"a signature of {strangers[0]}, which is not in the cohort")
        return self

    @classmethod
    def form(cls, federation: str, cohort: str, version: int, keys: Mapping[str, bytes]) -> CohortManifest:
        """An unsigned manifest of nodes and their public keys (32 bytes each). Raises ``ConfigError``."""
        nodes = [{"node": node, "key": keys[node].hex()} for node in sorted(keys)]
        raw = {"format": 1, "federation": federation, "cohort": cohort, "version": version, "nodes": nodes}
        return validate(cls, raw, f"cohort {cohort}")

    def canonical(self) -> bytes:
        """The bytes that the digest is of: everything but the signatures."""
        return canonical_json(self, exclude={"signatures"})

    @property
    def digest(self) -> bytes:
        """H("cohort", canonical), 32 bytes: what is signed, pinned at a node, and bound into every session."""
        return transcript_hash("cohort", self.canonical())

    @property
    def threshold(self) -> Threshold:
        """t and what it withstands, from the number of nodes here."""
        return Threshold(len(self.nodes))

    def member(self, node: str) -> Member:
        """The entry of ``node``. Raises ``CertificateError`` when it has none."""
        found = next((m for m in self.nodes if m.node == node), None)
        if found is None:
            raise CertificateError(
                f"cohort {self.cohort}: node {node[:63]!r} is not in version {self.version} of its manifest",
                hint="the node operators must agree on a manifest that names it, and sign that",
            )
        return found

    def index(self, node: str) -> int:
        """The place of ``node`` in order, from 1: the x of its Shamir shares. Raises ``CertificateError``."""
        return self.nodes.index(self.member(node)) + 1

    def signed(self, node: str, identity: SigningIdentity) -> CohortManifest:
        """With the signature of ``node``, by its own identity key. Raises ``CertificateError`` for another key."""
        if identity.public_bytes != self.member(node).public_bytes:
            raise CertificateError(
                f"cohort {self.cohort}: node {node} has the identity key {identity.fingerprint}, but the manifest "
                f"names {self.member(node).fingerprint}",
                hint="do not sign it; a manifest with the right key is due",
            )
        signature = sign_payload(identity, _LABEL, self.digest).hex()
        return self._with({node: signature})

    def merged(self, other: CohortManifest) -> CohortManifest:
        """With the signatures of another copy as well. Raises ``CertificateError`` when it is of another content, or
        one of its signatures is not of its node."""
        if other.digest != self.digest:
            raise CertificateError(
                f"cohort {self.cohort}: the two copies of the manifest differ in more than signatures",
                hint="compare nodes, fingerprints and version; operators must sign the same manifest",
            )
        other.missing_signatures()
        return self._with(other.signatures)

    def missing_signatures(self) -> tuple[str, ...]:
        """The nodes that have not signed, in order. Raises ``CertificateError`` naming a node with a bad signature."""
        digest = self.digest
        for member in self.nodes:
            signature = self.signatures.get(member.node)
            if signature is None:
                continue
            try:
                check_signature(member.public_bytes, _LABEL, digest, bytes.fromhex(signature), member.node)
            except SecAggError:
                raise CertificateError(
                    f"cohort {self.cohort}: the signature of node {member.node} is not by its key over this manifest",
                    hint="the manifest was changed after it was signed, or names another key",
                ) from None
        return tuple(m.node for m in self.nodes if m.node not in self.signatures)

    def require_signed(self) -> None:
        """Return when every node has signed. Raises ``CertificateError`` naming those who have not, or a bad one."""
        if missing := self.missing_signatures():
            raise CertificateError(
                f"cohort {self.cohort}: not signed by {', '.join(missing)}",
                hint="every node operator must sign the manifest before its cohort may be summed",
            )

    def _with(self, signatures: Mapping[str, str]) -> CohortManifest:
        return self.model_copy(update={"signatures": {**self.signatures, **signatures}})


def parse_manifest(data: bytes, where: str) -> CohortManifest:
    """The manifest in ``data`` (JSON); ``where`` names it in messages. Raises ``ConfigError`` with every fault."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise ConfigError(f"{where}: larger than {MAX_MANIFEST_BYTES} bytes, so not a cohort's manifest")
    _require_single_keys(data, where)
    return validate(CohortManifest, data, where)


def _require_single_keys(data: bytes, where: str) -> None:
    """Raise ``ConfigError`` for an object with a key twice: two readers could take it for two manifests. What is no
    JSON is left to others."""
    twice: list[str] = []

    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        keys = [key for key, _ in found]
        twice.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(found)

    try:
        json.loads(data, object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return
    if twice:
        raise ConfigError(f"{where}: {twice[0][:63]!r} is there twice", hint="ask for the manifest as it was signed")


def read_manifest(path: Path) -> CohortManifest:
    """The manifest at ``path``, its signatures unchecked. Raises ``ConfigError``: missing, unreadable, or wrong."""
    with faults(path, "read", ConfigError), path.open("rb") as file:
        data = file.read(MAX_MANIFEST_BYTES + 1)
    return parse_manifest(data, shown(path))


def write_manifest(path: Path, manifest: CohortManifest) -> None:
    """Write or replace ``path`` (mode 0644), durably, one entry a line for people who compare copies."""
    text = json.dumps(manifest.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"
    write_durably(path, text.encode(), mode=PUBLIC_FILE)
