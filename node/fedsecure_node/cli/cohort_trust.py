"""``fedsecure node cohort trust | untrust``: a person pins a manifest, or takes that back; the log has both."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsecure.commands.manifests import report_manifest
from fedsecure.commands.output import JsonOption, emit_json, note, say
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure.secagg.cohort.manifest import CohortManifest

__all__ = ["FileArgument", "trust", "untrust"]

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", readable=False, help="The manifest.")]


def trust(
    file: FileArgument,
    digest: Annotated[
        str | None, typer.Option(help="The digest, as another operator told you by another way than the file.")
    ] = None,
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE=FINGERPRINT", help="Instead: that of each other node, from its owner; repeatable."),
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Pin FILE: this node may be summed with the nodes in it. Only when all of them signed it, and only after you
    compared its digest, or the fingerprints in it, with the other operators."""
    from fedsecure.secagg.cohort.comparison import require_digest, require_fingerprints
    from fedsecure.secagg.cohort.manifest import read_manifest
    from fedsecure.secagg.cohort.overlap import overlap_warnings
    from fedsecure_node.cli.cohort_pinning import pin
    from fedsecure_node.cli.cohort_steps import Site, named_values
    from fedsecure_node.plans.approvals import who

    given = named_values(fingerprint or [], "--fingerprint", "SHA256:…")
    site, manifest = Site.at(folder), read_manifest(file)
    site.check(manifest)
    manifest.require_signed()
    ask = digest is None and not given
    if ask:
        digest = _ask(file, manifest, as_json=as_json)
    if digest is not None:
        require_digest(manifest, digest)
    if given:
        require_fingerprints(manifest, given, own=site.settings.node)
    by = who()
    new = pin(site, manifest, by=by)
    overlaps = overlap_warnings(manifest, (other for other, _ in site.pinned()))
    if ask or not report_manifest(manifest, as_json, pinned_by=by, new=new, overlaps=overlaps):
        for line in overlaps:
            note(f"warning: {line}")
        say(f"trusted by {by}" if new else "trusted already")


def _ask(file: Path, manifest: CohortManifest, *, as_json: bool) -> str:
    """The digest as the person at the terminal was told it. Raises ``ConfigError`` where nobody can be asked."""
    from fedsecure.commands.manifests import say_manifest
    from fedsecure.errors import ConfigError
    from fedsecure.files import shown

    if as_json or not sys.stdin.isatty():
        raise ConfigError(
            f"{shown(file)}: its digest needs a comparison, and there is no terminal to ask for it",
            hint="compare it with the other operators, then give it as --digest",
        )
    say_manifest(manifest)
    return str(typer.prompt("The digest, as another operator read it out to you", err=True))


def untrust(
    cohort: Annotated[str, typer.Argument(metavar="COHORT", help="Name of a cohort that is trusted.")],
    reason: Annotated[str, typer.Option(help="Why; kept in the log.")] = "",
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Take the trust in a cohort back, at once: this node gives nothing more to its sums, and leaves runs that need
    them. Only trust brings it back."""
    from fedsecure_node.cli.cohort_pinning import unpin
    from fedsecure_node.cli.cohort_steps import Site
    from fedsecure_node.plans.approvals import who

    decision = unpin(Site.at(folder), cohort, by=who(), reason=reason)
    if as_json:
        emit_json(decision.to_json())
        return
    say(decision.line())
    say("whatever asks for its masks is refused from now on (BAD_COHORT); a sum that was unmasked before stays so")
