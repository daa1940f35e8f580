"""Soft preference targets: standardise, project, logistic regression.

The fitted form is five arrays and a table of counts, so that it is read back without any library, and never unpickled.

Letters: `N` steps, `n` of them non-tied, `D` actor hidden size, `C` principal components.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold
from sklearn.preprocessing import StandardScaler

from switchmem.preference.utilities import (
    Bools,
    Floats,
    Groups,
    PreferenceError,
    Values,
    check_length,
    count_preferences,
)
from switchmem.stages import write_json, write_whole

N_COMPONENTS = 64
FOLDS = 5
_MAX_ITER = 10_000  # L-BFGS needs some 30 to 150 to reach float64's resolution of the loss
_ARRAYS = ("mean", "scale", "components", "coef", "intercept")
_FORMAT = "switchmem.preference/1"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class PreferenceEstimator:
    """Standardise, project on principal axes, logistic regression: t = w . PCA(Std(d)) + b.

    Args:
        mean: [D], mean of the shifts it was fitted on.
        scale: [D], their standard deviation; 1 where a feature is constant.
        components: [C, D], orthonormal principal axes of the standardised shifts, the largest entry of each positive.
        coef: [C], weights of the logistic regression, > 0 towards Image.
        intercept: [], its intercept.
        counts: steps it saw (`steps`, `tied`, `text`, `image`) and its `components`.
    """

    mean: Floats
    scale: Floats
    components: Floats
    coef: Floats
    intercept: Floats
    counts: dict[str, int]

    @classmethod
    def fit(cls, d: Values, delta: Values, n_components: int = N_COMPONENTS, c: float = 1.0) -> PreferenceEstimator:
        """Fit on the non-tied steps.

        With n <= `n_components` non-tied steps there are n - 1 principal axes; that is logged as a warning.

        Args:
            d: [N, D], Image state minus Text state of one block; rows of tied steps are ignored.
            delta: [N], utility gaps; their sign is the label and 0 means tied.
            n_components: principal axes kept, >= 1.
            c: inverse strength of the L2 penalty on the weights, > 0.

        Raises:
            PreferenceError: if no step is non-tied, all prefer the same modality, or a value is not finite.
        """
        shifts, gaps = _shifts_and_gaps(d, delta)
        counts = count_preferences(gaps)
        if not counts["text"] or not counts["image"]:
            raise PreferenceError(
                "a preference must have steps that prefer Text and steps that prefer Image, got "
                f"{counts['steps']} steps: {counts['tied']} tied, {counts['text']} prefer Text, {counts['image']} "
                "prefer Image. Harvest more steps, or look at the raw answers: an actor whose answers cannot be "
                "parsed ties everywhere."
            )
        kept = gaps != 0.0
        return cls.fit_labels(shifts[kept], gaps[kept] > 0, n_components, c, counts)

    @classmethod
    def fit_labels(
        cls, d: Floats, labels: Bools, n_components: int, c: float, counts: Mapping[str, int]
    ) -> PreferenceEstimator:
        """Fit on steps whose preferred modality is known.

        Args:
            d: [n, D], finite.
            labels: [n], True for Image; both classes present.
            n_components: principal axes kept, >= 1.
            c: inverse strength of the L2 penalty, > 0.
            counts: what to remember about the steps.

        Raises:
            PreferenceError: if `n_components` or `c` is out of range, or the regression does not converge.
        """
        if n_components < 1 or not c > 0:
            raise PreferenceError(f"`n_components` must be >= 1 and `c` > 0, got {n_components} and {c}.")
        kept = min(n_components, len(d) - 1, d.shape[1])
        if kept < n_components:
            _log.warning(
                "PCA keeps %d of %d components: %d non-tied steps of %d features.", kept, n_components, *d.shape
            )
        scaler = StandardScaler()
        # Both solvers are exact and draw nothing at random, which "auto" may; each is the fast one on its side.
        pca = PCA(kept, svd_solver="covariance_eigh" if len(d) >= d.shape[1] else "full")
        with np.errstate(invalid="ignore"):  # the explained share, unused here, is 0 / 0 where no feature varies
            projected = pca.fit_transform(scaler.fit_transform(d))
        regression = _regression(projected, labels, c)
        mean = scaler.mean_ + scaler.scale_ * pca.mean_  # PCA centres again what rounding left of the first centring
        coef, intercept = regression.coef_[0], np.array(regression.intercept_[0])
        return cls(mean, scaler.scale_, pca.components_, coef, intercept, {**counts, "components": kept})

    def decision(self, d: Values) -> Floats:
        """Soft preference of each shift.

        Args:
            d: [B, D].

        Returns:
            [B], > 0 favours Image, < 0 favours Text; log-odds.

        Raises:
            PreferenceError: if the shape is not [B, D] or a value is not finite.
        """
        shifts = as_matrix("d", d)
        if shifts.shape[1] != len(self.mean):
            raise PreferenceError(
                f"`d` must be [B, {len(self.mean)}] like the shifts of the fit, got {list(shifts.shape)}. "
                "Take the states of the same block of the same actor."
            )
        projected = (shifts - self.mean) / self.scale @ self.components.T
        return np.asarray(projected @ self.coef + self.intercept, dtype=np.float64)

    def save(self, folder: str | Path) -> None:
        """Write `preference.safetensors` and `preference.json` into `folder`, each renamed from a temporary name."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "preference.json").unlink(missing_ok=True)  # written last: with it the folder is complete
        # safetensors stores raw bytes, so a transposed view must be laid out first
        arrays = {name: np.array(getattr(self, name), order="C") for name in _ARRAYS}
        write_whole(folder / "preference.safetensors", save(arrays))  # `save_file` would keep it from all other users
        write_json(folder / "preference.json", {"format": _FORMAT, "counts": self.counts})

    @classmethod
    def load(cls, folder: str | Path) -> PreferenceEstimator:
        """Inverse of `save`.

        Raises:
            PreferenceError: if a file is missing, damaged or of another format.
        """
        folder = Path(folder)
        try:
            meta: dict[str, Any] = json.loads((folder / "preference.json").read_text(encoding="utf-8"))
            arrays = load_file(folder / "preference.safetensors")
            if meta["format"] != _FORMAT:
                raise ValueError(f"format {meta['format']!r} is not {_FORMAT!r}")
            estimator = cls(**{name: arrays[name] for name in _ARRAYS}, counts=meta["counts"])
            width, axes = len(estimator.mean), len(estimator.coef)
            if estimator.components.shape != (axes, width) or estimator.scale.shape != (width,):
                shapes = {name: array.shape for name, array in arrays.items()}
                raise ValueError(f"the arrays' shapes disagree: {shapes}")
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            raise PreferenceError(
                f"`folder` must hold a whole preference.safetensors and preference.json, got {folder}: {error!r}. "
                "Fit the targets again."
            ) from error
        return estimator


