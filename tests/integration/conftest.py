"""A consortium's CA whose participants are enrolled by the real steps: what every test over the wire begins with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsecure.crypto import authority, enrolment
from fedsecure.wire.credentials import TlsFiles


class Federation:
    """One CA and its participants. Made a year ago, so that certificates can have expired by now."""

    def __init__(self, root: Path, name: str = "heart") -> None:
        self.root, self.name, self.now = root, name, datetime.now(UTC)
        self.ca = root / "ca"
        self.authority = authority.init_ca(self.ca, name, None, 10, self.now - timedelta(days=365))

    def enrol(self, role, name, hosts=(), at=None, days=90, folder=None) -> TlsFiles:
        """Keys, request, certificate; ``at`` chooses when it was issued, ``folder`` another place than ROLE-NAME."""
        place = self.root / (folder or f"{role}-{name}")
        enrolment.create_identity(place, federation=self.name, role=role, name=name, dns=tuple(hosts))
        return self.certify(place, role, name, at=at, days=days)

    def certify(self, folder, role, name, at=None, days=90) -> TlsFiles:
        """Sign the request that lies in ``folder``, and take the certificate in."""
        at = at or self.now
        csr = (folder / "tls.csr").read_bytes()
        pem = authority.sign_request(self.ca, csr, role=role, name=name, days=days, passphrase=None, now=at, renew=True)
        (folder / "issued.crt").write_bytes(pem)
        enrolment.accept_certificate(
            folder,
            cert=folder / "issued.crt",
            ca_cert=self.ca / "ca.crt",
            fingerprint=self.authority.fingerprint,
            now=at,
        )
        return TlsFiles.in_folder(folder)

    def coordinator(self, hosts=("localhost", "127.0.0.1"), **how) -> TlsFiles:
        return self.enrol("coordinator", "coordinator", hosts, **how)

    @property
    def crl(self) -> Path:
        return self.ca / "crl.pem"


@pytest.fixture(scope="session")
def federation_of() -> type[Federation]:
    """``federation_of(root, name)`` makes a CA in ``root``; ``.enrol(role, name)`` its participants."""
    return Federation
