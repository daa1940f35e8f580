"""Memory baselines in a rollout: further policies on the same instances, kept, counted, and shown with their faults."""

import io
import json
import tarfile

import pytest
from speaking_actor import Speaks

from switchmem.actors.spec import ActorSpec
from switchmem.cli import main
from switchmem.memory import HashingEmbedder
from switchmem.memory.agmem import AGMemWhole
from switchmem.memory.app_agent import AppAgent
from switchmem.memory.m3a import M3a
from switchmem.pipeline import rollout_command
from switchmem.pipeline.rollout import Rollout
from switchmem.pipeline.rollout_baselines import PlayedBaselines
from switchmem.rollout.results import rollout_text
from switchmem.rollout.trace import read_facts
from switchmem.runs import RunFolder
from switchmem.settings import BaselineSettings, RolloutSettings
from switchmem.stages import Stages, make_folder

SPEC, EMBEDDER = ActorSpec(device="cpu"), HashingEmbedder(dim=64)
NAMES = ["rag_gui", "m3a", "app_agent", "echotrail", "agmem", "agmem_whole"]
BLOCKED = "Error: yes\nMode: Grounding Error"
# the fake actor knows one way to act
OWN = {"m3a": M3a(actions="actor"), "app_agent": AppAgent(actions="actor")}


@pytest.fixture
def actor():
    return Speaks()


@pytest.fixture
def rollout(two_buttons, make_agent, actor, tmp_path):
    def make(names=NAMES, actor=actor, world=two_buttons, workers=3, **changes):
        run, stages = RunFolder(tmp_path / "run"), Stages(tmp_path / "stages")
        make_folder(run.path)
        settings = RolloutSettings(policies=["none", "text"], workers=workers, bootstrap=200)
        baselines = BaselineSettings(names=list(names), **{**OWN, **changes})
        played = PlayedBaselines(baselines, SPEC, 16, stages, lambda: actor)
        return Rollout(world, SPEC, EMBEDDER, settings, stages, run, make_agent, baselines=played)

    return make


def test_every_baseline_is_a_policy_on_the_same_instances(rollout, actor, kit, tmp_path):
    bare = rollout(names=[]).play({})
    assert bare["baselines"] == {} and "Memory baselines" not in rollout_text(bare)
    results = rollout().play({})
    assert list(results["policies"]) == ["none", "text", *NAMES] == list(results["episodes"])
    assert {name: results["episodes"][name] for name in bare["episodes"]} == bare["episodes"]
    assert results["by_task"]["both-help"] == dict.fromkeys(["none", "text", *NAMES], True)
    assert all(not done for done in results["by_task"]["missing"].values()) and results["unequal"] == []
    assert results["instances"]["shared"] == []
    for name in NAMES:
        row, told = results["policies"][name], results["baselines"][name]
        assert (row["successes"], row["tasks"], row["steps"], row["forms"]) == (5, 6, 10, {name: 10})
        assert row["image_rate"] == float(name.startswith("agmem")) and told["steps"] == 10
        assert told["parse_rate"] == 1.0 and told["parse_failures"] == {} and told["written_by"] == "actor"
        calls = told["writer"]["calls"]
        assert told["actor"] == {"calls": 1.0, "tokens_in": 40.0, "tokens_out": 3.0, "seconds": 0.25}
        assert told["writer"] == {"calls": calls, **{"tokens_in": 40 * calls, "tokens_out": 3 * calls},
                                  "seconds": 0.25 * calls}  # fmt: skip
        assert row["actor_seconds_per_step"] == told["seconds"] == pytest.approx(0.25 * (1 + calls))
    assert json.loads((tmp_path / "run" / "results.json").read_text())["baselines"] == results["baselines"]


def test_calls_and_fallbacks_are_counted_and_shown(rollout, actor, tmp_path):
    results = rollout().play({})
    told = results["baselines"]
    # of 5 episodes of 2 steps: a guideline at each step, a summary at each second one, a plan once an episode
    assert {name: 10 * told[name]["writer"]["calls"] for name in NAMES} == {
        "rag_gui": 10, "m3a": 5, "app_agent": 0, "echotrail": 0, "agmem": 0, "agmem_whole": 5 + 10 + 10
    }  # fmt: skip
    assert told["rag_gui"]["fallbacks"] == {"guideline: refusal": 10} and told["agmem"]["fallbacks"] == {}
    assert told["m3a"]["fallbacks"] == {"summary: refusal": 5}
    assert told["app_agent"]["fallbacks"].keys() == {"document: refusal"}
    assert told["agmem_whole"]["fallbacks"] == {
        "current subtask: refusal": 10, "detector: refusal": 10, "labels: refusal": 1, "plan: refusal": 10
    }  # fmt: skip
    assert told["agmem_whole"]["offline"]["answers"] == 1 and told["agmem_whole"]["notes"]["checked"] == 10
    text = (tmp_path / "run" / "rollout.txt").read_text()
    assert text == rollout_text(results) and "Memory baselines" in text and "Written by: actor." in text
    assert "guideline:" in text and "refusal" in text


def test_nothing_is_played_or_written_twice(rollout, actor, phones, tmp_path):
    first = rollout().play({})
    asked, opened = (len(actor.prompts), len(actor.questions)), len(phones)
    assert rollout().play({}) == first and (len(actor.prompts), len(actor.questions)) == asked
    assert len(phones) == opened
    for name in NAMES:
        (tmp_path / "stages" / first["episodes"][name] / "both-help.tar").unlink()
    again = rollout().play({})
    # six episodes of two steps; everything that was written lies by its content
    assert (len(actor.prompts), len(actor.questions)) == (asked[0] + 12, asked[1])
    assert again["baselines"] == first["baselines"] and again["by_task"] == first["by_task"]


