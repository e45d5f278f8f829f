"""The audit of a mechanism on a few digits: what the probe found, in small, and shadows that are never stale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedsecure_attacks.mechanism.audit import audit_cell
from fedsecure_attacks.mechanism.cache import ShadowCache, shadow_key
from fedsecure_attacks.mechanism.setting import Setting, matched
from fedsecure_attacks.mechanism.shadows import make_shadow
from fedsecure_attacks.records import Labelled
from fedsecure_attacks.splits import coin

QUICK = Setting(ipc=2, steps=20, interval=10, width=8)


@pytest.fixture(scope="module")
def digits():
    """A pool of 120 digits of three classes, and 180 others who teach the population."""
    from sklearn.datasets import load_digits

    held = load_digits()
    keep = np.flatnonzero(held.target < 3)
    order = keep[np.random.default_rng(0).permutation(len(keep))]
    x, y = (held.images[order] / 16).astype(np.float32)[:, None], held.target[order].astype(np.int64)
    return Labelled("pool", x[:120], y[:120]), Labelled("reference", x[120:300], y[120:300])


def test_every_record_has_its_own_coin():
    splits = np.stack([coin(500, 1, number) for number in range(40)])
    assert 0.46 < splits.mean() < 0.54
    assert splits.sum(axis=1).std() > 5  # halves of a fixed size would have none
    assert (coin(500, 1, 3) == splits[3]).all()
    assert (coin(500, 2, 3) != splits[3]).any()


def test_records_that_are_released_are_exposed(digits):
    """Forty draws from the twenty or so members of a class leave out one in seven of them."""
    pool, others = digits
    cell = audit_cell(
        pool, others, replace(QUICK, init="real", ipc=40, steps=1, lr=1e-9), shadows=4, networks=1, with_models=False
    )
    assert cell.attacks["nearest-neighbour-pixels"].auc > 0.88
    assert cell.attacks["combined"].auc > 0.75


def test_sets_that_start_from_noise_leak_all_the_same(digits):
    pool, others = digits
    cell = audit_cell(pool, others, replace(QUICK, steps=40), shadows=4, networks=2, with_models=True)
    tracing = cell.attacks["mean-tracing-references"]
    assert tracing.interval is not None
    assert tracing.interval.low > 0.5
    assert tracing.auc > cell.attacks["loss"].auc
    assert set(cell.attacks) >= {"lira", "loss", "combined", "nearest-neighbour-calibrated"}


def test_condensing_goes_on_until_the_means_match(digits):
    pool, _ = digits
    inside = coin(len(pool), 0, 0)
    short = make_shadow(pool, inside, QUICK, 0, 0)
    longer = make_shadow(pool, inside, matched(QUICK, short.residual / 2), 0, 0)
    assert longer.steps > short.steps
    assert longer.residual < short.residual
    assert make_shadow(pool, inside, matched(QUICK, 0.0), 0, 0).released.digest() == short.released.digest()


def test_a_shadow_is_read_again_and_never_a_stale_one(digits, tmp_path):
    pool, _ = digits
    cache, inside = ShadowCache(tmp_path / "cache"), coin(len(pool), 0, 0)
    first = cache.get(pool, pool.digest(), inside, QUICK, 0, 0)
    again = cache.get(pool, pool.digest(), inside, QUICK, 0, 0)
    assert (cache.made, cache.hits) == (1, 1)
    assert again.released.digest() == first.released.digest()
    x = pool.x.copy()
    x[0, 0, 0, 0] += 1 / 255
    changed = Labelled("pool", x, pool.y)
    keys = {
        shadow_key(pool.digest(), inside, QUICK, 0, 0),
        shadow_key(changed.digest(), inside, QUICK, 0, 0),
        shadow_key(pool.digest(), ~inside, QUICK, 0, 0),
        shadow_key(pool.digest(), inside, replace(QUICK, init="avg"), 0, 0),
        shadow_key(pool.digest(), inside, QUICK, 1, 0),
        shadow_key(pool.digest(), inside, QUICK, 0, 1),
    }
    assert len(keys) == 6


@pytest.mark.parametrize("damage", ["cut", "other values", "another shadow's"])
def test_a_damaged_shadow_is_made_anew(digits, tmp_path, damage):
    pool, _ = digits
    cache, inside = ShadowCache(tmp_path), coin(len(pool), 0, 0)
    first = cache.get(pool, pool.digest(), inside, QUICK, 0, 0)
    (path,) = tmp_path.glob("*.npz")
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:500])
    elif damage == "other values":
        with np.load(path) as held:
            arrays = dict(held)
        arrays["x"] = arrays["x"] + np.float32(0.01)
        np.savez(path, **arrays)
    else:
        cache.get(pool, pool.digest(), inside, replace(QUICK, steps=10), 0, 0)
        (other,) = [p for p in tmp_path.glob("*.npz") if p != path]
        path.write_bytes(other.read_bytes())
    again = cache.get(pool, pool.digest(), inside, QUICK, 0, 0)
    assert cache.hits == 0
    assert again.released.digest() == first.released.digest()


def test_too_few_shadows_calibrate_nothing(digits):
    pool, others = digits
    with pytest.raises(ValueError, match=r"^3 shadows \(at least 4\)$"):
        audit_cell(pool, others, replace(QUICK, steps=1), shadows=3, networks=1, with_models=False)
