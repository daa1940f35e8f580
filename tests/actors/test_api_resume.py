"""A run with a chat endpoint is killed outright, and the next one pays only for what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

from chat_server import Answer, ChatServer, completion

KILLED = """
import sys
from PIL import Image
from switchmem.actors.api.actor import ChatActor
from switchmem.actors.api.endpoint import Endpoint
from switchmem.actors.sampling import GREEDY
from switchmem.actors.vlm import StepPrompts
from switchmem.memory.views import Condition
from switchmem.prompts import Prompt

endpoint = Endpoint(base_url=sys.argv[1], api_key_env=None, name="here", concurrency=2, cache=sys.argv[2])
screen = Image.new("RGB", (4, 4))
batch = [
    StepPrompts(f"a/b/{n}", {c: Prompt("", (f"Goal {n}", screen), (c.value,)) for c in Condition}) for n in range(20)
]
seen = ChatActor("m", endpoint).observe(batch, (Condition.TEXT, Condition.IMAGE), (), GREEDY)
print([text for s in seen for texts in s.answers.values() for text in texts])
"""


def test_a_killed_run_pays_nothing_twice(tmp_path, project):
    folder = tmp_path / "answers"

    def start():
        command = [sys.executable, "-c", KILLED, server.base_url, str(folder)]
        return subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": str(project)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with ChatServer(lambda asked: Answer(completion(f"answer {asked.number}"), delay=0.05)) as server:
        process = start()
        deadline = time.monotonic() + 60
        while len(server.asked) < 12 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        time.sleep(0.2)  # answers on their way go to nobody
        finished, asked = len(list(folder.rglob("*.json"))), len(server.asked)
        assert 0 < finished <= asked < 40
        assert asked - finished <= 2, "no more is lost than was on its way"
        process = start()
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert len(server.asked) - asked == 40 - finished
    assert sum(count - 1 for count in server.counts.values()) == asked - finished
    kept = {json.loads(p.read_text())["completion"]["choices"][0]["message"]["content"] for p in folder.rglob("*.json")}
    assert len(kept) == 40 and all(repr(text) in output for text in kept)
