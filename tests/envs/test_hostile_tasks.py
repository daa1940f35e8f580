"""Whatever a page does ends its episode with a reason, and the next episode runs as if nothing had been."""

import os
import signal
from pathlib import Path

import pytest
from hostile_pages import write

from switchmem.envs.base import Ending, PhoneAction, PhoneActionType
from switchmem.envs.miniwob.env import EpisodeError, MiniWobEnv

pytestmark = pytest.mark.browser
PATIENCE = 60.0  # seconds; tests share their machine
TAP = PhoneAction(PhoneActionType.CLICK, x=500, y=500)
ON_TAP = {
    "alert": ("alert('hello')", Ending.DIALOG),
    "confirm": ("if (!confirm('sure?')) prompt('why?')", Ending.DIALOG),
    "elsewhere": ("location = 'https://example.com/'", Ending.NAVIGATION),
    "other-file": ("location = 'file:///etc/hostname'", Ending.NAVIGATION),
    "blank": ("location = 'about:blank'", Ending.NAVIGATION),
    "again": ("location.reload()", Ending.NAVIGATION),
    "form": ("const f = document.createElement('form'); document.body.append(f); f.submit()", Ending.NAVIGATION),
    "leave-asked": ("window.onbeforeunload = (e) => e.preventDefault(); location.reload()", Ending.DIALOG),
    "window": ("window.open('about:blank')", Ending.POPUP),
    "download": (
        "const a = document.createElement('a'); a.href = 'data:application/zip,x'; a.download = 'x.zip'; a.click()",
        Ending.DOWNLOAD,
    ),
    "busy": ("while (true);", Ending.TIMEOUT),
    "busy-later": ("setTimeout(() => { while (true); }, 500)", Ending.TIMEOUT),
    "busy-promises": ("const on = () => Promise.resolve().then(on); on()", Ending.TIMEOUT),
    "chatty": ("while (true) console.log('x'.repeat(1e4))", Ending.TIMEOUT),
    "half": ("core.endEpisode(0.5)", Ending.FAILURE),
    "nothing": ("core.endEpisode(undefined)", Ending.FAILURE),
    "twice": ("core.endEpisode(-1); core.endEpisode(1)", Ending.FAILURE),
    "won-and-left": ("core.endEpisode(1); location.reload()", Ending.SUCCESS),
}
HARMLESS = {
    "hash": "location.hash = 'x'; history.pushState({}, '', '#y')",
    "emptied": "document.documentElement.remove()",
    "timers": "setInterval(() => document.title += 'x', 5)",
    "thrown": "throw new Error('broken')",
    "overwritten": "requestAnimationFrame = performance.now = Date.now = JSON.stringify = null",
    "frame": "const f = document.createElement('iframe'); f.src = 'about:blank'; document.body.append(f)",
    "print": "print()",
    "closed": "window.close()",  # only windows that a script opened close this way
}
NEVER_BEGIN = {
    "no-core": ({"on_load": "core.startEpisodeReal = null"}, Ending.PAGE_ERROR),
    "bad-start": ({"on_start": "throw new Error('broken')"}, Ending.PAGE_ERROR),
    "busy-load": ({"on_load": "while (true);"}, Ending.TIMEOUT),
    "alert-load": ({"on_load": "alert('hello')"}, Ending.DIALOG),
    "alert-start": ({"on_start": "alert('hello')"}, Ending.DIALOG),
    "left-at-once": ({"on_load": "location = 'about:blank'"}, Ending.PAGE_ERROR),
}


@pytest.fixture(scope="module")
def env(browser, tmp_path_factory):
    root = tmp_path_factory.mktemp("pages")
    for name, (script, _) in ON_TAP.items():
        write(root, name, on_tap=script)
    for name, script in HARMLESS.items():
        write(root, name, on_tap=script)
    for name, (scripts, _) in NEVER_BEGIN.items():
        write(root, name, **scripts)
    (root / "miniwob").mkdir(exist_ok=True)
    write(root, "good", on_tap="core.endEpisode(1)")
    opened = MiniWobEnv(browser, root, patience=PATIENCE)
    yield opened
    opened.close()


def plays(env):
    env.patience = PATIENCE
    env.reset(seed=1, options={"task": "good"})
    return env.step(TAP)[1] == 1.0


@pytest.mark.parametrize("name", ON_TAP)
def test_the_episode_ends_with_a_reason(env, name):
    first, _ = env.reset(seed=1, options={"task": name})
    if ON_TAP[name][1] is Ending.TIMEOUT:
        env.patience = 1.0
    screen, reward, terminated, truncated, info = env.step(TAP)
    assert info["reason"] is ON_TAP[name][1], info
    assert (reward, terminated, truncated) == (float(name == "won-and-left"), True, False)
    if info["raw_reward"] is None:
        assert info["detail"]
        assert screen is first  # the last one there was
    if ON_TAP[name][1] is Ending.TIMEOUT:
        assert plays(env)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_goes_on(env, name):
    env.reset(seed=1, options={"task": name})
    for _ in range(2):  # the second finds what the first left
        _, reward, terminated, truncated, info = env.step(TAP)
        assert (reward, terminated, truncated, info["reason"]) == (0.0, False, False, None), info


@pytest.mark.parametrize("name", NEVER_BEGIN)
def test_a_page_that_never_begins_is_told(env, name):
    env.patience = 2.0 if NEVER_BEGIN[name][1] is Ending.TIMEOUT else PATIENCE
    with pytest.raises(EpisodeError, match="must begin its task") as raised:
        env.reset(seed=1, options={"task": name})
    assert raised.value.ending is NEVER_BEGIN[name][1], raised.value


def processes_below(parent):
    """Process ids and command lines of all descendants."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat, line = (entry / "stat").read_text(), (entry / "cmdline").read_bytes()
            except OSError:  # it has ended since
                continue
            children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append((int(entry.name), line))
    found, ahead = [], [parent]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += [pid for pid, _ in below]
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the browser's processes in /proc")
@pytest.mark.parametrize("victim", ["page", "browser"])
def test_a_crash_ends_the_episode_and_the_next_one_runs(env, victim):
    env.reset(seed=1, options={"task": "hash"})
    ours = processes_below(os.getpid())
    renderers = [pid for pid, line in ours if b"--type=renderer" in line]
    browsers = [pid for pid, line in ours if b"--type=" not in line and b"--headless" in line]
    assert renderers and browsers
    for pid in renderers if victim == "page" else browsers:
        os.kill(pid, signal.SIGKILL)
    _, reward, terminated, _, info = env.step(TAP)
    assert (reward, terminated, info["reason"]) == (0.0, True, Ending.PAGE_CRASH)
    assert plays(env)
