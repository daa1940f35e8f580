"""A small pocket world with a bank on the disk, the shipped actor, and policies that choose both forms."""

from __future__ import annotations

import pytest
import torch

from switchmem.actors.spec import ActorSpec
from switchmem.agent import LiveBank, SwitchMemAgent
from switchmem.benchmarks.pocket import PocketSpec, generate_steps
from switchmem.benchmarks.store import write_steps
from switchmem.memory import HashingEmbedder
from switchmem.policy import Policy, PolicyCard
from switchmem.prompts import fingerprint
from switchmem.router import PairwiseRouter

WORLD = PocketSpec(apps=1, test_apps=3, goals=2, episodes=2, bank_episodes=3)
EMBEDDER = HashingEmbedder(dim=256)
SPEC = ActorSpec(device="cpu")
MAX_NEW_TOKENS = 16


@pytest.fixture(scope="session")
def queries():
    return list(generate_steps(WORLD, "test"))


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Of the demonstrations. Shared: leave it as it is."""
    return write_steps(generate_steps(WORLD, "test_bank"), tmp_path_factory.mktemp("steps") / "bank", 16)


@pytest.fixture(scope="session")
def bank(store):
    return LiveBank.build(store, EMBEDDER)


@pytest.fixture(scope="session")
def actor():
    return SPEC.load()


@pytest.fixture(scope="session")
def card(actor):
    template = fingerprint(SPEC.load_template())
    return PolicyCard(SPEC.fingerprint(), layer=actor.num_layers - 1, template=template, embedder=EMBEDDER.name)


@pytest.fixture(scope="session")
def make_policy(actor, card):
    """A random router; its threshold and card can be chosen."""

    def make(threshold=0.0, dim=EMBEDDER.dim, **changes):
        changed = PolicyCard(**{**vars(card), **changes})
        width = 2 * dim if changed.target == "basic" else actor.hidden_size
        torch.manual_seed(0)
        router = PairwiseRouter(width, dim).eval()
        torch.nn.init.normal_(router.scorer[0].weight, std=0.5)  # so that steps differ by more than rounding
        return Policy(router, threshold, changed)

    return make


@pytest.fixture
def make_agent(actor, bank, make_policy, tmp_path):
    def make(threshold=0.0, bank=bank, **changes):
        make_policy(threshold, **changes).save(tmp_path / "policy")
        return SwitchMemAgent.from_pretrained(
            tmp_path / "policy", SPEC, bank, loaded=actor, max_new_tokens=MAX_NEW_TOKENS
        )

    return make


@pytest.fixture(scope="session")
def embedder():
    return EMBEDDER


@pytest.fixture(scope="session")
def spec():
    return SPEC
