"""The three pieces of the preference estimator, solved to convergence in float64.

Nothing here is random or stops early, so the same harvest gives the same targets on every machine.

Letters: `n` rows, `D` features, `k` components.
"""

from __future__ import annotations

import numpy as np

from switchmem.preference.utilities import Bools, Floats, PreferenceError


def standardiser(x: Floats) -> tuple[Floats, Floats]:
    """Mean and scale [D] of x [n, D]; scale 1 for features that vary by no more than rounding."""
    n, eps = len(x), float(np.finfo(np.float64).eps)
    mean, variance = x.mean(axis=0), x.var(axis=0)
    constant = variance <= n * eps * variance + (n * mean * eps) ** 2
    return mean, np.where(constant, 1.0, np.sqrt(variance))


def principal_axes(x: Floats, k: int) -> Floats:
    """First k principal axes [k, D] of centred x [n, D], the largest entry of each positive."""
    n, width = x.shape
    if min(n, width) <= 512:
        axes = np.linalg.svd(x, full_matrices=False)[2][:k]
    elif width <= n:
        # thousands of features: the eigenvectors of the smaller square matrix cost a fraction of an SVD
        axes = np.linalg.eigh(x.T @ x)[1][:, : -k - 1 : -1].T
    else:
        left = np.linalg.eigh(x @ x.T)[1][:, : -k - 1 : -1]
        # QR keeps the axes orthonormal where a singular value is near zero
        axes = np.linalg.qr(x.T @ left)[0].T
    largest = axes[np.arange(k), np.abs(axes).argmax(axis=1)]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0)[:, None])


def logistic(x: Floats, labels: Bools, c: float) -> tuple[Floats, float]:
    """Minimise c * sum(log loss) + |w|^2 / 2, the intercept unpenalised, by damped Newton steps.

    Args:
        x: [n, C] features.
        labels: [n], both classes present.
        c: inverse penalty, > 0.

    Returns:
        w [C] and the intercept.

    Raises:
        PreferenceError: if 100 steps do not converge.
    """
    design = np.hstack([x, np.ones((len(x), 1))])
    sign = np.where(labels, 1.0, -1.0)
    penalty = np.append(np.ones(x.shape[1]), 0.0)

    def loss(w: Floats) -> float:
        return float(c * np.logaddexp(0.0, -sign * (design @ w)).sum() + 0.5 * (penalty * w * w).sum())

    weights = np.zeros(design.shape[1])
    for _ in range(100):
        wrong = 1.0 / (1.0 + np.exp(np.clip(sign * (design @ weights), -500, 500)))
        gradient = penalty * weights - c * design.T @ (sign * wrong)
        curvature = (design.T * (c * wrong * (1.0 - wrong))) @ design + np.diag(penalty)
        step = np.linalg.lstsq(curvature, gradient, rcond=None)[0]
        before, decrement = loss(weights), float(gradient @ step)
        if decrement <= 1e-10 * max(1.0, before):
            # here Newton squares the error, and the loss itself no longer resolves what one more step gains
            weights = weights - step
            return weights[:-1], float(weights[-1])
        size = 1.0
        while loss(weights - size * step) > before - 1e-4 * size * decrement:
            size /= 2
        weights = weights - size * step
    raise PreferenceError(
        f"Logistic regression must converge in 100 Newton steps, got {x.shape} features at c={c}. Lower `c`."
    )
