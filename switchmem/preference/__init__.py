"""From sampled scores and hidden-state shifts to the router's soft preference targets."""

from switchmem.preference.estimator import FOLDS, N_COMPONENTS, PreferenceEstimator, fit_targets, group_folds
from switchmem.preference.probe import layer_auroc, layer_decisions
from switchmem.preference.utilities import AGREE, PreferenceError, Utilities, stable_preference, utilities

__all__ = [
    "AGREE",
    "FOLDS",
    "N_COMPONENTS",
    "PreferenceError",
    "PreferenceEstimator",
    "Utilities",
    "fit_targets",
    "group_folds",
    "layer_auroc",
    "layer_decisions",
    "stable_preference",
    "utilities",
]
