"""``train.py failures`` on a tested run, its judge behind an endpoint on this machine."""

import json
import sys

import pyarrow.parquet as pq
import pytest
from chat_server import ChatServer, completion
from fake_actor import FLAGS

from switchmem.cli import main

ANSWERS = (
    '{"labels": ["Cognitive Failure"], "evidence": "It goes back."}',
    "I'm sorry, I can't judge this.",
    '{"labels": ["Grounding Error", "Cognitive Failure"], "evidence": "It names the right icon."}',
    '{"labels": ["Memory Over-following"], "evidence": "It copies the place."}',
)


def respond(asked):
    """The actor goes back; the judge answers by the length of the question, so that equal questions agree."""
    if "root causes" in str(asked.body["messages"][0]["content"]):
        return completion(ANSWERS[len(asked.raw) % len(ANSWERS)])
    return completion("back")


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    with ChatServer(respond) as server:
        endpoint = json.dumps({"base_url": server.base_url, "api_key_env": None, "backoff": 0.01})
        flags = ["--study.bootstrap=100", "--study.limit=12", "--actor.model=served", f"--actor.endpoint={endpoint}"]
        assert main(["test", "--config=pocket.yaml", *FLAGS, *flags]) == 0
        yield server, tmp_path / "runs" / "pocket", endpoint


def test_the_table_and_the_labels_of_a_run(run, capsys):
    server, folder, endpoint = run
    rows, before = pq.read_table(folder / "scores.parquet").to_pylist(), len(server.asked)
    judge = ["--judge.model=wise", f"--judge.endpoint={endpoint}"]
    assert main(["failures", f"--run={folder}", *judge]) == 0
    asked = len(server.asked) - before
    document = json.loads((folder / "failures.json").read_text())
    assert set(document["methods"]) == {"none", "text", "image", "both"} and "action level" in document["units"]
    for method, row in document["methods"].items():
        failed = {r["step_id"] for r in rows if r[method] < 0.999}
        assert row["units"] == len(rows) and row["failed"] == len(failed) == len(document["labels"][method])
        told = document["labels"][method].values()
        for mode, cell in row["modes"].items():
            assert cell["count"] == sum(mode in (one["labels"] or ()) for one in told)
            assert cell["percent"] == pytest.approx(100 * cell["count"] / len(rows))
        assert sum(row["unlabelled"].values()) == sum(one["labels"] is None for one in told)
    # without a memory none can be followed: such a label is a fault, never a count
    assert document["methods"]["none"]["modes"]["Memory Over-following"]["count"] == 0
    shown = next(a.body["messages"] for a in server.asked[before:] if len(a.body["messages"][1]["content"]) > 3)
    assert "Cognitive Failure" in str(shown) and "The recorded, correct action" in str(shown)
    assert "failure modes of pocket" in capsys.readouterr().out
    assert "| Root cause | Count | Ratio |" in (folder / "failures.txt").read_text()
    assert main(["failures", f"--run={folder}", *judge]) == 0  # the answers are kept
    assert len(server.asked) == before + asked
    assert json.loads((folder / "failures.json").read_text()) == document


def test_memory_baselines_are_judged_by_their_own_scores(run):
    _, folder, endpoint = run
    flags = ["--study.bootstrap=100", "--study.limit=12", "--actor.model=served", f"--actor.endpoint={endpoint}"]
    baselines = ["--baselines=template.yaml", "--baselines.names=[echotrail,agmem]"]
    assert main(["test", "--config=pocket.yaml", *FLAGS, *flags, *baselines]) == 0
    rows = pq.read_table(folder / "scores.parquet").to_pylist()
    assert main(["failures", f"--run={folder}", "--judge.model=wise", f"--judge.endpoint={endpoint}"]) == 0
    methods = json.loads((folder / "failures.json").read_text())["methods"]
    assert set(methods) == {"none", "text", "image", "both", "echotrail", "agmem"}
    for name in ("echotrail", "agmem"):
        assert methods[name]["failed"] == sum(row[f"baseline_{name}"] < 0.999 for row in rows) > 0


def test_what_cannot_be_judged_is_told(run, tmp_path, capsys):
    _, folder, endpoint = run
    judge = ["--judge.model=wise", f"--judge.endpoint={endpoint}"]
    assert main(["failures", f"--run={folder}", *judge, "--limit=0"]) == 1
    assert "`--limit` must be at least 1, got 0" in capsys.readouterr().err
    assert main(["failures", f"--run={folder}", *judge, "--methods=[m3a]"]) == 1
    assert "`--methods` must be among none, text, image, both, got m3a" in capsys.readouterr().err
    assert main(["failures", f"--run={tmp_path / 'nowhere'}", *judge]) == 1
    assert "`--run` must have results" in capsys.readouterr().err