def test_a_changed_setting_or_writer_is_another_stage(rollout, actor):
    first = rollout().play({})["episodes"]
    unguarded = AGMemWhole(guard={"enabled": False})
    results = rollout(agmem_whole=unguarded).play({})
    assert {name for name, key in results["episodes"].items() if key != first[name]} == {"agmem_whole"}
    assert results["baselines"]["agmem_whole"]["writer"]["calls"] == 1.5
    assert "checked" not in results["baselines"]["agmem_whole"]["notes"]
    results = rollout(writer="template").play({})
    assert {name for name, key in results["episodes"].items() if key != first[name]} == set(NAMES)
    assert all(row["written_by"] == "template" and row["fallbacks"] == {} for row in results["baselines"].values())
    assert all(row["writer"]["calls"] == 0 for row in results["baselines"].values())


@pytest.mark.parametrize("workers", [1, 3])
def test_each_episode_has_a_past_of_its_own(rollout, actor, workers):
    rollout(names=["m3a"], workers=workers).play({})
    told = {"live/live/0": 0, "live/live/1": 0}
    for name, text in actor.prompts:
        told[name] += 1  # an episode has two steps: a third one would be another's
        assert text.count("Action selected: ") == int(name[-1])
    assert told == {"live/live/0": 5, "live/live/1": 5}


def test_an_episode_whose_phone_broke_begins_anew(rollout, actor, two_buttons, kit):
    broken = []

    class Falling(kit.TwoButtons):
        def step(self, action):
            if self.task == "both-help" and self.steps == 1 and not broken and actor.prompts:
                broken.append(self.task)
                raise RuntimeError("it fell")
            return super().step(action)

    world = type(two_buttons)(two_buttons.tasks, two_buttons.seed, Falling, two_buttons.facts)
    results = rollout(names=["m3a"], world=world, workers=1).play({})
    assert broken and results["by_task"]["both-help"]["m3a"]
    assert {name for name, _ in actor.prompts} == {"live/live/0", "live/live/1"}


def test_the_guard_asks_again_and_its_calls_are_counted(rollout):
    def says(text):
        return BLOCKED if "Proposed next action" in text else "Subtask: 1"

    actor = Speaks(says, lambda text: "tap r3c3" if "memory" in text else "tap r3c0")
    results = rollout(names=["agmem_whole"], actor=actor).play({})
    told = results["baselines"]["agmem_whole"]
    assert told["notes"]["blocked: Grounding Error"] == told["notes"]["checked"] == told["steps"] == 10
    assert told["fallbacks"]["recovery: none to show"] == 10  # no trajectory of this bank has a detour
    assert told["actor"]["calls"] == 2.0 and told["actor"]["tokens_in"] == 80.0 and told["actor"]["seconds"] == 0.5
    assert told["writer"]["calls"] == 2.5
    assert "4.50" in rollout_text(results)


def test_answers_that_are_no_action_are_told_by_reason(rollout):
    results = rollout(names=["echotrail"], actor=Speaks(acts=lambda text: "hello")).play({})
    told = results["baselines"]["echotrail"]
    assert told["parse_rate"] == 0.0 and told["parse_failures"] == {"unknown_action": told["steps"]}
    assert results["policies"]["echotrail"]["unparsable"] == told["steps"] == 20  # until the phone's limit of 4 steps


def test_traces_from_before_the_baselines_are_still_whole(rollout, tmp_path):
    results = rollout(names=[]).play({})
    path = tmp_path / "stages" / results["episodes"]["text"] / "both-help.tar"
    facts, buffer = read_facts(path), io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=buffer, mode="w") as new:
        for member in old.getmembers():
            data = old.extractfile(member).read()
            if member.name == "facts.json":
                values = json.loads(data)
                assert values.pop("baseline") == []
                data = json.dumps(values).encode()
            member.size = len(data)
            new.addfile(member, io.BytesIO(data))
    path.write_bytes(buffer.getvalue())
    assert read_facts(path) == facts


def test_the_command_plays_them_and_the_page_shows_them(two_buttons, make_agent, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "miniwob", lambda *_: two_buttons)
    monkeypatch.setattr(rollout_command, "live_agents", lambda *_: make_agent)
    loads = []
    monkeypatch.setattr(ActorSpec, "load", lambda spec: loads.append(spec) or Speaks())
    flags = ["--config=miniwob.yaml", "--rollout.policies=[none]", "--rollout.bootstrap=100"]
    assert main(["rollout", *flags, "--baselines", "template.yaml", "--watch"]) == 0
    assert len(loads) == 1
    printed, run = capsys.readouterr().out, tmp_path / "runs" / "miniwob"
    assert "Memory baselines" in printed and "Written by: template." in printed
    page = (run / "report" / "index.html").read_text()
    assert "Memory baselines" in page and "rag_gui/both-help/0" in page
    assert len(list((run / "watch").glob("echotrail-*.gif"))) == 5
    (run / "report" / "index.html").unlink()
    assert main(["report", "--run", "runs/miniwob"]) == 0
    assert (run / "report" / "index.html").read_text() == page
