"""The whole protocol on a phone of two buttons: who plays what, what is shared, what is kept, and what comes out."""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.spec import ActorSpec
from switchmem.benchmarks.store import StepStore
from switchmem.envs.base import Ending
from switchmem.memory import HashingEmbedder
from switchmem.pipeline.rollout import Rollout
from switchmem.policy import Policy, PolicyCard, PolicyError
from switchmem.prompts import fingerprint
from switchmem.rollout.instances import Instance, InstanceError, proof, require_apart, shared, unlike
from switchmem.rollout.protocol import policy_digest
from switchmem.rollout.results import RolloutError, read_rollout_results, rollout_text
from switchmem.rollout.trace import read_facts
from switchmem.router import PairwiseRouter
from switchmem.runs import RunFolder
from switchmem.settings import RolloutSettings, SettingsError
from switchmem.stages import Stages, make_folder

SPEC, EMBEDDER = ActorSpec(device="cpu"), HashingEmbedder(dim=64)


@pytest.fixture
def policy(tmp_path):
    torch.manual_seed(0)
    card = PolicyCard(
        SPEC.fingerprint(), 0, fingerprint(SPEC.load_template()), EMBEDDER.name, image_rate=0.25, n_pref=10
    )
    Policy(PairwiseRouter(8, 64), 0.125, card).save(tmp_path / "policy")
    return str(tmp_path / "policy")


@pytest.fixture
def rollout(two_buttons, make_agent, policy, tmp_path):
    def make(world=two_buttons, spec=SPEC, **changes):
        settings = RolloutSettings(**{"policy": policy, "workers": 2, "bootstrap": 200, **changes})
        run = RunFolder(tmp_path / "run")
        make_folder(run.path)
        return Rollout(world, spec, EMBEDDER, settings, Stages(tmp_path / "stages"), run, make_agent)

    return make


@pytest.fixture
def results(rollout):
    return rollout().play({"time": "now"})


def test_each_policy_has_its_row_on_the_same_instances(results, kit, tmp_path):
    done = {task: row for task, row in results["by_task"].items()}
    assert list(done) == list(kit.TASKS) and results["n_tasks"] == 6
    for form, tasks in kit.SOLVED.items():
        assert {task for task, row in done.items() if row[form.value]} == tasks
        assert results["policies"][form.value]["success"] == pytest.approx(100 * len(tasks) / 6)
    assert {task for task, row in done.items() if row["switchmem"]} == {
        "both-help", "text-helps", "image-helps", "always-alike"
    }  # fmt: skip
    assert results["missing"] == ["missing"] and results["unequal"] == []
    assert any("missing" in note and "1 of 6" in note for note in results["notes"])
    assert results["policies"]["none"]["endings"] == {"success": 2, "failure": 3, "missing_page": 1}
    # text on three tasks of two steps, image on one: r decides; `always-alike` has r = 0
    assert results["policies"]["switchmem"]["forms"] == {"text": 8, "image": 2}
    assert results["policies"]["switchmem"]["image_rate"] == pytest.approx(0.2)
    assert results["policies"]["both"]["actor_seconds_per_step"] == pytest.approx(0.75)
    assert read_rollout_results(tmp_path / "run" / "results.json") == json.loads(json.dumps(results))
    assert "image (best fixed)" not in rollout_text(results)  # Text comes first of two that are equally good
    assert "text (best fixed)" in rollout_text(results) == (tmp_path / "run" / "rollout.txt").read_text()


def test_the_comparison_is_exact_and_adjusted(results):
    rows = results["comparisons"]
    assert rows["none"]["only_ours"] == 2 and rows["none"]["only_theirs"] == 0
    for row in rows.values():
        n = row["only_ours"] + row["only_theirs"]
        assert row["p"] == pytest.approx(binomtest(row["only_ours"], n).pvalue)
        assert row["ci95"][0] <= row["diff"] <= row["ci95"][1]
    ordered = sorted(rows.values(), key=lambda row: row["p"])
    expected, highest = [], 0.0
    for k, row in enumerate(ordered):
        highest = max(highest, min(1.0, row["p"] * (4 - k)))
        expected.append(highest)
    assert [row["p_holm"] for row in ordered] == pytest.approx(expected)


