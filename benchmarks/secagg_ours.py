"""One masked sum by ``fedsecure.secagg``, and the keystream alone, for ``secagg.py``.

A node's masking is everything from its float32 tensors to the last signed message: quantising, opening shares, key
agreement and key derivation, masks, SHA-256, the messages of the upload.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from secagg_meter import Meter, serve

from fedsecure.crypto.keystream import Mask, Prg, add_masks
from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.secagg.machines.coordinator import SecAggCoordinator
from fedsecure.secagg.machines.memory import MemoryOnly
from fedsecure.secagg.machines.node import SecAggNode, SessionDue
from fedsecure.secagg.machines.session import ephemeral_cohort
from fedsecure.secagg.protocol.messages import SessionConfig
from fedsecure.secagg.values.streams import Stream, derive_streams, flatten, unflatten

QUANTISE, SHARES, MASK = "node quantise", "node shares", "node mask"
ADD, UNMASK, OTHER = "coordinator add", "coordinator unmask", "coordinator other"
#: Bytes of keystream that are asked for at a time: where AES-CTR is fastest.
BARE_BLOCK = 1 << 18
RECORDS = 1000
#: How often the keystream and the bare masks are computed for one figure.
TIMES = 3


def streams_of(elements: int, ring: int, nodes: int) -> tuple[Stream, ...]:
    """Parameters as they are: the 32-bit ring, as Flower's. Multiplied by numbers of records: the 64-bit ring."""
    if ring == 32:
        parameters = TensorSpec("parameters", "float32", (elements,), -1.0, 1.0, "parameters")
        return derive_streams(Schema((parameters,)), prefix="bench.32", nodes=nodes)
    parameters = TensorSpec("parameters", "float32", (elements,), -1e3, 1e3, "parameters times records")
    records = TensorSpec("records", "int64", (), 1, 10**7, "records", role="records")
    return derive_streams(Schema((parameters, records)), prefix="bench.64", nodes=nodes)


def session(request: dict[str, Any]) -> dict[str, Any]:
    """One session of ``nodes`` nodes with ``elements`` float32 each, of which ``dropped`` never upload."""
    names = [f"node-{i:02}" for i in range(request["nodes"])]
    gone, alive = names[: request["dropped"]], names[request["dropped"] :]
    streams = streams_of(request["elements"], request["ring"], len(names))
    manifest, identities = ephemeral_cohort("bench", names)
    config = _config(manifest, streams)
    generator = np.random.default_rng(1)
    drawn = [generator.uniform(-1, 1, request["elements"]).astype(np.float32) for _ in range(min(len(names), 4))]
    values = {name: drawn[i % 4] for i, name in enumerate(names)}
    meter, sent = Meter(request["memory"]), dict.fromkeys(names, 0)
    vectors = _quantised(values, streams, meter)
    nodes = {}
    for name in names:
        due = SessionDue(name, manifest, config.experiment, 0, "update", streams, bytes(32), b"", config.min_survivors)
        nodes[name] = SecAggNode(due, identities[name], vectors[name], MemoryOnly(), now_ms=_now_ms)
    with meter.working(OTHER):
        centre = SecAggCoordinator(config, manifest, streams, names)
    _run(centre, nodes, gone, meter, sent)
    with meter.working(UNMASK):
        sums, found = centre.outcome, {}
        for stream in streams:
            total = sums.vectors[stream.spec.name]
            found |= unflatten(stream, total, contributors=len(alive), nodes=len(names))[0]
    meter.close()
    error = np.abs(found["parameters"] - np.sum([values[name] for name in alive], axis=0, dtype=np.float64)).max()
    if sorted(sums.survivors) != alive or error > len(alive) * max(s.spec.error_bound for s in streams):
        raise SystemExit(f"the sum is wrong by {error}")
    return _figures(meter, len(names), len(alive), max(sent.values()))


def _config(manifest: CohortManifest, streams: tuple[Stream, ...]) -> SessionConfig:
    return SessionConfig(
        experiment="0" * 64, round=0, purpose="update", attempt=0, cohort_digest=manifest.digest,
        state_digest=bytes(32), prev_result=b"", threshold=manifest.threshold.required,
        min_survivors=manifest.threshold.required, prg=Prg.AES_256_CTR, streams=tuple(s.spec for s in streams),
        dp_digest=b"", nonce=os.urandom(32), deadline_ms=_now_ms() + 3_600_000,
    )  # fmt: skip


