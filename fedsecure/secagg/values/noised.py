"""A contribution with this node's noise on: drawn once, kept in place of what it was, and summed as it is.

Fresh noise on the same values would average out over sessions, so a session never draws any. The noise is added where
a contribution is prepared, before it is stored; what is stored are these vectors, and the values without noise are
gone. Every session of that contribution, the first and those after a failure, reads the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsecure.crypto.transcripts import DIGEST_BYTES
from fedsecure.errors import ConfigError, DataError, LocalProtocolError, SecAggError
from fedsecure.secagg.values.fixedpoint import ring_dtype
from fedsecure.secagg.values.noise import NoiseSpec, add_noise, by_stream, dp_digest
from fedsecure.secagg.values.spec import MAX_STREAMS
from fedsecure.secagg.values.streams import Stream
from fedsecure.tensors import Array, Tensors

__all__ = ["NoisedVectors", "check_noised"]

#: The description in front of the vectors is never longer (bytes).
MAX_ABOUT_BYTES = 16 << 10
_FORMAT = 1


class NoisedVectors(Mapping[str, Array]):
    """Stream name -> ring vector (length,), read-only, with noise where it is due. ``about``: (experiment, purpose,
    round) of the contribution. ``dp_digest``: of the noise. Made by ``draw``, or read back by ``from_bytes``."""

    __slots__ = ("_vectors", "about", "dp_digest")

    def __init__(self, vectors: Mapping[str, Array], about: tuple[str, str, int], digest: bytes) -> None:
        self._vectors, self.about, self.dp_digest = dict(vectors), about, digest
        for vector in self._vectors.values():
            vector.flags.writeable = False

    @classmethod
    def draw(
        cls,
        vectors: Mapping[str, Array],
        streams: Sequence[Stream],
        noises: Sequence[NoiseSpec],
        *,
        experiment: str,
        purpose: str,
        round_: int,
    ) -> NoisedVectors:
        """Add this node's noise to ``vectors`` (as ``flatten`` gives them), in place: no copy without noise is left.

        ``streams``: all of the session; those that ``noises`` name are noised, and are the ones it was fitted to. Call
        it once for a contribution and store ``to_bytes()`` before anything leaves. Raises ``ConfigError`` before
        anything is drawn.
        """
        wanted, found = {stream.spec.name: stream for stream in streams}, by_stream(noises)
        if not found or set(vectors) != set(wanted):
            raise ConfigError("noise: none is given, or the vectors are not those of the streams")
        for name, noise in found.items():
            if wanted.get(name) != noise.stream:
                raise ConfigError(
                    f"noise of stream {name}: the session has no such stream, or with another layout, range or fraction"
                )
        for name, stream in wanted.items():
            _check_vector(vectors[name], stream, writeable=name in found)
        for name, noise in found.items():
            add_noise(vectors[name], noise)
        return cls(vectors, (experiment, purpose, round_), dp_digest(noises))

    def to_bytes(self) -> bytes:
        """For the store: the length of the description in four bytes, the description (JSON), the vectors."""
        experiment, purpose, round_ = self.about
        about = {"format": _FORMAT, "experiment": experiment, "purpose": purpose, "round": round_}
        about |= {"dp_digest": self.dp_digest.hex(), "streams": sorted(self._vectors)}
        text = json.dumps(about, sort_keys=True).encode()
        arrays = Tensors({str(index): self._vectors[name] for index, name in enumerate(sorted(self._vectors))})
        return len(text).to_bytes(4, "big") + text + arrays.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> NoisedVectors:
        """Read back what ``to_bytes`` gave. Raises ``SecAggError`` BAD_VECTOR when it is damaged."""
        try:
            vectors, about = _parse(data)
        except (ValueError, KeyError, DataError, RecursionError):
            raise SecAggError(
                "BAD_VECTOR: stored vectors with noise are damaged",
                hint="restore the store from a copy; noise is never drawn a second time for a contribution",
            ) from None
        digest = bytes.fromhex(about["dp_digest"])
        return cls(vectors, (about["experiment"], about["purpose"], about["round"]), digest)

    def __getitem__(self, name: str) -> Array:
        return self._vectors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        _, purpose, round_ = self.about
        return f"NoisedVectors({purpose}, round {round_ + 1}, {len(self)} streams)"


def check_noised(vectors: Mapping[str, Array], about: tuple[str, str, int], digest: bytes) -> None:
    """Raise ``LocalProtocolError`` unless ``vectors`` may go into a session about (experiment, purpose, round) with
    the ``dp_digest`` given: plain ones where it is empty, else those that ``draw`` made for it."""
    if not isinstance(vectors, NoisedVectors):
        if digest:
            raise LocalProtocolError(
                "a session with noise is due, but the vectors are not those that noise was drawn for",
                hint="store NoisedVectors.draw(…) with the contribution; a session draws none",
            )
        return
    if vectors.dp_digest != digest:
        raise LocalProtocolError("the noise of this contribution is not the noise that is due in the session")
    if vectors.about != about:
        _, purpose, round_ = vectors.about
        where = f"{purpose} in round {round_ + 1}"
        raise LocalProtocolError(f"the vectors with noise are of {where}, or of another experiment")


def _check_vector(vector: Array, stream: Stream, *, writeable: bool) -> None:
    spec = stream.spec
    fits = vector.dtype == ring_dtype(spec.ring_bits) and vector.shape == (spec.length,)
    if not fits or (writeable and not vector.flags.writeable):
        raise ConfigError(f"stream {spec.name}: {vector.dtype}{list(vector.shape)} is not its vector, or is read-only")


def _parse(data: bytes) -> tuple[dict[str, Array], dict[str, Any]]:
    """The vectors and the description in ``data``. Raises ``ValueError``, ``KeyError``, ``DataError``."""
    size = int.from_bytes(data[:4], "big")
    if not 0 < size <= MAX_ABOUT_BYTES:
        raise ValueError("its description is too long")
    about = _about(json.loads(data[4 : 4 + size]))
    arrays = Tensors.from_bytes(data[4 + size :])
    if len(arrays) != len(about["streams"]):
        raise ValueError("its vectors are not those it names")
    return {name: arrays[str(index)] for index, name in enumerate(about["streams"])}, about


def _about(about: Any) -> dict[str, Any]:
    """``about`` when it is a description that ``to_bytes`` writes. Raises ``ValueError``, ``KeyError``."""
    if not isinstance(about, dict) or about["format"] != _FORMAT or len(about) != 6:
        raise ValueError("not a description")
    names = about["streams"]
    texts = isinstance(names, list) and all(isinstance(n, str) for n in (*names, about["experiment"], about["purpose"]))
    if not texts or not 1 <= len(names) <= MAX_STREAMS or len(set(names)) != len(names):
        raise ValueError("malformed names")
    if type(about["round"]) is not int or len(bytes.fromhex(about["dp_digest"])) != DIGEST_BYTES:
        raise ValueError("malformed numbers")
    return about
