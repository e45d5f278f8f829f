"""Statements: good for one label, one body, one certified signer, as long as the certificate is good."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from datetime import timedelta

import pytest

from fedsecure.crypto.statements import Signer, Statement, check_statement
from fedsecure.errors import CertificateError, RemoteProtocolError


def signer_of(consortium, role="analyst", name="dr-weiss", **how) -> Signer:
    folder = consortium.request(role, name, hosts=("localhost",) if role == "coordinator" else ())
    pem = consortium.sign(folder, **how)
    return Signer((folder / "tls.key").read_bytes(), pem)


def check(consortium, statement, label="query", **changes):
    settings = {
        "ca_pem": consortium.ca_pem, "crl_pem": None, "federation": "heart", "role": "analyst", "name": "dr-weiss",
        "now": consortium.now,
    }  # fmt: skip
    return check_statement(statement, label, **{**settings, **changes})


def test_a_statement_says_who_made_it(consortium):
    made = signer_of(consortium).sign("query", b"body\0with any bytes")
    who = check(consortium, made, crl_pem=consortium.crl_pem)
    assert (who.role, who.name, who.federation) == ("analyst", "dr-weiss", "heart")
    assert check(consortium, made, name=None).fingerprint == who.fingerprint


def test_every_change_is_seen(consortium):
    signer = signer_of(consortium)
    made = signer.sign("query", b"body")
    another = signer_of(consortium, name="dr-rot").sign("query", b"body")
    by_another_key = dataclasses.replace(made, signature=another.signature)
    for changed in (
        dataclasses.replace(made, body=b"bodz"),
        dataclasses.replace(made, body=b""),
        dataclasses.replace(made, signature=made.signature[:-1]),
        dataclasses.replace(made, signature=b""),
        by_another_key,
    ):
        with pytest.raises(CertificateError, match="not by the key of analyst dr-weiss") as caught:
            check(consortium, changed)
        assert caught.value.hint


def test_a_label_separates_purposes(consortium):
    made = signer_of(consortium).sign("query", b"body")
    with pytest.raises(RemoteProtocolError, match="label 'query' where 'node-query-key' is due"):
        check(consortium, made, label="node-query-key")
    relabelled = dataclasses.replace(made, label="node-query-key")
    with pytest.raises(CertificateError, match="not by the key"):
        check(consortium, relabelled, label="node-query-key")


def test_label_and_body_cannot_be_moved_into_each_other(consortium):
    made = signer_of(consortium).sign("query", b"x\0body")
    moved = Statement("query-x", b"body", made.certificate, made.signature)
    with pytest.raises(CertificateError, match="not by the key"):
        check(consortium, moved, label="query-x")


@pytest.mark.parametrize("label", ["", "A", "a b", "a\0b", "é", "-a", "a" * 65])
def test_malformed_labels(consortium, label):
    with pytest.raises(ValueError, match="label"):
        signer_of(consortium).sign(label, b"")


def test_the_certificate_has_to_be_good(consortium, another_consortium):
    made = signer_of(consortium).sign("query", b"body")
    for fault, changes in (
        ("another's name", {"name": "dr-rot"}),
        ("wrong role", {"role": "node"}),
        ("other federation", {"federation": "lung"}),
        ("expired", {"now": consortium.now + timedelta(days=91)}),
        ("unknown CA", {"ca_pem": another_consortium.ca_pem}),
    ):
        with pytest.raises(CertificateError, match=fault):
            check(consortium, made, **changes)
    consortium.revoke("dr-weiss")
    with pytest.raises(CertificateError, match="revoked"):
        check(consortium, made, crl_pem=consortium.crl_pem)


def test_absurd_sizes_are_not_parsed(consortium):
    made = signer_of(consortium).sign("query", b"body")
    for changed in (
        dataclasses.replace(made, certificate=made.certificate * 100),
        dataclasses.replace(made, signature=bytes(5000)),
    ):
        with pytest.raises(RemoteProtocolError, match="absurd size"):
            check(consortium, changed)


def test_key_and_certificate_belong_together(consortium):
    folder = consortium.request("analyst", "dr-weiss")
    with pytest.raises(CertificateError, match="is for another key"):
        Signer((folder / "tls.key").read_bytes(), consortium.issue("analyst", "dr-rot"))


def test_the_key_does_not_show_itself(consortium):
    signer = signer_of(consortium)
    assert repr(signer) == "Signer(analyst dr-weiss)"
    for leak in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="does not leave"):
            leak(signer)
    assert repr(signer.sign("query", b"secret")) == "Statement(label='query')"
