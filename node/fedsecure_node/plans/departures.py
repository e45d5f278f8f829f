"""What each departure of a plan from its preset costs or saves, in words that are true of the values that it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fedsecure.plan import Plan
from fedsecure.plan.methods import (
    AnyMethodSettings,
    CondensationSettings,
    FedDRMSettings,
    FedSPMSettings,
)
from fedsecure.plan.privacy import CondensationPrivacy, ReleaseSettings

__all__ = ["cost", "departure_lines"]

_STARTS = ("noise", "avg", "real")
#: Settings of how often, and of how many at a time, the records are asked.
_ASKING = ("steps", "real_batch", "real_means", "resample", "resample_interval")


@dataclass(frozen=True, slots=True)
class _Departure:
    """A setting's value in the plan and in the preset, and all settings of both."""

    ours: Any
    theirs: Any
    method: AnyMethodSettings
    preset: AnyMethodSettings


Sentence = Callable[[_Departure], str]


def departure_lines(plan: Plan) -> Iterator[str]:
    """One line a departure: the setting, both values, and what that means for the records."""
    for key, words in zip(plan.departed(), plan.departures(), strict=True):
        yield f"departure: {words} - {cost(plan, key)}"


def cost(plan: Plan, key: str) -> str:
    """What the departure at ``key`` (one of ``plan.departed()``) costs or saves."""
    ours, theirs = plan.departed()[key]
    departure = _Departure(ours, theirs, plan.method, plan.reference())
    if isinstance(plan.privacy, CondensationPrivacy) and key in _ASKING:
        return _with_privacy(plan.privacy, key)
    table, _, inner = key.rpartition(".")
    if table in ("predict", "route"):
        return _training(departure, table, inner)
    return _SENTENCES[key.split(".", 1)[0]](departure)


def _with_privacy(privacy: CondensationPrivacy, key: str) -> str:
    """The same of a setting that says how records are asked, where [privacy] says it instead."""
    if key == "steps" and not isinstance(privacy, ReleaseSettings):
        return "with [privacy] of this kind the records are asked once at every step, each time with noise"
    if key == "steps" or (key.startswith("resample") and not isinstance(privacy, ReleaseSettings)):
        return _NOT_ASKED
    return "no effect: how the records are asked is in [privacy]"


def _ways(higher: str, lower: str) -> Sentence:
    """One sentence for a higher value than the preset's and one for a lower."""
    return lambda d: higher if _number(d.ours) > _number(d.theirs) else lower


def _number(value: Any) -> float:
    """A setting as something that can be compared: "none" is no bound, a key that is left out is nothing."""
    return math.inf if value == "none" else 0.0 if value is None else float(value)


def _by(sentences: dict[Any, str]) -> Sentence:
    """A sentence for each value."""
    return lambda d: sentences[d.ours]


def _always(sentence: str) -> Sentence:
    return lambda d: sentence


def _only(key: str, value: str, sentence: Sentence) -> Sentence:
    """``sentence``, or that the setting has no effect: it counts only where ``key`` is ``value``."""

    def said(d: _Departure) -> str:
        found = getattr(d.method, key)
        return sentence(d) if found == value else f"no effect: it counts only with {key} = {value}, not {found}"

    return said


def _init(d: _Departure) -> str:
    if d.ours == "noise":
        return "images start from noise, not from records: no record is in them to begin with"
    if d.ours == "real":
        return "images start from real records, whose traces can stay visible in what leaves"
    if _STARTS.index(d.theirs) > _STARTS.index(d.ours):
        return "images start from averages of records, in which single ones show less than in the records themselves"
    return "images start from averages of real records, whose traces can stay visible in what leaves"


def _asked(method: AnyMethodSettings) -> int:
    """How often the records are asked in a round."""
    assert isinstance(method, CondensationSettings)
    return method.steps if method.real_means == "batch" else method.networks


