"""A coordinator that does not do what it should (T4): models and averages that are made to single a person out, and the
same question asked again after that person was erased."""
