"""How a benchmark's trajectories become preference queries, their memory, and test queries.

The sizes are the paper's (SwitchMem, appendix B); how the steps were picked it does not say. The rule here:

1. Each trajectory has a role: train, val or test, by the official files (`aitw.split_files`) or by `seeded_roles`.
   Val is not used. What was cut out of one recording stays together: no recording with a test trajectory is trained on.
2. The trajectories of a role come in an order that depends on the seed and their names alone, the categories in turn,
   so that each gives the same number; one that runs out leaves its turn to the others. ("proportional" gives each
   category its share of the data instead.)
3. They are dealt to the parts that want them, those of each category in proportion to the asked steps, until every part
   has both its trajectories and its steps. A category's first trajectory goes to the memory: queries retrieve within
   their category.
4. Steps over the asked number are left out at random, by the seed, but at least one of each trajectory stays.

So both numbers are exact where the drawn trajectories hold enough steps. Where they do not, more trajectories are
drawn; where the data ends, everything is divided in proportion to the asked steps, and the report says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.split_report import count, count_by_category, prove, shortfalls, some, trajectory_of
from switchmem.benchmarks.survey import Episode

RECIPE = 1
"""Version of the rule above: raise it when the same data would be divided in another way."""

TRAIN, VAL, TEST = "train", "val", "test"
ROLES = (TRAIN, VAL, TEST)
PREFERENCE, BANK = "preference", "bank"

Balance = Literal["equal", "proportional"]
Recording = Callable[[str], str]
"""Trajectory -> the recording that it was cut from."""


@dataclass(frozen=True)
class PartSize:
    """How much a part is to hold.

    Args:
        steps: at least as many as trajectories.
        trajectories: at least 1.

    Raises:
        DataError: if a rule above is broken.
    """

    steps: int
    trajectories: int

    def __post_init__(self) -> None:
        if not 1 <= self.trajectories <= self.steps:
            raise DataError(
                f"a part's size must have 1 <= trajectories <= steps, got {self.trajectories} trajectories and "
                f"{self.steps} steps. Each trajectory gives at least one step."
            )


AITW_SIZES = {PREFERENCE: PartSize(10_019, 3_100), BANK: PartSize(9_981, 3_087), TEST: PartSize(5_000, 759)}


@dataclass(frozen=True)
class Split:
    """Steps by part, and how it came to be.

    Args:
        parts: step ids of "preference", "bank" and "test", sorted by trajectory and place; a part may be empty.
        report: plain JSON values; what `split_report.json` holds.
    """

    parts: Mapping[str, tuple[str, ...]]
    report: dict[str, Any]


def _lot(seed: int, name: str) -> bytes:
    """Eight bytes that depend on the seed and the name alone: the order in which things are drawn."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8, key=str(seed).encode()).digest()


def _by_category(episodes: Iterable[Episode], seed: int) -> dict[str, list[Episode]]:
    """Episodes in seeded order by category, categories by name."""
    found: dict[str, list[Episode]] = defaultdict(list)
    for episode in sorted(episodes, key=lambda e: (_lot(seed, e.trajectory), e.trajectory)):
        found[episode.category].append(episode)
    return dict(sorted(found.items()))


def _in_turn(episodes: Iterable[Episode], seed: int, balance: Balance) -> Iterator[Episode]:
    """All episodes in the order in which they are drawn."""
    rows = []
    for category, members in _by_category(episodes, seed).items():
        for place, episode in enumerate(members):
            turn = float(place) if balance == "equal" else (place + 0.5) / len(members)
            rows.append((turn, category, episode))
    rows.sort(key=lambda row: row[:2])
    return (episode for _, _, episode in rows)


@dataclass
class _Hand:
    """What a part has been dealt."""

    size: PartSize
    episodes: list[Episode] = field(default_factory=list)
    steps: int = 0
    trajectories: Counter[str] = field(default_factory=Counter)  # by category

    @property
    def wants_more(self) -> bool:
        return len(self.episodes) < self.size.trajectories or self.steps < self.size.steps

    def take(self, episode: Episode) -> None:
        self.episodes.append(episode)
        self.steps += len(episode.indices)
        self.trajectories[episode.category] += 1


def draw(
    episodes: Iterable[Episode],
    sizes: Mapping[str, PartSize],
    seed: int,
    balance: Balance = "equal",
    recording: Recording = str,
) -> dict[str, list[Episode]]:
    """Deal whole trajectories to the parts of one role; rules 2 and 3 above.

    Args:
        episodes: all that may be drawn, in any order.
        sizes: what each part is to hold. Of "bank" and "preference" the bank gets the first of each category.
        seed: decides the order.
        balance: how much each category gives.
        recording: trajectories of one recording go to one part.

    Returns:
        Episodes by part, in the order in which they were dealt. A part has fewer than it wants only where nothing is
        left, and more trajectories only where these hold too few steps.
    """
    hands = {name: _Hand(sizes[name]) for name in sorted(sizes)}  # the bank comes first
    owners: dict[str, str] = {}
    for episode in _in_turn(episodes, seed, balance):
        wanting = [name for name, hand in hands.items() if hand.wants_more]
        if not wanting:
            break
        source = recording(episode.trajectory)
        if source in owners:
            wanting = [name for name in wanting if name == owners[source]]
        category = episode.category
        if BANK in hands and not hands[BANK].trajectories[category]:
            wanting = [name for name in wanting if name == BANK]  # a query needs a memory of its own category
        if wanting:
            name = min(wanting, key=lambda name: hands[name].trajectories[category] / sizes[name].steps)
            owners[source] = name
            hands[name].take(episode)
    return {name: hand.episodes for name, hand in hands.items()}


