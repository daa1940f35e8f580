"""`audit` from the command line: harvest, held-out routers, files."""

import json

import fake_actor
import numpy as np
import pytest
import torch
from desk import Desk

from switchmem.harvest import Harvest
from switchmem.pipeline.audit import HeldOut, known_costs
from switchmem.pipeline.used import Used
from switchmem.policy import Policy
from switchmem.preference import PreferenceEstimator, group_folds, utilities
from switchmem.settings import StudySettings


def read(desk):
    return json.loads((desk.run / "audit.json").read_text())


def test_it_reuses_the_harvest_and_leaves_its_findings(desk, capsys):
    before = (desk.run / "results.json").read_bytes()
    assert desk("audit") == 0 and not desk.loads
    found, out = read(desk), capsys.readouterr().out
    assert found["verdict"]["answer"] in ("yes", "too few") and found["target"] == "dcoe"
    assert set(found["layer_auroc"]) == {"0", "1", "2", "3"}
    assert (desk.run / "audit.txt").read_text().rstrip() in out
    assert "synthetic" in found["notes"][0] and found["provenance"]["harvest"].startswith("harvest-")
    assert found["bootstrap"]["replicates"] == 200
    assert (desk.run / "results.json").read_bytes() == before and (desk.run / "config.audit.yaml").is_file()
    assert desk("audit") == 0 and read(desk)["router"] == found["router"]  # finished routers are kept
    assert desk("audit", "--study.worth=99") == 0 and read(desk)["verdict"]["answer"] == "no"


def test_it_harvests_where_nothing_is_yet(tmp_path, monkeypatch):
    desk = Desk(tmp_path, monkeypatch)
    assert desk("audit") == 0 and len(desk.loads) == 1
    assert desk("fit") == 0 and len(desk.loads) == 1


def test_without_a_preference_the_rest_is_told(tmp_path, monkeypatch, capsys):
    desk = Desk(tmp_path, monkeypatch, answers={})
    assert desk("audit") == 0
    found = read(desk)
    assert found["counts"]["tied"] == found["counts"]["steps"] and found["wins"]["text"]["mean"] is None
    assert found["verdict"]["answer"] == "too few"
    assert "must have steps that prefer Text and steps that prefer Image" in found["router"]["why_not"]
    assert "What a router could gain is not known: " in capsys.readouterr().out


@pytest.fixture
def judged(trained, monkeypatch):
    """Stands for everything that trains: it keeps what each fold was given, and routes by the state's first number."""
    (folder,) = (
        f.parent
        for f in (trained / "runs/stages").glob("harvest-*/stage.json")
        if json.loads(f.read_text())["inputs"]["sampling"]["temperature"] > 0
    )
    seen = []

    class Router:
        def __init__(self, fold):
            self.fold = fold

        def route(self, batch):
            r = batch["state"][:, 0]
            seen[self.fold]["asked"] = batch["state"]
            return [fake_actor.Condition.IMAGE if value >= 0 else fake_actor.Condition.TEXT for value in r], r

    def train(self, recipe, batch, targets, rest):
        seen.append({"targets": targets, "rest": rest.numpy(), "fold": recipe.fold})

    class Recipe:
        def __init__(self, fold, n_pref):
            self.fold, self.n_pref, self.stage = fold, n_pref, self
            self.folder = fold

    monkeypatch.setattr(HeldOut, "_train", train)
    monkeypatch.setattr(Policy, "load", lambda fold: Router(fold))
    used = Used(Harvest.open(folder), StudySettings())
    return used, HeldOut(used, None, None, Recipe), seen


def test_a_fold_is_fitted_on_the_other_trajectories_alone(judged):
    used, held_out, seen = judged
    chosen = held_out.choices()
    names, pair = np.array(used.harvest.trajectories), utilities(used.scores("text"), used.scores("image"))
    folds = group_folds(used.harvest.trajectories, 5)
    assert len(seen) == 5 and sorted(np.concatenate([np.flatnonzero(~s["rest"]) for s in seen])) == list(
        range(len(names))
    )
    for fold, given in enumerate(seen):
        rest = given["rest"]
        assert not set(names[rest]) & set(names[~rest]) and (rest == (folds != fold)).all()
        keep = rest & pair.non_tied
        assert (given["targets"].keep.numpy() == keep).all()
        # the soft targets are those of an estimator fitted on the rest, and there are none for what is held out
        alone = PreferenceEstimator.fit(used.shift()[torch.from_numpy(rest)], pair.delta[rest])
        t = given["targets"].target.numpy()
        np.testing.assert_allclose(t[keep], alone.decision(used.shift().numpy()[keep]), rtol=1e-5, atol=1e-6)
        assert np.isnan(t[~keep]).all()
        assert torch.equal(given["asked"], used.states("state")[torch.from_numpy(~rest)])
    assert (chosen == (used.states("state")[:, 0] >= 0).numpy()).all()


def test_costs_are_those_that_the_harvest_kept():
    class Kept:
        seconds = [1.0, 3.0]

        def prompt_tokens(self, name):
            return {"none": [10, 20], "text": [30, 40], "image": None}[name]

        def new_tokens(self, name):
            return {"text": [[4, 6], [5, 5]], "image": None}[name]

    costs, unknown = known_costs(Kept())
    assert costs == {
        "prompt tokens without memory": [10.0, 20.0],
        "prompt tokens with Text": [30.0, 40.0],
        "tokens of an answer with Text": [5.0, 5.0],
        "actor seconds per step of the harvest": [1.0, 3.0],
    }
    assert len(unknown) == 3 and unknown[1:] == ["prompt tokens with Image", "tokens of an answer with Image"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--data.init_args.apps=3"], "data.init_args.apps was 2 and is now 3"),
        (["--sampling.temperature=0.5"], "sampling.temperature was 0.7 and is now 0.5"),
    ],
)
def test_other_data_than_the_runs_is_refused_before_anything_is_harvested(desk, flags, told, capsys):
    stages = {path.name for path in (desk.folder / "runs" / "stages").iterdir()}
    assert desk("audit", *flags) == 1 and not desk.loads and not (desk.run / "audit.json").exists()
    error = capsys.readouterr().err
    assert "`audit` must be of what `fit` harvested in" in error and told in error
    assert f"`audit --run {desk.run}`" in error and "`--run.name NAME`" in error
    assert {path.name for path in (desk.folder / "runs" / "stages").iterdir()} == stages
    assert desk("audit", f"--run={desk.run}", small=["--run.report=false"]) == 0 and not desk.loads  # the way out
    assert desk("audit", "--data.init_args.batch_size=3") == 0  # says nothing of the data
