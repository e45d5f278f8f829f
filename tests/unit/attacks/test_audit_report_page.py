"""The page of a report: for every mode and verdict the same bytes twice, nothing loaded or run, every string escaped,
and what a person who cannot see it needs."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import matplotlib
import pytest
from report_samples import ALL, MODES, WORST, sample

from fedsecure_attacks.report import render
from fedsecure_attacks.report.drawing import COLOURS, drawable
from fedsecure_attacks.report.figure import Figure
from fedsecure_attacks.report.figures import _lines, figures
from fedsecure_attacks.report.render import html
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.verdict import Word

VOID = {"meta", "img", "br", "hr", "link", "input", "col"}
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202egnp.exe\u0007{{7*7}}"


class Page(HTMLParser):
    """All start tags with attributes, text by enclosing tag, and whether tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *without: str) -> str:
        return " ".join(data for tag, data in self.texts if tag not in {"style", *without})


@cache
def drawn(mode: str, leak: bool) -> tuple[Figure, ...]:
    """Drawn once: figures know of no verdict."""
    return figures(sample(mode, Word.LEAK if leak else Word.NO_LEAK_DETECTED))


class Pages(dict[tuple[str, Word], str]):
    """Pages by mode and verdict, each made when it is asked for."""

    def __missing__(self, asked: tuple[str, Word]) -> str:
        mode, word = asked
        return self.setdefault(asked, html(sample(mode, word), drawn=drawn(mode, word is Word.LEAK)))


@pytest.fixture(scope="module")
def pages() -> Pages:
    return Pages()


@pytest.mark.parametrize(("mode", "word"), ALL)
def test_the_first_page_answers_every_question(pages, mode, word):
    text = " ".join(Page(pages[mode, word]).text().split())
    assert word.value in text
    for question in ("What was asked", "Who could attack", "What was found", "How many people", "How sure",
                     "What to do, and what would change this"):  # fmt: skip
        assert question in text
    assert "None" not in text
    assert "{" not in text


@pytest.mark.parametrize(("mode", "word"), ALL)
def test_it_is_well_formed_and_accessible(pages, mode, word):
    page = Page(pages[mode, word])
    assert page.open == []
    assert page.named("html")[0]["lang"] == "en"
    assert len(page.named("h1")) == 1
    assert len(page.named("title")) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [a["id"] for _, a in page.tags if a.get("id")]
    assert len(ids) == len(set(ids))
    plots = [a for a in page.named("img") if str(a["src"]).startswith("data:image/svg+xml;base64,")]
    assert len(plots) == len(drawn(mode, word is Word.LEAK))
    assert len(plots) == len(page.named("figure")) == len(page.named("figcaption")) == len(page.named("details"))
    assert all("The table below holds the values." in str(a["alt"]) for a in plots)
    assert all(int(str(a["width"])) > int(str(a["height"])) > 200 for a in plots)
    assert all(a.get("scope") in {"col", "row"} for a in page.named("th"))
    assert len(page.named("caption")) == len(page.named("table"))
    assert all(a.get("alt") for a in page.named("img"))
    assert page.tags[[t for t, _ in page.tags].index("body") + 1] == ("a", {"class": "skip", "href": "#main"})
    targets = [str(a["href"]) for a in page.named("a")]
    assert all(t.startswith("#") and t[1:] in ids for t in targets)


@pytest.mark.parametrize(("mode", "word"), ALL)
def test_nothing_is_loaded_or_run_and_nothing_is_called_harmless(pages, mode, word):
    text = pages[mode, word]
    page = Page(text)
    tags = {tag for tag, _ in page.tags}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base", "audio", "video", "use"}
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "href", "xlink:href", "action"):
            value = str(attributes.get(name) or "#")
            assert value.startswith(("#", "data:image/png;base64,", "data:image/svg+xml;base64,")), value
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    policy = next(a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy).startswith("default-src 'none'; style-src 'sha256-")
    assert "img-src data:;" in str(policy)
    assert "safe" not in text.lower()


def test_the_word_is_in_no_template_and_in_no_sentence():
    folder = Path(render.__file__).parent
    for path in [*folder.rglob("*.j2"), *folder.rglob("*.css"), *folder.rglob("*.py"), folder / "schema.json"]:
        text = path.read_text(encoding="utf-8").lower().replace("markupsafe", "")
        assert "safe" not in text, path


@pytest.mark.parametrize("mode", MODES)
def test_the_same_report_gives_the_same_bytes(pages, mode, monkeypatch):
    monkeypatch.setitem(matplotlib.rcParams, "lines.linewidth", 9)  # a user's own looks are not the report's
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    word = WORST[mode]
    assert html(copy.deepcopy(sample(mode, word))) == pages[mode, word]
    assert not re.search(r"20\d\d-\d\d-\d\d", Page(pages[mode, word]).text())
    assert "2026-11-30" in html(sample(mode, word), date="2026-11-30")


