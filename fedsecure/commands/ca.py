"""``fedsecure ca``: the consortium's offline CA. Its folder belongs on a machine, or a stick, without a network."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.output import JsonOption, emit_json, note, say
from fedsecure.errors import CertificateError, ConfigError

if TYPE_CHECKING:
    from fedsecure.crypto.authority import IssuedCertificate
    from fedsecure.crypto.names import Identity

__all__ = ["app"]

app = typer.Typer(
    name="ca",
    help="The consortium's offline certificate authority: who takes part in a federation.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

FolderOption = Annotated[Path, typer.Option("--ca", metavar="DIR", readable=False, help="Folder of the CA.")]
PassphraseOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", readable=False, help="Read the passphrase of the CA's key from this file (mode 0600)."
    ),
]


@app.command()
def init(
    federation: Annotated[str, typer.Option(help="Name of the federation, as in heart-study.")],
    folder: FolderOption = Path("ca"),
    years: Annotated[int, typer.Option(help="Lifetime of the CA.")] = 10,
    passphrase_file: PassphraseOption = None,
    no_passphrase: Annotated[
        bool, typer.Option("--no-passphrase", help="Store the CA's key unencrypted: for tests and trials only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make a CA, and print the fingerprint that everybody compares when enrolling."""
    from fedsecure.crypto import authority

    if no_passphrase and passphrase_file is not None:
        raise ConfigError("--no-passphrase and --passphrase-file exclude each other", hint="give one of them")
    if no_passphrase:
        passphrase = None
    elif passphrase_file is not None:
        passphrase = _from_file(passphrase_file)
    else:
        passphrase = _prompt(f"New passphrase of the CA of {federation}", twice=True)
    made = authority.init_ca(folder, federation, passphrase, years, datetime.now(UTC))
    if no_passphrase:
        _warn("the CA's key is stored unencrypted: whoever reads it can let anyone into the federation")
    if as_json:
        emit_json(
            {
                "federation": made.federation,
                "fingerprint": made.fingerprint,
                "not_after": made.not_after.isoformat(),
                "key_encrypted": made.key_encrypted,
                "ca_cert": str(folder / authority.CA_CERT),
                "crl": str(folder / authority.CRL),
            }
        )
        return
    say(f"CA of {made.federation} in {folder}, valid until {made.not_after:%Y-%m-%d}")
    say(f"fingerprint  {made.fingerprint}")
    say(f"Give {folder / authority.CA_CERT} to every participant, and this fingerprint by telephone or on paper.")


