"""The trace of an episode: every screen, what was decided there and why, what was done, and how it ended.

A trace is one tar, written whole or not at all: ``facts.json`` (a few lines that results need), ``moves.json``, and the
screens ``000.png``, ``001.png``, ... as they were taken. What a killed rollout leaves behind are whole traces.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from switchmem.envs.base import Ending, PhoneAction, Screen
from switchmem.stages import write_whole
from switchmem.steps import Screenshot, UIElement

FORMAT = "switchmem.trace/1"
ENVIRONMENT_ERROR = "environment_error"
"""How an episode ended whose environment broke in a way that it has no word for."""
REQUEST_FAILED = "request_failed"
"""An endpoint, the actor's or the writer's, gave no answer, and others may be answered all the same."""
FACTS, MOVES = "facts.json", "moves.json"
BASELINE = ("reason", "answers", "tokens", "fallbacks", "once", "notes", "writing")
"""What the results need of a `BaselineDecision`, beside the "seconds" of the actor's answers."""


def broke(ending: str, begun: bool) -> bool:
    """Whether an end may be the machine's fault, as when it is out of memory: such an episode is played a second time.

    Args:
        ending: of the episode.
        begun: whether there was a first screen. A page that never came may have waited for a busy machine.
    """
    return ending in (ENVIRONMENT_ERROR, Ending.PAGE_CRASH.value) or (ending == Ending.TIMEOUT.value and not begun)


class TraceError(ValueError):
    """A trace cannot be read; the message names the file and the way out."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of an episode.

    Args:
        screen: what the actor saw.
        decision: `to_dict` of a `switchmem.agent.Decision` or `BaselineDecision`.
        action: what was done to the environment.
        note: why that is not what the actor said, or "".
        seconds: that the environment took to do it and to show the next screen.
    """

    screen: Screen
    decision: Mapping[str, Any]
    action: PhoneAction
    note: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """An episode in short.

    Args:
        policy: who chose the memory's form.
        task: name of the task.
        seed: of the instance.
        utterance: the page's instruction, or "" where the task did not begin.
        look: 32 hexadecimal digits of the instruction and the first screen's pixels; "" where there is none.
        ending: an `Ending`'s value, or one of this package's own.
        detail: a few words on that.
        raw_reward: what the page said; None where it said nothing.
        success: whether that is exactly 1.
        steps: moves.
        forms: the memory's form at each move.
        memories: the demonstration's step at each move; None where there was none.
        unparsable: moves whose answer was no action, or none that the environment has.
        actor_seconds: of the actor and the router at each move.
        step_seconds: of the whole move, the environment included.
        tokens: that the actor read and wrote, of all moves.
        baseline: of each move under a memory baseline the entries of `BASELINE`, and "seconds"; none otherwise.
    """

    policy: str
    task: str
    seed: int
    utterance: str
    look: str
    ending: str
    detail: str
    raw_reward: float | None
    success: bool
    steps: int
    forms: tuple[str, ...]
    memories: tuple[str | None, ...]
    unparsable: int
    actor_seconds: tuple[float, ...]
    step_seconds: tuple[float, ...]
    tokens: tuple[int, int] = (0, 0)
    baseline: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """An episode.

    Args:
        policy: who chose the memory's form.
        task: name of the task.
        seed: of the instance.
        utterance: the page's instruction.
        moves: in order.
        last: the screen after the last move; None where the task did not begin.
        ending: how it ended.
        detail: a few words on that.
        raw_reward: what the page said, or None.
    """

    policy: str
    task: str
    seed: int
    utterance: str
    moves: tuple[Move, ...]
    last: Screen | None
    ending: str
    detail: str = ""
    raw_reward: float | None = None

    @property
    def success(self) -> bool:
        """Whether the page gave a raw reward of exactly 1."""
        return self.ending == Ending.SUCCESS.value

    @property
    def screens(self) -> tuple[Screen, ...]:
        """Every screen, the last one included."""
        return (*(move.screen for move in self.moves), *([] if self.last is None else [self.last]))

    def facts(self) -> Facts:
        """The episode in short."""
        screens = self.screens
        timings = [move.decision["timings"] for move in self.moves]
        actor = [math.fsum(v for k, v in t.items() if k not in ("retrieval", "preprocessing")) for t in timings]
        whole = [math.fsum(t.values()) + m.seconds for t, m in zip(timings, self.moves, strict=True)]
        baseline = [move.decision for move in self.moves if "writing" in move.decision]
        return Facts(
            policy=self.policy,
            task=self.task,
            seed=self.seed,
            utterance=self.utterance,
            look=look_of(self.utterance, screens[0].screenshot) if screens else "",
            ending=self.ending,
            detail=self.detail,
            raw_reward=self.raw_reward,
            success=self.success,
            steps=len(self.moves),
            forms=tuple(move.decision["condition"] for move in self.moves),
            memories=tuple(move.decision["memory"] for move in self.moves),
            unparsable=sum(bool(move.note) for move in self.moves),
            actor_seconds=tuple(actor),
            step_seconds=tuple(whole),
            tokens=_tokens(self.moves),
            baseline=tuple(
                {**{name: told[name] for name in BASELINE}, "seconds": told["timings"]["decoding"]} for told in baseline
            ),
        )


