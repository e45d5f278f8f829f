"""Writes ``secagg_encoding.json``: hashes, the cohort's manifest, transcripts, the announcement of a sum and fixed
point of secure aggregation, computed without the library under test.

Run it as ``python make_secagg_encoding.py > secagg_encoding.json``. Signatures are those of
``make_identity_signatures.py``, which writes Ed25519 out from RFC 8032; fixed point is done in fractions.
"""

import hashlib
import json
import struct
import sys
from fractions import Fraction

from make_identity_signatures import sign

PREFIX = b"fedsecure/secagg/v1/"


def lp(*items):
    """Each item after its length in four big-endian bytes."""
    return b"".join(struct.pack(">I", len(item)) + item for item in items)


def hashed(label, *items):
    """H(label, items)."""
    return hashlib.sha256(lp(PREFIX + label.encode(), *items)).digest()


def manifest():
    """Three nodes whose secret keys are SHA-256 of their names; all signatures."""
    secrets = {name: hashlib.sha256(name.encode()).digest() for name in ("charite", "leiden", "turin-2")}
    keys = {name: sign(secret, b"")[0].hex() for name, secret in secrets.items()}
    nodes = ",".join(f'{{"key":"{keys[name]}","node":"{name}"}}' for name in sorted(keys))
    canonical = f'{{"cohort":"cardiology","federation":"heart.example","format":1,"nodes":[{nodes}],"version":3}}'
    digest = hashed("cohort", canonical.encode())
    signed = lp(PREFIX + b"cohort", digest)
    return {
        "secrets": {name: secret.hex() for name, secret in secrets.items()},
        "keys": keys,
        "canonical": canonical,
        "digest": digest.hex(),
        "signatures": {name: sign(secret, signed)[1].hex() for name, secret in secrets.items()},
    }


def transcripts(cohort):
    """Config digest, T1, two vector digests and T3 of a session of three, of whom two upload."""
    config = b"\x0a\x03run\x10\x05"
    advertised = {"turin-2": b"advertise of turin-2", "charite": b"advertise of charite", "leiden": b""}
    config_digest = hashed("config", config)
    t1 = hashed("u1", config_digest, cohort, *(advertised[name] for name in sorted(advertised)))
    streams = {
        name: [hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(2)] for name in ("turin-2", "leiden")
    }
    vectors = {name: hashed("vector", *digests) for name, digests in streams.items()}
    u2, u3 = sorted(advertised), sorted(vectors)
    t3 = hashed("u3", t1, lp(*(n.encode() for n in u2)), lp(*(n.encode() for n in u3)), lp(*(vectors[n] for n in u3)))
    return {
        "config": config.hex(),
        "config_digest": config_digest.hex(),
        "cohort_digest": cohort.hex(),
        "advertised": {name: payload.hex() for name, payload in advertised.items()},
        "t1": t1.hex(),
        "streams": {name: [d.hex() for d in digests] for name, digests in streams.items()},
        "vectors": {name: digest.hex() for name, digest in vectors.items()},
        "shared": list(advertised),
        "t3": t3.hex(),
    }


def varint(number):
    """Protocol buffers' base-128 integer: seven bits a byte, the lowest first."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def part(field, item):
    """A field of bytes or text, or of a number, as protocol buffers write it."""
    if isinstance(item, int):
        return varint(field << 3) + varint(item)
    return varint(field << 3 | 2) + varint(len(item)) + item


def result():
    """The announcement of the sum of an exchange's round, and the digest that the next configuration names it by."""
    transcript3, following = (hashlib.sha256(text).digest() for text in (b"t3", b"the next broadcast"))
    sums = [hashlib.sha256(b"sum %d" % i).digest() for i in range(2)]
    u3 = ["charite", "leiden", "turin-2"]
    data = part(1, transcript3) + b"".join(part(2, each) for each in sums)
    data += b"".join(part(3, node.encode()) for node in u3) + part(4, following)
    data += part(5, 300) + part(6, b"statistics")
    return {
        "transcript3": transcript3.hex(),
        "sum_sha256": [each.hex() for each in sums],
        "survivors": u3,
        "next_state_digest": following.hex(),
        "round": 300,
        "purpose": "statistics",
        "bytes": data.hex(),
        "digest": hashed("result", data).hex(),
    }


def layout():
    """The digest of two tensors."""
    places = [("bias", "float32", [3]), ("records", "int64", []), ("weight", "float32", [2, 300])]
    items = []
    for name, dtype, shape in places:
        items += [name.encode(), dtype.encode(), b"".join(struct.pack(">Q", d) for d in shape)]
    return {"places": places, "digest": hashed("layout", *items).hex()}


def fixed_point():
    """Values as hexadecimal float32, and their ring elements: clipped, scaled, rounded ties to even, modulo 2^R."""
    cases = []
    for ring_bits, frac_bits, bound, values in (
        (32, 0, 100.0, [0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 99.5, 100.5, -1e30, -0.0]),
        (
            32,
            22,
            8.0,
            [1.0, -1.0, 7.999999523162842, -8.0, 8.000000953674316, 1e-7, -1.1920928955078125e-07, 3.1415927],
        ),
        (64, 24, 1e10, [1e10, -1e10, 0.1, 123456.789, 2.0**-25, 3 * 2.0**-25, -(2.0**-24)]),
        (64, 57, 1.0, [1.0, -1.0, 0.333333343, 1e-38, 2.0**-58, 3 * 2.0**-58]),
    ):
        elements, clipped, kept = [], 0, []
        for value in values:
            single = struct.unpack("<f", struct.pack("<f", value))[0]
            cut = min(max(single, -bound), bound)
            clipped += cut != single
            kept.append(single.hex())
            elements.append(round(Fraction(cut) * 2**frac_bits) % 2**ring_bits)
        cases.append(
            {
                "ring_bits": ring_bits,
                "frac_bits": frac_bits,
                "bound": bound,
                "values": kept,
                "elements": [str(e) for e in elements],
                "clipped": clipped,
            }
        )
    return cases


def main():
    cohort = manifest()
    vectors = {
        "source": "make_secagg_encoding.py",
        "hashes": [
            {"label": label, "items": [i.hex() for i in items], "hash": hashed(label, *items).hex()}
            for label, items in (("u1", []), ("u1", [b""]), ("u1", [b"a", b"bc"]), ("u1", [b"ab", b"c"]), ("u3", [b""]))
        ],
        "manifest": cohort,
        "transcripts": transcripts(bytes.fromhex(cohort["digest"])),
        "result": result(),
        "layout": layout(),
        "fixed_point": fixed_point(),
    }
    sys.stdout.write(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
