"""The layer study: from which block on does the shift tell which modality helps more?"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

import numpy as np
from sklearn.metrics import roc_auc_score

from switchmem.preference.estimator import FOLDS, N_COMPONENTS, PreferenceEstimator, as_matrix, group_folds
from switchmem.preference.utilities import Floats, Groups, Values, check_length

_log = logging.getLogger(__name__)


def layer_decisions(
    d_by_layer: Mapping[int, Values],
    labels: Values,
    groups: Groups,
    folds: int = FOLDS,
    n_components: int = N_COMPONENTS,
    c: float = 1.0,
) -> dict[int, Floats]:
    """What a linear probe on each block's shift says about steps of trajectories that it did not see.

    Standardiser, PCA and logistic regression are fitted inside each fold.

    Args:
        d_by_layer: block index -> [n, D] shifts of the stable subset.
        labels: [n], True or > 0 where Image is preferred (`stable_preference` without its zeros).
        groups: [n], trajectory of each step.
        folds: folds, each a set of whole trajectories; at most one per trajectory.
        n_components: principal axes kept.
        c: inverse strength of the L2 penalty.

    Returns:
        Block index -> held-out decision values [n], > 0 towards Image. NaN, with the reason logged, where they are
        undefined: fewer than two trajectories, or a fold that leaves one class to fit on.

    Raises:
        PreferenceError: if the lengths differ or a shift is not finite.
    """
    wanted = np.asarray(labels, dtype=np.float64) > 0
    check_length("groups", groups, len(wanted))
    fold_of = group_folds(groups, folds)
    splits = [(fold_of != fold, fold_of == fold) for fold in range(fold_of.max(initial=-1) + 1)]
    undefined = len(splits) < 2 or any(len(np.unique(wanted[train])) < 2 for train, _ in splits)
    if undefined:
        _log.warning(
            "Layer probe left out (NaN): %d stable steps of %d trajectories, %d prefer Image, cannot be split "
            "into folds that each leave both classes to fit on.",
            len(wanted), len(np.unique(np.asarray(groups))), int(wanted.sum()),
        )  # fmt: skip
    result = {}
    for layer, d in d_by_layer.items():
        shifts = as_matrix("d_by_layer", d)
        check_length("d_by_layer", shifts, len(wanted))
        scores = np.full(len(wanted), np.nan)
        for train, test in splits if not undefined else ():
            probe = PreferenceEstimator.fit_labels(shifts[train], wanted[train], n_components, c, {})
            scores[test] = probe.decision(shifts[test])
        result[layer] = scores
    return result


def layer_auroc(
    d_by_layer: Mapping[int, Values],
    labels: Values,
    groups: Groups,
    folds: int = FOLDS,
    n_components: int = N_COMPONENTS,
    c: float = 1.0,
) -> dict[int, float]:
    """How well those probes rank unseen steps: the AUROC of the pooled `layer_decisions`, whose arguments it takes.

    Returns:
        Block index -> AUROC in [0, 1]; NaN where it is undefined.
    """
    wanted = np.asarray(labels, dtype=np.float64) > 0
    decisions = layer_decisions(d_by_layer, labels, groups, folds, n_components, c)
    return {
        layer: math.nan if np.isnan(scores).any() or not len(scores) else float(roc_auc_score(wanted, scores))
        for layer, scores in decisions.items()
    }