def fit_targets(
    d: Values,
    delta: Values,
    groups: Groups,
    n_components: int = N_COMPONENTS,
    cross_fit: bool = False,
    folds: int = FOLDS,
    c: float = 1.0,
) -> tuple[PreferenceEstimator, Floats]:
    """Fit the estimator on D_pref and give each of its steps a soft target.

    Args:
        d: [N, D], Image state minus Text state at the final block.
        delta: [N], utility gaps, 0 where tied.
        groups: [N], trajectory of each step.
        n_components: principal axes kept.
        cross_fit: False takes decision values of the fit itself; True those of fits that did not see the
            step's trajectory. The estimator returned is fitted on all of D_pref either way.
        folds: folds of the cross-fit, at most one per trajectory.
        c: inverse strength of the L2 penalty.

    Returns:
        The estimator, and the targets t [N], NaN on tied steps: they are not in D_pref.

    Raises:
        PreferenceError: as `PreferenceEstimator.fit`; with `cross_fit` also if D_pref has a single trajectory
            or a fold leaves only one class to fit on.
    """
    shifts, gaps = _shifts_and_gaps(d, delta)
    check_length("groups", groups, len(gaps))
    estimator = PreferenceEstimator.fit(shifts, gaps, n_components, c)
    kept = np.flatnonzero(gaps != 0.0)
    targets = np.full(len(gaps), np.nan)
    if not cross_fit:
        targets[kept] = estimator.decision(shifts[kept])
        return estimator, targets
    fold_of = group_folds(np.asarray(groups, dtype=np.str_)[kept], folds)
    if fold_of.max() == 0:
        raise PreferenceError(
            f"`cross_fit` must have non-tied steps of at least 2 trajectories, got {len(kept)} steps of 1. "
            "Set cross_fit: false or harvest more trajectories."
        )
    for fold in range(fold_of.max() + 1):
        rest, held = kept[fold_of != fold], kept[fold_of == fold]
        targets[held] = PreferenceEstimator.fit(shifts[rest], gaps[rest], n_components, c).decision(shifts[held])
    return estimator, targets


def group_folds(groups: Groups, folds: int) -> NDArray[np.int64]:
    """Assign whole groups to folds of near-equal size: the largest group first, to the smallest fold.

    Args:
        groups: [n], group of each row.
        folds: folds wanted, >= 2; with fewer groups there is one fold per group.

    Returns:
        [n], fold of each row, from 0.

    Raises:
        PreferenceError: if `folds` is below 2.

    >>> group_folds(["a", "b", "b", "c"], 2).tolist()
    [1, 0, 0, 1]
    """
    if folds < 2:
        raise PreferenceError(f"`folds` must be >= 2, got {folds}.")
    names = np.asarray(groups, dtype=np.str_)
    fold_of = np.zeros(len(names), dtype=np.int64)
    distinct = len(np.unique(names))
    if distinct > 1:
        for fold, (_, held) in enumerate(GroupKFold(min(folds, distinct)).split(names, groups=names)):
            fold_of[held] = fold
    return fold_of


def as_matrix(name: str, values: Values) -> Floats:
    """`values` as a finite float64 matrix.

    Raises:
        PreferenceError: if it has another number of axes or a value is NaN or infinite.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 2 or not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise PreferenceError(
            f"`{name}` must be a finite matrix, got shape {list(array.shape)} with {bad} values that are not finite."
            " Harvest those steps again, in float32 if the actor overflows."
        )
    return array


def _shifts_and_gaps(d: Values, delta: Values) -> tuple[Floats, Floats]:
    shifts, gaps = as_matrix("d", d), np.asarray(delta, dtype=np.float64)
    check_length("delta", gaps, len(shifts))
    if not np.isfinite(gaps).all():
        raise PreferenceError(f"`delta` must be finite, got {int((~np.isfinite(gaps)).sum())} values that are not.")
    return shifts, gaps


def _regression(x: Floats, labels: Bools, c: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return LogisticRegression(C=c, solver="lbfgs", tol=1e-8, max_iter=_MAX_ITER).fit(x, labels)
        except ConvergenceWarning as warning:
            raise PreferenceError(
                f"Logistic regression must converge in {_MAX_ITER} iterations, got {len(x)} steps of {x.shape[1]} "
                f"components at c={c}: {str(warning).splitlines()[0]} Lower `c`."
            ) from warning
