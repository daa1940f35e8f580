"""A rollout whose actor is behind a chat endpoint on this machine: what is asked, kept, counted and refused."""

import json
import re

import pytest
from chat_server import Answer, ChatServer, completion

from switchmem.agent import EndpointAgent
from switchmem.cli import main
from switchmem.pipeline import rollout_command
from switchmem.policy import PolicyError

RIGHT, LEFT = "tap r3c3", "tap r3c0"
SOLVED = {"none": {"both-help"}, "text": {"both-help", "text-helps"}, "image": {"both-help", "image-helps"},
          "both": {"both-help"}}  # fmt: skip


def asked_for(body):
    """The task, and the form of memory, that a request is about."""
    parts = [part for message in body["messages"] for part in message["content"] if isinstance(part, dict)]
    pictures = sum(part["type"] == "image_url" for part in parts)
    text = " ".join(part.get("text", "") for part in parts)
    task = re.search(r"do (\S+)", text)[1]  # the demonstration's comes later
    buttons = text.count("yes")
    return task, ("none" if pictures == 1 else "image") if not buttons else ("text" if pictures == 1 else "both")


def knowing(asked):
    task, form = asked_for(asked.body)
    return completion(RIGHT if task in SOLVED[form] else LEFT, usage=(100, 5, 0))


@pytest.fixture
def desk(two_buttons, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "miniwob", lambda *_: two_buttons)
    return tmp_path


def rollout(server, *flags, policies="[none,text,image,both]", **endpoint):
    told = {"base_url": server.base_url, "api_key_env": None, "backoff": 0.01, "attempts": 2, **endpoint}
    told.update(prompt_price=1.0, completion_price=10.0)
    words = ["--actor.grammar=pocket", "--actor.screen_text=false"]
    fixed = ["--rollout.bootstrap=100", "--rollout.workers=2", "--actor.model=served", *words]
    code = main(
        ["rollout", "--config=miniwob.yaml", f"--actor.endpoint={json.dumps(told)}", f"--rollout.policies={policies}",
         *fixed, *flags]
    )  # fmt: skip
    return code


def results_of(desk):
    return json.loads((desk / "runs" / "miniwob" / "results.json").read_text())


def test_every_fixed_form_is_played_and_paid_once(desk):
    with ChatServer(knowing) as server:
        assert rollout(server) == 0
        results, paid = results_of(desk), len(server.asked)
        won = {form: {task for task, row in results["by_task"].items() if row[form]} for form in SOLVED}
        assert {form: tasks - {"always-alike"} for form, tasks in won.items()} == SOLVED
        rows = results["policies"]
        assert all(row["tokens"] == {"prompt": 100 * row["steps"], "answer": 5 * row["steps"]} for row in rows.values())
        spent = results["endpoint"]
        assert spent["answers"] == paid and spent["cost"] == pytest.approx(paid * (100 * 1.0 + 5 * 10.0) / 1e6)
        assert results["bank"]["made_by"] == "actor" and results["bank"]["tasks"] == ["both-help"]
        for folder in (desk / "runs" / "stages").glob("rollout-*"):
            for tar in folder.glob("*.tar"):
                tar.unlink()
        assert rollout(server) == 0  # every episode again, each answer from the folder
    assert len(server.asked) == paid and results_of(desk)["by_task"] == results["by_task"]
    assert results_of(desk)["endpoint"]["answers"] == 0 and results_of(desk)["endpoint"]["cost"] is None


def test_a_request_that_fails_ends_its_episode_and_no_other(desk):
    def respond(asked):
        failing = asked_for(asked.body)[0] == "text-helps"
        return Answer({"error": "no such field"}, status=400) if failing else knowing(asked)

    with ChatServer(respond) as server:
        assert rollout(server, policies="[none]") == 0
    results = results_of(desk)
    assert results["policies"]["none"]["endings"]["request_failed"] == 1 and results["endpoint"]["failures"] == 1
    assert results["by_task"]["both-help"] == {"none": True} and results["by_task"]["text-helps"] == {"none": False}
    assert any("1 episodes ended because an endpoint gave no answer" in note for note in results["notes"])


def test_a_server_that_is_not_there_stops_the_rollout_and_it_goes_on_later(desk, capsys):
    with ChatServer(knowing) as server:
        pass
    assert rollout(server, policies="[none]") == 1
    assert "Start the server, or correct `base_url`" in capsys.readouterr().err
    with ChatServer(knowing) as server:
        assert rollout(server, policies="[none]", name="moved") == 0
    assert set(results_of(desk)["policies"]["none"]["endings"]) == {"success", "failure", "missing_page"}


def test_switchmem_is_refused_with_the_way_out(desk, capsys, phones):
    with ChatServer(knowing) as server:
        assert rollout(server, policies="[none,switchmem]") == 1
    assert "Leave SwitchMem out (--rollout.policies [none,text,image,both])" in capsys.readouterr().err
    assert phones == [] and server.asked == []


def test_an_agent_behind_an_endpoint_never_chooses():
    from switchmem.actors.spec import ActorSpec

    agent = EndpointAgent(ActorSpec(), None, None)
    with pytest.raises(PolicyError, match="`condition` must be given to an actor behind an endpoint"):
        agent.act("do it", None)
    with pytest.raises(PolicyError, match="must have no policy"):
        agent.preference("do it", None)
