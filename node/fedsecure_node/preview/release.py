"""What left, or waits to leave, for a person to look at: a contact sheet (PNG) and one self-contained HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsecure.errors import ConfigError
from fedsecure.plan import Plan
from fedsecure.plan.task import NumericColumn, TableTask
from fedsecure.privacy.labels import guarantee_words
from fedsecure.tensors import Array, Tensors
from fedsecure_node.log.audited import audit_words
from fedsecure_node.log.chain import ANNOUNCED, CONFIRMED, UNMASKED
from fedsecure_node.log.masks import kept_digest
from fedsecure_node.log.releases import Release
from fedsecure_node.plans.describe import floor_words, human_bytes
from fedsecure_node.preview.contact_sheet import Sheet, contact_sheet
from fedsecure_node.preview.sheet import Page, heat_table, histogram_table, key_values, table

__all__ = ["Preview", "make_preview", "write_preview"]

#: What a record of a masked sum tells: when, and of whose sum.
_OF_THE_SUM = {
    CONFIRMED: "This node confirmed on {time} the sum over {nodes}: it may have been read since.",
    UNMASKED: "It could be read on {time}: the sum over {nodes}.",
    ANNOUNCED: "On {time} the coordinator announced the sum over {nodes}: it was read.",
}
#: Rows of a condensed table that the page shows, and the largest matrix shown as a heat table (cells).
MAX_ROWS, MAX_HEAT = 200, 2500


@dataclass(frozen=True, slots=True)
class Preview:
    """The page, and the contact sheet when images are released."""

    html: bytes
    png: bytes | None


def make_preview(release: Release, plan: Plan, summed: Tensors, released: Tensors) -> Preview:
    """Build both from a verified log record and the exact tensors that were computed: those that the release holds, and
    those that leave inside a masked sum alone."""
    title = f"Release {release.number} of {release.node}"
    page = Page(title)
    body = release.body
    page.text(f"State: {release.words()}.", note=True)
    _what(page, release, plan)
    _protection(page, body)
    if release.is_masked:
        _masks(page, release)
    sheet = _images(page, release, plan, released)
    _tensors(page, body)
    _matrices(page, plan, summed, released)
    _values(page, summed, released, has_images=sheet is not None)
    _chain(page, release)
    return Preview(page.render(), sheet.png if sheet else None)


def _what(page: Page, release: Release, plan: Plan) -> None:
    body = release.body
    payload, destination = body["payload"], body["destination"]
    page.heading("What it is and where it goes")
    page.markup(
        key_values(
            {
                "plan": f"{plan.name} ({body['plan']['method']}, preset {body['plan']['preset']})",
                "plan digest": body["plan"]["digest"],
                "round": f"{body['round'] + 1} of {plan.rounds}",
                "exchange, attempt": f"{body['exchange']}, {body['attempt'] + 1}",
                "bytes": f"{payload['bytes']} ({human_bytes(payload['bytes'])})",
                "SHA-256 of the bytes": payload["sha256"],
                "destination": destination["address"],
                "its certificate": destination["certificate"],
                "logged at": release.time,
            }
        )
    )


def _protection(page: Page, body: Any) -> None:
    page.heading("What protects the records in it")
    page.text(f"Guarantee: {guarantee_words(body['guarantee'])}", note=True)
    for line in audit_words(body):
        page.text(line)
    page.text(f"Checked against the policy with SHA-256 {body['policy']}.")
    if "min_records_per_class" in body:
        page.text(f"{floor_words(body['min_records_per_class'])}.")
    page.heading("What the coordinator can learn")
    lines = list(body["learns"])
    page.lines(lines[:40] + ([f"and the same of {len(lines) - 40} more tensors"] if len(lines) > 40 else []))


def _masks(page: Page, release: Release) -> None:
    """Of a release whose summed half leaves inside a masked sum: which, and how far it is."""
    secagg = release.body["secagg"]
    cohort = secagg["cohort"]
    page.heading("Inside a masked sum")
    page.text(
        f"The tensors of the summed half are shown below as this node computed them. They do not leave like that, but "
        f"{_sum_words(secagg)}: masked, and summed with those of the others before anybody can read them.",
        note=True,
    )
    page.markup(
        key_values(
            {
                "cohort": f"{cohort['name']}, version {cohort['version']}",
                "its digest": cohort["digest"],
                "SHA-256 of the summed half": secagg["summed"]["sha256"],
                "its bytes": secagg["summed"]["bytes"],
                "bytes under masks": release.masked_bytes,
            }
        )
    )
    head = ("stream", "elements", "ring (bits)", "fractional bits", "largest value", "most records as weight")
    fields = ("name", "length", "ring_bits", "frac_bits", "clip_abs", "max_count")
    page.markup(table(head, [[stream[field] for field in fields] for stream in secagg["streams"]]))
    page.heading("What the coordinator can learn of the sum")
    page.lines(secagg["learns"])
    for event in release.events:
        if event.kind in _OF_THE_SUM:
            nodes = ", ".join(event.body["survivors"])
            page.text(_OF_THE_SUM[event.kind].format(time=event.time, nodes=nodes))


def _sum_words(secagg: Any) -> str:
    cohort = secagg["cohort"]
    least = secagg.get("least", cohort["threshold"])  # releases of before are of no fewer than t
    return f"inside a masked sum of at least {least} of {len(cohort['nodes'])} nodes"


def _images(page: Page, release: Release, plan: Plan, released: Tensors) -> Sheet | None:
    counts = release.body["class_counts"]
    if counts is not None:
        page.heading("Classes")
        page.markup(table(("class", "released"), [(n, c) for n, c in counts.items()]))
    labels, data = _of_role(release.body, "labels", released), _of_role(release.body, "condensed", released)
    if labels is None or data is None:
        return None
    if isinstance(plan.task, TableTask):
        _rows(page, plan.task, data, labels)
        return None
    page.heading("Condensed images")
    title = f"release {release.number}, {plan.name}, round {release.body['round'] + 1}"
    sheet = contact_sheet(plan.task, data, labels, title)
    page.image(sheet.png, "condensed images, a row for each class")
    page.text(
        f"{sheet.shown} of {sheet.total} images, as pixels: value x std + mean of the plan, then cut to [0, 1]; "
        f"{100 * sheet.clipped:.1f} % of the values lay outside and are shown at the edge. What leaves is not cut."
    )
    full = contact_sheet(plan.task, data, labels, f"{title}, whole range", stretch=True)
    page.image(full.png, "the same images, each over its own range of values")
    page.text("The same images, each drawn from its own least to its own greatest value: nothing is cut here.")
    return sheet


def _of_role(body: Any, role: str, released: Tensors) -> Array | None:
    """The released tensor that the log gives this role."""
    names = [row["name"] for row in body["tensors"] if row["half"] == "released" and row["role"] == role]
    return released[names[0]] if names else None


def _rows(page: Page, task: TableTask, rows: Array, labels: Array) -> None:
    page.heading("Condensed rows")
    head, columns, at = ["class"], [], 0
    for column in task.columns:
        if isinstance(column, NumericColumn):
            head.append(column.name)
            columns.append(rows[:, at] * column.std + column.mean)
            extra = ["missing?"][: column.width - 1]
        else:
            extra = [*column.levels, "missing"][: column.width]
        first = at + (1 if isinstance(column, NumericColumn) else 0)
        for offset, level in enumerate(extra):
            head.append(f"{column.name}: {level}")
            columns.append(rows[:, first + offset])
        at += column.width
    shown = [[task.classes[int(labels[i])], *(float(c[i]) for c in columns)] for i in range(min(len(rows), MAX_ROWS))]
    page.markup(table(head, shown))
    page.text(f"{len(shown)} of {len(rows)} rows; numbers in their own unit, levels as the weight of each (not cut).")


def _tensors(page: Page, body: Any) -> None:
    page.heading("Tensors")
    hidden = f"summed, {_sum_words(body['secagg'])}" if "secagg" in body else "summed"
    rows = [
        (
            hidden if t["half"] == "summed" else t["half"],
            t["name"],
            t["dtype"],
            " x ".join(map(str, t["shape"])) or "one number",
            t["bytes"],
            t["min"],
            t["max"],
        )
        for t in body["tensors"]
    ]
    page.markup(table(("half", "name", "type", "shape", "bytes", "least", "most"), rows))


def _matrices(page: Page, plan: Plan, summed: Tensors, released: Tensors) -> None:
    classes = plan.task.classes
    size = (len(classes), len(classes))
    for tensors in (summed, released):
        for name, array in tensors.items():
            if array.shape == size and array.dtype.kind == "f" and array.size <= MAX_HEAT:
                page.heading(f"{name.replace('_', ' ')} (row: class of the records, column: class of the model)")
                page.markup(heat_table(array, classes, classes))


def _values(page: Page, summed: Tensors, released: Tensors, *, has_images: bool) -> None:
    floats = {
        n: a
        for tensors in (summed, released)
        for n, a in tensors.items()
        if a.dtype.kind == "f" and not (has_images and a.ndim == 4)
    }
    if floats:
        page.heading("How the values spread")
        page.markup(histogram_table(Tensors(floats)))


def _chain(page: Page, release: Release) -> None:
    page.heading("In the log")
    page.markup(key_values({"record number": release.number, "hash of the record": release.hash}))
    if release.events:
        page.markup(
            table(
                ("record", "what", "when", "who", "why"),
                [(e.seq, e.kind, e.time, e.body.get("by", "-"), e.body.get("reason", "-")) for e in release.events],
            )
        )
    page.text(
        "The log is a chain: each record holds the hash of the one before and is signed with the node's identity key. "
        "To verify it, without a network and without the daemon:"
    )
    files = dict.fromkeys((release.payload, kept_digest(release.body)))
    commands = [f"sha256sum STORE/releases/{digest}.bin" for digest in files]
    page.code("\n".join(("fedsecure node verify-log --dir DIR", *commands)))


def write_preview(preview: Preview, folder: Path, number: int) -> dict[str, Path]:
    """Write ``release-N.html`` and, with images, ``release-N.png`` (0600). Returns what was written. Raises
    ``ConfigError``."""
    from fedsecure.files import make_folder, write_durably

    make_folder(folder, error=ConfigError)
    written = {"html": folder / f"release-{number}.html"}
    write_durably(written["html"], preview.html, error=ConfigError)
    if preview.png is not None:
        written["png"] = folder / f"release-{number}.png"
        write_durably(written["png"], preview.png, error=ConfigError)
    return written
