"""Sanity cases 1 and 2: people who were put into the released set, as they are or a little changed, are found, though
the area under the curve stays at one half."""

from __future__ import annotations

import io

import numpy as np
import pytest
from audited_people import audited, pictures, planted, result, rows, three
from PIL import Image

from fedsecure_attacks.images.copies import copy_scan
from fedsecure_attacks.observation import Outsider
from fedsecure_attacks.records import Pools
from fedsecure_attacks.statistics.roc import auc
from fedsecure_attacks.statistics.scores import Scores
from fedsecure_attacks.verdict import Word

MEMBERS, OTHERS = 100, 1100


@pytest.fixture(scope="module")
def people():
    return three(rows, MEMBERS, OTHERS, 200, np.random.default_rng(10))


@pytest.mark.parametrize("m", [4, 20])
def test_planted_rows_have_rate_one_where_nobody_else_is_and_the_area_sees_nothing(people, m):
    members, out, others = people
    rng = np.random.default_rng(m)
    x = members.x[:m] + np.float32(1e-3)  # more than rounding, of few values: the tail has to find them
    audit = audited(people, planted(x, members.y[:m], rng))
    assert audit.verdict.word is Word.LEAK, audit.verdict
    scan = result(audit, "copy-scan")
    assert scan.tail.count == m
    assert abs(scan.auc - 0.5) < 0.13
    candidates, inside = Pools(members, out, others).candidates(rng)
    seen = Outsider(planted(x, members.y[:m], rng), others, {0: 50, 1: 50})
    scores = copy_scan(seen, candidates)
    kinds = {row.tobytes() for row in members.x[:m]}
    ours = np.array([row.tobytes() in kinds for row in candidates.x])
    assert (scores[ours] > scores[~inside].max()).all()  # the planted: all of them, with no false accusation
    assert float((scores[inside] > scores[~inside].max()).mean()) == m / MEMBERS  # all members: m of n
    assert auc(Scores.of(scores, inside)) == pytest.approx(scan.auc, abs=0.08)


def test_one_planted_row_is_below_the_test_s_power_unless_it_is_there_but_for_rounding(people):
    members = people[0]
    rng = np.random.default_rng(0)
    near = audited(people, planted(members.x[:1] + np.float32(1e-3), members.y[:1], rng))
    assert near.verdict.word is Word.INCONCLUSIVE, near.verdict
    rounded = audited(people, planted(members.x[:1] + np.float32(1e-6), members.y[:1], rng))
    assert rounded.verdict.reason == "1 member was released as it is, or nearly"
    exact = audited(people, planted(members.x[:1], members.y[:1], rng))
    assert exact.verdict.word is Word.LEAK
    assert exact.verdict.reason == "1 member was released bit for bit"


def jpeg(x: np.ndarray) -> np.ndarray:
    """Grey pictures (n, 1, H, W) in [0, 1], through a real JPEG of quality 90."""
    found = []
    for picture in x[:, 0]:
        stream = io.BytesIO()
        Image.fromarray(np.round(picture * 255).astype(np.uint8)).save(stream, "JPEG", quality=90)
        found.append(np.asarray(Image.open(stream), np.float32) / 255)
    return np.stack(found)[:, None]


CHANGES = {
    "mirrored": lambda x, rng: x[..., ::-1],
    "upside down": lambda x, rng: x[..., ::-1, :],
    "shifted": lambda x, rng: np.roll(x, 1, axis=3),
    "noise of 1/255": lambda x, rng: np.clip(x + rng.uniform(-1, 1, x.shape) / 255, 0, 1),
    "jpeg": lambda x, rng: jpeg(x),
    "darker": lambda x, rng: 0.6 * x,
}


@pytest.mark.parametrize("how", list(CHANGES))
def test_pictures_that_were_changed_a_little_are_found_all_the_same(how):
    rng = np.random.default_rng(11)
    people = three(pictures, 80, 900, 120, rng)
    x, y = people[0].x[:8], people[0].y[:8]
    audit = audited(people, planted(np.ascontiguousarray(CHANGES[how](x, rng)), y, rng))
    assert audit.verdict.word is Word.LEAK, audit.verdict
    assert result(audit, "copy-scan").tail.count == 8