def _questions(d: _Departure) -> str:
    """Of ``steps``, ``real_means`` and ``resample``: what they make together, since each alone says nothing."""
    ours, theirs = _asked(d.method), _asked(d.preset)
    times = f"{ours} time{'s' * (ours != 1)} a round"
    if ours == theirs:
        return f"with the other settings the records are asked as often as by the preset: {times}"
    more = "more" if ours > theirs else "less"
    return f"with the other settings the records are asked {times}, by the preset {theirs}: the answers teach {more}"


def _means(d: _Departure) -> str:
    if d.ours == "batch":
        return f"a fresh draw of records answers at every step, not all of them once a network; {_questions(d)}"
    return f"all records answer together, once a network, not a fresh draw at every step; {_questions(d)}"


_NOT_ASKED = "it changes how the images are fitted, not how often the records are asked"
_COORDINATOR = "it is about what the coordinator does with what it has: nothing more is asked of the records"
_CONDENSATION: dict[str, Sentence] = {
    "ipc": _ways("more images leave for each class", "fewer images leave for each class"),
    "steps": _questions,
    "real_batch": _only(
        "real_means",
        "batch",
        _ways("more records answer together: each counts for less", "fewer records answer together: each counts more"),
    ),
    "real_means": _means,
    "min_count": _ways(
        "classes need more records to take part: each record weighs less",
        "classes of fewer records take part: each record weighs more",
    ),
    "init": _init,
    "init_n": _only(
        "init",
        "avg",
        _ways("each image starts from more records: each shows less", "each image starts from fewer: each shows more"),
    ),
    "image_optimizer": _always(_NOT_ASKED),
    "lr_img": _always(_NOT_ASKED),
    "momentum_img": _only("image_optimizer", "sgd", _always(_NOT_ASKED)),
    "augment": _by(
        {
            "dsa": "records and images are cropped, turned and tinted alike before they are compared",
            "none": "records and images are compared as they are",
        }
    ),
    "pixel_bound": _ways("values further from the usual may leave", "values that may leave are bounded more tightly"),
    "resample": _questions,
    "resample_interval": _only("resample", "interval", _questions),
    "server": _always(_COORDINATOR),
    "warm_start": _by(
        {
            True: "images go on from those of the round before: what records left in them stays and adds up",
            False: "images start anew in every round: what records left in them does not add up",
        }
    ),
}
_FEDAF: dict[str, Sentence] = {
    "gamma": _ways(
        "networks lie closer to the coordinator's model: one made to single out records reaches them less diluted",
        "networks are diluted more by random ones: a model made to single out records reaches them weaker",
    ),
    "lambda_loc": _ways(
        "images are drawn more towards all nodes' mean logits", "images are drawn less towards all nodes' mean logits"
    ),
    "lambda_glob": _always(_COORDINATOR),
    "tau": _ways(
        "the soft labels that leave are flatter: they tell less",
        "the soft labels that leave are sharper: they tell more",
    ),
    "swd": _always(_NOT_ASKED),
    "num_projections": _only("swd", "mc", _always(_NOT_ASKED)),
    "sync": _by(
        {
            "stale": "statistics and images leave together, in one exchange a round; what leaves is the same",
            "two_phase": "statistics leave before images, in two exchanges a round; what leaves is the same",
        }
    ),
    "averaging": _by(
        {
            "holders": "no number of records leaves, only which classes are held",
            "holders_weighted": "the number of records of each held class leaves, too",
            "all": "no number of records leaves, only which classes are held; who holds none counts as zero",
        }
    ),
    "lgkm": _always(_COORDINATOR),
    "logit_clip": _ways(
        "one record's logits are bounded less: it can move the mean that leaves more",
        "one record's logits are bounded more tightly: it can move the mean that leaves less",
    ),
}
_FEDDM: dict[str, Sentence] = {
    "rho": _ways(
        "networks lie further from the coordinator's model: one made to single out records reaches them changed more",
        "networks lie closer to the coordinator's model: one made to single out records reaches them changed less",
    ),
    "match_logits": _by(
        {
            True: "images are fitted to the records' mean logits, too: they tell more of them",
            False: "images are fitted to the records' mean features alone: they tell less of them",
        }
    ),
}
_CLOSER = "the parameters that leave fit these records more closely: they tell more of them"
_LOOSER = "the parameters that leave fit these records less closely: they tell less of them"
_TRAINING: dict[str, Sentence] = {
    "local_epochs": _ways(_CLOSER, _LOOSER),
    "local_steps": _ways(_CLOSER, _LOOSER),
    "steps": _ways(_CLOSER, _LOOSER),
    "batch": _ways("more records share each step: each counts for less", "fewer share each step: each counts for more"),
    "lr": _ways("each step goes further towards these records", "each step goes less far towards these records"),
    "schedule": _by(
        {
            "cosine": "late rounds go less far towards these records than early ones",
            "constant": "late rounds go as far towards these records as early ones",
        }
    ),
    "momentum": _ways("steps carry more of those before them", "steps carry less of those before them"),
    "weight_decay": _ways(_LOOSER, _CLOSER),
    "prox_mu": _ways(
        "the parameters that leave stay closer to the coordinator's model: they tell less of these records",
        "the parameters that leave may go further from the coordinator's model: they tell more of these records",
    ),
}
_ROUTED: dict[str, Sentence] = {
    "router": _always("the plan names the routing encoder, whose parameters leave: see what leaves"),
    "parametrisation": _by(
        {
            "explicit": "how many records each component accounts for here leaves (mass)",
            "absorbed": "how the records divide among the components stays here",
        }
    ),
    "route_prior": _by(
        {
            "density": "queries are routed without regard to how many records each node has",
            "pooled": "queries are routed with regard to how many records each node has",
        }
    ),
    "share_counts": _by(
        {
            True: "this node's number of records leaves by itself, and its share of all records is given to whoever "
            "routes queries",
            False: "this node's number of records leaves only as the weight of what is summed",
        }
    ),
    "diagnostics": _by(
        {
            "summed": "how well the model fits these records, and how it would route them, leaves as sums",
            "local": "how well the model fits these records stays here",
        }
    ),
    "components": _ways(
        "more rows of routing parameters leave (one for each node and component), and more heads are kept here",
        "fewer rows of routing parameters leave (one for each node and component), and fewer heads are kept here",
    ),
    "encoders": _by(
        {
            "separate": "two encoders leave for each component, fitted to what it accounts for: more parameters leave",
            "shared": "the components share the two encoders that leave: fewer parameters leave",
        }
    ),
    "e_step": _by(
        {
            "batch": "records are weighed among the components anew at every batch; what leaves is the same",
            "round": "records are weighed among the components once a round; what leaves is the same",
        }
    ),
    "prediction": _always("it is about how queries are answered after the run; what leaves in it is the same"),
    "backbone": _by(
        {
            "shared": "one backbone with two branches leaves, trained by labels and by nodes together",
            "separate": "two encoders leave, one trained by labels and one by nodes",
        }
    ),
    "branch": _only(
        "backbone",
        "shared",
        _ways("more parameters leave: the branches are wider", "fewer parameters leave: the branches are narrower"),
    ),
    "label_weight": _only(
        "backbone",
        "shared",
        _ways("labels count for more in what is trained, nodes for less", "labels count for less, nodes for more"),
    ),
}
_SENTENCES: dict[str, Sentence] = {**_CONDENSATION, **_FEDAF, **_FEDDM, **_TRAINING, **_ROUTED, "steps": _questions}


def _training(d: _Departure, table: str, key: str) -> str:
    """A departure inside ``predict`` or ``route``: which of the parameters it is about."""
    if isinstance(d.method, FedDRMSettings) and d.method.backbone == "shared":
        if table == "route":
            return "no effect: with backbone = shared the steps of predict train everything"
        return _TRAINING[key](d)
    heads = "heads" if isinstance(d.method, FedSPMSettings) else "head"
    what = f"the {heads} kept here and the prediction encoder" if table == "predict" else "routing"
    return f"of {what}: {_TRAINING[key](d)}"