def _now_ms() -> int:
    return int(time.time() * 1000)


def _quantised(values: dict[str, Any], streams: tuple[Stream, ...], meter: Meter) -> dict[str, dict[str, Any]]:
    """Every node's vectors. Equal ones are kept once, for nodes mask copies."""
    kept: dict[int, dict[str, Any]] = {}
    vectors = {}
    for name, array in values.items():
        summed = {"parameters": array, "records": np.array(RECORDS)}
        meter.forget(QUANTISE)
        with meter.working(QUANTISE):
            flat = {stream.spec.name: flatten(stream, summed, nodes=len(values))[0] for stream in streams}
        vectors[name] = kept.setdefault(id(array), flat)
    return vectors


def _figures(meter: Meter, nodes: int, alive: int, sent: int) -> dict[str, Any]:
    return {
        "quantise": meter.seconds(QUANTISE) / nodes,
        "mask": meter.seconds(MASK) / alive,
        "shares": meter.seconds(SHARES) / nodes,
        "add": meter.seconds(ADD),
        "unmask": meter.seconds(UNMASK),
        "other": meter.seconds(OTHER),
        "bytes_up": sent,
        "node_peak": meter.peak(QUANTISE, MASK),
        "coordinator_peak": meter.peak(ADD, UNMASK, OTHER),
    }


def _run(
    centre: SecAggCoordinator, nodes: dict[str, SecAggNode], gone: list[str], meter: Meter, sent: dict[str, int]
) -> None:
    """Carry messages until the sums are there."""
    while not centre.done:
        leg = centre.leg
        for name in centre.waiting:
            with meter.working(OTHER):
                message = centre.message(name)
            if leg >= 2 and name in gone:
                centre.drop(name, "vanished")
            elif message is not None and leg == 2:
                sent[name] += _upload(centre, name, nodes[name], message, meter)
            elif message is not None:
                with meter.working(SHARES):
                    answer = nodes[name].answer(leg, message)
                sent[name] += len(answer)
                with meter.working(OTHER):
                    centre.receive(name, leg, answer)
        with meter.working(UNMASK if leg == 4 else OTHER):
            centre.advance()


def _upload(centre: SecAggCoordinator, name: str, node: SecAggNode, message: bytes, meter: Meter) -> int:
    meter.forget(MASK)
    with meter.working(MASK):
        masked = node.mask(message)
        chunks = masked.chunks()
    sent = len(masked.done)
    with meter.working(ADD):
        centre.begin_vectors(name)
    while True:
        with meter.working(MASK):
            chunk = next(chunks, None)
        if chunk is None:
            break
        with meter.working(ADD):
            centre.receive_chunk(name, chunk)
        sent += len(chunk)
    with meter.working(ADD):
        centre.receive_done(name, masked.done)
    return sent


def keystream(request: dict[str, Any]) -> dict[str, Any]:
    """The same keystream as a node's masks need, and nothing done with it."""
    due = request["elements"] * request["ring"] // 8
    source, target = memoryview(bytes(BARE_BLOCK)), memoryview(bytearray(BARE_BLOCK))

    def bare(keys: list[bytes]) -> None:
        for key in keys:
            cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
            for at in range(0, due, BARE_BLOCK):
                size = min(BARE_BLOCK, due - at)
                cipher.update_into(source[:size], target[:size])

    return _mean(request["nodes"], bare)


def masks(request: dict[str, Any]) -> dict[str, Any]:
    """A node's masks added to a vector, and nothing else."""
    vector = np.ones(request["elements"], f"<u{request['ring'] // 8}")
    return _mean(request["nodes"], lambda keys: add_masks(vector, [Mask(k, i % 2 == 0) for i, k in enumerate(keys)]))


def _mean(count: int, work: Callable[[list[bytes]], None]) -> dict[str, Any]:
    """Seconds of ``work`` with ``count`` fresh keys, as a mean over several times: a session's are one over nodes."""
    keys = [[os.urandom(32) for _ in range(count)] for _ in range(TIMES)]
    start = time.process_time()
    for some in keys:
        work(some)
    return {"seconds": (time.process_time() - start) / TIMES}


def measure(request: dict[str, Any]) -> dict[str, Any]:
    """By ``what``: session, keystream or masks."""
    return {"session": session, "keystream": keystream, "masks": masks}[request["what"]](request)


if __name__ == "__main__":
    serve(measure)
