"""A federation with an analyst and two nodes who sign with their certificates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedsecure.crypto import authority, enrolment
from fedsecure.crypto.statements import Signer

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Signers:
    """A CA named ``heart``; ``signer(role, name)`` enrols a participant once and returns who signs for it."""

    def __init__(self, root: Path) -> None:
        self.root, self.now, self.ca = root, NOW, root / "ca"
        authority.init_ca(self.ca, "heart", None, 10, NOW - timedelta(days=365))
        self._made: dict[tuple[str, str], Signer] = {}

    @property
    def now_ms(self) -> int:
        return int(self.now.timestamp() * 1000)

    def signer(self, role: str, name: str) -> Signer:
        if (role, name) not in self._made:
            folder = self.root / f"{role}-{name}"
            enrolment.create_identity(folder, federation="heart", role=role, name=name)
            csr = (folder / "tls.csr").read_bytes()
            pem = authority.sign_request(self.ca, csr, role=role, name=name, days=90, passphrase=None, now=NOW)
            self._made[role, name] = Signer((folder / "tls.key").read_bytes(), pem)
        return self._made[role, name]

    def trust(self, **changes):
        """What every check is told."""
        known = {
            "ca_pem": (self.ca / "ca.crt").read_bytes(), "crl_pem": (self.ca / "crl.pem").read_bytes(),
            "federation": "heart", "now": self.now,
        }  # fmt: skip
        return {**known, **changes}


@pytest.fixture(scope="session")
def signers(tmp_path_factory) -> Signers:
    return Signers(tmp_path_factory.mktemp("signers"))
