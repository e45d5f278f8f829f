"""Who is who: the identity that a certificate states, as a URI in its subject alternative name (SPIFFE's form)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from fedsecure.errors import CertificateError, ConfigError

__all__ = [
    "COORDINATOR",
    "FEDERATION",
    "NAME",
    "ROLES",
    "Identity",
    "check_federation",
    "check_hosts",
    "describe",
    "is_address",
    "is_host",
]

#: The roles of a federation. A node contributes, the coordinator runs rounds, an analyst asks routed queries.
ROLES = ("node", "coordinator", "analyst")
#: The only name that a coordinator has: a federation has one.
COORDINATOR = "coordinator"
#: Names of nodes and analysts: lower-case letters, digits and inner dashes, at most 63.
NAME = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"
#: Names of federations: the same, in parts joined by dots, at most 63 in all (a SPIFFE trust domain).
FEDERATION = r"^(?=.{1,63}$)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$"
#: A host name: dot-joined labels of letters, digits and inner dashes, at most 253 characters (RFC 1123, section 2.1).
_HOST = re.compile(r"(?=.{1,253}\Z)(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*\.?")
#: More host names than this in one certificate are a mistake.
MAX_HOSTS = 32

_NAME = re.compile(NAME[:-1] + r"\Z")
_FEDERATION = re.compile(FEDERATION[:-1] + r"\Z")
_URI = re.compile(r"spiffe://([^/]*)/(coordinator|(?:node|analyst)/[^/]*)")


@dataclass(frozen=True, slots=True)
class Identity:
    """Federation, role and name. Raises ``ConfigError`` when one of them is malformed."""

    federation: str
    role: str
    name: str

    def __post_init__(self) -> None:
        check_federation(self.federation)
        if self.role not in ROLES:
            raise ConfigError(f"role {self.role[:40]!r} is not known", hint=f"one of {', '.join(ROLES)}")
        if self.role == COORDINATOR and self.name != COORDINATOR:
            raise ConfigError(
                f"a federation's coordinator is named {COORDINATOR!r}, not {self.name[:64]!r}",
                hint="leave its name out",
            )
        if not _NAME.match(self.name):
            raise ConfigError(
                f"{self.role} name {self.name[:64]!r} is malformed",
                hint="1 to 63 lower-case letters, digits and dashes, not beginning or ending with a dash",
            )

    @property
    def uri(self) -> str:
        """``spiffe://<federation>/node/<name>``, ``…/coordinator`` or ``…/analyst/<name>``."""
        path = COORDINATOR if self.role == COORDINATOR else f"{self.role}/{self.name}"
        return f"spiffe://{self.federation}/{path}"

    @classmethod
    def parse(cls, uri: str) -> Identity:
        """The identity of a URI. Raises ``CertificateError`` when it is not one of ours."""
        match = _URI.fullmatch(uri)
        try:
            if match:
                role, _, name = match[2].partition("/")
                return cls(match[1], role, COORDINATOR if role == COORDINATOR else name)
        except ConfigError:
            pass
        raise CertificateError(f"malformed: {uri[:120]!r} is not the identity of a node, coordinator or analyst")

    def __str__(self) -> str:
        return describe(self.role, self.name)


def describe(role: str, name: str) -> str:
    """``node charite``, ``analyst charite`` or ``the coordinator``."""
    return "the coordinator" if role == COORDINATOR else f"{role} {name}"


def check_federation(name: str) -> None:
    """Raise ``ConfigError`` unless ``name`` can be a federation's."""
    if not _FEDERATION.match(name):
        raise ConfigError(
            f"federation name {name[:64]!r} is malformed",
            hint="1 to 63 lower-case letters, digits, dashes and dots, as in heart-study or heart.example.org",
        )


def check_hosts(role: str, hosts: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` unless ``hosts`` are the host names or addresses that a certificate of ``role`` may carry:
    a coordinator's needs at least one, nobody else's has any."""
    if role != COORDINATOR:
        if hosts:
            raise ConfigError(f"a certificate of the role {role} names no host, but {hosts[0][:64]!r} is asked for")
        return
    if not hosts:
        raise ConfigError(
            "the coordinator's certificate must name the hosts that nodes reach it by",
            hint="give at least one host name",
        )
    if len(hosts) > MAX_HOSTS or len({h.lower() for h in hosts}) != len(hosts):
        raise ConfigError(f"host names: {len(hosts)} are given (allowed: at most {MAX_HOSTS}, none of them twice)")
    for host in hosts:
        if not is_address(host) and not is_host(host):
            raise ConfigError(
                f"host name {host[:64]!r} is malformed",
                hint="a plain host name or address, without scheme, port or wildcard; write accents in the form xn--…",
            )


def is_address(host: str) -> bool:
    """Whether ``host`` is an IPv4 or IPv6 address rather than a name."""
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return False


def is_host(host: str) -> bool:
    """Whether ``host`` is a well-formed host name. ``300.1.1.1`` is a mistyped address (RFC 1123, section 2.1)."""
    return bool(_HOST.fullmatch(host)) and not host.rstrip(".").rpartition(".")[2].isdigit()
