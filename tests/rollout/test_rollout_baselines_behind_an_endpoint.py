"""Memory baselines in a rollout whose actor, or whose writer alone, is behind a chat endpoint on this machine."""

import json

import pytest
from chat_server import Answer, ChatServer, completion
from speaking_actor import Speaks

from switchmem.actors.spec import ActorSpec
from switchmem.cli import main
from switchmem.pipeline import rollout_command

NAMES = ["rag_gui", "m3a", "app_agent", "echotrail", "agmem"]
MOST = 17  # tokens of the actor's answers; no writer's call has as few
WORDS = "Relevant: yes\nGuideline: Press what is on the right."


@pytest.fixture
def desk(two_buttons, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "miniwob", lambda *_: two_buttons)
    return tmp_path


def told_of(server, **changes):
    return json.dumps({"base_url": server.base_url, "api_key_env": None, "backoff": 0.01, "attempts": 2, **changes})


def rollout(*flags):
    fixed = ["--rollout.bootstrap=100", "--rollout.workers=2", f"--rollout.max_new_tokens={MOST}"]
    words = ["--actor.grammar=pocket", "--actor.screen_text=false", "--rollout.policies=[none]"]
    return main(["rollout", "--config=miniwob.yaml", *fixed, *words, *flags])


def results_of(desk):
    return json.loads((desk / "runs" / "miniwob" / "results.json").read_text())


def text_of(asked):
    parts = [part for message in asked.body["messages"] for part in message["content"] if isinstance(part, dict)]
    return "".join(part.get("text", "<picture>") for part in parts)


def is_question(asked):
    return asked.body["max_tokens"] != MOST


def test_every_baseline_is_played_and_paid_once(desk):
    def respond(asked):
        if is_question(asked):
            return completion(WORDS, usage=(900, 30, 0))
        return completion("tap r3c3", usage=(400, 3, 0))

    def play(server):
        own = [f"--baselines.{name}.actions=actor" for name in ("m3a", "app_agent")]
        return rollout("--actor.model=served", f"--actor.endpoint={told_of(server)}", "--baselines=all.yaml", *own)

    with ChatServer(respond) as server:
        assert play(server) == 0
        results, paid = results_of(desk), len(server.asked)
        assert max(server.counts.values()) == 1, "equal questions are asked once, whoever asks them"
        assert results["endpoint"]["answers"] == paid and results["writer_endpoint"] is None
        views = [text_of(asked) for asked in server.asked if not is_question(asked)]
        for folder in (desk / "runs" / "stages").glob("rollout-*"):
            for tar in folder.glob("*.tar"):
                tar.unlink()
        assert play(server) == 0  # every episode again, each answer from the folder
    again = results_of(desk)
    assert len(server.asked) == paid and again["by_task"] == results["by_task"] and again["endpoint"]["answers"] == 0
    assert list(results["policies"]) == ["none", *NAMES]
    calls = {name: 10 * results["baselines"][name]["writer"]["calls"] for name in NAMES}
    # five episodes of two steps: a guideline at each step, a summary at each second one
    assert calls == {"rag_gui": 10, "m3a": 5, "app_agent": 0, "echotrail": 0, "agmem": 0}
    for name in NAMES:
        told = results["baselines"][name]
        assert told["actor"]["tokens_in"] == 400 and told["actor"]["tokens_out"] == 3 and told["parse_rate"] == 1.0
        assert told["writer"]["tokens_in"] == pytest.approx(900 * told["writer"]["calls"])
        assert told["writer"]["tokens_out"] == pytest.approx(30 * told["writer"]["calls"])
        assert again["baselines"][name]["writer"] == told["writer"], "what is kept costs what it cost first"
        assert results["policies"][name]["successes"] == 5 and told["fallbacks"] == {}
    assert results["baselines"]["app_agent"]["offline"]["calls"] > 0
    assert sum("A guideline from a similar task: Press what is on the right." in view for view in views) == 10
    assert sum("Action selected: " in view and WORDS.replace("\n", " ") in view for view in views) == 5
    assert any(view.count("<picture>") > 1 for view in views)


def test_a_writer_alone_behind_an_endpoint(desk, make_agent, monkeypatch, capsys):
    actor, load = Speaks(), ActorSpec.load
    monkeypatch.setattr(ActorSpec, "load", lambda spec: actor if spec.endpoint is None else load(spec))
    monkeypatch.setattr(rollout_command, "live_agents", lambda *_: make_agent)

    def respond(asked):
        if "do text-helps" in text_of(asked).partition("tutorial")[0]:
            return Answer({"error": "no such field"}, status=400)
        return completion(None, refusal="I will not say that.", usage=(900, 8, 0))

    def play(server, **changes):
        named = ["--baselines.writer=model", "--baselines.model.model=writer", "--baselines.names=[rag_gui]"]
        return rollout(*named, f"--baselines.model.endpoint={told_of(server, name='here', **changes)}")

    with ChatServer(respond) as server:
        assert play(server, api_key_env="A_KEY_THAT_IS_NOT_SET") == 1
        assert (
            "must name an environment variable that holds a key, got A_KEY_THAT_IS_NOT_SET" in capsys.readouterr().err
        )
        assert server.asked == []
    assert play(server) == 1  # it is not there any more
    assert "Start the server, or correct `base_url`" in capsys.readouterr().err and actor.prompts == []
    with ChatServer(respond) as server:
        assert play(server) == 0
    results = results_of(desk)
    told, row = results["baselines"]["rag_gui"], results["policies"]["rag_gui"]
    assert row["endings"]["request_failed"] == 1 and results["by_task"]["text-helps"]["rag_gui"] is False
    assert any("1 episodes ended because an endpoint gave no answer" in note for note in results["notes"])
    assert told["written_by"] == "model writer" and told["steps"] == len(actor.prompts) == 8
    assert told["fallbacks"] == {"guideline: refusal": 8} and not any(
        "similar task" in text for _, text in actor.prompts
    )
    assert told["writer"] == {"calls": 1.0, "tokens_in": 900.0, "tokens_out": 8.0, "seconds": told["writer"]["seconds"]}
    assert told["writer"]["seconds"] > 0 and actor.questions == []
    spent = results["writer_endpoint"]
    assert (spent["answers"], spent["failures"], spent["reasons"]) == (8, 1, {"refusal": 8})
    assert results["endpoint"] is None and len(server.asked) == 9
