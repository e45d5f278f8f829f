"""Previews of releases that are in a node's store: one, or all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsecure.tensors import Tensors
from fedsecure_node.assemble import open_log
from fedsecure_node.log.masks import kept_digest
from fedsecure_node.log.noised import by_stream
from fedsecure_node.log.releases import find_release, fold
from fedsecure_node.preview.release import make_preview, write_preview
from fedsecure_node.settings import load_settings
from fedsecure_node.store.files import read_digest_named
from fedsecure_node.store.store import Store

__all__ = ["preview_releases"]


def preview_releases(folder: Path, wanted: str, out: Path) -> dict[int, dict[str, Path]]:
    """Write previews into ``out``: of the release that ``wanted`` names, or of every one when it is ``all``.

    ``folder``: the node's. Returns the files by release number and kind (``html``, ``png``). Raises ``ConfigError``
    when there is no such release or ``out`` cannot be written, ``ReleaseLogError`` when the log does not verify.
    """
    settings = load_settings(folder)
    written = {}
    with Store(settings.store, create=False) as store:
        releases = fold(open_log(store, settings).records())
        for release in releases.values() if wanted == "all" else [find_release(releases, wanted)]:
            plan = store.plans.get(release.key.plan).plan()
            kept = kept_digest(release.body)
            data = read_digest_named(store.runs.payload_path(kept), kept, "release")
            cut = len(data) - int(release.body["payload"]["released_bytes"])
            made = make_preview(release, plan, _summed(data[:cut], release.body), Tensors.from_bytes(data[cut:]))
            written[release.number] = write_preview(made, out, release.number)
    return written


def _summed(data: bytes, body: Mapping[str, Any]) -> Tensors:
    """The summed half as it is kept; where noise is on it, the vectors of its streams."""
    secagg = body.get("secagg", {})
    if not secagg.get("noise"):
        return Tensors.from_bytes(data)
    return by_stream(data, {stream["name"]: int(stream["frac_bits"]) for stream in secagg["streams"]})
