"""Any cohort's sums of any tensors are exact, whoever drops out; no changed byte of a signed manifest goes unseen."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsecure.crypto.signatures import SigningIdentity
from fedsecure.errors import CertificateError, ConfigError
from fedsecure.schema import Schema, TensorSpec
from fedsecure.secagg.cohort.manifest import CohortManifest, parse_manifest
from fedsecure.secagg.values.streams import derive_streams, flatten, unflatten

SHAPES = st.sampled_from([(), (1,), (3,), (2, 2), (0,)])


@st.composite
def sums(draw):
    """A schema with counts or without, the cohort's size, and what each survivor contributes."""
    nodes = draw(st.integers(3, 12))
    most = draw(st.sampled_from([1, 1000, 10_000_000]))
    specs = [TensorSpec("n", "int64", (1,), 0, most, "n", "records")]
    for index in range(draw(st.integers(1, 4))):
        bound = draw(st.sampled_from([0.125, 1.0, 20.0, 1e3])) * most
        dtype = draw(st.sampled_from(["float32", "float64", "int64"]))
        specs.append(TensorSpec(f"t{index}", dtype, draw(SHAPES), -max(1, int(bound)), max(1, int(bound)), "t"))
    survivors = draw(st.integers(1, nodes))
    seed = draw(st.integers(0, 2**32 - 1))
    return Schema(summed=tuple(specs)), nodes, survivors, seed


@given(sums())
@settings(max_examples=80, deadline=None)
def test_any_sum_is_exact_and_read_back_in_its_place(case):
    schema, nodes, survivors, seed = case
    rng = np.random.default_rng(seed)
    contributions = [
        {
            s.name: (
                rng.integers(int(s.low), int(s.high), s.shape, endpoint=True)
                if s.dtype == "int64"
                else np.asarray(rng.uniform(s.low, s.high, s.shape))
            ).astype(s.dtype)
            for s in schema.summed
        }
        for _ in range(survivors)
    ]
    seen = set()
    for stream in derive_streams(schema, prefix="m", nodes=nodes):
        vectors = [flatten(stream, c, nodes=nodes)[0] for c in contributions]
        summed, clipped = unflatten(stream, np.add.reduce(vectors), contributors=survivors, nodes=nodes)
        assert clipped == 0
        bits = stream.spec.frac_bits
        for place in stream.places:
            seen.add(place.name)
            for at in np.ndindex(place.shape):
                column = [Fraction(c[place.name][at].item()) for c in contributions]
                whole = sum(round(v * 2**bits) for v in column)
                assert summed[place.name][at] == float(Fraction(whole, 2**bits))
                assert abs(Fraction(whole, 2**bits) - sum(column)) <= Fraction(survivors, 2 ** (bits + 1))
    assert seen == {s.name for s in schema.summed}


def signed_manifest():
    names = ("a", "b", "c")
    secrets = {n: Ed25519PrivateKey.from_private_bytes(hashlib.sha256(n.encode()).digest()) for n in names}
    identities = {n: SigningIdentity(key) for n, key in secrets.items()}
    manifest = CohortManifest.form("heart", "main", 7, {n: i.public_bytes for n, i in identities.items()})
    for node, identity in identities.items():
        manifest = manifest.signed(node, identity)
    return manifest


MANIFEST = signed_manifest()
FILE = json.dumps(MANIFEST.model_dump(mode="json")).encode()


@given(at=st.integers(0, len(FILE) - 1), byte=st.integers(0, 255))
@settings(max_examples=300, deadline=None)
def test_no_changed_byte_of_a_manifest_goes_unseen(at, byte):
    changed = FILE[:at] + bytes([byte]) + FILE[at + 1 :]
    try:
        parsed = parse_manifest(changed, "relayed")
        parsed.require_signed()
    except (ConfigError, CertificateError):
        return
    assert parsed == MANIFEST
