"""Writes ``secagg_primitives.json``: what the primitives of secure aggregation must give, computed without any library.

Run it as ``python make_secagg_primitives.py > secagg_primitives.json``. X25519, HKDF, AES-256-CTR, ChaCha20 and its
AEAD are written out from RFC 7748, RFC 5869, FIPS 197 with NIST SP 800-38A, and RFC 8439, with no care for speed or
side channels: for vectors only. It first reproduces the examples printed there, and stops if it does not.
"""

import hashlib
import hmac
import json
import sys

FIELD = 2**255 - 19
SHAMIR = 2**256 + 297
POLY = 2**130 - 5
PREFIX = "fedsecure/secagg/v1"

#: RFC 7748, section 5.2: scalar, u-coordinate, product; 6.1: private and public keys and what they agree on.
RFC_7748_PRODUCTS = [
    (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    (
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ),
]
RFC_7748_AGREEMENT = {
    "alice_secret": "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
    "alice_public": "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a",
    "bob_secret": "5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb",
    "bob_public": "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
    "shared": "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
}
#: RFC 5869, appendix A.1 to A.3: input key material, salt, info, output.
RFC_5869 = [
    (
        "0b" * 22,
        bytes(range(13)).hex(),
        bytes(range(0xF0, 0xFA)).hex(),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        bytes(range(0x50)).hex(),
        bytes(range(0x60, 0xB0)).hex(),
        bytes(range(0xB0, 0x100)).hex(),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    ("0b" * 22, "", "", "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"),
]
#: NIST SP 800-38A, F.5.5 (CTR-AES256.Encrypt): key, initial counter, plaintext, ciphertext.
SP_800_38A = (
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
    "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710",
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
)
SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip "
    b"for the future, sunscreen would be it."
)
#: RFC 8439, section 2.4.2: key, nonce, counter, ciphertext of the text above.
RFC_8439_CIPHER = (
    bytes(range(32)).hex(),
    "000000000000004a00000000",
    1,
    "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357"
    "1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
    "5af90bbf74a35be6b40b8eedf2785e42874d",
)
#: RFC 8439, section 2.8.2: key, nonce, associated data, ciphertext and tag of the text above.
RFC_8439_AEAD = (
    bytes(range(0x80, 0xA0)).hex(),
    "070000004041424344454647",
    "50515253c0c1c2c3c4c5c6c7",
    "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
    "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
    "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691",
)


def x25519(scalar, point):
    """RFC 7748, section 5: the Montgomery ladder."""
    k = int.from_bytes(scalar, "little") & ((1 << 254) - 8) | (1 << 254)
    u = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    swap = 0
    for bit in range(254, -1, -1):
        k_bit = k >> bit & 1
        if swap ^ k_bit:
            x2, z2, x3, z3 = x3, z3, x2, z2
        swap = k_bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3, z3 = (da + cb) ** 2 % FIELD, u * (da - cb) ** 2 % FIELD
        e = a * a - b * b
        x2, z2 = a * a * b * b % FIELD, e * (a * a + 121665 * e) % FIELD
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, FIELD - 2, FIELD) % FIELD).to_bytes(32, "little")


def hkdf(material, salt, info, length):
    """RFC 5869, section 2."""
    key = hmac.new(salt or bytes(32), material, hashlib.sha256).digest()
    out, block = b"", b""
    for number in range(1, length // 32 + 2):
        block = hmac.new(key, block + info + bytes([number]), hashlib.sha256).digest()
        out += block
    return out[:length]


def _double(byte):
    return (byte << 1 ^ (0x11B if byte & 0x80 else 0)) & 0xFF


def _times(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = _double(a), b >> 1
    return product


def _substitution():
    """FIPS 197, section 5.1.1: the inverse in GF(2^8), then an affine map."""
    box = []
    for value in range(256):
        inverse = next((other for other in range(256) if _times(value, other) == 1), 0)
        rotations = [(inverse << n | inverse >> (8 - n)) & 0xFF for n in range(5)]
        box.append(rotations[0] ^ rotations[1] ^ rotations[2] ^ rotations[3] ^ rotations[4] ^ 0x63)
    return box


BOX = _substitution()


def _round_keys(key):
    """FIPS 197, section 5.2, for a key of 256 bits: 15 round keys."""
    words, constant = [list(key[at : at + 4]) for at in range(0, 32, 4)], 1
    for number in range(8, 60):
        word = words[-1]
        if number % 8 == 0:
            word = [BOX[byte] for byte in word[1:] + word[:1]]
            word[0] ^= constant
            constant = _double(constant)
        elif number % 8 == 4:
            word = [BOX[byte] for byte in word]
        words.append([a ^ b for a, b in zip(words[-8], word, strict=True)])
    return [[byte for word in words[at : at + 4] for byte in word] for at in range(0, 60, 4)]


def aes256(key, block):
    """FIPS 197, section 5.1."""
    keys = _round_keys(key)
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for number in range(1, 15):
        state = [BOX[state[(at + 4 * (at % 4)) % 16]] for at in range(16)]
        if number < 14:
            mixed = []
            for at in range(0, 16, 4):
                column = state[at : at + 4]
                for row in range(4):
                    a, b, c, d = (column[(row + step) % 4] for step in range(4))
                    mixed.append(_double(a) ^ _double(b) ^ b ^ c ^ d)
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[number], strict=True)]
    return bytes(state)