def test_the_bank_is_the_actors_own_and_shares_no_instance(results, tmp_path):
    bank = results["bank"]
    assert (bank["made_by"], bank["suite_seed"]) == ("actor", 1001)
    assert bank["successes"] == 2 and bank["tasks"] == ["both-help"]
    assert bank["left_out_alike"] == ["always-alike"]  # it looks like the evaluation's
    store = StepStore(tmp_path / "stages" / bank["stage"] / "bank")
    steps = [store[step_id] for step_id in store.step_ids]
    assert [step.step_id for step in steps] == ["miniwob/both-help-1001009/0", "miniwob/both-help-1001009/1"]
    assert steps[0].instruction == "Do: do both-help 1001009" and steps[0].action.type.value == "tap"
    found = results["instances"]
    assert found["shared"] == [] and found["counts"] == {"bank": 1, "calibration": 4, "evaluation": 5}
    seeds = {part: {tuple(row[:2]) for row in rows} for part, rows in found["parts"].items()}
    looks = {part: {(row[0], row[2]) for row in rows} for part, rows in found["parts"].items()}
    for kind in (seeds, looks):
        assert len(set().union(*kind.values())) == sum(map(len, kind.values())) == 10
    assert seeds["evaluation"] >= {("both-help", 42009)} and seeds["calibration"] >= {("both-help", 43009)}


def test_the_threshold_matches_the_image_rate_of_training(results):
    found = results["threshold"]
    assert found["r"] == {"both-help": -0.5, "text-helps": -1.0, "image-helps": 3.0, "nothing-helps": -2.0}
    assert found["wanted_image_rate"] == found["image_rate"] == 0.25 and found["own"] == 0.125
    assert found["tau"] == 1.25 and found["left_out_alike"] == ["always-alike"]


def test_the_policys_own_threshold_can_be_kept(rollout):
    results = rollout(threshold="policy").play({})
    assert results["threshold"] == {"rule": "policy", "tau": 0.125}
    assert results["instances"]["counts"]["calibration"] == 0


def test_finished_episodes_are_kept(rollout, asked, phones, tmp_path):
    first = rollout().play({})
    calls, opened = len(asked), len(phones)
    assert rollout().play({}) == first and (len(asked), len(phones)) == (calls, opened)
    folder = tmp_path / "stages" / first["episodes"]["text"]
    (folder / "text-helps.tar").unlink()
    damaged = folder / "both-help.tar"
    damaged.write_bytes(damaged.read_bytes()[:300])
    asked.clear()
    again = rollout().play({})
    assert sorted(asked, key=str) == sorted([(t, "text") for t in ("both-help", "text-helps")] * 2, key=str)
    assert again["by_task"] == first["by_task"] and read_facts(damaged).success


def test_an_interrupted_rollout_goes_on_where_it_stopped(rollout, make_agent, asked):
    class Pulled(BaseException):
        """As a KeyboardInterrupt."""

    stopped = rollout()
    whole = stopped.make_agent

    def make(policy, bank):
        agent = whole(policy, bank)
        act = agent.act

        def counted(*args, **kwargs):
            if len(asked) == 30:
                raise Pulled
            return act(*args, **kwargs)

        agent.act = counted
        return agent

    stopped.make_agent = make
    with pytest.raises(Pulled):
        stopped.play({})
    before = len(asked)
    results = rollout().play({})
    twice = {job for job in asked if asked.count(job) > 2 and job[1] is not None and job[1] != "none"}
    assert before >= 30 and len(twice) <= 2  # at most what the two workers were at
    assert results["policies"]["switchmem"]["successes"] == 4