def _tokens(moves: Sequence[Move]) -> tuple[int, int]:
    """What the actor read and wrote; a memory baseline tells both as they are, or neither."""
    read = written = 0
    for decision in (move.decision for move in moves):
        told = decision["tokens"]
        if isinstance(told, Mapping):
            behind = "state" if decision["memory"] is None else "memory"
            told = (told["shared"] + told[behind], told["answer"])
        read, written = read + (told[0] if told else 0), written + (told[1] if told else 0)
    return read, written


def look_of(utterance: str, screenshot: Screenshot) -> str:
    """What an instance looks like: a hash of its instruction and of the pixels of its first screen."""
    digest = hashlib.blake2b(json.dumps([utterance, screenshot.width, screenshot.height]).encode(), digest_size=16)
    digest.update(screenshot.image().tobytes())
    return digest.hexdigest()


# --- on the disk ---


def write_trace(path: Path, trace: Trace) -> Facts:
    """Write a trace, whole or not at all.

    Returns:
        The episode in short.

    Raises:
        WriteError: if it cannot be written.
    """
    facts, buffer = trace.facts(), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, FACTS, _json({"format": FORMAT, **asdict(facts)}))
        _add(tar, MOVES, _json({"moves": [_plain(m) for m in trace.moves], "last": _told(trace.last)}))
        for n, screen in enumerate(trace.screens):
            _add(tar, picture_name(n), screen.screenshot.data)
    write_whole(path, buffer.getvalue())
    return facts


def read_facts(path: Path) -> Facts:
    """The episode in short; the screens are not read.

    Raises:
        TraceError: if the file is missing or damaged.
    """
    try:
        with tarfile.open(path, mode="r:") as tar:
            return _facts(_member(tar, FACTS))
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, EOFError) as error:
        raise _damaged(path, error) from error


def read_trace(path: Path, pictures: bool = True) -> Trace:
    """Inverse of `write_trace`.

    Args:
        path: of the trace.
        pictures: whether the screens' pictures are read and checked; else they are empty.

    Raises:
        TraceError: if the file is missing or damaged.
    """
    try:
        with tarfile.open(path, mode="r:") as tar:
            facts, told = _facts(_member(tar, FACTS)), json.loads(_member(tar, MOVES))
            rows = [*(row["screen"] for row in told["moves"]), *([told["last"]] if told["last"] is not None else [])]
            screens = [_screen(row, _screenshot(tar, n) if pictures else None) for n, row in enumerate(rows)]
            moves = tuple(_move(row, screen) for row, screen in zip(told["moves"], screens, strict=False))
            last = screens[-1] if told["last"] is not None else None
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError, EOFError) as error:
        raise _damaged(path, error) from error
    return Trace(
        facts.policy, facts.task, facts.seed, facts.utterance, moves, last, facts.ending, facts.detail, facts.raw_reward
    )


def read_screenshot(path: Path, n: int) -> Screenshot:
    """The n-th screen of a trace.

    Raises:
        TraceError: if the file is missing or damaged.
    """
    try:
        with tarfile.open(path, mode="r:") as tar:
            return _screenshot(tar, n)
    except (OSError, tarfile.TarError, ValueError, KeyError, EOFError) as error:
        raise _damaged(path, error) from error


def _screenshot(tar: tarfile.TarFile, n: int) -> Screenshot:
    return Screenshot.from_bytes(_member(tar, picture_name(n)))


def picture_name(n: int) -> str:
    """The n-th screen's file in a trace."""
    return f"{n:03d}.png"


def _damaged(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path} must be a whole trace, got: {error!r}. Delete it; the episode is played again.")


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    if file is None:
        raise ValueError(f"{name} is no file")
    return file.read()


def _json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(finite(values), ensure_ascii=True, allow_nan=False).encode("ascii")


def finite(value: Any) -> Any:
    """The same plain values with numbers that are not finite as text, as JSON has no word for them.

    >>> finite({"r": float("nan"), "steps": (1, 2)})
    {'r': 'nan', 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _facts(data: bytes) -> Facts:
    values = json.loads(data)
    if values.pop("format") != FORMAT:
        raise ValueError(f"no {FORMAT}")
    values.setdefault("tokens", [0, 0])  # nor did earlier ones count them
    values.setdefault("baseline", [])  # traces from before the baselines were played have none
    rows = {field.name: values[field.name] for field in fields(Facts)}
    reward = rows["raw_reward"]
    for name in ("forms", "memories", "actor_seconds", "step_seconds", "tokens", "baseline"):
        rows[name] = tuple(rows[name])
    return Facts(**{**rows, "raw_reward": None if reward is None else float(reward)})


def _told(screen: Screen | None) -> dict[str, Any] | None:
    if screen is None:
        return None
    size = [screen.screenshot.width, screen.screenshot.height]
    return {"goal": screen.goal, "size": size, "elements": [element.to_dict() for element in screen.elements]}


def _screen(told: Mapping[str, Any], picture: Screenshot | None) -> Screen:
    elements = tuple(UIElement.from_dict(values) for values in told["elements"])
    return Screen(picture if picture is not None else Screenshot(b"", *told["size"]), elements, told["goal"])


def _plain(move: Move) -> dict[str, Any]:
    values = {"decision": dict(move.decision), "action": move.action.to_dict(), "note": move.note}
    return {**values, "seconds": move.seconds, "screen": _told(move.screen)}


def _move(row: Mapping[str, Any], screen: Screen) -> Move:
    return Move(screen, row["decision"], PhoneAction.from_dict(row["action"]), row["note"], row["seconds"])
