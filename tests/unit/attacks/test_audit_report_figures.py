"""A report whose verdict its own figures contradict, or whose figures contradict each other, is no report."""

from __future__ import annotations

from typing import Any

import pytest
from report_samples import ALL, HASH, WORST, sample

from fedsecure.errors import DataError
from fedsecure_attacks.report.validate import check
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.verdict import Word

SOFTER = [
    (mode, word, instead)
    for mode, word in ALL
    for other, instead in ALL
    if other == mode and instead is not word and word in {WORST[mode], Word.INVALID} and instead is not Word.INVALID
]


def edited(report: dict[str, Any], word: Word) -> dict[str, Any]:
    return {**report, "verdict": word.value, "exit_code": word.exit_code, "reason": "nothing of it"}


@pytest.mark.parametrize(("mode", "word", "instead"), SOFTER)
def test_another_verdict_over_the_same_figures_is_refused(mode, word, instead):
    assert check(sample(mode, word))
    with pytest.raises(DataError, match=f"^report: says {instead.value}, but .*(attacks|sweep|canaries|controls)"):
        check(edited(sample(mode, word), instead))


@pytest.mark.parametrize("mode", sorted(WORST))
def test_invalid_hides_no_finding(mode):
    with pytest.raises(DataError, match="says INVALID, but"):
        check(edited(sample(mode, WORST[mode]), Word.INVALID))


def test_a_leak_needs_a_figure():
    with pytest.raises(DataError, match="says LEAK, but no figure is above what was accepted"):
        check(edited(sample("files", Word.NO_LEAK_DETECTED), Word.LEAK))


@pytest.mark.parametrize("mode", ["files", "release", "mechanism", "spm"])
def test_no_audit_but_canaries_speaks_of_accounting(mode):
    with pytest.raises(DataError, match=f"an audit of mode {mode} never ends with that"):
        check(edited(sample(mode, Word.LEAK), Word.CONTRADICTS_ACCOUNTING))


PRIMARY = "attacks.mean-tracing-quantile"
CHANGES = [
    ("files", {f"{PRIMARY}.auc_interval.high": 0.6, f"{PRIMARY}.auc_interval_joint.high": 0.6}, "auc may be up to 0.6"),
    ("files", {f"{PRIMARY}.auc_interval_joint.low": 0.56}, "is narrower than|auc is at least 0.56"),
    ("files", {f"{PRIMARY}.tpr_at_fpr_0|01": 0.011, f"{PRIMARY}.tpr_at_fpr_0|01_interval.high": 0.021}, "up to 0.021"),
    ("files", {f"{PRIMARY}.tpr_at_fpr_0|01_interval.high": 0.0115}, "_interval does not follow from its count"),
    ("files", {f"{PRIMARY}.tpr_at_fpr_0|01": 0.0101}, "tpr_at_fpr_0.01 does not follow from its count"),
    ("files", {f"{PRIMARY}.tpr_at_fpr_0|01_p": 0.9}, "tpr_at_fpr_0.01_p does not follow"),
    ("files", {f"{PRIMARY}.tail_test_count": 40}, "tail_test_p does not follow from tail_test_count"),
    ("files", {"attacks.copy-scan.tail_test_p_adjusted": 0.01}, "p_adjusted does not follow from the p of all attacks"),
    ("files", {"attacks.copy-scan.tail_test_p_adjusted": 1e-5}, "is 1e-05"),
    ("files", {f"{PRIMARY}.auc": 0.7}, "auc is outside of its interval"),
    ("files", {"counts.members_released_bit_for_bit": 2}, "counts.members_released_bit_for_bit is not zero"),
    ("release", {"counts.people_released_or_nearly": 2}, "counts.people_released_or_nearly is not zero"),
    ("files", {"counts.in_both_pools": 100, "counts.non_members": 1000}, "counts.in_both_pools is a share of 0.1"),
    ("files", {"classes.0.below_minimum": True}, "one with too few members"),
    ("files", {"primary": "loss"}, "attacks.loss, which decides, is missing"),
    ("files", {"plan.thresholds.auc": 0.54}, "plan_sha256 is not that of its plan"),
    ("files", {"people.exposed": 10}, "people.exposed is outside of its interval"),
    ("mechanism", {"sweep.3.verdict": "LEAK"}, "sweep.3.verdict is LEAK"),
    ("mechanism", {"sweep.3.attacks.mean-tracing-quantile.high": 0.56}, "sweep.3.*high is 0.56"),
    ("mechanism", {"sweep.3.attacks.mean-tracing-quantile.high_tpr": 0.021}, "high_tpr is 0.021"),
    ("mechanism", {f"{PRIMARY}.auc_p_adjusted": 1e-4}, "auc_p_adjusted is 0.0001"),
    ("mechanism", {"sweep": []}, "no cell was judged"),
    ("spm", {f"{PRIMARY}.auc_interval_joint.low": 0.56}, "auc is at least 0.56"),
    ("canaries", {"canaries.node.bounds.0.lower": 8.5}, "canaries.node.bounds.0.lower is 8.5, where 8 was accounted"),
    ("canaries", {"canaries.node.noise": 0.8}, "canaries.node.noise is 0.8 of what was accounted, of 1000 canaries"),
    ("canaries", {"canaries.node.clip": 2.0}, "canaries.node.clip is 2"),
    ("canaries", {"canaries.node.arrived": 0.2}, "canaries.node.arrived is 0.2"),
    ("canaries", {"canaries.node.arrived_error": 0.5}, "canaries.node.arrived_error: too few canaries"),
    ("canaries", {"epsilon.lower": 8.5}, "epsilon.lower is 8.5"),
    ("canaries", {"shared_noise_most": 0.5}, "shared_noise_most is 0.5"),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "changes", "said"), CHANGES)
def test_each_figure_that_decides_is_read(mode, changes, said):
    report = sample(mode, Word.NO_LEAK_DETECTED)
    if mode == "canaries":
        report["controls"]["planted, node"] = {"passed": True, "found": "canaries arrive"}
    check(report)
    for path, value in changes.items():
        *above, last = (part.replace("|", ".") for part in path.split("."))
        place: Any = report
        for key in above:
            place = place[int(key) if isinstance(place, list) else key]
        place[last] = value
    with pytest.raises(DataError, match=said):
        check(report)


def test_a_plan_that_was_changed_is_found_by_its_hash():
    report = sample("files", Word.INCONCLUSIVE)
    assert report["plan_sha256"] == plan_sha256(report["plan"]) != HASH
    with pytest.raises(DataError, match="plan_sha256 is not that of its plan"):
        check({**report, "plan_sha256": HASH})


def test_huge_counts_take_no_time():
    report = sample("files", Word.LEAK)
    for attack in report["attacks"].values():
        attack |= {"members": 10**19, "nonmembers": 10**19, "tail_test_count": 10**18}
    check(report)