def test_another_policy_is_played_again_and_the_fixed_forms_are_not(rollout, asked, tmp_path):
    first = rollout().play({})
    moved = Policy.load(tmp_path / "policy")
    replace(moved, card=replace(moved.card, image_rate=1.0)).save(tmp_path / "policy")
    asked.clear()
    second = rollout().play({})
    assert {form for _, form in asked} == {None} and second["threshold"]["tau"] == "-inf"
    assert {k for k in first["episodes"] if first["episodes"][k] != second["episodes"][k]} == {"switchmem"}
    assert json.loads((tmp_path / "run" / "results.json").read_text())["threshold"]["tau"] == "-inf"


def test_fixed_forms_need_no_policy(rollout):
    results = rollout(policy=None, policies=["none"]).play({})
    assert results["bank"] is results["threshold"] is None and results["comparisons"] == {}
    assert list(results["policies"]) == ["none"]


def test_what_cannot_be_played_is_refused_before_anything_is(rollout, policy, phones, tmp_path):
    with pytest.raises(RolloutError, match=r"`rollout.policy` must name the policy .* got none"):
        rollout(policy=None).play({})
    with pytest.raises(PolicyError, match="`embedder` is"):
        other = rollout()
        other.embedder = HashingEmbedder(dim=32)
        other.play({})
    with pytest.raises(RolloutError, match="got the endpoint http://here/v1"):
        rollout(spec=ActorSpec(endpoint=Endpoint("http://here/v1")))
    with pytest.raises(SettingsError, match=r"must be tasks of the benchmark, got \['no-such'\]"):
        rollout(tasks=["both-help", "no-such"])
    with pytest.raises(SettingsError, match="the scripts play in Chromium alone"):
        rollout(bank="demonstrators")
    assert phones == []


def test_an_empty_bank_says_what_to_do(rollout):
    with pytest.raises(RolloutError, match=r"0 successes of 1 .* `rollout.bank: demonstrators`"):
        rollout(tasks=["text-helps"]).play({})
    with pytest.raises(RolloutError, match=r"1 successes of 1 .* none of which differs"):
        rollout(tasks=["always-alike"]).play({})


def test_a_policy_without_an_image_rate_cannot_be_matched(rollout, tmp_path):
    saved = Policy.load(tmp_path / "policy")
    replace(saved, card=replace(saved.card, image_rate=math.nan)).save(tmp_path / "policy")
    with pytest.raises(PolicyError, match=r"must tell its Image rate .* `rollout.threshold: policy`"):
        rollout().play({})


def test_an_environment_that_cannot_be_had_ends_the_rollout(rollout, two_buttons):
    class NoPhone(RuntimeError):
        pass

    def none():
        raise NoPhone("there must be a phone, got none.")

    with pytest.raises(RolloutError, match="there must be a phone, got none"):
        rollout(world=replace(two_buttons, make_env=none, why=(NoPhone,))).play({})


def test_environments_that_broke_are_told(rollout, two_buttons, kit):
    class Falling(kit.TwoButtons):
        def step(self, action):
            if self.task == "both-help":
                raise RuntimeError("it fell")
            return super().step(action)

    world = replace(two_buttons, make_env=Falling)
    results = rollout(world=world, policies=["none"], tasks=["both-help", "always-alike"]).play({})
    assert results["policies"]["none"]["endings"] == {"environment_error": 1, "success": 1}
    (note,) = (note for note in results["notes"] if "broke, twice each" in note)
    assert note.startswith("1 episodes ended because") and "count as failed: none/both-help." in note


