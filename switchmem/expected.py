"""Errors that end a run without a traceback, since their message tells a user everything."""

from __future__ import annotations

from switchmem.actors.api.endpoint import EndpointError
from switchmem.actors.grammars.base import GrammarError
from switchmem.actors.protocol import ActorError
from switchmem.actors.sampling import SamplingError
from switchmem.actors.spec import ActorSpecError
from switchmem.arguments import ArgumentsError
from switchmem.benchmarks import DataError
from switchmem.evaluation.failures import FailuresError
from switchmem.harvest import HarvestError
from switchmem.learner import LearnerError
from switchmem.memory.agmem import CropError
from switchmem.memory.bank import BankError
from switchmem.memory.baseline import BaselineError
from switchmem.memory.budget import BudgetError
from switchmem.memory.embedder import EmbedderError
from switchmem.memory.retrieval import RetrievalError
from switchmem.policy import PolicyError
from switchmem.preference import PreferenceError
from switchmem.prompts import PromptError
from switchmem.ranks import RanksError
from switchmem.rollout.instances import InstanceError
from switchmem.rollout.results import RolloutError
from switchmem.rollout.trace import TraceError
from switchmem.runs import RunError
from switchmem.settings import SettingsError
from switchmem.stages import StageError
from switchmem.steps import RecordError

EXPECTED = (
    ActorError,
    ActorSpecError,
    ArgumentsError,
    BankError,
    BaselineError,
    BudgetError,
    CropError,
    DataError,
    EmbedderError,
    EndpointError,
    FailuresError,
    GrammarError,
    HarvestError,
    InstanceError,
    LearnerError,
    PolicyError,
    PreferenceError,
    PromptError,
    RanksError,
    RecordError,
    RetrievalError,
    RolloutError,
    RunError,
    SamplingError,
    SettingsError,
    StageError,
    TraceError,
)


def explained(error: BaseException | None) -> BaseException | None:
    """The error itself, or the expected one that it was raised from: the parser wraps some. None if there is none.

    >>> explained(KeyError("x")) is None
    True
    """
    while error is not None and not isinstance(error, EXPECTED):
        error = error.__cause__ or error.__context__
    return error
