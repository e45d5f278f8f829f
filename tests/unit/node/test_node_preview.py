"""Previews: a page that is whole in itself, with every text escaped, and a contact sheet that opens."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from fedsecure.schema import Contribution
from fedsecure.tensors import Tensors
from fedsecure_node.log.records import release_body
from fedsecure_node.log.releases import Release
from fedsecure_node.preview.contact_sheet import contact_sheet, pixels
from fedsecure_node.preview.release import make_preview, write_preview
from fedsecure_node.preview.sheet import Page, heat_table, key_values, table

VOID = {"meta", "img", "br", "hr"}


class Checker(HTMLParser):
    """Collects tags, attributes and text; every element must be closed in order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def parse(page: bytes) -> Checker:
    checker = Checker()
    checker.feed(page.decode())
    checker.close()
    assert checker.open == []
    assert "script" not in checker.tags
    assert "b" not in checker.tags  # the class name with markup in it is text
    assert "link" not in checker.tags
    assert "iframe" not in checker.tags
    for name, value in checker.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert value.startswith("data:image/png;base64,")
    assert not re.search(rb"url\(|@import|https?://", page)
    return checker


def preview_of(release, plan, contribution):
    return make_preview(release, plan, contribution.summed, contribution.released)


def test_condensed_images_on_a_page_and_a_sheet(node, make_release, tmp_path):
    release, payload = make_release()
    contribution = Contribution(released=Tensors.from_bytes(payload.released))
    preview = preview_of(release, node.plan, contribution)
    page = parse(preview.html)
    text = " ".join(page.texts)
    for part in (
        "Release 1 of hospital-a", "toy", node.plan.digest(), release.payload, "localhost:1", "SHA256:aa", "images",
        "4 x 1 x 8 x 8", "pneumonia", "<b>odd & name</b>", "nothing is proven", "not audited", "verify-log",
        release.hash,
        "% of the values lay outside",
    ):  # fmt: skip
        assert part in text, part
    inline, whole = (v for n, v in page.attributes if n == "src")
    assert inline != whole
    assert base64.b64decode(inline.split(",", 1)[1]) == preview.png
    image = Image.open(io.BytesIO(preview.png))
    image.load()
    assert image.format == "PNG"
    assert image.width > 2 * 56
    written = write_preview(preview, tmp_path / "a folder" / "ü", 1)
    assert {p.suffix for p in written.values()} == {".html", ".png"}
    assert written["png"].read_bytes() == preview.png


def test_nothing_on_a_page_hides_or_turns_text_around():
    odd = "a\x1b[2J\x00b\u202ec\u200bd<i>"
    page = Page(odd)
    page.heading(odd)
    page.text(odd)
    page.lines([odd])
    page.code(f"first {odd}\nsecond")
    page.image(b"", odd + '"')
    page.markup(table([odd], [[odd]]) + key_values({odd: odd}) + heat_table(np.eye(1), [odd], [odd]))
    lines = page.render().decode().split("\n")
    assert all(line.isprintable() for line in lines)
    assert sum(line.count("a [2J b c d&lt;i&gt;") for line in lines) >= 11
    assert "second</code>" in "".join(lines)


def test_statistics_show_their_matrices_and_no_sheet(node, make_release):
    release, payload = make_release("statistics", hold=True)
    preview = preview_of(release, node.plan, Contribution(summed=Tensors.from_bytes(payload.summed)))
    assert preview.png is None
    text = " ".join(parse(preview.html).texts)
    assert "mean logits (row: class of the records" in text
    assert "waits for a person" in text
    assert "not masked" in text


def release_for(node, plan, method, key, contribution):
    from fedsecure.privacy.labels import NONE
    from fedsecure.wire.codec import encode_contribution
    from fedsecure_node.log.audited import Audited

    body = release_body(
        plan, key, encode_contribution(contribution), contribution, method.schema(key.exchange),
        destination=node.destination, policy_digest="p" * 64, guarantee=NONE, audited=Audited(),
        class_floor=10,
    )  # fmt: skip
    return Release(5, "acknowledged", "2026-01-01T00:00:00Z", "hospital-a", "h" * 64, body)