@pytest.mark.parametrize("crashes", [1, 2])
def test_an_episode_whose_page_crashed_is_played_once_more(rollout, two_buttons, kit, crashes):
    fell = []

    class Crashing(kit.TwoButtons):
        def step(self, action):
            screen, reward, over, late, told = super().step(action)
            if self.task == "both-help" and len(fell) < crashes:
                fell.append(self)
                return screen, 0.0, True, False, {**told, "reason": Ending.PAGE_CRASH, "raw_reward": None}
            return screen, reward, over, late, told

    world = replace(two_buttons, make_env=Crashing)
    results = rollout(world=world, policies=["none"], tasks=["both-help", "always-alike"]).play({})
    assert len({id(env) for env in fell}) == crashes and all(env.closed for env in fell)  # each in a fresh one
    endings = {"success": 2} if crashes == 1 else {"page_crash": 1, "success": 1}
    assert results["policies"]["none"]["endings"] == endings
    told = [note for note in results["notes"] if "count as failed: none/both-help." in note]
    assert len(told) == crashes - 1


@pytest.mark.parametrize("stalls", [1, 2])
def test_a_page_that_does_not_come_in_time_is_asked_for_once_more(rollout, two_buttons, kit, stalls):
    class Late(Exception):
        ending = Ending.TIMEOUT

    waited = []

    class Stalling(kit.TwoButtons):
        def reset(self, *, seed=None, options=None):
            if options["task"] == "both-help" and seed == 1001009 and len(waited) < stalls:
                waited.append(self)
                raise Late("no answer in 30 s")
            return super().reset(seed=seed, options=options)

    world = replace(two_buttons, make_env=Stalling)
    stalling = rollout(world=world, policies=["none", "text"], tasks=["both-help", "always-alike"])
    if stalls == 1:
        results = stalling.play({})
        assert results["bank"]["tasks"] == ["both-help"] and results["bank"]["broken"] == []
    else:
        with pytest.raises(RolloutError, match=r"1 successes of 2 episodes \(1 timeout, 1 success\), none .*delete"):
            stalling.play({})
    assert len({id(env) for env in waited}) == stalls


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"evaluation_seed": 43}, "must differ, got"),
        ({"stuck": 1}, "`rollout.stuck` must be at least 2, got 1"),
        ({"workers": 0}, "`rollout.workers` must be at least 1, got 0"),
        ({"tasks": []}, "`rollout.tasks` must hold at least one name"),
        ({"policies": ["none", "none"]}, "`rollout.policies` must hold at least one name and no repeats"),
    ],
)
def test_settings_have_rules(setting, message):
    with pytest.raises(SettingsError, match=message):
        RolloutSettings(**setting)


def test_instances_are_told_apart_by_seed_and_by_look():
    a, b, c = Instance("t", 1, "x"), Instance("t", 2, "x"), Instance("u", 1, "x")
    assert unlike([a, b, c], [b]) == [c] and unlike([a, c]) == [a, c]
    assert shared({"bank": [a], "evaluation": [a]}) == [
        ["t", "seed", "bank", "evaluation"],
        ["t", "look", "bank", "evaluation"],
    ]
    with pytest.raises(InstanceError, match=r"'t' with the same look in bank and evaluation among them"):
        require_apart({"bank": [a], "calibration": [], "evaluation": [b]})
    require_apart({"bank": [a], "evaluation": [c]})
    assert proof({"bank": [a, a], "evaluation": [c]})["counts"] == {"bank": 1, "evaluation": 1}


def test_a_policys_digest_follows_weights_threshold_and_card(tmp_path, policy):
    saved = Policy.load(policy)
    digests = {policy_digest(saved), policy_digest(replace(saved, threshold=1.0))}
    digests.add(policy_digest(replace(saved, card=replace(saved.card, seed=5))))
    before = policy_digest(saved)
    with torch.no_grad():
        next(saved.router.parameters()).view(-1)[0] += 1e-6
    assert before in digests and policy_digest(saved) not in digests and len(digests) == 3


def test_results_that_are_not_whole_are_refused(tmp_path):
    for text in ("", "{}", '{"format": "switchmem.rollout/0"}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(RolloutError, match=r"results\.json must hold the results of a rollout"):
            read_rollout_results(tmp_path / "results.json")
