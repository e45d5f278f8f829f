"""``fedsecure node cohort``: with which nodes this one is summed, agreed upon by people, never by the coordinator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsecure.commands.manifests import report_manifest
from fedsecure.commands.output import JsonOption, emit_json, say
from fedsecure.files import quoted
from fedsecure_node.cli import cohort_trust
from fedsecure_node.cli.cohort_trust import FileArgument
from fedsecure_node.cli.options import DirOption

if TYPE_CHECKING:
    from fedsecure.secagg.cohort.manifest import CohortManifest
    from fedsecure_node.cli.cohort_steps import Site

__all__ = ["app"]

app = typer.Typer(
    name="cohort",
    help="With which nodes this one is summed under masks: agree on it, sign it, trust it.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

FileOrPinned = Annotated[
    Path | None, typer.Argument(metavar="FILE", readable=False, help="A manifest; default: what is pinned.")
]
OutOption = Annotated[Path, typer.Option(metavar="FILE", readable=False, help="File to write.")]


@app.command()
def form(
    cohort: Annotated[str, typer.Argument(metavar="COHORT", help="Name of the cohort, as in cardiology.")],
    nodes: Annotated[
        list[str],
        typer.Option("--node", metavar="NODE=PUB", help="Another node and its identity.pub; repeat for each."),
    ],
    out: OutOption,
    version: Annotated[
        int | None, typer.Option(help="Default: 1, or one more than that of the cohort's pin here.")
    ] = None,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Make an unsigned manifest of this node and others. All of them are to compare and sign it."""
    from fedsecure_node.cli.cohort_steps import Site, named_values
    from fedsecure_node.cli.cohort_steps import form as form_manifest

    others = named_values(nodes, "--node", "identity.pub")
    manifest = form_manifest(Site.at(folder), cohort, others, version, out)
    if report_manifest(manifest, as_json, file=str(out)):
        return
    say(f"written to {out}. Next, each operator compares every fingerprint with its owner, then signs:")
    say(f"  fedsecure node cohort sign {quoted(out)} --dir {quoted(folder)}")


@app.command()
def show(file: FileOrPinned = None, folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Show nodes, fingerprints and signatures. Also how many nodes a sum needs and what that withstands and, of what is
    pinned, who was missing from its sums."""
    from fedsecure.commands.manifests import manifest_json, say_manifest
    from fedsecure.secagg.cohort.manifest import read_manifest

    if file is not None:
        found: list[tuple[CohortManifest, dict[str, Any]]] = [(read_manifest(file), {})]
    else:
        found = _pinned(folder)
    if as_json:
        emit_json({"cohorts": [{**manifest_json(manifest), **more} for manifest, more in found]})
        return
    if not found:
        say("no cohort is trusted: this node takes part in no sum under masks")
    for manifest, more in found:
        say_manifest(manifest)
        if more:
            say(f"trusted since {more['pinned']}" + f", by {more['pinned_by']}" * bool(more["pinned_by"]))
            for line in more["findings"]:
                say(line)


def _pinned(folder: Path) -> list[tuple[CohortManifest, dict[str, Any]]]:
    """What is pinned, with who did and when, and who was missing from its sums, this node or others, by the verified
    log."""
    from fedsecure_node.cli.cohort_steps import Site
    from fedsecure_node.cli.releases import read_records
    from fedsecure_node.log.absences import absence_lines, missed, standing
    from fedsecure_node.log.maskedrounds import known_sums, masked_rounds
    from fedsecure_node.log.releases import fold
    from fedsecure_node.store.store import iso_time

    found = []
    held = Site.at(folder).pinned()
    releases = fold(read_records(folder)).values() if held else ()
    for manifest, row in held:
        sums = masked_rounds(releases, manifest.cohort)
        more = {"pinned": iso_time(row.pinned_ms), "pinned_by": row.pinned_by, "sums": len(sums)}
        own = standing(releases, manifest.cohort)
        findings = [*own.lines(), *absence_lines(known_sums(releases, manifest.cohort))]
        found.append((manifest, {**more, "missed": missed(sums), "own": own.to_json(), "findings": findings}))
    return found


@app.command()
def sign(file: FileArgument, folder: DirOption = Path(), as_json: JsonOption = False) -> None:
    """Add this node's signature to a manifest. Only after you compared every fingerprint in it with its owner."""
    from fedsecure.commands.manifests import say_manifest
    from fedsecure.secagg.cohort.manifest import read_manifest
    from fedsecure_node.cli.cohort_steps import Site
    from fedsecure_node.cli.cohort_steps import sign as sign_manifest

    site, manifest = Site.at(folder), read_manifest(file)
    if not as_json:
        say_manifest(manifest)
    signed = sign_manifest(site, file, manifest)
    if as_json:
        report_manifest(signed, as_json, file=str(file), signed_by=site.settings.node)
        return
    say(f"signed by {site.settings.node}, {site.identity.fingerprint}: {file}")
    _say_next(signed, file)


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", readable=False, help="Copies of one manifest.")],
    out: OutOption,
    as_json: JsonOption = False,
) -> None:
    """Put the signatures of several copies into one file."""
    from fedsecure_node.cli.cohort_steps import merge as merge_manifests

    whole = merge_manifests(files, out)
    if not report_manifest(whole, as_json, file=str(out)):
        _say_next(whole, out)


