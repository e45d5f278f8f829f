"""What the log says of a contribution whose summed half leaves inside a masked sum alone."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.cohort.threshold import Threshold
from fedsecure.secagg.values.noise import NoiseSpec, dp_digest
from fedsecure.secagg.values.streams import Stream
from fedsecure.secagg.values.words import coordinator_learns, noise_words
from fedsecure.tensors import Tensors
from fedsecure.wire.codec import Payload

__all__ = ["MaskedSum", "kept_digest", "leaving", "leaving_bytes"]


@dataclass(frozen=True, slots=True)
class MaskedSum:
    """The masks of one exchange: the cohort as it is pinned at this node, and the streams that its plan gives.

    ``method``: as plans name it. ``streams``: at least one. ``min_nodes``: the fewest of a sum by plan and policy.
    ``noises``: what every node adds to its vectors of some streams before they are stored.
    """

    manifest: CohortManifest
    streams: tuple[Stream, ...]
    method: str
    min_nodes: int
    noises: tuple[NoiseSpec, ...] = ()

    @property
    def dp_digest(self) -> bytes:
        """Of the noise; empty where there is none."""
        return dp_digest(self.noises)

    @property
    def cohort(self) -> str:
        """The cohort's digest, as 64 hexadecimal digits: what an exchange names it by."""
        return self.manifest.digest.hex()

    @property
    def nodes(self) -> int:
        """N, the nodes of the cohort."""
        return len(self.manifest.nodes)

    @property
    def limits(self) -> Threshold:
        """How many of the cohort a sum needs, by the manifest and by ``min_nodes``."""
        return Threshold(self.nodes, self.min_nodes)

    @property
    def least(self) -> int:
        """The fewest nodes whose sum this node helps to unmask: t, or ``min_nodes`` where that is more."""
        return self.limits.least

    @property
    def words(self) -> str:
        """``a masked sum of at least 4 of 5 nodes``."""
        return f"a masked sum of at least {self.least} of {self.nodes} nodes"

    def to_json(self, whole: Payload, broadcast: str = "") -> dict[str, Any]:
        """The ``secagg`` object of a release's record. ``whole``: both halves, of which the summed one stays here as it
        is; ``kept`` names the file of both in the store. ``broadcast``: SHA-256 of what they were made from."""
        return {
            "cohort": {
                "name": self.manifest.cohort,
                "version": self.manifest.version,
                "digest": self.cohort,
                "nodes": [member.node for member in self.manifest.nodes],
                "threshold": self.limits.required,
            },
            "least": self.least,
            "streams": [_stream(stream) for stream in self.streams],
            "broadcast": broadcast,
            "summed": {"sha256": hashlib.sha256(whole.summed).hexdigest(), "bytes": len(whole.summed)},
            "kept": whole.digest(),
            "learns": [*coordinator_learns(self.method, self.streams, self.limits), *map(noise_words, self.noises)],
            **({"noise": [_noise(noise) for noise in self.noises]} if self.noises else {}),
        }


def _stream(stream: Stream) -> dict[str, Any]:
    spec = stream.spec
    return {
        "name": spec.name,
        "length": spec.length,
        "ring_bits": spec.ring_bits,
        "frac_bits": spec.frac_bits,
        "clip_abs": spec.clip_abs,
        "max_count": spec.max_count,
        "bytes": spec.nbytes,
    }


def _noise(noise: NoiseSpec) -> dict[str, Any]:
    """``share_std``: standard deviation of what this node adds, in units of a record's most."""
    unit = float(noise.record_clip) * 2**noise.stream.spec.frac_bits
    return {
        "stream": noise.name,
        "sigma": float(noise.sigma),
        "nodes": noise.nodes,
        "colluders": noise.colluders,
        "share_std": math.sqrt(noise.variance) / unit,
    }


def leaving(whole: Payload, masks: MaskedSum | None) -> Payload:
    """What is uploaded of a contribution: all of it, or, under ``masks``, its released half beside no summed tensor."""
    return whole if masks is None else Payload(Tensors().to_bytes(), whole.released)


def kept_digest(body: Any) -> str:
    """SHA-256 of the file in the store that holds all tensors of a release, from its record's own fields."""
    return str(body["secagg"]["kept"] if "secagg" in body else body["payload"]["sha256"])


def leaving_bytes(whole: Payload, masks: MaskedSum | None) -> int:
    """Bytes that leave of a contribution: what is uploaded, and, under ``masks``, the vectors of one session."""
    return len(leaving(whole, masks).data) + (sum(s.spec.nbytes for s in masks.streams) if masks is not None else 0)
