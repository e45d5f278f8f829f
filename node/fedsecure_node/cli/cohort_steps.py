"""What ``fedsecure node cohort`` does: a manifest is formed, signed, merged and pinned, step by step by people."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fedsecure.crypto.signatures import SigningIdentity, load_identity, load_public_identity
from fedsecure.errors import CertificateError, ConfigError, RemoteProtocolError
from fedsecure.files import exists, shown
from fedsecure.secagg.cohort.comparison import difference
from fedsecure.secagg.cohort.manifest import CohortManifest, parse_manifest, read_manifest, write_manifest
from fedsecure_node.link.client import CoordinatorClient
from fedsecure_node.link.connect import connect
from fedsecure_node.masking.pins import Pins, check_own
from fedsecure_node.settings import NodeSettings, load_settings
from fedsecure_node.store.pinbook import Pinned
from fedsecure_node.store.store import Store

__all__ = ["Site", "ask_coordinator", "compare", "form", "merge", "named_values", "new_file", "sign"]


@dataclass(frozen=True, slots=True)
class Site:
    """This node: its settings and its identity key."""

    settings: NodeSettings
    identity: SigningIdentity

    @classmethod
    def at(cls, folder: Path) -> Site:
        """Read ``node.toml`` and the key. Raises ``ConfigError`` or ``CertificateError``."""
        settings = load_settings(folder)
        return cls(settings, load_identity(settings.identity))

    @contextmanager
    def pins(self, *, create: bool = False) -> Iterator[Pins]:
        """The pins in this node's store, which is made only on ``create``. Raises ``ConfigError`` without one."""
        with Store(self.settings.store, create=create) as store:
            yield self.pins_in(store)

    def pins_in(self, store: Store) -> Pins:
        """The pins in a store that is open."""
        settings = self.settings
        public_bytes = self.identity.public_bytes
        return Pins(store, node=settings.node, federation=settings.federation, public_bytes=public_bytes)

    def pinned(self) -> list[tuple[CohortManifest, Pinned]]:
        """Every manifest that is pinned now, checked, with who pinned it and when; none before there is a store."""
        if not exists(self.settings.store):
            return []
        with self.pins() as pins:
            return pins.held()

    def check(self, manifest: CohortManifest) -> None:
        """Raise ``CertificateError`` when this node could never trust ``manifest``."""
        if exists(self.settings.store):
            with self.pins() as pins:
                pins.check(manifest)
        check_own(
            manifest,
            node=self.settings.node,
            federation=self.settings.federation,
            public_bytes=self.identity.public_bytes,
        )


def named_values(given: Sequence[str], option: str, what: str) -> dict[str, str]:
    """``NODE=WHAT`` of a repeatable option, by node. Raises ``ConfigError`` for a malformed or repeated one."""
    found: dict[str, str] = {}
    for text in given:
        node, sign_, value = text.partition("=")
        if not (node and sign_ and value):
            raise ConfigError(f"{option} {shown(text)!r} is not NODE={what}", hint=f"as in {option} hospital-b={what}")
        if node in found:
            raise ConfigError(f"{option}: node {shown(node)} is given twice", hint="once is enough")
        found[node] = value
    return found


def new_file(path: Path) -> Path:
    """``path``, where nothing must be. Raises ``ConfigError``."""
    if exists(path, ConfigError) or path.is_symlink():
        raise ConfigError(f"{shown(path)}: exists already", hint="name another file, or move it away")
    return path


def form(site: Site, cohort: str, others: dict[str, str], version: int | None, out: Path) -> CohortManifest:
    """An unsigned manifest of this node and ``others`` (node -> file of its public key), written to ``out``.

    Without ``version`` it is 1, or one more than that of the cohort's last pin. Raises ``ConfigError`` or
    ``CertificateError``: a malformed name, key or version, or what this node could never trust.
    """
    own = site.settings.node
    if own in others:
        raise ConfigError(
            f"--node {own}: is this node itself, whose key comes from its own folder",
            hint="give the other nodes only; is --dir the right one?",
        )
    keys = {own: site.identity.public_bytes}
    keys |= {node: load_public_identity(Path(path)) for node, path in others.items()}
    new_file(out)
    if version is None:
        version = _next_version(site, cohort)
    try:
        manifest = CohortManifest.form(site.settings.federation, cohort, version, keys)
    except ConfigError as error:
        raise ConfigError(str(error), hint="give every node once, with the identity.pub of its own") from None
    site.check(manifest)
    write_manifest(out, manifest)
    return manifest


