"""Blocks, samples and cuts: what a study takes of a harvest."""

import json

import numpy as np
import pytest
import torch
from fake_actor import FLAGS

from switchmem.harvest import Harvest
from switchmem.pipeline.routers import training_cut
from switchmem.pipeline.targets import Targets
from switchmem.pipeline.used import Used, rows_of, used_blocks
from switchmem.policy import Policy, choose_threshold
from switchmem.preference import PreferenceEstimator, utilities
from switchmem.settings import SettingsError, StudySettings


@pytest.fixture(scope="module")
def harvest(trained):
    stages = {p.parent: json.loads(p.read_text()) for p in (trained / "runs/stages").glob("harvest-*/stage.json")}
    (folder,) = (f for f, stage in stages.items() if stage["inputs"]["sampling"]["temperature"] > 0)
    return Harvest.open(folder)


@pytest.mark.parametrize(
    "layer, blocks", [(None, (31,)), (-1, (31,)), (0, (0,)), (-3, (0,)), ([8, -1], (8, 31)), ([-1, 0, 8], (0, 8, 31))]
)
def test_blocks_by_number_or_from_the_end(layer, blocks):
    assert used_blocks(layer, [0, 8, 31]) == blocks


@pytest.mark.parametrize("layer", [1, 32, -4, [], [8, 8], [-1, 31]])
def test_other_blocks_are_refused_with_those_there_are(layer):
    with pytest.raises(SettingsError, match=r"among those probed, \[0, 8, 31\]"):
        used_blocks(layer, [0, 8, 31])


def test_states_of_several_blocks_are_averaged(harvest):
    used = Used(harvest, StudySettings(layer=[1, -1]))
    assert used.blocks == used.layer == (1, 3) and Used(harvest, StudySettings()).layer == 3
    expected = torch.stack([harvest.states("image", 1), harvest.states("image", 3)]).mean(dim=0)
    assert torch.equal(used.states("image"), expected)
    assert torch.equal(used.shift(), used.states("image") - used.states("text"))
    batch = used.router_batch()
    assert torch.equal(batch["state"], (harvest.states("state", 1) + harvest.states("state", 3)) / 2)
    keep = torch.arange(len(harvest)) % 2 == 0
    assert torch.equal(rows_of(batch, keep)["text"], harvest.embeddings("text")[keep])
    assert torch.equal(harvest.states("state"), harvest.states("state", 3))


def test_the_first_samples_alone_make_the_utilities(harvest):
    scores = Used(harvest, StudySettings(samples=3)).scores("text")
    assert torch.equal(scores, harvest.scores("text")[:, :3]) and harvest.scores("text").shape[1] == 7
    with pytest.raises(SettingsError, match="at most the 7 harvested, got 8"):
        Used(harvest, StudySettings(samples=8)).scores("text")


def test_an_average_of_blocks_goes_all_the_way_into_the_tested_policy(desk, harvest):
    flags = ["--study.layer=[-1,1]", "--study.targets=[]", "--study.seeds=[0]", "--study.samples=5"]
    assert desk("fit", *flags) == 0
    card = Policy.load(desk.run / "policy").card
    assert card.layer == card.blocks == (1, 3)
    used = Used(harvest, StudySettings(layer=[1, 3], samples=5))
    pair = utilities(used.scores("text"), used.scores("image"))
    expected = PreferenceEstimator.fit(used.shift(), pair.delta)
    kept = PreferenceEstimator.load(desk.run / "policy" / "preference")
    np.testing.assert_allclose(kept.decision(used.shift()), expected.decision(used.shift()), rtol=1e-6)
    assert card.n_pref == int(pair.non_tied.sum())
    assert desk("test", *flags) == 0
    assert desk("test", *FLAGS, *flags[1:]) == 1  # the policy is frozen with its blocks


def targets(text, image):
    text, image = torch.tensor(text), torch.tensor(image)
    return Targets(image - text, image - text, text, image, {}, {})


def test_cuts_by_each_rule():
    known = targets([1.0, 1.0, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 1.0, 1.0])
    r = torch.tensor([-2.0, 3.0, 0.1, 4.0, 5.0])
    assert training_cut(r, known, "zero") == 0.0
    assert training_cut(r, known, "utility") == 3.5 == choose_threshold(r, known.text, known.image)
    # half of the non-tied steps prefer Image: 2.5 of 5, and 2 and 3 are as near; the cut nearest 0 is taken
    assert training_cut(r, known, "match_rate") == pytest.approx(1.55)
