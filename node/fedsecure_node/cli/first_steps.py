"""``node init`` and ``node check``: the first files of a node, and whether all is in order before it runs."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path

from fedsecure.config import validate
from fedsecure.crypto.enrolment import Enrolment, create_identity
from fedsecure.crypto.signatures import load_identity, verify
from fedsecure.errors import ConfigError, FedSecureError, StoreError
from fedsecure.files import PUBLIC_FILE, exists, private_folder, write_durably
from fedsecure.locks import is_held
from fedsecure.plan import load_plan
from fedsecure.secagg.cohort.manifest import CohortManifest
from fedsecure.text import counted
from fedsecure_node.assemble import cost_of
from fedsecure_node.auditing.holdout import HeldOut
from fedsecure_node.cli.verification import verify_ledger, verify_node
from fedsecure_node.link.connect import own_certificate
from fedsecure_node.log.witness import Witness
from fedsecure_node.masking.pins import Pins
from fedsecure_node.plans.describe import human_bytes
from fedsecure_node.plans.institution import read_policy
from fedsecure_node.plans.localdata import LocalData, taking_part
from fedsecure_node.settings import CONFIG_NAME, NodeSettings, load_settings
from fedsecure_node.store.store import Store
from fedsecure_node.text import printable

__all__ = ["Finding", "check_node", "example", "init_node"]


def example(name: str) -> str:
    """The text of a packaged example, ``node.example.toml`` or ``policy.example.toml``."""
    return (resources.files("fedsecure_node") / "examples" / name).read_text(encoding="utf-8")


def init_node(folder: Path, *, node: str, federation: str, coordinator: str) -> Enrolment:
    """Make the keys, the request, ``node.toml`` and ``policy.example.toml`` in ``folder``. Overwrites nothing.

    Raises ``ConfigError`` for malformed names or a ``node.toml`` that is there, ``CertificateError`` for keys that are.
    """
    config = folder / CONFIG_NAME
    if exists(config, ConfigError) or config.is_symlink():
        raise ConfigError(f"{config}: exists already", hint="use another --dir, or move the old node away")
    text = example("node.example.toml")
    for key, value in (("node", node), ("federation", federation), ("coordinator", coordinator)):
        text = _set(text, key, value)
    validate(NodeSettings, tomllib.loads(text), "node init")
    made = create_identity(folder, federation=federation, role="node", name=node)
    for path, content in ((config, text), (folder / "policy.example.toml", example("policy.example.toml"))):
        write_durably(path, content.encode(), mode=PUBLIC_FILE, error=ConfigError)
    return made


def _set(text: str, key: str, value: str) -> str:
    lines = text.split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith(f"{key} = "))
    lines[at] = f"{key} = {json.dumps(value, ensure_ascii=False)}"
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked: what, a line about it, and the error if it is not in order."""

    what: str
    line: str
    error: FedSecureError | None


def check_node(folder: Path, plan_file: Path | None) -> list[Finding]:
    """Check configuration, keys, certificate and policy, and with a plan file the records against it."""
    try:
        settings = load_settings(folder)
    except FedSecureError as error:
        return [Finding("configuration", str(error), error)]
    findings = [Finding("configuration", f"node {settings.node} of {settings.federation}", None)]
    return findings + [_try(what, check) for what, check in _checks(settings, plan_file)]