@app.command()
def sign(
    csr: Annotated[Path, typer.Argument(metavar="CSR", readable=False, help="The participant's request, tls.csr.")],
    out: Annotated[Path, typer.Option(metavar="CERT", readable=False, help="Where the certificate goes.")],
    folder: FolderOption = Path("ca"),
    days: Annotated[int, typer.Option(help="Lifetime of the certificate.")] = 365,
    expect_fingerprint: Annotated[
        str | None,
        typer.Option(metavar="FP", help="Sign without asking, if and only if the request has this fingerprint."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue although a live certificate of this name exists.")
    ] = False,
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show who asks, by which fingerprint, and issue the certificate once it is confirmed."""
    from fedsecure.crypto import authority
    from fedsecure.crypto.keyfiles import present, read_public, write_public
    from fedsecure.crypto.pem import fingerprint
    from fedsecure.files import is_folder

    csr_pem = read_public(csr, "certificate request")
    if present(out):
        raise CertificateError(f"{out}: exists already", hint="give another name with --out")
    if not is_folder(out.parent, ConfigError):
        raise ConfigError(f"{out.parent}: no such folder", hint="make it first, or give another name with --out")
    identity = _show_request(csr, csr_pem, on_stderr=as_json)
    now = datetime.now(UTC)
    authority.check_request(folder, csr_pem, role=identity.role, name=identity.name, days=days, now=now, renew=renew)
    _confirm_request(csr, csr_pem, expect_fingerprint)
    pem = authority.sign_request(
        folder,
        csr_pem,
        role=identity.role,
        name=identity.name,
        days=days,
        passphrase=_passphrase(folder, passphrase_file),
        now=now,
        renew=renew,
    )
    write_public(out, pem)
    _report_issued(folder, out, fingerprint(pem), as_json=as_json)


@app.command()
def revoke(
    target: Annotated[str, typer.Argument(metavar="NAME|SERIAL", help="A name, or a serial number of ca list.")],
    folder: FolderOption = Path("ca"),
    role: Annotated[str | None, typer.Option(help="The role, when a node and an analyst share the name.")] = None,
    reason: Annotated[
        str, typer.Option(help="unspecified, key-compromise, superseded or cessation-of-operation.")
    ] = "unspecified",
    passphrase_file: PassphraseOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke certificates and write the revocation list, crl.pem, which goes to the coordinator, every node and every
    analyst."""
    from fedsecure.crypto import authority

    passphrase = _passphrase(folder, passphrase_file)
    revoked = authority.revoke(folder, target, passphrase=passphrase, now=datetime.now(UTC), reason=reason, role=role)
    if as_json:
        emit_json({"revoked": [_row(c) for c in revoked], "crl": str(folder / authority.CRL)})
        return
    for certificate in revoked:
        say(f"revoked      {certificate}")
    say(f"Send {folder / authority.CRL} to the coordinator, to every node and to every analyst now.")
    say("Each puts it beside its own certificate, as crl.pem; for whoever does not, nothing is revoked.")


@app.command("list")
def list_(folder: FolderOption = Path("ca"), as_json: JsonOption = False) -> None:
    """List every certificate that the CA issued, oldest first."""
    from fedsecure.crypto import authority

    ca = authority.read_authority(folder)
    rows = [_row(c) for c in authority.list_certificates(folder)]
    if as_json:
        emit_json(
            {
                "federation": ca.federation,
                "fingerprint": ca.fingerprint,
                "not_after": ca.not_after.isoformat(),
                "key_encrypted": ca.key_encrypted,
                "certificates": rows,
            }
        )
        return
    key = "encrypted" if ca.key_encrypted else "NOT encrypted"
    say(f"CA of {ca.federation}, valid until {ca.not_after:%Y-%m-%d}, key {key}")
    say(f"fingerprint  {ca.fingerprint}")
    if not rows:
        say("no certificate was issued yet")
        return
    width = max(4, *(len(row["name"]) for row in rows))
    say(f"{'state':8} {'role':12} {'name':{width}} {'until':11} serial")
    for row in rows:
        say(f"{row['state']:8} {row['role']:12} {row['name']:{width}} {row['not_after'][:10]:11} {row['serial']}")


def _show_request(path: Path, pem: bytes, *, on_stderr: bool) -> Identity:
    """Print who asks and by which fingerprint, for a person to compare; returns whom the request asks for."""
    from fedsecure.crypto.pem import fingerprint, load_request, stated_hosts, stated_identity

    request = load_request(pem, str(path))
    identity, hosts = stated_identity(request, str(path)), stated_hosts(request)
    lines = [
        f"request      {path}",
        f"fingerprint  {fingerprint(pem)}",
        f"federation   {identity.federation}",
        f"role         {identity.role}",
        f"name         {identity.name}",
        *([f"hosts        {', '.join(hosts)}"] if hosts else []),
    ]
    for line in lines:
        (note if on_stderr else say)(line)
    return identity


def _confirm_request(path: Path, pem: bytes, expected: str | None) -> None:
    """Return when the request's fingerprint is the expected one, or a person says it is; else raise."""
    from fedsecure.crypto.enrolment import same_fingerprint

    if expected is not None:
        same_fingerprint(pem, expected, str(path))
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{path}: its fingerprint needs a confirmation, and there is no terminal to ask for it",
            hint="compare the fingerprint with its owner, then give it as --expect-fingerprint",
        )
    if not typer.confirm("Did its owner read this fingerprint out to you? Sign", err=True):
        raise CertificateError(f"{path}: not signed", hint="ask its owner for the right request")


def _report_issued(folder: Path, out: Path, fingerprint: str, *, as_json: bool) -> None:
    from fedsecure.crypto import authority

    issued = next(c for c in authority.list_certificates(folder) if c.fingerprint == fingerprint)
    ca = authority.read_authority(folder)
    if as_json:
        emit_json({**_row(issued), "certificate": str(out), "ca_fingerprint": ca.fingerprint})
        return
    say(f"issued       {out}, serial {issued.serial}, valid until {issued.not_after:%Y-%m-%d %H:%M UTC}")
    say(f"Send it back with {folder / authority.CA_CERT}; the CA's fingerprint is {ca.fingerprint}")


def _row(certificate: IssuedCertificate) -> dict[str, Any]:
    """One certificate as JSON has it."""
    revoked_at = certificate.revoked_at
    return {
        "serial": certificate.serial,
        "role": certificate.role,
        "name": certificate.name,
        "hosts": list(certificate.hosts),
        "state": certificate.state(datetime.now(UTC)),
        "fingerprint": certificate.fingerprint,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "revoked_at": None if revoked_at is None else revoked_at.isoformat(),
        "reason": certificate.reason,
    }


def _passphrase(folder: Path, file: Path | None) -> bytes | None:
    """The passphrase of an existing CA: from the file, else asked for when its key needs one."""
    from fedsecure.crypto import authority

    if file is not None:
        return _from_file(file)
    if not authority.read_authority(folder).key_encrypted:
        return None
    return _prompt(f"Passphrase of the CA in {folder}", twice=False)


def _from_file(path: Path) -> bytes:
    """The file's content without its last line break. Raises ``CertificateError`` when others can read it."""
    from fedsecure.crypto.keyfiles import read_secret

    passphrase = read_secret(path, "passphrase file").removesuffix(b"\n").removesuffix(b"\r")
    if not passphrase:
        raise ConfigError(f"{path}: the passphrase file is empty")
    return passphrase


def _prompt(text: str, *, twice: bool) -> bytes:
    if not sys.stdin.isatty():
        raise ConfigError(
            "a passphrase is needed, and there is no terminal to ask for it",
            hint="give --passphrase-file FILE (mode 0600)" + (", or --no-passphrase for a trial" if twice else ""),
        )
    try:
        answer: str = typer.prompt(text, hide_input=True, confirmation_prompt=twice, err=True)
    except typer.Abort:
        raise ConfigError("no passphrase was entered", hint="try again") from None
    return answer.encode(errors="surrogateescape")


def _warn(text: str) -> None:
    note(f"warning: {text}")
