"""The quantiles under all intervals: held to scipy where it is installed, and to identities that need none."""

import math

import pytest

from rankpulse.core import distributions as ours

SHAPES = (0.5, 1.0, 1.5, 3.0, 10.0, 100.5, 419.0, 4000.0, 1e5)
CHANCES = (1e-6, 0.005, 0.05, 0.5, 0.95, 0.995, 1 - 1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_quantile_is_where_the_distribution_has_that_chance(shape: float) -> None:
    for chance in CHANCES:
        x = ours.gamma_quantile(chance, shape)
        assert ours.gamma_cdf(x, shape) == pytest.approx(chance, rel=1e-8)
        assert ours.gamma_sf(x, shape) == pytest.approx(1 - chance, rel=1e-8)


def test_poisson_tails_are_their_sums() -> None:
    terms = [math.exp(-7.5) * 7.5**k / math.factorial(k) for k in range(12)]
    assert ours.gamma_sf(7.5, 12) == pytest.approx(sum(terms), rel=1e-12)


def test_binomial_tails_are_their_sums() -> None:
    terms = [math.comb(40, k) * 0.03**k * 0.97 ** (40 - k) for k in range(5, 41)]
    assert ours.binomial_at_least(5, 40, 0.03) == pytest.approx(sum(terms), rel=1e-12)
    assert ours.binomial_at_least(0, 40, 0.03) == 1.0


def test_exponential_quantiles_have_a_closed_form() -> None:
    assert ours.gamma_quantile(0.95, 1.0) == pytest.approx(-math.log(0.05), rel=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_gamma_quantiles_agree_with_scipy(shape: float) -> None:
    special = pytest.importorskip("scipy.special")
    for chance in CHANCES:
        assert ours.gamma_quantile(chance, shape) == pytest.approx(special.gammaincinv(shape, chance), rel=1e-8)


@pytest.mark.parametrize("a", [0.5, 1.0, 3.0, 419.0, 5000.5])
@pytest.mark.parametrize("b", [0.5, 1.0, 10.0, 419.0])
def test_beta_quantiles_agree_with_scipy(a: float, b: float) -> None:
    special = pytest.importorskip("scipy.special")
    for chance in (1e-6, 0.05, 0.5, 0.95):
        assert ours.beta_quantile(chance, a, b) == pytest.approx(special.betaincinv(a, b, chance), rel=1e-8)
