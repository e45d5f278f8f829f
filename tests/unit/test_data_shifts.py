"""The pixels of the dual-heterogeneity benchmark: bits, inversions, ramps, crops, and their order."""

import itertools

import numpy as np
import pytest

from fedsecure.data.shifts import bits, component_shift, cropped, node_shift, node_words, three_channels
from fedsecure.randomness import numpy_generator

GREY = np.full((1, 3, 8, 8), 0.5, dtype=np.float32)


def images(count: int = 4, channels: int = 3, side: int = 8) -> np.ndarray:
    return np.random.default_rng(0).random((count, channels, side, side), dtype=np.float32)


def test_the_bits_of_a_node_begin_with_the_least_significant() -> None:
    assert [bits(i) for i in range(8)] == [(i & 1, i >> 1 & 1, i >> 2 & 1) for i in range(8)]
    assert node_words(0) == "red, top, left"
    assert [node_words(i) for i in (1, 2, 4)] == ["blue, top, left", "red, bottom, left", "red, top, right"]


def test_bit_0_is_the_colour() -> None:
    red, blue = node_shift(GREY, 0, 0.3, 0.0)[0], node_shift(GREY, 1, 0.3, 0.0)[0]
    for image, expected in ((red, (0.65, 0.5, 0.35)), (blue, (0.35, 0.5, 0.65))):
        assert np.allclose(image, np.reshape(expected, (3, 1, 1)))


@pytest.mark.parametrize(("node", "axis", "sign"), [(0, 1, 1), (2, 1, -1), (0, 2, 1), (4, 2, -1)])
def test_bits_1_and_2_are_the_brighter_sides(node: int, axis: int, sign: int) -> None:
    """The mean over the other axis leaves the ramp of this one: from +0.2 to -0.2 over the image, or back."""
    profile = node_shift(GREY, node, 0.0, 0.2)[0].mean(axis=(0, 3 - axis)) - 0.5
    assert np.allclose(profile, sign * 0.2 * (1 - 2 * np.arange(8) / 7), atol=1e-6)


def test_a_nodes_shift_is_the_formula_of_the_page() -> None:
    x, g, s = images(2), 0.3, 0.2
    for i in range(8):
        b0, b1, b2 = i & 1, i >> 1 & 1, i >> 2 & 1
        gain = (1 - g, 1.0, 1 + g) if b0 else (1 + g, 1.0, 1 - g)
        out = node_shift(x, i, g, s)
        for k, r, q in itertools.product(range(3), (0, 3, 7), (0, 5, 7)):
            ramp = s * (-1 if b1 else 1) * (1 - 2 * r / 7) + s * (-1 if b2 else 1) * (1 - 2 * q / 7)
            assert np.allclose(out[:, k, r, q], np.clip(x[:, k, r, q] * gain[k] + ramp, 0, 1), atol=1e-6)


def test_the_eight_nodes_and_two_components_look_pairwise_different() -> None:
    x = images(1)
    looks = [node_shift(component_shift(x, np.array([c]), "all"), i, 0.1, 0.1) for i in range(8) for c in (0, 1)]
    for a, b in itertools.combinations(looks, 2):
        assert np.abs(a - b).max() > 0.05


def test_shifts_of_no_strength_change_nothing() -> None:
    assert all(np.array_equal(node_shift(images(), i, 0.0, 0.0), images()) for i in range(8))


def test_inversion() -> None:
    x, component = images(3), np.array([0, 1, 0])
    assert np.array_equal(component_shift(x, component, "none"), x)
    everything, green = component_shift(x, component, "all"), component_shift(x, component, "green")
    for out in (everything, green):
        assert np.array_equal(out[[0, 2]], x[[0, 2]])
    assert np.array_equal(everything[1], 1 - x[1])
    assert np.array_equal(green[1, 1], 1 - x[1, 1])
    assert np.array_equal(green[1, [0, 2]], x[1, [0, 2]])
    assert np.array_equal(x, images(3))  # the input stays as it was


def test_values_stay_pixels() -> None:
    for i in range(8):
        out = node_shift(images(), i, 1.0, 1.0)
        assert out.dtype == np.float32
        assert out.min() == 0
        assert out.max() == 1


def test_resampling() -> None:
    grey = images(2, 1, 8)
    same = three_channels(grey, 8, 8)
    assert same.shape == (2, 3, 8, 8)
    assert all(np.array_equal(same[:, k], grey[:, 0]) for k in range(3))
    assert not np.shares_memory(three_channels(images(), 8, 8), images())
    ramp = np.broadcast_to(np.linspace(0, 1, 28, dtype=np.float32), (1, 1, 28, 28))
    wide = three_channels(ramp, 32, 20)
    assert wide.shape == (1, 3, 32, 20)
    assert (np.diff(wide[0, 0, 0]) > 0).all()
    # Bilinear with half-pixel centres: column q of 28 -> 56 lies at (q + 0.5) / 2 - 0.5.
    double = three_channels(ramp, 28, 56)[0, 0, 0]
    place = np.clip((np.arange(56) + 0.5) / 2 - 0.5, 0, 27)
    assert np.allclose(double, place / 27, atol=1e-6)
    assert np.allclose(three_channels(np.full((1, 3, 5, 9), 0.25, dtype=np.float32), 32, 32), 0.25)


def test_crops() -> None:
    x = images(20, 3, 16)
    assert cropped(x, 1.0, numpy_generator(0, "x")) is x
    once, again = (cropped(x, 0.5, numpy_generator(0, "x")) for _ in range(2))
    assert np.array_equal(once, again)
    assert once.shape == x.shape
    assert not np.array_equal(once, x)
    assert 0 <= once.min() <= once.max() <= 1
    flat = np.full((5, 3, 16, 16), 0.75, dtype=np.float32)
    assert np.allclose(cropped(flat, 0.2, numpy_generator(0, "x")), 0.75)
    column = np.broadcast_to(np.arange(16, dtype=np.float32) / 15, (50, 3, 16, 16)).copy()
    spans = np.ptp(cropped(column, 0.9, numpy_generator(0, "x"))[:, 0, 0], axis=1)  # what is left of the width
    assert spans.min() > 0.75  # sqrt(0.9 * 3/4) of 16 columns, but for half a pixel on either side
    assert spans.max() <= 1
