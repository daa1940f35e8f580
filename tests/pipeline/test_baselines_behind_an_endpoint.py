"""The memory baselines of a test whose actor, or whose writer alone, is behind a chat endpoint on this machine."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from chat_server import Answer, ChatServer, completion
from fake_actor import FLAGS

from switchmem.actors.api.actor import ChatActor
from switchmem.actors.spec import ActorSpec
from switchmem.cli import main
from switchmem.memory.writing import mean

NAMES = ["rag_gui", "m3a", "app_agent", "echotrail", "agmem"]
MOST = 17  # tokens of the actor's answers; no writer's call has as few
WORDS = "Relevant: yes\nGuideline: Press what is marked."
SMALL = ["--config=pocket.yaml", *FLAGS, "--study.limit=8", "--study.bootstrap=100", "--run.report=false"]


def text_of(asked):
    parts = [part for message in asked.body["messages"] for part in message["content"] if isinstance(part, dict)]
    return "".join(part.get("text", "<picture>") for part in parts)


def is_question(asked):
    return asked.body["max_tokens"] != MOST


def results_in(folder):
    return json.loads((folder / "runs" / "pocket" / "results.json").read_text())


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A folder in which a test of all baselines lost its key while RAG-GUI was written, and went on; its requests."""
    folder, refusing = tmp_path_factory.mktemp("served"), [True]

    def respond(asked):
        if is_question(asked):
            if refusing and sum(map(is_question, server.asked)) > 3:
                return Answer({"error": {"message": "the key is no longer valid"}}, status=401)
            return completion(WORDS, usage=(900, 30, 0))
        return completion("tap r3c2", usage=(400, 3, 0))

    with pytest.MonkeyPatch.context() as monkeypatch, ChatServer(respond) as server:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["train.py"])
        endpoint = {"base_url": server.base_url, "api_key_env": None, "backoff": 0.01, "concurrency": 1}
        endpoint |= {"prompt_price": 1.0, "completion_price": 10.0}
        flags = [
            "--actor.model=served",
            f"--actor.endpoint={json.dumps(endpoint)}",
            f"--sampling.max_new_tokens={MOST}",
        ]

        def run():
            return main(["test", *SMALL, *flags, "--baselines=all.yaml"])

        assert run() == 1
        server.lost = [asked.raw for asked in server.asked[-1:]]
        refusing.clear()
        assert run() == 0
        server.paid = len(server.asked)
        assert run() == 0
    return folder, server


def test_all_baselines_are_scored_and_nothing_is_asked_twice(done):
    folder, server = done
    assert len(server.asked) == server.paid, "a finished test asks nothing"
    twice = [raw for raw, count in server.counts.items() if count > 1]
    assert twice == server.lost, "of a test that was broken off only what had no answer is asked again"
    results = results_in(folder)
    table = pq.read_table(folder / "runs" / "pocket" / "scores.parquet").to_pylist()
    assert set(NAMES) < set(results["policies"]) and "switchmem" not in results["policies"] and len(table) == 8
    for name in ("rag_gui", "echotrail", "agmem"):
        assert {row[f"answer_{name}"] for row in table} == {"tap r3c2"}
        score = 100 * sum(row[f"baseline_{name}"] for row in table) / 8
        assert results["policies"][name]["score"] == pytest.approx(score)
    # actions of their own are asked for, and this actor does not know them
    assert results["baselines"]["m3a"]["parse_rate"] == results["baselines"]["app_agent"]["parse_rate"] == 0.0


