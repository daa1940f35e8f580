"""A rollout in real browsers: through the command line, killed and resumed, and with a browser that dies under it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hostile_pages import write
from PIL import Image
from rollout_run import Tapper, tappers
from speaking_actor import Speaks

from switchmem.actors.spec import ActorSpec
from switchmem.cli import main
from switchmem.envs.miniwob.browser import BrowserError, find_chromium
from switchmem.envs.miniwob.tasks import instance_seed
from switchmem.pipeline import rollout_command
from switchmem.rollout.results import read_rollout_results
from switchmem.rollout.trace import read_facts, read_trace

pytestmark = pytest.mark.browser
HERE = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def needs_chromium():
    try:
        find_chromium()
    except BrowserError as error:
        pytest.skip(str(error))


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rollout_command, "live_agents", tappers)
    return tmp_path


def flags(tasks, policies="[none]", **settings):
    named = [f"--rollout.{name}={value}" for name, value in settings.items()]
    return ["--config=miniwob.yaml", f"--rollout.tasks=[{','.join(tasks)}]", f"--rollout.policies={policies}", *named]


def test_the_command_plays_the_protocol_and_shows_it(desk, capsys):
    asked = flags(
        ["click-button", "click-test", "drag-item"], "[none,text]", bank="demonstrators", max_steps=2, workers=2,
        bootstrap=100,
    )  # fmt: skip
    assert main(["rollout", *asked, "--watch"]) == 0
    printed = capsys.readouterr().out
    run = desk / "runs" / "miniwob"
    results = read_rollout_results(run / "results.json")
    assert results["by_task"]["click-button"] == {"none": False, "text": True}
    assert results["missing"] == ["drag-item"] and results["n_tasks"] == 3
    assert results["bank"]["made_by"] == "demonstrators" and results["bank"]["demonstrations"] == 2
    assert results["instances"]["shared"] == [] and results["unequal"] == []
    assert results["settings"]["environment"] == "miniwob" and results["settings"]["screen_text"] is True
    assert "miniwob, online: 3 tasks" in printed and "drag-item" in printed
    page = (run / "report" / "index.html").read_text()
    steps = json.loads(page.partition('id="data">')[2].partition("</script>")[0])["steps"]
    shown = [step for step in steps if step["trajectory"] == "text/click-button"]
    assert [step["action_type"] for step in shown] == ["tap", "over (success)"]
    assert shown[0]["memory_id"].startswith("miniwob/click-") and all(step["picture"] is not None for step in shown)
    assert {step["missing"].partition(":")[0] for step in steps if step["category"] == "drag-item"} == {"missing_page"}
    seed = instance_seed(42, "click-button")
    with Image.open(run / "watch" / f"text-click-button-{seed}.gif") as animation:
        assert animation.n_frames == 2
    assert 'http-equiv="refresh"' in (run / "watch" / "index.html").read_text()

    (run / "report" / "index.html").unlink()
    assert main(["report", "--run", str(run), "--pictures", "1"]) == 0  # a rollout is known by its folder
    assert "carry their pictures" in (run / "report" / "index.html").read_text()
    assert main(["rollout", *asked]) == 0
    assert "episodes in" not in capsys.readouterr().out  # nothing is played twice


def test_baselines_are_played_on_the_same_screens(desk, monkeypatch, capsys):
    actor = Speaks()
    monkeypatch.setattr(ActorSpec, "load", lambda spec: actor)
    asked = flags(["click-button"], "[none]", bank="demonstrators", max_steps=2, workers=1, bootstrap=100)
    names = ["--baselines.names=[m3a,agmem_whole]", "--baselines.m3a.actions=actor"]
    names += [
        "--actor.grammar=pocket",
        "--actor.screen_text=false",
        "--actor.state_tokens=null",
    ]  # as this actor speaks
    assert main(["rollout", *asked, *names]) == 0
    results = read_rollout_results(desk / "runs" / "miniwob" / "results.json")
    assert list(results["policies"]) == ["none", "m3a", "agmem_whole"] and results["unequal"] == []
    assert {name: row["steps"] for name, row in results["baselines"].items()} == {"m3a": 2, "agmem_whole": 2}
    assert "<picture>" in actor.prompts[0][1] and results["baselines"]["m3a"]["fallbacks"] == {"summary: refusal": 1}
    assert results["baselines"]["agmem_whole"]["fallbacks"]["detector: refusal"] == 2
    assert "Memory baselines" in capsys.readouterr().out


def chromiums(run):
    """Browsers whose parents' command line names this run."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "environ").read_bytes()
            name = (place / "comm").read_text().strip()
        except OSError:
            continue
        if name.startswith("chrom") and f"ROLLOUT_TEST={run}".encode() in words:
            found.append(int(place.name))
    return found


