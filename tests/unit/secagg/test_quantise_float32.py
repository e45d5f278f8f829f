"""float32 is quantised in float32, for speed: bit for bit what float64 gives."""

from __future__ import annotations

import numpy as np
import pytest

from fedsecure.secagg.values.fixedpoint import BLOCK, largest_frac_bits, quantise, ring_dtype


@pytest.mark.parametrize("bound", [0.3, 1.0, 1e3])
@pytest.mark.parametrize("ring_bits", [32, 64])
def test_float32_is_quantised_as_float64_is(ring_bits: int, bound: float) -> None:
    frac_bits = largest_frac_bits(ring_bits, bound, 1, 1)
    generator = np.random.default_rng(0)
    ties = (np.arange(-999, 1000) + 0.5) * 2.0**-frac_bits
    edge = np.float32(bound) if float(np.float32(bound)) <= bound else np.nextafter(np.float32(bound), np.float32(0))
    tiny = np.array([np.finfo(np.float32).smallest_subnormal, -1e-45, 0.0, -0.0, edge, -edge])
    spread = generator.uniform(-bound, bound, 20_000) * 2.0 ** generator.integers(-40, 1, 20_000)
    values = np.concatenate([ties, tiny, spread * 0.999]).astype(np.float32)
    narrow, wide = (np.empty(values.size, ring_dtype(ring_bits)) for _ in range(2))
    for array, out in ((values, narrow), (values.astype(np.float64), wide)):
        clipped = quantise(array, out, ring_bits=ring_bits, frac_bits=frac_bits, bound=bound, name="w")
        assert clipped == 0
    assert np.array_equal(narrow, wide)
    assert len(set(narrow.tolist())) > 10_000


def test_a_block_that_is_clipped_does_not_change_its_neighbours() -> None:
    values = np.full(3 * BLOCK, 0.1, np.float32)
    values[BLOCK + 5] = 2.0
    narrow, wide = np.empty(values.size, np.uint32), np.empty(values.size, np.uint32)
    for array, out in ((values, narrow), (values.astype(np.float64), wide)):
        assert quantise(array, out, ring_bits=32, frac_bits=20, bound=0.3, name="w") == 1
    assert np.array_equal(narrow, wide)
