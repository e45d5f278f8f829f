"""The mathematics of FedSPM (FedSPM page, section 2) on plain tensors: E-step, both losses, routing, prediction.

Symbols: m nodes (index i), C components (index c), K classes (index k), n records (index j). Joint logits are
``s_ic(x) = b_ic + xi_ic . h_nu(x)`` in the absorbed form, and ``gamma_ic + log(rho_i pi_ic) + xi_ic . h_nu(x)`` in the
explicit one; softmax of them over all (i, c) is P(node = i, component = c | x). All functions take any float dtype.
"""