def _next_version(site: Site, cohort: str) -> int:
    if not exists(site.settings.store):
        return 1
    with site.pins() as pins:
        return 1 + pins.highest(cohort)


def sign(site: Site, path: Path, manifest: CohortManifest) -> CohortManifest:
    """``manifest`` of the file ``path`` with this node's signature, written back. Raises ``CertificateError`` for one
    that this node could never trust, or with a signature that is wrong."""
    site.check(manifest)
    manifest.missing_signatures()
    signed = manifest.signed(site.settings.node, site.identity)
    write_manifest(path, signed)
    return signed


def merge(paths: Sequence[Path], out: Path) -> CohortManifest:
    """One manifest with the signatures of several copies, written to ``out``: one of them, or a new file.

    Raises ``CertificateError`` naming the copy that is of another content or has a wrong signature.
    """
    if out not in paths:
        new_file(out)
    whole = read_manifest(paths[0])
    for path in paths:
        copy = read_manifest(path)
        try:
            whole = whole.merged(copy)
        except CertificateError as error:
            more = difference(whole, copy)
            raise CertificateError(f"{shown(path)}: {error}" + f" ({more})" * bool(more), hint=error.hint) from None
    write_manifest(out, whole)
    return whole


def compare(pinned: CohortManifest, other: CohortManifest, where: str) -> None:
    """Raise ``CertificateError`` unless ``other``, which ``where`` shows, is ``pinned`` and signed by all."""
    if words := difference(pinned, other):
        raise CertificateError(
            f"cohort {pinned.cohort}: {where} shows another manifest than this node has pinned: {words}",
            hint="a newer one must be signed by all and compared before `fedsecure node cohort trust`; if nobody knows "
            "of a change, somebody tampers",
        )
    other.require_signed()


def ask_coordinator(
    site: Site, ask: Iterable[str], pinned: Mapping[str, CohortManifest] | None = None
) -> dict[str, CohortManifest]:
    """What the coordinator shows under each of the digests (64 hexadecimal digits). Trusts nothing. ``pinned``: the
    manifests of these digests that are pinned here, if they are, to name what the coordinator does not have.

    Raises ``WireError`` without a connection, else the coordinator's error, or ``RemoteProtocolError`` for an answer
    that is no manifest, is another one, or has a wrong signature.
    """
    client = connect(site.settings, threading.Event()).client
    try:
        return {digest: _received(client, digest, (pinned or {}).get(digest)) for digest in ask}
    finally:
        client.close()


def _received(client: CoordinatorClient, digest: str, held: CohortManifest | None) -> CohortManifest:
    """The coordinator's manifest under ``digest``. Raises as ``ask_coordinator``."""
    try:
        data = client.cohort_manifest(digest)
    except RemoteProtocolError as error:
        if held is None:
            raise
        raise RemoteProtocolError(
            f"cohort {held.cohort}: the coordinator does not show version {held.version}, which is pinned here "
            f"({error})",
            hint="send its operator this version's file, to add: fedsecure coordinator cohort add FILE",
        ) from None
    try:
        manifest = parse_manifest(data, "the coordinator's manifest")
        manifest.missing_signatures()
    except (ConfigError, CertificateError) as error:
        raise RemoteProtocolError(str(error), hint="the coordinator is at fault; tell its operator") from None
    if manifest.digest.hex() != digest:
        raise RemoteProtocolError(
            f"the coordinator sent a manifest with the digest {manifest.digest.hex()}, not {digest}",
            hint="it is at fault, or dishonest: tell the other operators",
        )
    return manifest
