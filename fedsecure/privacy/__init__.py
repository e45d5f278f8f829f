"""Differential privacy: mechanisms, what they cost, and the ledger that pays. The only importer of Opacus."""