def thin(episodes: Collection[Episode], steps: int, seed: int) -> tuple[str, ...]:
    """Ids of at most `steps` steps, at least one of each trajectory; rule 4 above.

    Args:
        episodes: trajectories, no more than `steps`.
        steps: how many to keep.
        seed: decides which.
    """
    ids = {f"{e.trajectory}/{index}": (e.trajectory, index) for e in episodes for index in e.indices}
    drawn = sorted(ids, key=lambda step_id: (_lot(seed, step_id), step_id))
    firsts = {ids[step_id][0]: step_id for step_id in reversed(drawn)}  # the earliest drawn of each trajectory
    kept = set(firsts.values())
    for step_id in drawn:
        if len(kept) >= steps:
            break
        kept.add(step_id)
    return tuple(sorted(kept, key=lambda step_id: ids[step_id]))


def seeded_roles(
    episodes: Iterable[Episode], test_share: float, seed: int, recording: Recording = str
) -> dict[str, str]:
    """Train and test by chance, for data without official split files.

    Args:
        episodes: all of them.
        test_share: part of each category's recordings that is held out, in (0, 1); at least one of three or more.
        seed: decides which.
        recording: trajectories of one recording get one role.

    Returns:
        Role by trajectory.
    """
    roles: dict[str, str] = {}  # by recording
    found = _by_category(episodes, seed)
    for members in found.values():
        sources = list(dict.fromkeys(recording(episode.trajectory) for episode in members))
        free = [source for source in sources if source not in roles]
        held_out = max(1, round(test_share * len(sources))) if len(sources) >= 3 else 0
        held_out -= sum(roles.get(source) == TEST for source in sources)
        roles.update({source: TEST if n < held_out else TRAIN for n, source in enumerate(free)})
    return {e.trajectory: roles[recording(e.trajectory)] for members in found.values() for e in members}


def split_steps(
    episodes: Iterable[Episode],
    roles: Mapping[str, str],
    sizes: Mapping[str, PartSize],
    seed: int,
    balance: Balance = "equal",
    recording: Recording = str,
) -> Split:
    """Divide a benchmark into preference queries, bank and test queries.

    Args:
        episodes: all trajectories, each once, in any order.
        roles: "train", "val" or "test" by trajectory; a trajectory without a role is counted and left out.
        sizes: of "preference", "bank" and "test".
        seed: decides everything that is left to chance.
        balance: how much each category gives.
        recording: trajectories of one recording never come into two parts.

    Raises:
        DataError: if a trajectory comes twice.
    """
    by_role, unlisted = _roles(episodes, roles)
    tested = {recording(trajectory) for trajectory, role in roles.items() if role == TEST}
    shared = {e.trajectory for e in by_role[TRAIN] if recording(e.trajectory) in tested}
    by_role[TRAIN] = [e for e in by_role[TRAIN] if e.trajectory not in shared]
    drawn = draw(by_role[TRAIN], {name: sizes[name] for name in (BANK, PREFERENCE)}, seed, balance, recording)
    drawn |= draw(by_role[TEST], {TEST: sizes[TEST]}, seed, balance, recording)
    parts = {name: thin(drawn[name], sizes[name].steps, seed) for name in (PREFERENCE, BANK, TEST)}
    categories = {e.trajectory: e.category for part in drawn.values() for e in part}
    found = {name: count(ids) for name, ids in parts.items()}
    asked = {name: {"steps": sizes[name].steps, "trajectories": sizes[name].trajectories} for name in parts}
    remembered = {categories[trajectory_of(step_id)] for step_id in parts[BANK]}
    report = {
        "seed": seed,
        "balance": balance,
        "asked": asked,
        "found": found,
        "shortfalls": shortfalls(found, asked),
        "by_category": {name: count_by_category(ids, categories) for name, ids in parts.items()},
        "data": {role: _count(members) for role, members in by_role.items()},
        "not_listed": some(unlisted),
        "recording_is_tested": some(sorted(shared)),
        "queries_without_memory": sum(categories[trajectory_of(i)] not in remembered for i in parts[PREFERENCE]),
        "proof": prove(parts, recording),
    }
    return Split(parts, report)


def _roles(episodes: Iterable[Episode], roles: Mapping[str, str]) -> tuple[dict[str, list[Episode]], list[str]]:
    """Episodes by role, and the trajectories without one; sorted, so that no order of files shows."""
    by_role: dict[str, list[Episode]] = {role: [] for role in ROLES}
    unlisted = []
    last = None
    for episode in sorted(episodes, key=lambda episode: episode.trajectory):
        if episode.trajectory == last:
            raise DataError(f"`episodes` must hold each trajectory once, got {last!r} again. Join its steps.")
        last = episode.trajectory
        if last in roles:
            by_role[roles[last]].append(episode)
        else:
            unlisted.append(last)
    return by_role, unlisted


def _count(episodes: Collection[Episode]) -> dict[str, int]:
    return {"steps": sum(len(e.indices) for e in episodes), "trajectories": len(episodes)}
