"""The consortium's offline CA: a folder with its key, its certificate, its register and its revocation list.

``ca.key`` (0600, PKCS#8, encrypted under a stretched passphrase unless asked otherwise), ``ca.crt``, ``crl.pem``,
``index.json`` (0600), and ``issued/<serial>.crt`` for every certificate. Nothing here opens a connection; requests
and certificates are files.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fedsecure.crypto.certificates import as_utc, check_ca, fingerprint, when
from fedsecure.crypto.index import INDEX_FILE, Index, IssuedCertificate, locked, read_index, write_index
from fedsecure.crypto.issuing import BACKDATE, build_ca, build_leaf, requested_names_only
from fedsecure.crypto.keyfiles import (
    all_or_nothing,
    make_private_folder,
    present,
    read_public,
    read_secret,
    write_public,
    write_secret,
)
from fedsecure.crypto.names import Identity, check_federation, describe
from fedsecure.crypto.passphrase import is_locked, lock, unlock
from fedsecure.crypto.pem import (
    ec_public_key,
    key_fingerprint,
    load_request,
    stated_hosts,
    stated_identity,
)
from fedsecure.crypto.revocation import REASONS, Revoked, build_crl
from fedsecure.errors import CertificateError, ConfigError

__all__ = [
    "CA_CERT",
    "CA_KEY",
    "CRL",
    "Authority",
    "IssuedCertificate",
    "check_request",
    "init_ca",
    "key_is_encrypted",
    "list_certificates",
    "read_authority",
    "revoke",
    "sign_request",
]

CA_KEY, CA_CERT, CRL = "ca.key", "ca.crt", "crl.pem"
#: A passphrase shorter than this protects nothing (bytes; NIST SP 800-63B, section 5.1.1.2).
MIN_PASSPHRASE_BYTES = 8
#: Lifetimes that may be asked for.
MAX_CA_YEARS = 30
MAX_LEAF_DAYS = 825


@dataclass(frozen=True, slots=True)
class Authority:
    """What everybody may know of a CA."""

    federation: str
    fingerprint: str
    not_after: datetime
    key_encrypted: bool


def init_ca(folder: Path, federation: str, passphrase: bytes | None, years: int, now: datetime) -> Authority:
    """Make a CA in ``folder``, for ``years``. ``passphrase`` ``None`` stores its key unencrypted: for tests and trials.

    Raises ``ConfigError`` for a malformed name, lifetime or passphrase, ``CertificateError`` when a CA is there.
    A failed attempt leaves no file behind.
    """
    check_federation(federation)
    if not 1 <= years <= MAX_CA_YEARS:
        raise ConfigError(f"a CA for {years} years (allowed: 1 to {MAX_CA_YEARS})")
    if passphrase is not None and len(passphrase) < MIN_PASSPHRASE_BYTES:
        raise ConfigError(f"the passphrase is too short (allowed: {MIN_PASSPHRASE_BYTES} bytes or more)")
    make_private_folder(folder)
    begin = _whole(now) - BACKDATE
    key = ec.generate_private_key(ec.SECP256R1())
    ca = build_ca(key, federation, begin=begin, end=begin + BACKDATE + timedelta(days=365 * years))
    with locked(folder):
        files = [folder / name for name in (CA_KEY, CRL, INDEX_FILE, CA_CERT)]
        if left := next((path for path in files if present(path)), None):
            raise CertificateError(f"{left}: there is a CA here already", hint="choose another folder")
        write_secret(folder / CA_KEY, lock(key, passphrase))
        with all_or_nothing(*files):
            write_public(folder / CRL, build_crl(ca, key, (), number=1, now=begin + BACKDATE))
            write_index(folder, Index(federation, 1))
            write_public(folder / CA_CERT, ca.public_bytes(serialization.Encoding.PEM))
    return read_authority(folder)


def read_authority(folder: Path) -> Authority:
    """The CA in ``folder``, without its key. Raises ``CertificateError`` when it is missing or damaged."""
    pem, index = _ca_pem(folder), read_index(folder)
    ca = x509.load_pem_x509_certificate(pem)
    return Authority(index.federation, fingerprint(pem), ca.not_valid_after_utc, key_is_encrypted(folder))


def key_is_encrypted(folder: Path) -> bool:
    """Whether the CA's key needs a passphrase. Raises ``CertificateError`` when it is missing or its mode is loose."""
    return is_locked(read_secret(folder / CA_KEY, "CA key"))


