"""How a cohort's manifest is shown to people and machines, by a node as by the coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedsecure.commands.output import emit_json, note, say

if TYPE_CHECKING:
    from fedsecure.secagg.cohort.manifest import CohortManifest

__all__ = ["manifest_json", "report_manifest", "say_manifest", "warn_of"]


def manifest_json(manifest: CohortManifest) -> dict[str, Any]:
    """The manifest as an object: who is in it, who signed, t, and what that withstands.

    Raises ``CertificateError`` naming a node with a bad signature.
    """
    missing = manifest.missing_signatures()
    threshold = manifest.threshold
    return {
        "federation": manifest.federation,
        "cohort": manifest.cohort,
        "version": manifest.version,
        "digest": manifest.digest.hex(),
        "nodes": [
            {"node": m.node, "key": m.key, "fingerprint": m.fingerprint, "signed": m.node not in missing}
            for m in manifest.nodes
        ],
        "missing": list(missing),
        "threshold": threshold.required,
        "dropouts": threshold.dropouts,
        "colluders": threshold.colluders,
        "warnings": _warnings(manifest),
    }


def report_manifest(manifest: CohortManifest, as_json: bool, **more: Any) -> bool:
    """The manifest for machines, with ``more``, or as a table; returns ``as_json``. Raises as ``manifest_json``."""
    if as_json:
        emit_json({**manifest_json(manifest), **more})
    else:
        say_manifest(manifest)
    return as_json


def say_manifest(manifest: CohortManifest) -> None:
    """The manifest as a table on stdout, and what there is to warn of on stderr. Raises as ``manifest_json``."""
    from fedsecure.secagg.cohort.comparison import spaced

    missing = manifest.missing_signatures()
    say(f"cohort {manifest.cohort}, version {manifest.version}, of federation {manifest.federation}")
    say(f"digest  {spaced(manifest.digest.hex())}")
    width = max(len(m.node) for m in manifest.nodes)
    for member in manifest.nodes:
        say(f"  {member.node:<{width}}  {member.fingerprint}  {'NOT SIGNED' if member.node in missing else 'signed'}")
    threshold = manifest.threshold
    most = f"up to {threshold.dropouts} may drop out" if threshold.dropouts else "none may drop out"
    say(f"a sum needs {threshold.required} of {threshold.nodes} nodes to its end: {most}; a plan may ask for more")
    say(f"a coordinator that colludes with at most {threshold.colluders} of the nodes learns no single node's vector")
    warn_of(manifest)


def warn_of(manifest: CohortManifest) -> None:
    """What there is to warn of, on stderr."""
    for line in _warnings(manifest):
        note(f"warning: {line}")


def _warnings(manifest: CohortManifest) -> list[str]:
    threshold = manifest.threshold
    if not threshold.is_small:
        return []
    return [
        f"cohort {manifest.cohort} has only {threshold.nodes} nodes: each sum is over few vectors, and "
        f"{threshold.nodes - 1} of its nodes together know the last one's"
    ]
