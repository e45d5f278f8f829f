"""Writes ``identity_signatures.json``: what our Ed25519 signatures must be, computed without the library under test.

Run it as ``python make_identity_signatures.py > identity_signatures.json``. The signature scheme is written out from
RFC 8032, sections 5.1.2 to 5.1.6, in affine coordinates and with no care for speed or side channels: for vectors only.
It first reproduces TEST 1 to 3 of RFC 8032, section 7.1, and stops if it does not.
"""

import hashlib
import json
import sys

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P

#: RFC 8032, section 7.1: secret key, public key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
#: label, payload (hex): what is signed with the first key above.
FRAMED = [
    ("release-log/v1", ""),
    ("release-log/v1", "00"),
    ("release-log/v2", "00"),
    ("plan-approval/v1", "66656473656375726500ff"),
]


def _add(a, b):
    """Sum of two points of the curve -x^2 + y^2 = 1 + d x^2 y^2 (section 5.1.4, affine)."""
    (x1, y1), (x2, y2) = a, b
    t = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + t, P - 2, P)
    y = (y1 * y2 + x1 * x2) * pow(1 - t, P - 2, P)
    return x % P, y % P


def _times(scalar, point):
    total = (0, 1)
    while scalar:
        if scalar & 1:
            total = _add(total, point)
        point, scalar = _add(point, point), scalar >> 1
    return total


def _base():
    y = 4 * pow(5, P - 2, P) % P
    square = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    return (x if x % 2 == 0 else P - x), y


def _encode(point):
    x, y = point
    return (y | (x & 1) << 255).to_bytes(32, "little")


def sign(secret, message):
    """Public key and signature (sections 5.1.5 and 5.1.6)."""
    digest = hashlib.sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    public = _encode(_times(scalar, _base()))
    r = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little") % ORDER
    commitment = _encode(_times(r, _base()))
    challenge = int.from_bytes(hashlib.sha512(commitment + public + message).digest(), "little") % ORDER
    return public, commitment + ((r + challenge * scalar) % ORDER).to_bytes(32, "little")


def framed(label, payload):
    """LP("fedsecure/<label>") + LP(payload), LP being a four-byte big-endian length and the bytes."""
    parts = (b"fedsecure/" + label.encode(), payload)
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def main():
    for secret, public, message, signature in RFC_8032:
        if sign(bytes.fromhex(secret), bytes.fromhex(message)) != (bytes.fromhex(public), bytes.fromhex(signature)):
            sys.exit("this script does not reproduce RFC 8032")
    secret = bytes.fromhex(RFC_8032[0][0])
    vectors = {
        "source": "make_identity_signatures.py; RFC 8032, section 7.1",
        "rfc8032": [dict(zip(("secret", "public", "message", "signature"), v, strict=True)) for v in RFC_8032],
        "framed": [
            {
                "secret": secret.hex(),
                "label": label,
                "payload": payload,
                "signed": framed(label, bytes.fromhex(payload)).hex(),
                "signature": sign(secret, framed(label, bytes.fromhex(payload)))[1].hex(),
            }
            for label, payload in FRAMED
        ],
    }
    sys.stdout.write(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
