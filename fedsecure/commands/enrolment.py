"""What ``enroll`` is for every role: compare the CA's fingerprint, take the certificate in, say whose it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.output import emit_json, say

if TYPE_CHECKING:
    from fedsecure.crypto.certificates import PeerIdentity

__all__ = ["CaCertOption", "CertOption", "FingerprintOption", "take_in"]

CertOption = Annotated[Path, typer.Option(metavar="CERT", readable=False, help="The certificate that the CA issued.")]
CaCertOption = Annotated[Path, typer.Option(metavar="CA_CERT", readable=False, help="The CA's certificate.")]
FingerprintOption = Annotated[str, typer.Option(help="The CA's fingerprint, as its keeper told you.")]


def take_in(folder: Path, cert: Path, ca_cert: Path, fingerprint: str, *, as_json: bool) -> PeerIdentity:
    """Take a certificate into ``folder`` and print whose it is; with ``as_json`` one object, named by the role.

    Raises ``CertificateError`` as ``accept_certificate`` does.
    """
    from datetime import UTC, datetime

    from fedsecure.crypto.enrolment import accept_certificate
    from fedsecure.crypto.names import describe

    own = accept_certificate(folder, cert=cert, ca_cert=ca_cert, fingerprint=fingerprint, now=datetime.now(UTC))
    if as_json:
        emit_json({own.role: own.name, "fingerprint": own.fingerprint, "not_after": own.not_after.isoformat()})
    else:
        say(f"enrolled as {describe(own.role, own.name)} of {own.federation}, until {own.not_after:%Y-%m-%d}")
        say(f"fingerprint  {own.fingerprint}")
    return own