app.command()(cohort_trust.trust)
app.command()(cohort_trust.untrust)


@app.command()
def verify(
    file: FileOrPinned = None,
    coordinator: Annotated[
        bool, typer.Option("--coordinator", help="Also ask the coordinator what it shows, and compare.")
    ] = False,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Check what is pinned, and compare a file with it. That is whole and signed by all; FILE, or what the coordinator
    shows, must be the same."""
    from fedsecure_node.cli.cohort_steps import Site

    site = Site.at(folder)
    compared = _compared(site, file, coordinator=coordinator)
    if as_json:
        emit_json({"ok": True, "cohorts": compared})
        return
    for item in compared:
        same = f", the same as {' and '.join(item['compared'])}" if item["compared"] else ""
        say(f"cohort {item['cohort']}, version {item['version']}, {item['digest'][:12]}: whole, signed by all{same}")


def _compared(site: Site, file: Path | None, *, coordinator: bool) -> list[dict[str, Any]]:
    """Each cohort that was checked and what it was compared with. Raises ``CertificateError`` for a difference."""
    from fedsecure.errors import ConfigError
    from fedsecure.files import shown
    from fedsecure.secagg.cohort.manifest import read_manifest
    from fedsecure_node.cli.cohort_steps import ask_coordinator, compare

    other = read_manifest(file) if file is not None else None
    held = [manifest for manifest, _ in site.pinned()]
    if other is not None:
        held = [manifest for manifest in held if manifest.cohort == other.cohort]
    if not held:
        which = f"cohort {other.cohort}" if other is not None else "no cohort"
        raise ConfigError(
            f"{which} is {'not ' * (other is not None)}trusted by node {site.settings.node}",
            hint="pin a manifest that all signed: fedsecure node cohort trust FILE --digest DIGEST",
        )
    compared: dict[str, list[str]] = {manifest.digest.hex(): [] for manifest in held}
    if other is not None and file is not None:
        compare(held[0], other, shown(file))
        compared[held[0].digest.hex()].append(shown(file))
    if coordinator:
        pinned = {manifest.digest.hex(): manifest for manifest in held}
        for digest, manifest in ask_coordinator(site, compared, pinned).items():
            compare(pinned[digest], manifest, "the coordinator")
            compared[digest].append("the coordinator's")
    return [
        {"cohort": m.cohort, "version": m.version, "digest": m.digest.hex(), "compared": compared[m.digest.hex()]}
        for m in held
    ]


@app.command()
def fetch(
    digest: Annotated[str, typer.Argument(metavar="DIGEST", help="Its digest, as another operator told you.")],
    out: OutOption,
    folder: DirOption = Path(),
    as_json: JsonOption = False,
) -> None:
    """Download a manifest from the coordinator to a file. It trusts nothing: compare the file, then trust it."""
    from fedsecure.secagg.cohort.comparison import digest_from
    from fedsecure.secagg.cohort.manifest import write_manifest
    from fedsecure_node.cli.cohort_steps import Site, ask_coordinator, new_file

    due = digest_from(digest)
    site = Site.at(folder)
    new_file(out)
    manifest = ask_coordinator(site, [due])[due]
    write_manifest(out, manifest)
    if not report_manifest(manifest, as_json, file=str(out)):
        _say_next(manifest, out)


def _say_next(manifest: CohortManifest, file: Path) -> None:
    missing = manifest.missing_signatures()
    if missing:
        say(f"still to sign: {', '.join(missing)}")
        return
    say("signed by all. Next, at each node, after comparing the digest with the other operators by telephone:")
    say(f"  fedsecure node cohort trust {quoted(file)} --digest DIGEST")
