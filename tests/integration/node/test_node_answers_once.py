"""A node whose records changed by one does not answer a second run that begins from the same model."""

from __future__ import annotations

import numpy as np

from fedsecure.data.dataset import Dataset
from fedsecure.data.export import save_npz
from fedsecure.errors import PolicyError

CLASSES = ("normal", "pneumonia", "other")


def give_records(site, erased):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), (15, 12, 4)).astype(np.int64)
    x = rng.random((31, 1, 8, 8), dtype=np.float32)
    save_npz(Dataset(x[erased:], y[erased:], CLASSES), site.folder / "records.npz")


def answer(site, script, plan):
    """One exchange of a run from the same model."""
    script.complete.clear()
    script.plans.clear()
    script.offer(plan)
    script.ask(plan)
    return site.start()


def test_after_an_erasure_the_same_question_is_not_answered(site, script, plan_of):
    node = answer(site, script, plan_of(name="first"))
    node.until(lambda: script.complete)
    node.end()

    give_records(site, 1)
    node = answer(site, script, plan_of(name="second"))
    node.until(lambda: script.refusals)
    node.end()
    assert not script.complete
    told = script.refusals[0][1]
    assert told.endswith("the institution withholds its release")
    assert "min_changed_records" not in told
    assert "release.min_changed_records: 1 record changed since this node answered under the same model" in node.text
    script.work.clear()

    give_records(site, 0)
    node = answer(site, script, plan_of(name="third"))
    node.until(lambda: script.complete)
    node.end()


def test_a_policy_may_allow_it(site, script, plan_of):
    node = answer(site, script, plan_of(name="first"))
    node.until(lambda: script.complete)
    node.end()
    text = (site.folder / "policy.toml").read_text()
    (site.folder / "policy.toml").write_text(text.replace("[release]", "[release]\nmin_changed_records = 1"))
    give_records(site, 1)
    node = answer(site, script, plan_of(name="second"))
    node.until(lambda: script.complete)
    node.end()
    assert not isinstance(node.error, PolicyError)
