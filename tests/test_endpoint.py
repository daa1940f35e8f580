"""An actor behind a chat endpoint, through the command line: everything that needs no hidden states."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer, completion
from fake_actor import FLAGS

from switchmem.cli import main

KEY = "sk-a-secret-of-forty-characters-0123456"


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv("SOME_API_KEY", KEY)

    def run(name, server):
        endpoint = {"base_url": server.base_url, "api_key_env": "SOME_API_KEY", "backoff": 0.01}
        flags = [f"--actor.endpoint={json.dumps(endpoint)}", "--study.bootstrap=100", "--actor.model=served"]
        return main([name, "--config=pocket.yaml", *FLAGS, *flags])

    return run


def respond(asked):
    """A server that opens what is in the middle of a screen where it sees two pictures, and goes back otherwise."""
    shown = [
        part
        for message in asked.body["messages"]
        if isinstance(message["content"], list)
        for part in message["content"]
    ]
    pictures = sum(part["type"] == "image_url" for part in shown)
    return completion("tap r3c2" if pictures == 2 else "back")


def test_fixed_conditions_random_and_oracle_without_a_router(command, tmp_path, capsys):
    with ChatServer(respond) as server:
        assert command("test", server) == 0
        asked = len(server.asked)
        results = json.loads((tmp_path / "runs" / "pocket" / "results.json").read_text())
        assert set(results["policies"]) == {"none", "text", "image", "both", "random", "oracle"}
        rows = pq.read_table(tmp_path / "runs" / "pocket" / "scores.parquet").to_pylist()
        assert len(rows) == results["n_steps"] and asked <= 4 * len(rows)  # equal questions are asked once
        for condition in ("none", "text", "image", "both"):
            answers = {row[f"answer_{condition}"] for row in rows}
            assert answers == ({"tap r3c2"} if condition in ("image", "both") else {"back"})
            mean = 100 * sum(row[condition] for row in rows) / len(rows)
            assert results["policies"][condition]["score"] == pytest.approx(mean)
        said = capsys.readouterr().out
        assert "no router: the actor shows no hidden states" in said
        told = results["provenance"]["harvests"]["test"]
        assert told["actor"]["class"] == "ChatActor" and told["actor"]["model"] == "served"
        assert told["usage"]["requests"] == told["usage"]["answers"] == asked and told["usage"]["cost"] is None
        assert f"test harvest: {asked} answers asked for, 0 kept from before" in said and "no prices are set" in said
        kept = json.loads((tmp_path / "runs" / "pocket" / "provenance.test.json").read_text())
        assert kept["harvests"]["test"] == told
        assert command("test", server) == 0 and len(server.asked) == asked  # nothing is paid twice
    for path in (p for p in tmp_path.rglob("*") if p.is_file()):
        assert KEY.encode() not in path.read_bytes(), path


def test_a_router_cannot_be_trained(command, capsys):
    with ChatServer(respond) as server:
        assert command("fit", server) == 1
        assert not server.asked
    assert "`actor.endpoint` must be null for `fit`" in capsys.readouterr().err
