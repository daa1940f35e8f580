"""``train.py failures`` on the folder of a rollout, its judge behind an endpoint on this machine."""

import json

import pytest
from chat_server import ChatServer, completion

from switchmem.cli import main
from switchmem.pipeline import rollout_command

COGNITIVE, VISUAL, HIDDEN, GROUNDING, MEMORY = (
    "Cognitive Failure", "Visual State Misunderstanding", "Hidden Operation Blindness", "Grounding Error",
    "Memory Over-following",
)  # fmt: skip
SAID = {
    ("none", "text-helps"): [VISUAL, HIDDEN],
    ("none", "image-helps"): [COGNITIVE],
    ("none", "nothing-helps"): "I'm sorry, I can't judge this.",
    ("text", "image-helps"): [MEMORY, GROUNDING],
    ("text", "nothing-helps"): "It tapped the wrong button.",
    ("image", "text-helps"): [MEMORY],
    ("image", "nothing-helps"): [],
}
"""What the judge says of each failed task; a text is no usable answer."""


def shown(asked):
    """What a question shows: its words, and how many pictures."""
    parts = asked.body["messages"][1]["content"]
    return "".join(p.get("text", "") for p in parts), sum(p["type"] != "text" for p in parts)


def respond(asked):
    text, _ = shown(asked)
    ((form, task),) = [(f, t) for f, t in SAID if f"Task: do {t}\n" in text and f", as {f}\n" in text]
    said = SAID[form, task]
    return completion(said if isinstance(said, str) else json.dumps({"labels": said, "evidence": "It taps no."}))


@pytest.fixture
def rollout(two_buttons, make_agent, tmp_path, monkeypatch):
    """The folder of a finished rollout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "miniwob", lambda *_: two_buttons)
    monkeypatch.setattr(rollout_command, "live_agents", lambda *_: make_agent)
    flags = ["--rollout.policies=[none,text,image]", "--rollout.bootstrap=100", "--rollout.workers=1"]
    assert main(["rollout", "--config=miniwob.yaml", *flags]) == 0
    return tmp_path / "runs" / "miniwob"


@pytest.fixture
def judge(rollout):
    """Judges the rollout; gives its document and what was asked for it."""
    with ChatServer(respond) as server:
        endpoint = json.dumps({"base_url": server.base_url, "api_key_env": None, "backoff": 0.01})

        def judge(*flags):
            before = len(server.asked)
            words = [f"--run={rollout}", "--judge.model=wise", f"--judge.endpoint={endpoint}", *flags]
            assert main(["failures", *words]) == 0
            return json.loads((rollout / "failures.json").read_text()), server.asked[before:]

        yield judge


def counts(row):
    return {name: cell["count"] for name, cell in row["modes"].items() if cell["count"]}


def test_played_tasks_are_labelled_with_all_tasks_as_denominator(judge, rollout, capsys):
    document, asked = judge()
    rows, results = document["methods"], json.loads((rollout / "results.json").read_text())
    assert document["units"] == "played tasks (task level)" and set(rows) == {"none", "text", "image"}
    for name, row in rows.items():
        assert row["units"] == 6 and row["score"] == pytest.approx(results["policies"][name]["success"])
        assert set(row["modes"]) == {COGNITIVE, VISUAL, HIDDEN, GROUNDING, MEMORY}
    assert counts(rows["none"]) == {VISUAL: 1, HIDDEN: 1, COGNITIVE: 1}
    assert counts(rows["text"]) == {MEMORY: 1, GROUNDING: 1} and counts(rows["image"]) == {MEMORY: 1}
    assert rows["none"]["modes"][HIDDEN]["percent"] == pytest.approx(100 / 6)
    # the task without a page was never shown, so that there is nothing to ask about
    assert rows["none"]["unlabelled"] == {"not at hand": 1, "refusal": 1} and rows["none"]["none"] == 0
    assert rows["text"]["unlabelled"] == {"malformed": 1, "not at hand": 1}
    assert rows["image"]["unlabelled"] == {"not at hand": 1} and rows["image"]["none"] == 1
    assert document["labels"]["text"]["image-helps"]["labels"] == [GROUNDING, MEMORY]
    assert set(document["labels"]["none"]) == {"text-helps", "image-helps", "nothing-helps", "missing"}
    assert len(asked) == len(SAID) and "played tasks (task level), judged by wise" in capsys.readouterr().out
    assert judge() == (document, [])  # the answers are kept


def test_the_judge_sees_every_screen_move_and_end(judge):
    _, asked = judge("--methods=[text]")
    text, pictures = next(one for one in map(shown, asked) if "image-helps" in one[0])
    # two taps: the first goes wherever, the second one on "no"
    assert pictures == 3 and text.count("The agent's answer: raw") == 2 and "It ended: failure" in text
    assert "reward -1.0" in text and all(mode in text for mode in (COGNITIVE, VISUAL, HIDDEN, GROUNDING, MEMORY))


def test_without_a_trace_the_results_still_say_who_succeeded(judge, rollout):
    for name in ("both-help", "image-helps"):  # one that succeeded with Text, one that did not
        for path in (rollout.parent / "stages").glob(f"rollout-evaluation-*/{name}.tar"):
            path.unlink()
    document, _ = judge("--methods=[text]")
    row = document["methods"]["text"]
    assert row["successes"] == 3 and row["failed"] == 3 and counts(row) == {}
    assert row["unlabelled"] == {"malformed": 1, "not at hand": 2}
