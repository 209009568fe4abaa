"""Quantiles of the gamma and beta distributions, and what of them tests need. Pure: `math` and nothing else.

Sources: Abramowitz and Stegun, Handbook of Mathematical Functions, 6.5.29 and 6.5.31 (incomplete gamma), 26.5.8
(incomplete beta, as a continued fraction, by Lentz's method); Wilson and Hilferty (1931) for the first guess.
Why not scipy: docs/decisions/0014-statistics-of-our-own.md. The tests hold all of it to scipy.
"""

import math
from collections.abc import Callable
from typing import Final

_EPS: Final = 1e-16
_TINY: Final = 1e-300
_TURNS: Final = 200_000  # a series about its mean takes some √shape turns


def gamma_cdf(x: float, shape: float) -> float:
    """P(X <= x) for X ~ Gamma(shape, rate 1). Poisson: P(N >= shape) at mean x."""
    if x <= 0:
        return 0.0
    return _gamma_series(x, shape) if x < shape + 1 else 1.0 - _gamma_fraction(x, shape)


def gamma_sf(x: float, shape: float) -> float:
    """P(X > x); exact also where it is tiny. Poisson: P(N < shape) at mean x."""
    if x <= 0:
        return 1.0
    return 1.0 - _gamma_series(x, shape) if x < shape + 1 else _gamma_fraction(x, shape)


def gamma_quantile(p: float, shape: float) -> float:
    """The x with gamma_cdf(x, shape) = p, 0 < p < 1. A chi-square quantile of 2·shape degrees is twice this."""
    return _invert(lambda x: gamma_cdf(x, shape) - p, _gamma_guess(p, shape))


def beta_cdf(x: float, a: float, b: float) -> float:
    """P(X <= x) for X ~ Beta(a, b). Binomial: P(N >= a) of n = a + b - 1 trials with chance x."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_cdf(1.0 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) - _log_beta(a, b) - math.log(a)
    return math.exp(log_front) / _beta_fraction(x, a, b)


def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with beta_cdf(x, a, b) = p, by halving: 0 < p < 1."""
    low, high = 0.0, 1.0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if beta_cdf(middle, a, b) < p else (low, middle)
    return middle


def binomial_at_least(count: int, trials: int, chance: float) -> float:
    """P(N >= count) of that many trials."""
    return 1.0 if count <= 0 else beta_cdf(chance, count, trials - count + 1)


def normal_two_sided(z: float) -> float:
    """P(|Z| >= |z|) for a standard normal Z."""
    return math.erfc(abs(z) / math.sqrt(2))


def _gamma_front(x: float, shape: float) -> float:
    return math.exp(shape * math.log(x) - x - math.lgamma(shape))


def _gamma_series(x: float, shape: float) -> float:
    term = total = 1.0 / shape
    for n in range(1, _TURNS):
        term *= x / (shape + n)
        total += term
        if term < total * _EPS:
            break
    return total * _gamma_front(x, shape)


def _gamma_fraction(x: float, shape: float) -> float:
    b = x + 1 - shape
    c, d = 1 / _TINY, 1 / b
    value = d
    for n in range(1, _TURNS):
        a = -n * (n - shape)
        b += 2
        d = 1 / _not_zero(a * d + b)
        c = _not_zero(b + a / c)
        value *= c * d
        if abs(c * d - 1) < 4 * _EPS:
            break
    return value * _gamma_front(x, shape)


def _gamma_guess(p: float, shape: float) -> float:
    small = math.exp((math.log(p) + math.lgamma(shape + 1)) / shape)
    if small < 0.1 * (shape + 1):
        return max(small, _TINY)
    z = 1.0 / (9 * shape)
    return max(shape * (1 - z + normal_quantile(p) * math.sqrt(z)) ** 3, small / 2)


def normal_quantile(p: float) -> float:
    """Abramowitz and Stegun 26.2.23: to 5e-4, a first guess."""
    t = math.sqrt(-2 * math.log(min(p, 1 - p)))
    z = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3)
    return z if p > 0.5 else -z


def _invert(off: Callable[[float], float], guess: float) -> float:
    """The root of a rising function of x > 0: bracketed about the guess, then halved by ratio to the last digit."""
    low = high = guess
    while off(low) > 0 and low > _TINY:
        low /= 1.1
    while off(high) < 0:
        high *= 1.1
    for _ in range(60):
        middle = math.sqrt(low) * math.sqrt(high)
        if not low < middle < high:
            break
        low, high = (middle, high) if off(middle) < 0 else (low, middle)
    return (low + high) / 2


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, _TURNS):
        m = n // 2
        part = m * (b - m) * x if n % 2 == 0 else -(a + m) * (a + b + m) * x
        part /= (a + n - 1) * (a + n)
        d = 1 / _not_zero(1 + part * d)
        c = _not_zero(1 + part / c)
        value *= c * d
        if abs(c * d - 1) < 4 * _EPS:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