def test_parameters_get_ranges_and_histograms(node, plan_of):
    from fedsecure.methods import build_method
    from fedsecure_node.keys import ExchangeKey

    plan = plan_of(method={"name": "fedavg", "local_steps": 1})
    method = build_method(plan)
    rng = np.random.default_rng(0)
    (exchange,) = method.exchanges
    summed = {
        s.name: (rng.normal(size=s.shape).astype(s.dtype) if s.dtype == "float32" else np.ones(s.shape, s.dtype))
        for s in method.schema(exchange).summed
    }
    contribution = Contribution(summed=Tensors(summed))
    release = release_for(node, plan, method, ExchangeKey(plan.digest(), 0, 0, 0, exchange), contribution)
    preview = preview_of(release, plan, contribution)
    assert preview.png is None
    text = " ".join(parse(preview.html).texts)
    assert "How the values spread" in text
    assert "median" in text


def test_condensed_rows_of_a_table(node, plan_of):
    from fedsecure.methods import build_method

    table = {
        "kind": "table", "classes": ["ill", "well"],
        "columns": [
            {"kind": "numeric", "name": "age", "low": 0.0, "high": 120.0, "mean": 50.0, "std": 10.0,
             "missing": "indicator"},
            {"kind": "categorical", "name": "sex", "levels": ["f", "m"], "missing": "level"},
        ],
    }  # fmt: skip
    plan = plan_of(task=table)
    rows = np.array([[1.5, 0, 1, 0, 0], [-1, 1, 0, 1, 0]], np.float32)
    contribution = Contribution(released=Tensors({"images": rows, "labels": np.array([0, 1])}))
    release = release_for(node, plan, build_method(plan), node.key(), contribution)
    text = " ".join(parse(preview_of(release, plan, contribution).html).texts)
    for part in ("Condensed rows", "age: missing?", "sex: f", "sex: missing", "65", "40"):
        assert part in text


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_sheets_of_any_number_of_channels(plan_of, channels):
    task = plan_of(task={"kind": "image", "classes": ["a" * 60, "b"], "shape": [channels, 5, 9]}).task
    images = np.random.default_rng(0).normal(size=(50, channels, 5, 9)).astype(np.float32)
    labels = np.repeat(np.arange(2), 25).astype(np.int64)
    sheet = contact_sheet(task, images, labels, "title")
    assert (sheet.shown, sheet.total) == (50, 50)
    assert Image.open(io.BytesIO(sheet.png)).size[0] >= 20 * 56


def test_a_sheet_of_nothing_and_one_of_too_many(plan_of):
    task = plan_of(task={"kind": "image", "classes": ["a", "b"], "shape": [1, 4, 4]}).task
    empty = contact_sheet(task, np.zeros((0, 1, 4, 4), np.float32), np.zeros(0, np.int64), "none")
    assert (empty.shown, empty.total, empty.clipped) == (0, 0, 0.0)
    many = contact_sheet(task, np.zeros((300, 1, 4, 4), np.float32), np.zeros(300, np.int64), "many")
    assert (many.shown, many.total) == (200, 300)


def test_pixels_undo_the_plans_scaling(plan_of):
    task = plan_of(
        task={"kind": "image", "classes": ["a", "b"], "shape": [3, 4, 4], "mean": [0.2, 0.4, 0.6], "std": [0.1]}
    ).task
    images = np.zeros((2, 3, 4, 4), np.float32)
    images[1] = 100.0
    shown, clipped = pixels(task, images)
    assert np.allclose(shown[0, :, 0, 0], [0.2, 0.4, 0.6])
    assert (shown[1] == 1.0).all()
    assert clipped == 0.5
