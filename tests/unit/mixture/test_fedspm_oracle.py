"""The mixture against exact cases of a reference: E-step, surrogate and gradient, routing, prediction, in float64.

The cases in ``tests/vectors`` are of two nodes, two components, three classes and one routing feature
h_nu(x) = cos(nu) x + sin(nu) x^2 / 4; the prediction features are x itself. Every ``*.json`` of the same form in the
folder that the environment variable FEDSECURE_ORACLE_CASES names is read as well.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsecure.mixture.experts import (
    head_log_probabilities,
    label_log_probabilities,
    mixture_prediction,
    predict_loss,
    responsibilities,
)
from fedsecure.mixture.gate import (
    component_posterior,
    joint_logits,
    log_joint_posterior,
    route_loss,
    routing_scores,
)

VECTORS = Path(__file__).parents[2] / "vectors"
FIELDS = {
    "x", "y", "cid", "rho", "pi", "gamma", "xi", "nu", "alpha", "beta", "features", "absorbed_bias",
    "responsibilities", "pi_next", "q2_surrogate", "soft_ce_sum", "grad_q2_surrogate", "joint_log_posterior", "route",
    "client_predictive", "predict", "profile_loglik_surrogate",
}  # fmt: skip


def case_files() -> list[Path]:
    files = [VECTORS / "fedspm_golden.json", *sorted(VECTORS.glob("fedspm_case_*.json"))]
    more = os.environ.get("FEDSECURE_ORACLE_CASES", "")
    if more:
        found = sorted(Path(more).glob("*.json"))
        if not found:
            raise RuntimeError(f"FEDSECURE_ORACLE_CASES={more}: no *.json there")
        files += found
    return files


class Case:
    """A case as tensors, and the quantities that everything else follows from."""

    def __init__(self, path: Path) -> None:
        raw = json.loads(path.read_text(encoding="utf-8"))
        assert set(raw) >= FIELDS, f"{path}: lacks {sorted(FIELDS - set(raw))}"
        self.raw = {k: torch.tensor(v, dtype=torch.int64 if k in ("y", "cid", "route", "predict") else torch.float64)
                    for k, v in raw.items()}  # fmt: skip
        self.n, (self.m, self.c) = len(self.raw["x"]), self.raw["pi"].shape

    def __getattr__(self, name: str) -> torch.Tensor:
        return self.raw[name]

    def h(self, nu: torch.Tensor) -> torch.Tensor:
        """(n, 1, 1)"""
        return (torch.cos(nu) * self.x[:, None] + torch.sin(nu) * self.x[:, None] ** 2 / 4)[:, None]

    def explicit(self, pi: torch.Tensor, gamma=None, xi=None, nu=None) -> torch.Tensor:
        """Joint logits from gamma and log(rho pi)."""
        bias = (self.gamma if gamma is None else gamma) + torch.log(self.rho[:, None] * pi)
        xi, nu = self.xi if xi is None else xi, self.nu if nu is None else nu
        return joint_logits(self.h(nu), xi[:, :, None], bias)

    def absorbed(self) -> torch.Tensor:
        """Joint logits from b."""
        return joint_logits(self.h(self.nu), self.xi[:, :, None], self.absorbed_bias)

    def heads(self, node: int) -> torch.Tensor:
        """log P_ic(k | x) of one node, (n, C, K)."""
        return head_log_probabilities(self.x[:, None, None], self.alpha[node], self.beta[node][:, :, None])

    def e_step(self, logits: torch.Tensor) -> torch.Tensor:
        w = torch.empty(self.n, self.c, dtype=torch.float64)
        for i in range(self.m):
            own = self.cid == i
            label_log = label_log_probabilities(self.heads(i)[own], self.y[own])
            w[own] = responsibilities(logits[own, i], label_log)
        return w


@pytest.fixture(params=case_files(), ids=lambda p: p.stem)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def close(found: torch.Tensor, due: torch.Tensor, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(found.detach().numpy(), due.numpy(), rtol=tolerance, atol=tolerance)


def test_e_step(case):
    close(case.e_step(case.absorbed()), case.responsibilities)
    close(case.e_step(case.explicit(case.pi)), case.responsibilities)


def test_absorbed_and_explicit_forms_agree(case):
    """To 1e-10 (page, 2.5): logits, E-step, posterior, routing scores, component posteriors."""
    absorbed, explicit = case.absorbed(), case.explicit(case.pi)
    close(absorbed, explicit, 1e-10)
    close(case.e_step(absorbed), case.e_step(explicit), 1e-10)
    close(log_joint_posterior(absorbed), log_joint_posterior(explicit), 1e-10)
    close(routing_scores(absorbed), routing_scores(explicit), 1e-10)
    for i in range(case.m):
        close(component_posterior(absorbed, i), component_posterior(explicit, i), 1e-10)


def test_surrogate_value_and_gradient(case):
    """sum_i n_i f2_i is the weighted cross-entropy; minus it, plus constants, is Q2~, and the gradients agree."""
    w = case.responsibilities
    gamma, xi, nu = (t.clone().requires_grad_(True) for t in (case.gamma, case.xi, case.nu))
    logits = case.explicit(case.pi_next, gamma, xi, nu)
    total = sum((case.cid == i).sum() * route_loss(logits[case.cid == i], w[case.cid == i], i) for i in range(case.m))
    close(total, case.soft_ce_sum)
    lam = case.rho[:, None] * case.pi_next
    constants = (w * torch.log(lam)[case.cid]).sum() + case.n * np.log(case.n)
    close(-total - constants, case.q2_surrogate)
    total.backward()
    close(-torch.cat((gamma.grad.flatten(), xi.grad.flatten(), nu.grad)), case.grad_q2_surrogate)


def test_local_losses_add_up_to_the_pooled_one(case):
    w, logits = case.responsibilities, case.absorbed()
    local = torch.stack([route_loss(logits[case.cid == i], w[case.cid == i], i) for i in range(case.m)])
    own = log_joint_posterior(logits)[torch.arange(case.n), case.cid]
    close(case.rho @ local, -(w * own).sum() / case.n, 1e-12)


def test_routing(case):
    logits = case.absorbed()
    close(log_joint_posterior(logits), case.joint_log_posterior)
    assert torch.equal(routing_scores(logits).argmax(dim=1), case.route)
    close(torch.softmax(routing_scores(logits), dim=1), case.joint_log_posterior.exp().sum(dim=2))


def test_prediction(case):
    logits = case.absorbed()
    predictive = torch.stack(
        [mixture_prediction(component_posterior(logits, i), case.heads(i)) for i in range(case.m)], dim=1
    )
    close(predictive, case.client_predictive)
    routed = predictive[torch.arange(case.n), routing_scores(logits).argmax(dim=1)]
    assert torch.equal(routed.argmax(dim=1), case.predict)


def test_mixture_log_likelihood(case):
    """pl~ = sum_j log P(node, y | x) - sum_i n_i log rho_i - n log n (page, 2.4, fact 3)."""
    log_posterior = log_joint_posterior(case.absorbed())
    total = torch.zeros((), dtype=torch.float64)
    for i in range(case.m):
        own = case.cid == i
        label_log = label_log_probabilities(case.heads(i)[own], case.y[own])
        total = total + torch.logsumexp(log_posterior[own, i] + label_log, dim=1).sum() - own.sum() * case.rho[i].log()
    close(total - case.n * np.log(case.n), case.profile_loglik_surrogate)


def test_a_constant_added_to_all_biases_changes_nothing(case):
    h, xi = case.h(case.nu), case.xi[:, :, None]
    logits, shifted = case.absorbed(), joint_logits(h, xi, case.absorbed_bias + 7.25)
    close(log_joint_posterior(shifted), log_joint_posterior(logits), 1e-12)
    close(case.e_step(shifted), case.e_step(logits), 1e-12)
    assert torch.equal(routing_scores(shifted).argmax(dim=1), routing_scores(logits).argmax(dim=1))
    for i in range(case.m):
        close(component_posterior(shifted, i), component_posterior(logits, i), 1e-12)
        w = case.responsibilities
        close(route_loss(shifted, w, i), route_loss(logits, w, i), 1e-12)


def test_density_prior_takes_rho_off(case):
    logits = case.absorbed()
    close(
        routing_scores(logits, case.rho.log()),
        torch.logsumexp(case.gamma + torch.log(case.pi) + case.xi * case.h(case.nu), dim=2),
        1e-12,
    )


def test_one_component_is_two_cross_entropies():
    """FedDRM: f1 is the labels' cross-entropy, f2 that of the node's id (page, section 3)."""
    generator = torch.Generator().manual_seed(3)
    n, m, k, d = 40, 5, 4, 6
    g, h = (torch.randn(n, 1, d, generator=generator, dtype=torch.float64) for _ in range(2))
    alpha = torch.randn(1, k, generator=generator, dtype=torch.float64)
    beta = torch.randn(1, k, d, generator=generator, dtype=torch.float64)
    xi = torch.randn(m, 1, d, generator=generator, dtype=torch.float64)
    bias = torch.randn(m, 1, generator=generator, dtype=torch.float64)
    y = torch.randint(k, (n,), generator=generator)
    w = responsibilities(torch.randn(n, 1, generator=generator, dtype=torch.float64), torch.zeros(n, 1).double())
    assert torch.equal(w, torch.ones(n, 1).double())
    f1 = predict_loss(label_log_probabilities(head_log_probabilities(g, alpha, beta), y), w)
    close(f1, torch.nn.functional.cross_entropy(g[:, 0] @ beta[0].T + alpha[0], y), 1e-12)
    f2 = route_loss(joint_logits(h, xi, bias), w, 2)
    logits = h[:, 0] @ xi[:, 0].T + bias[:, 0]
    close(f2, torch.nn.functional.cross_entropy(logits, torch.full((n,), 2)), 1e-12)


def test_separate_encoders_of_equal_features_equal_a_shared_one():
    generator = torch.Generator().manual_seed(4)
    h = torch.randn(9, 1, 3, generator=generator, dtype=torch.float64)
    xi = torch.randn(2, 4, 3, generator=generator, dtype=torch.float64)
    bias = torch.randn(2, 4, generator=generator, dtype=torch.float64)
    close(joint_logits(h.expand(9, 4, 3), xi, bias), joint_logits(h, xi, bias), 1e-12)
    alpha = torch.randn(4, 5, generator=generator, dtype=torch.float64)
    beta = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    shared = head_log_probabilities(h, alpha, beta)
    close(head_log_probabilities(h.expand(9, 4, 3), alpha, beta), shared, 1e-12)
    assert not torch.allclose(head_log_probabilities(h.flip(0).expand(9, 4, 3), alpha, beta), shared)


def test_likeliest_component_alone():
    omega = torch.tensor([[0.2, 0.8], [0.6, 0.4]], dtype=torch.float64)
    log_p = torch.log(torch.tensor([[[0.9, 0.1], [0.3, 0.7]], [[0.5, 0.5], [0.1, 0.9]]], dtype=torch.float64))
    close(
        mixture_prediction(omega, log_p, likeliest=True),
        torch.tensor([[0.3, 0.7], [0.5, 0.5]], dtype=torch.float64),
        1e-12,
    )
    due = torch.tensor([[0.2 * 0.9 + 0.8 * 0.3, 0.2 * 0.1 + 0.8 * 0.7], [0.34, 0.66]], dtype=torch.float64)
    close(mixture_prediction(omega, log_p), due, 1e-12)


def test_cases_from_the_environment_are_read(tmp_path, monkeypatch):
    source = (VECTORS / "fedspm_golden.json").read_text(encoding="utf-8")
    (tmp_path / "more.json").write_text(source, encoding="utf-8")
    monkeypatch.setenv("FEDSECURE_ORACLE_CASES", str(tmp_path))
    assert case_files()[-1] == tmp_path / "more.json"
    (tmp_path / "more.json").unlink()
    with pytest.raises(RuntimeError, match="no \\*.json there"):
        case_files()