def test_a_killed_rollout_goes_on_and_leaves_no_browser(desk):
    tasks = [f"click-tab-2{end}" for end in ("", "-easy", "-hard")]
    for task in tasks:
        write(desk, task, on_tap="core.endEpisode(1)")
    asked = flags(tasks, html_root=desk, workers=1, bootstrap=100)
    command = [sys.executable, str(HERE / "rollout_run.py"), "rollout", *asked, "--run.name=killed"]
    path = os.pathsep.join((str(HERE), str(HERE.parent)))
    environment = {**os.environ, "PYTHONPATH": path, "ROLLOUT_TEST": desk.name}
    process = subprocess.Popen(command, cwd=desk, env=environment, stdout=subprocess.DEVNULL)
    stages, until = desk / "runs" / "stages", time.monotonic() + 240
    while not list(stages.glob("rollout-evaluation-*/*.tar")):
        assert process.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {tar: tar.stat().st_mtime_ns for tar in stages.glob("rollout-*/*.tar") if read_facts(tar)}
    assert not (desk / "runs" / "killed" / "results.json").exists()
    while chromiums(desk.name) and time.monotonic() < until:
        time.sleep(0.1)
    assert chromiums(desk.name) == []
    assert main(["rollout", *asked, "--run.name=killed"]) == 0
    results = read_rollout_results(desk / "runs" / "killed" / "results.json")
    assert results["policies"]["none"]["successes"] == 3
    assert {tar: tar.stat().st_mtime_ns for tar in kept} == kept


@pytest.mark.parametrize("times", [1, 2])
def test_a_browser_that_dies_ends_its_episode_and_no_other(desk, monkeypatch, times):
    """Killed once, the episode is played again and succeeds; killed twice, it has failed."""
    killed = []

    class Killing(Tapper):
        def act(self, goal, screenshot, ui_elements=(), *, condition=None):
            if "Kill" in goal and len(killed) < times:
                killed.append(own_browsers())
                for pid in killed[-1]:
                    os.kill(pid, signal.SIGKILL)
            return super().act(goal, screenshot, ui_elements, condition=condition)

    monkeypatch.setattr(rollout_command, "live_agents", lambda *_: Killing)
    for task in ("click-link", "click-option"):
        write(desk, task, on_tap="core.endEpisode(1)")
    page = desk / "miniwob" / "click-link.html"
    page.write_text(page.read_text().replace("Do it.", "Kill it."))
    assert main(["rollout", *flags(["click-link", "click-option"], html_root=desk, workers=1, bootstrap=100)]) == 0
    results = read_rollout_results(desk / "runs" / "miniwob" / "results.json")
    assert len(killed) == times and all(killed)
    assert results["by_task"] == {"click-link": {"none": times == 1}, "click-option": {"none": True}}
    trace = read_trace(desk / "runs" / "stages" / results["episodes"]["none"] / "click-link.tar")
    assert len(trace.moves) == 1 and trace.last is not None
    if times == 2:
        assert results["policies"]["none"]["endings"] == {"page_crash": 1, "success": 1}
        assert any("count as failed: none/click-link." in note for note in results["notes"])


def own_browsers():
    """Main processes of the browsers below this process."""
    parents = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(place.name)] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue

    def below(pid):
        return pid == os.getpid() or (pid in parents and parents[pid] > 1 and below(parents[pid]))

    found = []
    for pid in parents:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if below(pid) and b"chrom" in words and b"--headless" in words and b"--type=" not in words:
            found.append(pid)
    return found
