"""The shape of the probe's table (audit page, section 0) on a few digits: condensed sets leak whatever they start from,
mean-tracing sees it where loss hardly does, averages tell more than noise, and records all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from fedsecure_attacks.mechanism.audit import CellResult, audit_cell
from fedsecure_attacks.mechanism.setting import Setting
from fedsecure_attacks.records import Labelled

SHADOWS = 4
NOISE = Setting(ipc=5, init="noise", init_n=5, steps=80, interval=10, width=16)
CELLS = {
    "noise": NOISE,
    "averages": replace(NOISE, init="avg"),
    # as many images as anybody has records: of n drawn n times, and more, hardly one is left out
    "records": replace(NOISE, init="real", ipc=90, steps=1, lr=1e-9),
}


def digits() -> tuple[Labelled, Labelled]:
    """A pool of 90 digits of three classes, about fifteen of each in every half, and 240 others."""
    from sklearn.datasets import load_digits

    held = load_digits()
    keep = np.flatnonzero(held.target < 3)
    order = keep[np.random.default_rng(1).permutation(len(keep))]
    x, y = (held.images[order] / 16).astype(np.float32)[:, None], held.target[order].astype(np.int64)
    return Labelled("pool", x[:90], y[:90]), Labelled("reference", x[90:330], y[90:330])


@pytest.fixture(scope="module")
def cells() -> Mapping[str, CellResult]:
    pool, others = digits()
    return {
        name: audit_cell(
            pool, others, setting, shadows=SHADOWS, networks=2, with_models=name == "noise",
            strangers=2 if name == "noise" else 0,
        )
        for name, setting in CELLS.items()
    }  # fmt: skip


def test_sets_that_start_from_noise_leak_and_the_loss_hardly_sees_it(cells):
    attacks = cells["noise"].attacks
    tracing = attacks["mean-tracing-references"]
    assert tracing.interval is not None
    assert tracing.interval.low > 0.5
    assert abs(attacks["loss"].auc - 0.5) < tracing.auc - 0.5


def test_averages_tell_more_than_noise(cells):
    def seen(name: str) -> float:
        return cells[name].attacks["mean-tracing"].auc

    assert seen("averages") > seen("noise")
    assert cells["averages"].attacks["image-likelihood"].auc > cells["noise"].attacks["image-likelihood"].auc


def test_as_many_records_as_there_are_expose_everybody(cells):
    assert cells["records"].attacks["nearest-neighbour-pixels"].auc > 0.98
    assert cells["averages"].attacks["nearest-neighbour-pixels"].auc < 0.9


def test_sets_made_from_others_tell_nothing(cells):
    (null,) = [control for control in cells["noise"].controls if control.name == "null"]
    assert null.passed, null.said
