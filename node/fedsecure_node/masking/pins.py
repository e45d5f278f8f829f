"""Pins: the manifests of cohorts that this node's people compared and trust. The node is summed with no other cohort.

A pin is on the disk before ``pin`` returns. Whatever reads one checks it again in full: digest, every signature, this
node's own key. Nothing that a coordinator sends becomes a pin by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from fedsecure.config import canonical_json
from fedsecure.crypto.signatures import identity_fingerprint
from fedsecure.errors import CertificateError, ConfigError, FedSecureError, StoreError
from fedsecure.secagg.cohort.comparison import require_newer
from fedsecure.secagg.cohort.manifest import CohortManifest, parse_manifest
from fedsecure_node.store.pinbook import PinBook, Pinned
from fedsecure_node.store.store import Store, now_ms

__all__ = ["Pins", "check_own"]


def check_own(manifest: CohortManifest, *, node: str, federation: str, public_bytes: bytes) -> None:
    """Raise ``CertificateError`` unless the manifest is of this federation and names this node with its own key."""
    if manifest.federation != federation:
        raise CertificateError(
            f"cohort {manifest.cohort}: is of federation {manifest.federation}, this node is of {federation}",
            hint="check the file, and federation in node.toml",
        )
    named = manifest.member(node)
    if named.public_bytes != public_bytes:
        raise CertificateError(
            f"cohort {manifest.cohort}: version {manifest.version} names the key {named.fingerprint} for this node "
            f"{node}, whose own is {identity_fingerprint(public_bytes)}",
            hint="do not sign or trust it; a manifest with this node's own identity.pub is due",
        )


class Pins:
    """The cohorts that node ``node`` of ``federation``, with the identity key ``public_bytes`` (32 bytes), trusts."""

    def __init__(self, store: Store, *, node: str, federation: str, public_bytes: bytes) -> None:
        self._book: PinBook = store.pins
        self._where = f"{store.database.path}: pin of cohort"
        self._node, self._federation, self._public = node, federation, public_bytes

    def held(self) -> list[tuple[CohortManifest, Pinned]]:
        """Every manifest that is pinned now, checked, with who pinned it and when; in order of the cohorts' names.

        Raises ``StoreError`` naming one that is damaged or changed, ``CertificateError`` for one that no longer goes
        with this node's key or federation.
        """
        return [(self._manifest(row), row) for row in self._book.all()]

    def for_nodes(self, nodes: Iterable[str]) -> CohortManifest:
        """The pinned manifest of exactly these nodes. Raises ``ConfigError`` when there is none, else as ``held``."""
        due = sorted(set(nodes))
        for manifest, _ in self.held():
            if [m.node for m in manifest.nodes] == due:
                return manifest
        for row in self._book.given_up():
            if _nodes_of(row) == due:
                raise ConfigError(
                    f"cohort {row.cohort}, of exactly the nodes {', '.join(due)}, is no longer trusted by node "
                    f"{self._node}",
                    hint="its people took that back; only they can trust it anew: fedsecure node cohort trust FILE",
                )
        raise ConfigError(
            f"no cohort of exactly the nodes {', '.join(due)} is trusted by node {self._node}",
            hint="pin the manifest that all of them signed: fedsecure node cohort trust FILE --digest DIGEST",
        )

    def by_digest(self, digest: str) -> CohortManifest | None:
        """The manifest that is pinned now under ``digest`` (64 hexadecimal digits); ``None`` when there is none, also
        when a higher version took its place. Raises as ``held``."""
        row = next((row for row in self._book.all() if row.digest == digest), None)
        return None if row is None else self._manifest(row)

    def highest(self, cohort: str) -> int:
        """The version of the cohort's last pin, whether it counts or was given up; 0 when there was none."""
        rows = (*self._book.all(), *self._book.given_up())
        return max((row.version for row in rows if row.cohort == cohort), default=0)

    def check(self, manifest: CohortManifest) -> None:
        """Whether this node may trust ``manifest`` once all have signed it. Raises ``CertificateError``: another
        federation, another key of this node, an older version than is or was pinned, or nodes that are pinned under
        another name."""
        check_own(manifest, node=self._node, federation=self._federation, public_bytes=self._public)
        nodes = [m.node for m in manifest.nodes]
        for row in self._book.all():
            held = _parsed(row, self._where)
            if held.cohort == manifest.cohort:
                require_newer(manifest, held, "this node's pin")
            elif [m.node for m in held.nodes] == nodes:
                raise CertificateError(
                    f"cohort {manifest.cohort}: its nodes are pinned already, as cohort {held.cohort}",
                    hint=f"the same nodes are one cohort: give the change the name {held.cohort} and version "
                    f"{held.version + 1}",
                )
        for row in self._book.given_up():
            if row.cohort == manifest.cohort:
                self._check_last(row, manifest)

    def pin(self, manifest: CohortManifest, *, by: str = "") -> bool:
        """Trust ``manifest`` from now on, in place of a lower version; ``by``: who compared it. On the disk on return.

        Returns whether anything changed. Raises ``CertificateError``: not signed by all, or as ``check``.
        """
        manifest.require_signed()
        with self._book.turn():
            self.check(manifest)
            digest = manifest.digest.hex()
            if any(row.digest == digest for row in self._book.all()):
                return False
            data = canonical_json(manifest)
            self._book.put(digest, manifest.cohort, manifest.version, data, by=by, now_ms=now_ms())
        return True

    def _check_last(self, row: Pinned, manifest: CohortManifest) -> None:
        """As ``check``, against a pin that was given up; one that is damaged says nothing any more."""
        try:
            held = _parsed(row, self._where)
        except StoreError:
            return
        require_newer(manifest, held, "this node's last pin")

    def _manifest(self, row: Pinned) -> CohortManifest:
        manifest = _parsed(row, self._where)
        check_own(manifest, node=self._node, federation=self._federation, public_bytes=self._public)
        return manifest


def _nodes_of(row: Pinned) -> list[str]:
    """The nodes of a row's manifest; none when that is damaged."""
    try:
        return [m.node for m in parse_manifest(row.manifest, f"cohort {row.cohort}").nodes]
    except ConfigError:
        return []


def _parsed(row: Pinned, where: str) -> CohortManifest:
    """The manifest of a row, whole and signed by all. Raises ``StoreError`` naming it."""
    try:
        manifest = parse_manifest(row.manifest, f"cohort {row.cohort}")
        manifest.require_signed()
        whole = (manifest.digest.hex(), manifest.cohort, manifest.version) == (row.digest, row.cohort, row.version)
        fault = "" if whole else "not what was pinned"
    except FedSecureError as error:
        fault = str(error)
    if fault:
        raise StoreError(f"{where} {row.cohort}: damaged or changed: {fault}", hint="restore the store from a backup")
    return manifest
