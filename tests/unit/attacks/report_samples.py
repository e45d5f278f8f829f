"""Reports of every mode and the verdicts that it can end with, small and made up, for tests of the page and of the
schema. Their figures fit each other and the verdict."""

from __future__ import annotations

from typing import Any

from fedsecure_attacks.report.deduced import VERDICTS
from fedsecure_attacks.reporthead import plan_sha256
from fedsecure_attacks.statistics.intervals import share_interval
from fedsecure_attacks.statistics.multiplicity import holm
from fedsecure_attacks.statistics.tail import rate_p, tail_p
from fedsecure_attacks.strictjson import interval_json
from fedsecure_attacks.verdict import Word

MODES = ("files", "release", "mechanism", "spm", "canaries", "selftest")
#: All (mode, verdict).
ALL = [(mode, Word(word)) for mode in MODES for word in VERDICTS[mode]]
#: mode -> the worst of them.
WORST = {mode: Word(words[0]) for mode, words in VERDICTS.items()}
HASH = "0123456789abcdef" * 4
#: A grey picture of one pixel.
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
INTERVAL = {"low": 0.55, "high": 0.67, "confidence": 0.95, "method": "DeLong, logit"}


def attack(area: float, *, count: int, above: int = 1, rates: bool = True, people: int = 10_000) -> dict[str, Any]:
    """``count`` of ``people`` members told at a false-positive rate of 0.01, ``above`` of them before all others."""
    low, high = max(0.0, area - 0.03), min(1.0, area + 0.03)
    p = tail_p(above, people, people)
    return {
        "auc": area, "auc_interval": {**INTERVAL, "low": low, "high": high},
        "auc_interval_joint": {**INTERVAL, "low": low, "high": high},
        "tpr_at_fpr_0.01": count / people, "tpr_at_fpr_0.01_count": count, "tpr_at_fpr_0.01_false": people // 100,
        "tpr_at_fpr_0.01_interval": interval_json(share_interval(count, people)),
        "tpr_at_fpr_0.01_p": rate_p(count, people, people, people // 100),
        "tpr_at_fpr_0.01_precision": {"0.1": 0.37}, "tail_test_p": p, "tail_test_count": above, "members": people,
        "nonmembers": people,
        "judged_by_rates": rates,
    }  # fmt: skip


def adjusted(attacks: dict[str, Any], hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """``attacks`` with the p of all together."""
    seen = {name: one for name, one in attacks.items() if name not in hidden}
    tails = holm({name: one["tail_test_p"] for name, one in seen.items()})
    rates = holm({name: one["tpr_at_fpr_0.01_p"] for name, one in seen.items() if one["judged_by_rates"]})
    more = {n: {"tail_test_p_adjusted": tails.get(n, 1.0), "tpr_at_fpr_0.01_p_adjusted": rates.get(n)} for n in attacks}
    return {name: {**one, **more[name]} for name, one in attacks.items()}


def base(mode: str, verdict: Word) -> dict[str, Any]:
    """The keys that every report has."""
    failed = verdict is Word.INVALID
    plan = {"mode": mode, "seed": 0, "thresholds": {"tpr": 0.02, "auc": 0.55, "fpr": 0.01, "twins": 0.05}}
    return {
        "schema_version": 1, "version": "0.1.0", "mode": mode, "verdict": verdict.value,
        "reason": "mean-tracing: area under the curve 0.600, at least 0.551 (accepted: 0.55)",
        "exit_code": verdict.exit_code, "primary": "mean-tracing-quantile",
        "plan": plan, "plan_sha256": plan_sha256(plan), "inputs_sha256": {"members": HASH, "released": HASH},
        "counts": {"members": 1000, "members_compared": 1000, "nonmembers_compared": 1000}, "notes": ["a note"],
        "controls": {
            "planted": {"passed": True, "found": "10 planted members: 10 rank above every non-member"},
            "blind": {"passed": not failed, "found": "areas on a set made from other people: mean-tracing 0.504"},
            "oracle": {"passed": True, "found": "exact means: area 0.689, theory (F5) 0.697"},
        },
        "attacks": {},
    }  # fmt: skip


def with_attacks(report: dict[str, Any], *, leak: bool) -> dict[str, Any]:
    area, count = (0.62, 530) if leak else (0.505, 110)
    hidden = tuple(report.get("hidden_by_masks", ()))
    curve = {"fpr": [0.001, 0.01, 0.1, 1.0], "tpr": [0.0, count / 10_000, 0.2, 1.0],
             "low": [0.0, 0.01, 0.18, 0.99], "high": [0.01, 0.07, 0.23, 1.0]}  # fmt: skip
    return {
        **report,
        "attacks": adjusted({
            "mean-tracing-quantile": attack(area, count=count),
            "copy-scan": attack(0.5, count=100, above=30 if leak else 1, rates=False),
        }, hidden),
        "threat_model": "T1", "surface": "condensed images",
        "people": {"exposed": count, "of": 10_000, "confidence": 0.95, "low": count - 20, "high": count + 20,
                   "by_chance": 100.0, "how": "attack mean-tracing-quantile; 100 of 10,000 others are picked, too"},
        "roc": {"mean-tracing-quantile": curve, "copy-scan": curve},
        "theory": {"exact class means (theory, F5)": {"fpr": [0.001, 0.01, 1.0], "tpr": [0.01, 0.1, 1.0]}},
        "classes": [{"class": 0, "members": 996, "released": 10, "n_min": 10, "below_minimum": False},
                    {"class": 1, "members": 4, "released": 10, "n_min": 10, "below_minimum": True}][: 1 + leak],
        "worst": [{"record": None, "class": 1, "n": 4, "percentile": 99.9, "attacks": 2, "size": 12.0}],
        "gallery": [
            {"image": 3, "class": 1, "d_member": 0.0, "d_nonmember": 0.84, "member_id": None, "nonmember_id": None},
            {"image": 0, "class": 0, "d_member": 0.9, "d_nonmember": 1.1, "member_id": None, "nonmember_id": None,
             "pictures": {"released": PIXEL}},
        ],
    }  # fmt: skip


def swept(report: dict[str, Any]) -> dict[str, Any]:
    word = report["verdict"]
    most = (0.005, 0.0001) if word == Word.NO_LEAK_DETECTED.value else (0.02, 0.003)
    cells = [
        {
            "setting": {"ipc": ipc, "init": init, "sigma": sigma}, "curve": curve, "ipc": ipc, "init": init,
            "sigma": sigma, "rounds": 1, "residual": 2.0 / ipc + (0.1 if curve == "as deployed" else 0.3), "steps": 300,
            "accuracy": 0.9 - 0.1 / ipc - 0.1 * sigma, "verdict": word,
            "attacks": {"mean-tracing-quantile": {
                "auc": 0.5 + (most[0] + most[1] * ipc) / (1 + sigma), "low": 0.5,
                "high": 0.5 + most[0] + 2 * most[1] * ipc,
                "clusters": 80, "tpr_at_fpr_0.01": 0.01 + most[1] * ipc / (1 + sigma), "reason": None,
                "low_tpr": 0.008, "high_tpr": 0.01 + 2 * most[1] * ipc,
            }},
        }
        for init in ("noise", "avg", "real") for sigma in (0.0, 1.0) for curve in ("as deployed", "matched residual")
        for ipc in (1, 5, 10, 20, 50)
    ]  # fmt: skip
    return {
        **report, "sweep": cells,
        "baselines": {"raw images": [{"ipc": ipc, "tpr": ipc / 100} for ipc in (1, 5, 10, 20, 50)],
                      "dp at equal accuracy": None, "dp at equal accuracy_reason": "no test records were given"},
        "active": cheating(),
    }  # fmt: skip


def trap(auc: float, verdict: str, why: str | None = None) -> dict[str, Any]:
    """What was told of people by one kind of trap."""
    rate, around = (None, None) if why else (0.5, {"low": 0.4, "high": 0.6})
    return {
        "auc": auc, "auc_interval": {"low": auc - 0.02, "high": auc}, "tpr_at_fpr_0.01": rate,
        "tpr_at_fpr_0.01_interval": around, "one_round_isolates_one_person": auc > 0.9, "verdict": verdict, "why": why,
    }  # fmt: skip


def cheating() -> dict[str, Any]:
    """The block of a coordinator that cheats."""
    nothing = trap(0.5, "NO-LEAK-DETECTED", "the node releases nothing")
    read = {"auc": 0.55, "auc_interval": {"low": 0.4, "high": 0.7}, "condensings": 16}
    erased = {"erasures": 20, "named": 20, "candidates": 55, "largest_relative_error": 1e-6, "exact": True}
    return {
        "says": ["defence none: does one round isolate one person? yes (trained)"],
        "defences": {
            "none": {"trained": trap(0.97, "LEAK"), "forged unit": trap(1.0, "LEAK"), "setting": {"records": 50}},
            "logit clip": {"trained": trap(0.97, "LEAK"), "setting": {"records": 50}},
            "noise, sigma 8": {"trained": trap(0.52, "NO-LEAK-DETECTED"), "setting": {"sigma": 8.0}},
            "minimum of records": {"trained": nothing, "setting": {"records": 5}},
        },
        "trap_model": {"many_at_once": trap(0.75, "LEAK"), "another_person": trap(0.5, "INCONCLUSIVE")},
        "trap_statistics": {"asked": True, "honest model, forged averages": read},
        "differencing": {"the same model": erased, "the node's rule": "no second answer"},
    }


def sample(mode: str, verdict: Word) -> dict[str, Any]:
    """A whole report."""
    report = base(mode, verdict)
    if verdict is Word.INCONCLUSIVE:
        report["needed"] = {"members": 2600, "nonmembers": 2600, "chance": 0.8}
    if mode == "selftest":
        return report
    if mode == "canaries":
        lower = 9.1 if verdict is Word.CONTRADICTS_ACCOUNTING else 3.2
        error = 0.4 if verdict is Word.INCONCLUSIVE else 0.05
        bound = {"lower": lower, "estimate": 4.0, "accounted": 8.0, "largest": 9.5, "confidence": 0.95, "delta": 1e-5}
        views = {"node": {
            "noise": 1.02, "clip": 1.0, "arrived": 0.99, "arrived_error": error, "inside": 500, "out": 500,
            "bounds": [{"delta": 1e-5, "lower": lower, "accounted": 8.0}],
        }}  # fmt: skip
        report |= {"epsilon": {**bound, "method": "split half"}, "threat_model": "T5"}
        return {**report, "canaries": views, "shared_noise": 0.01}
    if mode == "spm":
        report["hidden_by_masks"] = ["copy-scan"]
    report = with_attacks(report, leak=verdict is Word.LEAK)
    if mode == "spm":
        report |= {
            "measured": {"effective_rank": 11.5, "areas_by_theory": {"sum": 0.6}},
        }
    return swept(report) if mode == "mechanism" else report
