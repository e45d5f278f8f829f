"""Names, roles and hosts."""

from __future__ import annotations

import pytest

from fedsecure.crypto.names import FEDERATION, NAME, Identity, check_hosts
from fedsecure.errors import CertificateError, ConfigError
from fedsecure.plan import NODE_ID


def test_node_names_are_the_plans():
    assert NAME == NODE_ID


def test_uris_of_the_three_roles():
    for role, name, uri in (
        ("node", "charite", "spiffe://heart.example.org/node/charite"),
        ("coordinator", "coordinator", "spiffe://heart.example.org/coordinator"),
        ("analyst", "a-1", "spiffe://heart.example.org/analyst/a-1"),
    ):
        identity = Identity("heart.example.org", role, name)
        assert identity.uri == uri
        assert Identity.parse(uri) == identity


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a\n", "a" * 64, "é", "a/b", "a b", "٣"])
def test_malformed_names(name):
    with pytest.raises(ConfigError, match="malformed"):
        Identity("heart", "node", name)


@pytest.mark.parametrize("federation", ["", "A", ".a", "a.", "a..b", "a-.b", "a" * 64, "a/b", "a\n", "a:1", "ä"])
def test_malformed_federations(federation):
    with pytest.raises(ConfigError, match="federation name"):
        Identity(federation, "node", "a")


def test_the_patterns_are_published_for_settings_files():
    assert NAME.startswith("^")
    assert FEDERATION.startswith("^")


def test_roles_and_the_coordinators_name():
    with pytest.raises(ConfigError, match="role 'server'"):
        Identity("heart", "server", "a")
    with pytest.raises(ConfigError, match="coordinator is named 'coordinator'"):
        Identity("heart", "coordinator", "main")


@pytest.mark.parametrize(
    "uri",
    [
        "", "spiffe://heart/node", "spiffe://heart/node/", "spiffe://heart/node/A", "spiffe://heart/node/a/b",
        "spiffe://heart/coordinator/x", "spiffe://heart/coordinator/", "spiffe:///node/a", "https://heart/node/a",
        "SPIFFE://heart/node/a", "spiffe://heart/node/a\n", "spiffe://heart/node/a?x", "spiffe://u@heart/node/a",
    ],
)  # fmt: skip
def test_uris_that_are_not_ours(uri):
    with pytest.raises(CertificateError, match="is not the identity"):
        Identity.parse(uri)


@pytest.mark.parametrize(
    "host", ["a.example.org", "localhost", "a.example.org.", "127.0.0.1", "::1", "xn--caf-dma.fr", "9a"]
)
def test_hosts_of_a_coordinator(host):
    check_hosts("coordinator", (host,))


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*.example.org",
        "a_b",
        "-a",
        "a-",
        "a..b",
        "café.fr",
        "https://a",
        "a:443",
        "300.1.1.1",
        "fe80::1%eth0",
        "a b",
    ],
)
def test_malformed_hosts(host):
    with pytest.raises(ConfigError, match="malformed"):
        check_hosts("coordinator", (host,))


def test_hosts_belong_to_the_coordinator_alone():
    with pytest.raises(ConfigError, match="must name the hosts"):
        check_hosts("coordinator", ())
    with pytest.raises(ConfigError, match="names no host"):
        check_hosts("node", ("a",))
    with pytest.raises(ConfigError, match="none of them twice"):
        check_hosts("coordinator", ("a", "A"))
    check_hosts("node", ())