def sign_request(
    folder: Path,
    csr_pem: bytes,
    *,
    role: str,
    name: str,
    days: int,
    passphrase: bytes | None,
    now: datetime,
    renew: bool = False,
) -> bytes:
    """Issue the certificate that ``csr_pem`` asks for, for ``days`` from ``now``; returns it as PEM.

    The request must ask for exactly ``role`` and ``name`` of this federation and prove possession of its key. While
    a certificate of that name is live a second one needs ``renew``; the first stays valid until its end. The register
    is durable before the certificate is returned. Raises ``ConfigError`` (lifetime) or ``CertificateError``.
    """
    with locked(folder):
        index = read_index(folder)
        due = Identity(index.federation, role, name)
        request, public_key = _admit(index, csr_pem, due, days=days, now=now, renew=renew)
        ca, ca_key = _open(folder, index, passphrase, now)
        begin = _whole(now)
        end = begin + timedelta(days=days)
        if end > ca.not_valid_after_utc:
            left = (ca.not_valid_after_utc - begin).days
            raise ConfigError(
                f"{days} days end after the CA's own certificate ({when(ca.not_valid_after_utc)})",
                hint=f"at most {left} days" if left else "make a new CA",
            )
        begin = max(begin - BACKDATE, ca.not_valid_before_utc)
        leaf = build_leaf(ca, ca_key, public_key, due, stated_hosts(request), begin=begin, end=end)
        return _record(folder, index, leaf, due)


def check_request(
    folder: Path, csr_pem: bytes, *, role: str, name: str, days: int, now: datetime, renew: bool = False
) -> None:
    """Everything that ``sign_request`` checks before it needs the passphrase. Raises as it does; changes nothing."""
    index = read_index(folder)
    _admit(index, csr_pem, Identity(index.federation, role, name), days=days, now=now, renew=renew)


def _admit(
    index: Index, csr_pem: bytes, due: Identity, *, days: int, now: datetime, renew: bool
) -> tuple[x509.CertificateSigningRequest, ec.EllipticCurvePublicKey]:
    """The request and its key, once they may be certified for ``due``."""
    what = "certificate request"
    if not 1 <= days <= MAX_LEAF_DAYS:
        raise ConfigError(f"a certificate for {days} days (allowed: 1 to {MAX_LEAF_DAYS})")
    request = load_request(csr_pem, what)
    public_key = ec_public_key(request, what)
    _check_request(request, due, what)
    _check_key(index, key_fingerprint(public_key), due, what)
    _check_second(index, due, renew, now)
    return request, public_key


def revoke(
    folder: Path,
    target: str,
    *,
    passphrase: bytes | None,
    now: datetime,
    reason: str = "unspecified",
    role: str | None = None,
) -> tuple[IssuedCertificate, ...]:
    """Revoke by serial number (hex), or every certificate of a name that has not expired; writes ``crl.pem``.

    ``role`` is needed when a node and an analyst share the name. Returns what is revoked now. Revoking again
    changes no moment or reason but writes the list anew, which also repairs it after a crash between register and
    list. Raises ``ConfigError`` for an unknown reason, ``CertificateError`` when nothing matches.
    """
    if reason not in REASONS:
        raise ConfigError(f"reason {reason[:40]!r} is not known (allowed: {', '.join(REASONS)})")
    with locked(folder):
        index = read_index(folder)
        chosen = _to_revoke(index, target, role, now)
        ca, key = _open(folder, index, passphrase, now)
        moment = _whole(now)
        index = index.with_revoked(frozenset(c.serial for c in chosen), moment, reason)
        write_index(folder, index)
        write_public(folder / CRL, _crl(index, ca, key, moment))
        return tuple(c for c in index.certificates if c.serial in {x.serial for x in chosen})


def list_certificates(folder: Path) -> tuple[IssuedCertificate, ...]:
    """Everything the CA issued, oldest first. Raises ``CertificateError`` when the register is missing or damaged."""
    _ca_pem(folder)
    return read_index(folder).certificates


def _whole(now: datetime) -> datetime:
    """Certificates know whole seconds only."""
    return as_utc(now).replace(microsecond=0)


def _ca_pem(folder: Path) -> bytes:
    try:
        (folder / CA_CERT).stat()
    except (FileNotFoundError, NotADirectoryError):
        raise CertificateError(f"{folder}: no CA here", hint="give the CA's folder, or make one with ca init") from None
    except (OSError, ValueError):
        pass  # reading it names the fault
    return read_public(folder / CA_CERT, "CA certificate")


