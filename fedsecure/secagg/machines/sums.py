"""What the coordinator begins a session with, and what comes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedsecure.errors import CertificateError, ConfigError, SecAggError
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.vectors import little_endian
from fedsecure.secagg.protocol.sessionconfig import SessionConfig
from fedsecure.secagg.values.noise import NoiseSpec, dp_digest
from fedsecure.secagg.values.streams import Stream
from fedsecure.tensors import Array
from fedsecure.text import counted

__all__ = ["Sums", "check_session"]


@dataclass(frozen=True, slots=True)
class Sums:
    """What a session gives. ``vectors``: stream name -> exact sum on the ring (length,). ``survivors``: U3, whose
    vectors are in it. ``transcript3``: T3, 32 bytes. ``dropped``: node -> why it is out; one that left after its
    vector was complete is here as well as in ``survivors``. ``findings``: shares that did not fit, in words."""

    vectors: dict[str, Array] = field(repr=False)
    survivors: tuple[str, ...]
    transcript3: bytes
    dropped: dict[str, str]
    findings: tuple[str, ...]

    @property
    def sum_sha256(self) -> tuple[bytes, ...]:
        """SHA-256 of each stream's sum, little endian, in the session's order: for ``SessionResult``."""
        return tuple(hashlib.sha256(little_endian(vector)).digest() for vector in self.vectors.values())


def check_session(
    config: SessionConfig,
    manifest: CohortManifest,
    streams: Sequence[Stream],
    invited: Sequence[str],
    noises: Sequence[NoiseSpec],
) -> None:
    """Raise ``ConfigError`` unless the five fit one another, ``SecAggError`` TOO_FEW_NODES for too few invited."""
    if config.cohort_digest != manifest.digest or config.threshold != manifest.threshold.required:
        raise ConfigError("secure aggregation: the session's configuration is for another cohort than its manifest")
    if config.streams != tuple(stream.spec for stream in streams):
        raise ConfigError("secure aggregation: the session's configuration has other streams than its exchange")
    if config.dp_digest != dp_digest(noises) or not all(noise.stream in streams for noise in noises):
        raise ConfigError("secure aggregation: the session's configuration is for other noise than its streams have")
    try:
        for node in invited:
            manifest.member(node)
    except CertificateError as error:
        raise ConfigError(str(error), hint=error.hint) from None
    if len(set(invited)) != len(invited):
        raise ConfigError("secure aggregation: a node is invited twice")
    if len(invited) < config.min_survivors:
        few = counted(len(invited), "node")
        raise SecAggError(f"TOO_FEW_NODES: {few} invited where {config.min_survivors} are needed")