def aes256_ctr(key, counter, length):
    """SP 800-38A, section 6.5: ``length`` bytes of keystream."""
    first = int.from_bytes(counter, "big")
    blocks = [aes256(key, ((first + n) % 2**128).to_bytes(16, "big")) for n in range(-(-length // 16))]
    return b"".join(blocks)[:length]


def _quarter(state, a, b, c, d):
    for one, other, target, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[one] = (state[one] + state[other]) % 2**32
        mixed = state[target] ^ state[one]
        state[target] = (mixed << turn | mixed >> (32 - turn)) % 2**32


def chacha20(key, nonce, counter, length):
    """RFC 8439, section 2.4: ``length`` bytes of keystream."""
    out = b""
    while len(out) < length:
        words = b"expand 32-byte k" + key + counter.to_bytes(4, "little") + nonce
        start = [int.from_bytes(words[at : at + 4], "little") for at in range(0, 64, 4)]
        state = list(start)
        for _ in range(10):
            for column in range(4):
                _quarter(state, column, column + 4, column + 8, column + 12)
            for column in range(4):
                turned = ((column + row) % 4 + 4 * row for row in range(4))
                _quarter(state, *turned)
        out += b"".join(((a + b) % 2**32).to_bytes(4, "little") for a, b in zip(state, start, strict=True))
        counter += 1
    return out[:length]


def xor(one, other):
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def seal(key, nonce, plaintext, associated):
    """RFC 8439, section 2.8: ciphertext and tag."""
    one_time = chacha20(key, nonce, 0, 32)
    ciphertext = xor(plaintext, chacha20(key, nonce, 1, len(plaintext)))
    padded = b"".join(part + bytes(-len(part) % 16) for part in (associated, ciphertext))
    padded += len(associated).to_bytes(8, "little") + len(ciphertext).to_bytes(8, "little")
    r = int.from_bytes(one_time[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    total = 0
    for at in range(0, len(padded), 16):
        total = (total + int.from_bytes(padded[at : at + 16] + b"\1", "little")) * r % POLY
    tag = (total + int.from_bytes(one_time[16:], "little")) % 2**128
    return ciphertext + tag.to_bytes(16, "little")


def framed(*parts):
    """LP(part) of every part, LP being a four-byte big-endian length and the bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def reproduces():
    """Whether every printed example comes out."""
    pair = {name: bytes.fromhex(value) for name, value in RFC_7748_AGREEMENT.items()}
    key, counter, plaintext, ciphertext = map(bytes.fromhex, SP_800_38A)
    cipher_key, cipher_nonce, start, cipher_out = RFC_8439_CIPHER
    aead_key, aead_nonce, associated, aead_out = map(bytes.fromhex, RFC_8439_AEAD)
    nine = bytes([9]) + bytes(31)
    stream = chacha20(bytes.fromhex(cipher_key), bytes.fromhex(cipher_nonce), start, len(SUNSCREEN))
    return (
        all(x25519(bytes.fromhex(k), bytes.fromhex(u)).hex() == out for k, u, out in RFC_7748_PRODUCTS)
        and x25519(pair["alice_secret"], nine) == pair["alice_public"]
        and x25519(pair["bob_secret"], nine) == pair["bob_public"]
        and x25519(pair["alice_secret"], pair["bob_public"]) == pair["shared"]
        and all(
            hkdf(bytes.fromhex(ikm), bytes.fromhex(salt), bytes.fromhex(info), len(out) // 2).hex() == out
            for ikm, salt, info, out in RFC_5869
        )
        and xor(aes256_ctr(key, counter, len(plaintext)), plaintext) == ciphertext
        and xor(stream, SUNSCREEN).hex() == cipher_out
        and seal(aead_key, aead_nonce, SUNSCREEN, associated) == aead_out
    )


def schedule():
    """Keys, masks and a sealed message of a session of two: everything that this project adds to the standards."""
    pair = {name: bytes.fromhex(value) for name, value in RFC_7748_AGREEMENT.items()}
    digest = hashlib.sha256(framed(f"{PREFIX}/u1".encode(), b"config", b"", b"advertise")).digest()
    stream = [b"fedspm.shared", (32).to_bytes(4, "big"), (1000).to_bytes(8, "big")]
    infos = {
        "pairmask": framed(f"{PREFIX}/pairmask".encode(), b"berlin", b"paris", *stream),
        "selfmask": framed(f"{PREFIX}/selfmask".encode(), b"paris", *stream),
        "share": framed(f"{PREFIX}/share".encode(), b"paris", b"berlin"),
    }
    keys = {name: hkdf(pair["shared"], digest, info, 32) for name, info in infos.items()}
    plaintext = bytes([2]) + bytes(range(66))
    return {
        "participants": ["paris", "berlin"],
        "stream": ["fedspm.shared", 32, 1000],
        "shared": pair["shared"].hex(),
        "transcript": {"label": "u1", "parts": [b"config".hex(), "", b"advertise".hex()], "digest": digest.hex()},
        "infos": {name: info.hex() for name, info in infos.items()},
        "keys": {name: key.hex() for name, key in keys.items()},
        "keystreams": {
            "aes-256-ctr": aes256_ctr(keys["pairmask"], bytes(16), 200).hex(),
            "chacha20": chacha20(keys["pairmask"], bytes(12), 0, 200).hex(),
        },
        "sealed": {
            "plaintext": plaintext.hex(),
            "ciphertext": seal(keys["share"], bytes(12), plaintext, framed(digest, b"paris", b"berlin")).hex(),
        },
    }


def shamir():
    """Shares of polynomials written out below, so that rebuilding can be checked; splitting itself is random."""
    cases = []
    for threshold, count, secret in ((2, 3, 0), (3, 5, 2**256 - 1), (7, 10, int.from_bytes(bytes(range(32)), "big"))):
        seeds = [hashlib.sha512(f"{threshold} {power}".encode()).digest() for power in range(1, threshold)]
        coefficients = [secret, *(int.from_bytes(seed, "big") % SHAMIR for seed in seeds)]
        values = [sum(c * x**power for power, c in enumerate(coefficients)) % SHAMIR for x in range(1, count + 1)]
        cases.append(
            {
                "threshold": threshold,
                "secret": secret.to_bytes(32, "big").hex(),
                "coefficients": [f"{c:066x}" for c in coefficients],
                "shares": [value.to_bytes(33, "big").hex() for value in values],
            }
        )
    return cases


def main():
    if not reproduces():
        sys.exit("this script does not reproduce the standards' examples")
    vectors = {
        "source": "make_secagg_primitives.py; RFC 7748, 5869 and 8439; NIST SP 800-38A",
        "rfc7748_products": [dict(zip(("scalar", "u", "product"), v, strict=True)) for v in RFC_7748_PRODUCTS],
        "rfc7748_agreement": RFC_7748_AGREEMENT,
        "rfc5869": [dict(zip(("material", "salt", "info", "output"), v, strict=True)) for v in RFC_5869],
        "sp800_38a": dict(zip(("key", "counter", "plaintext", "ciphertext"), SP_800_38A, strict=True)),
        "sunscreen": SUNSCREEN.hex(),
        "rfc8439_cipher": dict(zip(("key", "nonce", "counter", "ciphertext"), RFC_8439_CIPHER, strict=True)),
        "rfc8439_aead": dict(zip(("key", "nonce", "associated", "sealed"), RFC_8439_AEAD, strict=True)),
        "schedule": schedule(),
        "shamir": shamir(),
    }
    sys.stdout.write(json.dumps(vectors, indent=1) + "\n")


if __name__ == "__main__":
    main()