def _open(
    folder: Path, index: Index, passphrase: bytes | None, now: datetime
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """The CA's certificate and key, checked to belong together and to be in their time."""
    ca = check_ca(_ca_pem(folder), now, str(folder / CA_CERT))
    path = folder / CA_KEY
    key = unlock(read_secret(path, "CA key"), passphrase, str(path))
    if key.public_key() != ca.public_key():
        raise CertificateError(f"{path}: is not the key of {folder / CA_CERT}", hint="restore both from one backup")
    names = ca.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if names.get_values_for_type(x509.UniformResourceIdentifier) != [f"spiffe://{index.federation}"]:
        raise CertificateError(f"{folder}: its register and its CA certificate are of two federations")
    return ca, key


def _check_request(request: x509.CertificateSigningRequest, due: Identity, what: str) -> None:
    asked = stated_identity(request, what)
    if asked.federation != due.federation:
        raise CertificateError(
            f"{what}: other federation: it asks for {asked.federation}, and this CA is that of {due.federation}",
            hint="give it to the CA of its federation",
        )
    if asked != due:
        raise CertificateError(
            f"{what}: asks for a certificate as {asked}, not as {due}",
            hint="sign it as what it asks for, or not at all",
        )
    requested_names_only(request, what)


def _check_key(index: Index, key: str, due: Identity, what: str) -> None:
    """One key, one name; and a revoked key stays out."""
    for issued in index.certificates:
        if issued.key != key:
            continue
        if issued.revoked_at is not None:
            raise CertificateError(
                f"{what}: its key was revoked on {when(issued.revoked_at)} (serial {issued.serial})",
                hint="make a fresh key and request",
            )
        if (issued.role, issued.name) != (due.role, due.name):
            raise CertificateError(
                f"{what}: its key was certified before as {describe(issued.role, issued.name)}",
                hint="make a fresh key and request for each participant",
            )


def _check_second(index: Index, due: Identity, renew: bool, now: datetime) -> None:
    live = [c for c in index.live(now) if (c.role, c.name) == (due.role, due.name)]
    if live and not renew:
        raise CertificateError(
            f"{due} has a live certificate already: serial {live[-1].serial}, until {when(live[-1].not_after)}",
            hint="ask by telephone who wants another; then use --renew, or revoke the first",
        )


def _record(folder: Path, index: Index, leaf: x509.Certificate, identity: Identity) -> bytes:
    """Store the certificate and its line in the register; returns it as PEM."""
    pem = leaf.public_bytes(serialization.Encoding.PEM)
    issued = IssuedCertificate(
        serial=f"{leaf.serial_number:x}",
        role=identity.role,
        name=identity.name,
        fingerprint=fingerprint(pem),
        key=key_fingerprint(ec_public_key(leaf, "certificate")),
        hosts=stated_hosts(leaf),
        not_before=leaf.not_valid_before_utc,
        not_after=leaf.not_valid_after_utc,
    )
    make_private_folder(folder / "issued")
    write_public(folder / "issued" / f"{issued.serial}.crt", pem)
    write_index(folder, index.with_issued(issued))
    return pem


def _to_revoke(index: Index, target: str, role: str | None, now: datetime) -> list[IssuedCertificate]:
    wanted = target.lower().removeprefix("0x").replace(":", "").lstrip("0")
    chosen = [c for c in index.certificates if c.serial == wanted]
    if not chosen:
        chosen = [c for c in index.certificates if c.name == target and c.state(now) != "expired"]
    chosen = [c for c in chosen if role is None or c.role == role]
    if not chosen:
        raise CertificateError(
            f"no certificate of this CA has the name or serial number {target[:64]!r}, or it has expired",
            hint="see ca list",
        )
    if len({c.role for c in chosen}) > 1:
        raise CertificateError(
            f"both a node and an analyst are named {target!r}", hint="give --role, or a serial number"
        )
    return chosen


def _crl(index: Index, ca: x509.Certificate, key: ec.EllipticCurvePrivateKey, now: datetime) -> bytes:
    revoked = [Revoked(int(c.serial, 16), c.revoked_at, c.reason) for c in index.certificates if c.revoked_at]
    return build_crl(ca, key, revoked, number=index.crl_number, now=now)
