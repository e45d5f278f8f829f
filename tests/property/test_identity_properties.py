"""Framing is unambiguous; identities survive their URI; hostile text never gets past the parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsecure.crypto.certificates import certificate_identity
from fedsecure.crypto.framing import length_prefixed
from fedsecure.crypto.names import Identity
from fedsecure.crypto.pem import load_request
from fedsecure.crypto.signatures import signed_bytes
from fedsecure.errors import CertificateError

PARTS = st.lists(st.binary(max_size=40), max_size=6)
LABELS = st.from_regex(r"[a-z0-9][a-z0-9/._-]{0,20}", fullmatch=True)

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)


def unframe(data: bytes) -> list[bytes]:
    """The decoder that shows that there is only one reading."""
    parts = []
    while data:
        size = int.from_bytes(data[:4], "big")
        assert len(data) >= 4 + size
        parts.append(data[4 : 4 + size])
        data = data[4 + size :]
    return parts


@given(PARTS)
def test_framing_can_be_undone(parts):
    assert unframe(length_prefixed(*parts)) == parts


@given(PARTS, PARTS)
def test_framing_is_injective_and_a_homomorphism(first, second):
    assert (length_prefixed(*first) == length_prefixed(*second)) == (first == second)
    assert length_prefixed(*first) + length_prefixed(*second) == length_prefixed(*first, *second)


@given(LABELS, st.binary(max_size=60), LABELS, st.binary(max_size=60))
def test_no_two_purposes_or_payloads_sign_the_same_bytes(label, payload, other_label, other_payload):
    same = (label, payload) == (other_label, other_payload)
    assert (signed_bytes(label, payload) == signed_bytes(other_label, other_payload)) == same
    assert unframe(signed_bytes(label, payload)) == [b"fedsecure/" + label.encode(), payload]


@given(st.lists(NAMES, min_size=1, max_size=3).map(".".join), st.sampled_from(["node", "analyst"]), NAMES)
def test_an_identity_survives_its_uri(federation, role, name):
    identity = Identity(federation, role, name)
    assert Identity.parse(identity.uri) == identity


@given(st.text(max_size=60))
def test_a_uri_that_is_parsed_is_that_of_what_it_parses_to(text):
    fault = ""
    try:
        assert Identity.parse("spiffe://" + text).uri == "spiffe://" + text
    except CertificateError as error:
        fault = str(error)
    assert "\n" not in fault


@given(st.binary(max_size=200))
def test_garbage_is_refused_in_one_line(data):
    wrapped = b"-----BEGIN %s-----\n" + data + b"\n-----END %s-----\n"
    for pem in (data, wrapped.replace(b"%s", b"CERTIFICATE"), wrapped.replace(b"%s", b"CERTIFICATE REQUEST")):
        for parse in (certificate_identity, lambda pem: load_request(pem, "request")):
            with pytest.raises(CertificateError, match="malformed|private key") as caught:
                parse(pem)
            assert "\n" not in str(caught.value)