@pytest.mark.parametrize("mode", MODES)
def test_every_string_is_hostile_and_none_gets_through(mode):
    def spoilt(value, key=""):
        kept = {"verdict", "mode", "threat_model", "plan_sha256", "record", "member_id", "nonmember_id"}
        if isinstance(value, dict):
            if key in {"inputs_sha256", "pictures"}:
                return {(k if key == "pictures" else HOSTILE[:100] + k): v for k, v in value.items()}
            free = {"controls", "attacks", "roc", "theory", "counts", "active", "plan"}
            return {(HOSTILE[:80] + k if key in free and k != "thresholds" else k): spoilt(v, k)
                    for k, v in value.items()}  # fmt: skip
        if isinstance(value, list):
            return [spoilt(v, key) for v in value]
        return HOSTILE if isinstance(value, str) and key not in kept else value

    report = spoilt(sample(mode, WORST[mode]))
    report["plan_sha256"] = plan_sha256(report["plan"])
    if "hidden_by_masks" in report:
        report["hidden_by_masks"] = [f"{HOSTILE[:80]}copy-scan"]
    report["counts"] = {HOSTILE: HOSTILE, **report["counts"]}
    text = html(report)
    page = Page(text)
    assert page.open == []
    assert "<script" not in text
    assert "<img src=x" not in text
    assert "\u202e" not in text
    assert "\u0007" not in text
    assert "{{7*7}}" in page.text()
    assert not [name for _, a in page.tags for name in a if name.startswith("on")]
    assert len(page.named("h1")) == 1


def test_figures_are_pictures_that_hold_no_text_and_load_nothing():
    for figure in (*drawn("files", True), *drawn("mechanism", True)):
        root = ET.fromstring(figure.svg)
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert "path" in tags
        assert not tags & {"script", "text", "image", "foreignObject", "a", "date", "creator"}, figure.name
        links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href")]
        assert links
        assert all(link.startswith("#") for link in links)
        assert [e.text for e in root if e.tag.endswith("title")] == [figure.title]
        assert figure.pixels == tuple(round(96 * side) for side in figure.size)


def test_lines_differ_by_more_than_colour():
    report = sample("files", Word.LEAK)
    curve = report["roc"]["copy-scan"]
    report["roc"] = {report["primary"]: curve, **{f"attack {i}": curve for i in range(30)}}
    (figure,) = figures(report)
    assert "15 more attacks are in the table alone" in figure.caption
    assert len(figure.rows) == 31 + len(report["theory"])
    lines = _lines(report, dict.fromkeys(list(report["roc"])[:16], curve), report["theory"])
    looks = [(line.dash, line.marker, line.hollow, line.width) for line in lines]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("name", ["$x^2$", "$\\frac{", "_hidden", "病院", "a\nb\x1b[2J", "\udcff", "--><script>"])
def test_no_name_is_mathematics_or_breaks_a_picture(name):
    report = sample("mechanism", Word.LEAK)
    report["roc"] = {name: report["roc"]["copy-scan"]}
    report["sweep"] = [{**cell, "curve": name, "init": name} for cell in report["sweep"][:3]]
    for figure in figures(report):
        ET.fromstring(figure.svg)
    assert drawable(name).isprintable()
    assert not drawable(name).startswith("_")


@pytest.mark.parametrize("value", [0.0, 1e-300, 1e308, -5.0])
def test_any_number_that_the_schema_allows_is_drawn(value):
    report = sample("mechanism", Word.LEAK)
    share = min(max(value, 0.0), 1.0)
    curve = {key: [share, share] for key in ("fpr", "tpr", "low", "high")}
    report["roc"] = dict.fromkeys(report["roc"], curve)
    report["theory"] = {"theory": curve}
    for cell in report["sweep"]:
        cell.update(residual=abs(value), accuracy=share, ipc=10**19 if value > 1 else 0, sigma=abs(value))
        for attack in cell["attacks"].values():
            attack.update({"auc": share, "low": value, "high": value, "tpr_at_fpr_0.01": share, "low_tpr": share})
    page = Page(html(report))
    assert len(page.named("figure")) == 5


def test_what_masks_hide_and_what_was_measured_is_told(pages):
    text = " ".join(Page(pages["spm", Word.LEAK]).text().split())
    assert "copy-scan (masked)" in text
    assert "Masked: copy-scan." in text
    assert "effective rank of gradients: in so many directions people differ 11.5" in text
    assert "areas by theory · sum 0.6" in text
    assert "node · arrived 0.99" in " ".join(Page(pages["canaries", Word.INVALID]).text().split())


def test_scores_of_single_records_are_not_in_it(pages):
    text = pages["files", Word.LEAK]
    assert "Scores of single records are membership data" in text
    report = sample("files", Word.LEAK)
    report["scores"] = {"mean-tracing": [0.123456789, 9.87654321]}
    assert "9.87" not in html(report)
    assert "0.1234" not in html(report)


def test_a_class_below_the_minimum_has_a_word_and_not_colour_alone(pages):
    page = Page(pages["files", Word.LEAK])
    red = [a for _, a in page.tags if a.get("class") == "red"]
    assert red
    assert "BELOW THE MINIMUM" in page.text()
    assert "THIS IS A MEMBER'S RECORD" in page.text()


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_enough():
    style = (Path(render.__file__).with_name("templates") / "style.css").read_text(encoding="utf-8")
    assert all(contrast(colour, "#ffffff") >= 4.5 for colour in COLOURS)
    for rule in re.findall(r"{([^}]*)}", style):
        colour = re.search(r"(?<![-\w])color: (#[0-9a-f]{6})", rule)
        ground = re.search(r"background: (#[0-9a-f]{6})", rule)
        if colour:
            assert contrast(colour[1], ground[1] if ground else "#f3f4f6") >= 4.5, rule


def test_in_print_no_table_is_parted_from_its_heading():
    style = (Path(render.__file__).with_name("templates") / "style.css").read_text(encoding="utf-8")
    printed = style.partition("@media print")[2]
    assert "thead { display: table-header-group; break-inside: avoid; break-after: avoid; }" in printed
    assert "tbody tr:first-child { break-before: avoid; }" in printed
    assert "caption, tbody tr:first-child { break-after: avoid; }" in printed
    assert "p:has(+ .scroll), p:has(+ figure) { break-after: avoid; }" in printed