def _try(what: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(what, check(), None)
    except FedSecureError as error:
        return Finding(what, str(error), error)


def _checks(settings: NodeSettings, plan_file: Path | None) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "identity key", lambda: load_identity(settings.identity).fingerprint
    yield "certificate", lambda: _certificate(settings)
    yield "policy", lambda: _policy(settings)
    yield "store", lambda: _store(settings)
    yield "privacy ledger", lambda: _ledger(settings)
    if plan_file is not None:
        yield "plan and policy", lambda: _plan(settings, plan_file)
        yield "plan and cohorts", lambda: _cohorts(settings, plan_file)
        records = _Records(settings, plan_file)
        yield "records", records.fit
        yield "records and policy", records.enough
        yield "plan and budget", lambda: _budget(settings, plan_file)


def _certificate(settings: NodeSettings) -> str:
    own = own_certificate(settings)
    return f"{own.fingerprint}, valid until {own.not_after:%Y-%m-%d}"


def _policy(settings: NodeSettings) -> str:
    policy = read_policy(settings.policy).policy
    methods = ", ".join(policy.plans.methods) or "no method"
    most = human_bytes(policy.release.max_bytes)
    rules = policy.plans
    asking = ", ".join(policy.prediction.analysts) or "nobody"
    return (
        f"allows {methods}; approval: {rules.approval}; classes from {rules.min_records_per_class} records on, from "
        f"{rules.min_records} records in these on; at most {most} a release; answers queries of {asking}"
    )


def _store(settings: NodeSettings) -> str:
    """Owner, modes, whether it can be written, who uses it, and whether its log is whole; changes nothing."""
    public = load_identity(settings.identity).public_bytes
    if not exists(settings.store):
        Witness(settings.identity).check((), partial(verify, public))
        return "not there yet; the first start makes it"
    inner = ("releases", "policies", "audits", "local", "serving")
    for folder in (settings.store, *(settings.store / name for name in inner)):
        if exists(folder):
            private_folder(folder)
            _writable(folder)
    for name in ("store.db", "releases.jsonl", "releases.lock", "daemon.lock"):
        if exists(settings.store / name):
            _writable(settings.store / name)
    found = verify_node(settings, public)
    used = "a daemon uses it" if is_held(settings.store) else "no daemon uses it"
    return f"{found.counts}, whole and in order; {used}"


def _ledger(settings: NodeSettings) -> str:
    """Whether it can be used, and holds all that the log knows; changes nothing."""
    public = load_identity(settings.identity).public_bytes
    records = verify_node(settings, public).records if exists(settings.store) else ()
    entries = verify_ledger(settings, records)
    if entries is None:
        return "not there yet; the first private run makes it"
    _writable(settings.ledger.resolve())
    return f"{counted(entries, 'entry', 'entries')}, among them all that the release log knows"


def _writable(path: Path) -> None:
    if not os.access(path, os.W_OK, effective_ids=True):
        raise StoreError(
            f"{path}: cannot be written by user {os.geteuid()}",
            hint="run as the user who owns it; check its mode, and that its file system is mounted for writing",
        )


def _plan(settings: NodeSettings, plan_file: Path) -> str:
    plan, _ = load_plan(plan_file)
    read_policy(settings.policy).policy.check_plan(plan)
    return f"the policy allows plan {plan.name} ({plan.digest()[:12]})"


def _cohorts(settings: NodeSettings, plan_file: Path) -> str:
    """Whether the cohort of a plan under masks is trusted here. Raises ``ConfigError`` when it is not and has to be."""
    plan, _ = load_plan(plan_file)
    if plan.secagg == "off":
        return "the plan needs none: it has no masks"
    try:
        manifest = _trusted(settings, plan.cohort.nodes)
    except ConfigError as error:
        if plan.secagg == "required":
            raise
        return f"{error}; the node leaves the run if it turns out to be masked ({error.hint})"
    return f"cohort {manifest.cohort}, version {manifest.version}, is trusted here"


def _trusted(settings: NodeSettings, nodes: Sequence[str]) -> CohortManifest:
    if not exists(settings.store):
        raise ConfigError(
            f"no cohort is trusted by node {settings.node}, which has no store yet",
            hint="pin the manifest that all of its nodes signed: fedsecure node cohort trust FILE --digest DIGEST",
        )
    public_bytes = load_identity(settings.identity).public_bytes
    with Store(settings.store, create=False) as store:
        return Pins(store, node=settings.node, federation=settings.federation, public_bytes=public_bytes).for_nodes(
            nodes
        )


def _budget(settings: NodeSettings, plan_file: Path) -> str:
    """Whether the data set can pay for the whole plan. Raises ``PrivacyBudgetExceeded``."""
    plan, _ = load_plan(plan_file)
    cost = cost_of(settings)(plan, read_policy(settings.policy).policy)
    if cost is None:
        return "the plan spends none: it asks for no differential privacy"
    cost.check()
    return cost.words()


class _Records:
    """The node's records, read once for the checks that need them."""

    def __init__(self, settings: NodeSettings, plan_file: Path) -> None:
        self._lines: list[str] = []
        self._settings, self._plan_file = settings, plan_file
        self._load = LocalData(settings.data, self._lines.extend)
        self._held_out = HeldOut(self._load, settings.holdout)

    def fit(self) -> str:
        """Whether they fit the plan. Raises ``DataError`` naming what does not."""
        self._load(load_plan(self._plan_file)[0])
        return "; ".join(self._lines)

    def enough(self) -> str:
        """Whether they are as many as the policy asks for. Raises ``PolicyError``."""
        policy = read_policy(self._settings.policy).policy
        plan = load_plan(self._plan_file)[0]
        split, floor = self._held_out.split(plan, policy), policy.class_floor(plan)
        data, kept = split.rest, taking_part(split.rest, floor)
        policy.check_records(len(kept))
        line = f"{policy.plans.min_records} or more take part"
        if len(split.out):
            line += f"; {counted(len(split.out), 'record')} held out for the audit"
        counts = zip(data.classes, data.counts(), kept.counts(), strict=True)
        out = [f"{name} ({n})" for name, n, k in counts if n > k]
        if not out:
            return line
        return f"{line}; left out, fewer than {floor} records: {printable(', '.join(out))}"
