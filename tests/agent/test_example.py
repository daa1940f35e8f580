"""The example of the package and of the README runs as it stands, on a folder as `fit` leaves it."""

import json
import re
import shutil

import switchmem.agent
from switchmem.memory import HashingEmbedder

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Phone:
    """Shows recorded screens and notes what is done to it."""

    def __init__(self, steps):
        self.steps, self.done = iter(steps), []

    def look(self):
        step = next(self.steps)
        return step.screenshot.image(), [element.to_dict() for element in step.elements]

    def do(self, action):
        self.done.append(action)


def test_it_runs(queries, store, make_policy, tmp_path, monkeypatch, capsys):
    (code,) = BLOCK.findall(switchmem.agent.__doc__)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(store.folder, tmp_path / "runs" / "stages" / "steps-0123456789abcdef" / "bank")
    (tmp_path / "runs" / "pocket").mkdir()
    provenance = {"harvests": {"preference": {"bank": ["../stages/steps-0123456789abcdef/bank"]}}}
    (tmp_path / "runs" / "pocket" / "provenance.json").write_text(json.dumps(provenance))
    make_policy(embedder=HashingEmbedder().name, dim=HashingEmbedder().dim).save(
        tmp_path / "runs" / "pocket" / "policy"
    )
    episode = [step for step in queries if step.trajectory == queries[0].trajectory]
    phone = Phone([*episode, *queries])
    exec(compile(code, "example", "exec"), {"phone": phone})
    lines = capsys.readouterr().out.splitlines()
    assert phone.done and len(phone.done) <= len(lines) <= 20
    for line, action in zip(lines, phone.done, strict=False):
        assert re.match(r"(text|image) memory of pocket/\S+ \(cosine -?\d\.\d{3}\): r = \S+ (<|>=) tau = ", line)
        assert str(action) in line and line.endswith(" s")


def test_the_readme_tells_the_same(project):
    (code,) = BLOCK.findall(switchmem.agent.__doc__)
    told = [block for block in BLOCK.findall((project / "README.md").read_text("utf-8")) if "SwitchMemAgent" in block]
    assert all(block == code for block in told)
