"""The manifests of cohorts that this coordinator may sum: files that all of their nodes signed, added by its operator.

One file each, named by its digest, in a folder of their own (``<store>/cohorts``). Older versions stay, for runs that
began under them. A coordinator can change none of them unseen: nodes go by what they pinned themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fedsecure.errors import CertificateError, FedSecureError, StoreError
from fedsecure.files import exists, faults, private_folder
from fedsecure.locks import file_lock
from fedsecure.secagg.cohort.comparison import require_newer
from fedsecure.secagg.cohort.manifest import CohortManifest, read_manifest, write_manifest

__all__ = ["FOLDER", "Cohorts"]

#: The folder of the manifests in the coordinator's store.
FOLDER = "cohorts"
_HEX = frozenset("0123456789abcdef")


class Cohorts:
    """The manifests in ``folder``. Nothing is kept in memory: what a command adds counts for a running daemon at once.

    Reading checks digest and signatures again; each method raises ``StoreError`` naming a file that is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[CohortManifest]:
        """Every manifest, in order of cohorts' names and versions."""
        return sorted((self._read(name) for name in sorted(self.digests())), key=lambda m: (m.cohort, m.version))

    def digests(self) -> frozenset[str]:
        """Of all that are there, by the names of their files alone."""
        if not exists(self._folder):
            return frozenset()
        with faults(self._folder, "read"):
            return frozenset(p.stem for p in self._folder.glob("*.json") if _is_digest(p.stem))

    def newest(self) -> list[CohortManifest]:
        """The newest version of each cohort, in order of their names."""
        return list({manifest.cohort: manifest for manifest in self.all()}.values())

    def for_nodes(self, nodes: Iterable[str]) -> CohortManifest | None:
        """The cohort whose newest version has exactly these nodes, or ``None``."""
        due = sorted(set(nodes))
        return next((m for m in self.newest() if [each.node for each in m.nodes] == due), None)

    def by_digest(self, digest: str) -> CohortManifest | None:
        """The manifest of this digest (64 lower-case hexadecimal digits), also an older version, or ``None``."""
        return self._read(digest) if _is_digest(digest) and exists(self._path(digest)) else None

    def add(self, manifest: CohortManifest, *, federation: str) -> bool:
        """Keep ``manifest``; on the disk on return. Returns whether it is new.

        Raises ``CertificateError``: not signed by all, of another federation than ``federation``, older than what is
        here, or nodes that are here as another cohort.
        """
        if manifest.federation != federation:
            raise CertificateError(
                f"cohort {manifest.cohort}: is of federation {manifest.federation}, this coordinator of {federation}",
                hint="check the file, and federation in coordinator.toml",
            )
        manifest.require_signed()
        private_folder(self._folder)
        with file_lock(self._folder / "lock", exclusive=True):
            if self.by_digest(manifest.digest.hex()) is not None:
                return False
            self._check_place(manifest)
            write_manifest(self._path(manifest.digest.hex()), manifest)
        return True

    def _check_place(self, manifest: CohortManifest) -> None:
        nodes = [m.node for m in manifest.nodes]
        for held in self.newest():
            if held.cohort == manifest.cohort:
                require_newer(manifest, held, "this coordinator")
            elif [m.node for m in held.nodes] == nodes:
                raise CertificateError(
                    f"cohort {manifest.cohort}: its nodes are here already, as cohort {held.cohort}",
                    hint=f"the same nodes are one cohort: give the change the name {held.cohort} and version "
                    f"{held.version + 1}",
                )

    def _read(self, digest: str) -> CohortManifest:
        path = self._path(digest)
        try:
            manifest = read_manifest(path)
            manifest.require_signed()
            fault = "" if manifest.digest.hex() == digest else "its content has another digest than its name"
        except FedSecureError as error:
            fault = str(error)
        if fault:
            raise StoreError(
                f"{path}: a damaged or changed manifest: {fault}",
                hint="remove this file, and add the manifest again: fedsecure coordinator cohort add FILE",
            )
        return manifest

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"


def _is_digest(text: str) -> bool:
    return len(text) == 64 and not set(text) - _HEX
