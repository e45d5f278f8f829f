"""Making a federation in a folder by the real steps: CA, coordinator, nodes, enrolment, data, policies."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedsecure.commands.demo.processes import free_port, run_command

if TYPE_CHECKING:
    from fedsecure.data.dataset import Dataset

__all__ = ["ANALYST", "DemoFederation", "enrol_analyst", "make_federation"]

FEDERATION = "demo"
#: Who asks the trained model, where a method routes queries.
ANALYST = "analyst"
#: What the demonstration's institutions allow: condensed data from noise, and FedAvg beside it for comparison.
POLICY = """\
# The policy of one institution of the demonstration. Without this file its node would refuse every plan.
format = 1

[plans]
methods = ["fedaf", "feddm", "fedavg", "fedspm"]
approval = "manual"          # a person types the digest: fedsecure node approve DIGEST
max_rounds = 20
min_nodes = {min_nodes}
shared_randomness = true     # only so that the demonstration comes out the same every time

[condensation]
init = ["noise"]             # never images averaged from patients, never patients
max_ipc = 20
min_records_per_class = 10

[release]
max_bytes = 4194304

[prediction]
analysts = ["{analyst}"]     # who may ask the trained model
max_records_per_hour = 2000
"""
#: With ``--dp``: what each institution lets its records spend.
BUDGET = """
[privacy]
epsilon = {epsilon!r}        # for all that is ever computed from these records with noise
"""


@dataclass(frozen=True)
class DemoFederation:
    """Where everything lies."""

    root: Path
    address: str
    nodes: tuple[str, ...]

    @property
    def ca(self) -> Path:
        """Folder of the CA."""
        return self.root / "ca"

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator."""
        return self.root / "coordinator"

    @property
    def analyst(self) -> Path:
        """Folder of the analyst."""
        return self.root / ANALYST

    def node(self, name: str) -> Path:
        """Folder of one node."""
        return self.root / name


def make_federation(
    root: Path,
    data: Mapping[str, Dataset],
    test: Dataset,
    tell: Callable[[str], None],
    *,
    epsilon: float | None = None,
) -> DemoFederation:
    """Make the CA, enrol everybody, hand out the records, write the policies, with ``epsilon`` as the budget of each.
    ``tell`` gets each command that is run."""
    federation = DemoFederation(root, f"localhost:{free_port()}", tuple(data))

    def run(*arguments: str) -> dict[str, Any]:
        tell("fedsecure " + " ".join(arguments))
        text = run_command([*arguments, "--json"])
        return dict(json.loads(text))

    ca = run("ca", "init", "--ca", str(federation.ca), "--federation", FEDERATION, "--no-passphrase")
    fingerprint = str(ca["fingerprint"])
    made = run(
        *("coordinator", "init", "--dir", str(federation.coordinator), "--federation", FEDERATION),
        *("--dns", "localhost", "--listen", f"127.0.0.1:{federation.address.rpartition(':')[2]}"),
    )
    _enrol(run, federation, "coordinator", federation.coordinator, str(made["csr_fingerprint"]), fingerprint)
    _give_records(federation.coordinator, "coordinator.toml", "evaluation", test)
    for name, dataset in data.items():
        folder = federation.node(name)
        made = run(
            *("node", "init", name, "--dir", str(folder), "--federation", FEDERATION),
            *("--coordinator", federation.address),
        )
        _enrol(run, federation, "node", folder, str(made["csr_fingerprint"]), fingerprint)
        _give_records(folder, "node.toml", "data", dataset)
        policy = POLICY.format(min_nodes=len(data), analyst=ANALYST)
        budget = "" if epsilon is None else BUDGET.format(epsilon=epsilon)
        (folder / "policy.toml").write_text(policy + budget, encoding="utf-8")
    return federation


def enrol_analyst(federation: DemoFederation, tell: Callable[[str], None]) -> None:
    """Enrol the one who will ask, by the same steps as a node."""

    def run(*arguments: str) -> dict[str, Any]:
        tell("fedsecure " + " ".join(arguments))
        return dict(json.loads(run_command([*arguments, "--json"])))

    fingerprint = str(json.loads(run_command(["ca", "list", "--ca", str(federation.ca), "--json"]))["fingerprint"])
    made = run(
        *("analyst", "init", "--name", ANALYST, "--dir", str(federation.analyst), "--federation", FEDERATION),
        *("--coordinator", federation.address),
    )
    _enrol(run, federation, "analyst", federation.analyst, str(made["csr_fingerprint"]), fingerprint)


def _enrol(
    run: Callable[..., dict[str, Any]],
    federation: DemoFederation,
    role: str,
    folder: Path,
    csr_fingerprint: str,
    ca_fingerprint: str,
) -> None:
    """The request goes to the CA; the certificate comes back; fingerprints are compared on both ways."""
    cert = federation.ca / f"{folder.name}.crt"
    run(
        *("ca", "sign", str(folder / "tls.csr"), "--ca", str(federation.ca), "--out", str(cert)),
        *("--expect-fingerprint", csr_fingerprint),
    )
    run(
        *(role, "enroll", "--dir", str(folder), "--cert", str(cert)),
        *("--ca-cert", str(federation.ca / "ca.crt"), "--fingerprint", ca_fingerprint),
    )


def _give_records(folder: Path, config: str, table: str, dataset: Dataset) -> None:
    """Put records beside a daemon's configuration and name them in it, with one thread for its computations."""
    from fedsecure.data.export import save_npz

    save_npz(dataset, folder / "records.npz")
    path = folder / config
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    settings[table] = {"kind": "npz", "path": "records.npz"}
    settings["compute"] = {"device": "cpu", "threads": 1}
    path.write_text(tomli_w.dumps(settings), encoding="utf-8")