def test_their_calls_tokens_seconds_and_prices_are_told(done):
    folder, server = done
    told = results_in(folder)["baselines"]
    table = pq.read_table(folder / "runs" / "pocket" / "scores.parquet").to_pylist()
    calls = {name: told[name]["writer"]["calls"] for name in NAMES}
    past = mean([float(row["index"] > 0) for row in table])
    assert past > 0 and calls == {"rag_gui": 1.0, "m3a": past, "app_agent": 0.0, "echotrail": 0.0, "agmem": 0.0}
    for name in NAMES:
        assert told[name]["actor"]["tokens_in"] == 400 and told[name]["actor"]["tokens_out"] == 3
        assert told[name]["writer"]["tokens_in"] == pytest.approx(900 * calls[name])
        assert told[name]["writer"]["tokens_out"] == pytest.approx(30 * calls[name])
        assert (told[name]["writer"]["seconds"] > 0) == (calls[name] > 0) and told[name]["seconds"] > 0
        assert told[name]["fallbacks"] == {}
    assert told["app_agent"]["offline"]["calls"] > 0
    questions = sum(map(is_question, server.asked)) - 1
    used = [told[name]["usage"] for name in NAMES]
    harvest = results_in(folder)["provenance"]["harvests"]["test"]["usage"]
    assert harvest["answers"] + sum(usage["answers"] for usage in used) == server.paid - 1
    cost = questions * (900 + 300) / 1e6 + (server.paid - 1 - questions) * (400 + 30) / 1e6
    assert harvest["cost"] + sum(usage["cost"] or 0.0 for usage in used) == pytest.approx(cost)
    assert used[0]["failures"] == 1


def test_what_a_baseline_shows_reaches_the_endpoint(done):
    _, server = done
    views = [text_of(asked) for asked in server.asked if not is_question(asked)]
    systems = [asked.body["messages"][0]["content"] for asked in server.asked if not is_question(asked)]
    assert any("A guideline from a similar task: Press what is marked." in view for view in views)
    assert any("with numbered boxes:\n<picture>" in view and "UI element 0:" in view for view in views)
    assert any("Current screenshot with tags:\n<picture>" in view for view in views)
    assert any('"action_type": "click"' in system for system in systems) and any("tap(<tag>)" in s for s in systems)
    questions = [text_of(asked) for asked in server.asked if is_question(asked)]
    assert any("Does the tutorial help" in text and text.count("<picture>") == 1 for text in questions)
    assert any("Summarise this step" in text and text.count("<picture>") == 2 for text in questions)


def test_a_writer_alone_behind_an_endpoint(desk, monkeypatch, capsys):
    """The actor is loaded here; a writer that refuses leaves the state prompt, whose answer is that of "none"."""
    local = ActorSpec.load

    def either(spec, *args, **options):
        served = spec.endpoint is not None
        return ChatActor(spec.model, spec.endpoint) if served else local(spec, *args, **options)

    monkeypatch.setattr(ActorSpec, "load", either)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    answer = completion(None, refusal="I will not say that.", usage=(900, 8, 0))

    def run(server, **changes):
        told = json.dumps({"base_url": server.base_url, "name": "here", **changes})
        named = ["--baselines.writer=model", "--baselines.model.model=writer", f"--baselines.model.endpoint={told}"]
        return desk("test", "--baselines.names=[rag_gui]", *named)

    with ChatServer(lambda asked: answer) as server:
        assert run(server) == 1
        assert "must name an environment variable that holds a key, got OPENAI_API_KEY" in capsys.readouterr().err
        assert server.asked == []
        assert run(server, api_key_env=None) == 0
        asked = len(server.asked)
        assert run(server, api_key_env=None) == 0 and len(server.asked) == asked
    out = capsys.readouterr().out
    table = pq.read_table(desk.run / "scores.parquet").to_pylist()
    told = results_in(desk.folder)["baselines"]["rag_gui"]
    assert told["written_by"] == "model writer" and "Written by: model writer." in out
    assert told["fallbacks"] == {"guideline: refusal": len(table)}
    assert [row["baseline_rag_gui"] for row in table] == [row["none"] for row in table]
    assert {asked.body["model"] for asked in server.asked} == {"writer"} and max(server.counts.values()) == 1
    assert (told["writer"]["calls"], told["writer"]["tokens_in"], told["writer"]["tokens_out"]) == (1.0, 900.0, 8.0)
    assert told["usage"]["answers"] == asked and told["usage"]["reasons"] == {"refusal": asked}
    assert f"rag_gui: {asked} answers asked for, 0 kept from before" in out
