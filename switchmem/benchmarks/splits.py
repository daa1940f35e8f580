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
from hashlib import blake2b, sha256
from typing import Any, Literal

from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.survey import Episode

RECIPE = 1
"""Version of the rule above: raise it when the same data would be divided in another way."""

TRAIN, VAL, TEST = "train", "val", "test"
ROLES = (TRAIN, VAL, TEST)
PREFERENCE, BANK = "preference", "bank"

Balance = Literal["equal", "proportional"]
Recording = Callable[[str], str]
"""Trajectory -> the recording that it was cut from."""

FIRST_IDS = 5  # ids that a report names where it only counts the others


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


def _itself(trajectory: str) -> str:
    return trajectory


def draw(
    episodes: Iterable[Episode],
    sizes: Mapping[str, PartSize],
    seed: int,
    balance: Balance = "equal",
    recording: Recording = _itself,
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
    episodes: Iterable[Episode], test_share: float, seed: int, recording: Recording = _itself
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
    recording: Recording = _itself,
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
    episodes = sorted(episodes, key=lambda episode: episode.trajectory)
    twice = [name for name, count in Counter(e.trajectory for e in episodes).items() if count > 1]
    if twice:
        raise DataError(f"`episodes` must hold each trajectory once, got {twice[0]!r} again. Join its steps.")
    by_role: dict[str, list[Episode]] = {role: [] for role in ROLES}
    unlisted = []
    for episode in episodes:
        if episode.trajectory in roles:
            by_role[roles[episode.trajectory]].append(episode)
        else:
            unlisted.append(episode.trajectory)
    tested = {recording(trajectory) for trajectory, role in roles.items() if role == TEST}
    shared = [e.trajectory for e in by_role[TRAIN] if recording(e.trajectory) in tested]
    kept_out = set(shared)
    by_role[TRAIN] = [e for e in by_role[TRAIN] if e.trajectory not in kept_out]
    wanted = {TRAIN: {name: sizes[name] for name in (BANK, PREFERENCE)}, TEST: {TEST: sizes[TEST]}}
    drawn: dict[str, list[Episode]] = {}
    for role, its_sizes in wanted.items():
        drawn |= draw(by_role[role], its_sizes, seed, balance, recording)
    parts = {name: thin(drawn[name], sizes[name].steps, seed) for name in (PREFERENCE, BANK, TEST)}
    categories = {e.trajectory: e.category for part in drawn.values() for e in part}
    report = {
        "seed": seed,
        "balance": balance,
        "asked": {name: {"steps": s.steps, "trajectories": s.trajectories} for name, s in sizes.items()},
        "found": {name: _count(ids) for name, ids in parts.items()},
        "by_category": {name: _count_by_category(ids, categories) for name, ids in parts.items()},
        "data": {role: _count_episodes(members) for role, members in by_role.items()},
        "not_listed": _some(unlisted),
        "recording_is_tested": _some(shared),
        "queries_without_memory": _without_memory(parts, categories),
        "shortfalls": shortfalls(parts, sizes),
        "proof": prove(parts, recording),
    }
    return Split(parts, report)


def trajectory_of(step_id: str) -> str:
    """``benchmark/episode`` of ``benchmark/episode/index``; an episode's name may hold slashes itself."""
    return step_id.rpartition("/")[0]


def _count(ids: Iterable[str]) -> dict[str, int]:
    ids = list(ids)
    return {"steps": len(ids), "trajectories": len(set(map(trajectory_of, ids)))}


def _count_by_category(ids: Iterable[str], categories: Mapping[str, str]) -> dict[str, dict[str, int]]:
    groups: dict[str, list[str]] = defaultdict(list)
    for step_id in ids:
        groups[categories[trajectory_of(step_id)]].append(step_id)
    return {category: _count(groups[category]) for category in sorted(groups)}


def _count_episodes(episodes: Collection[Episode]) -> dict[str, int]:
    return {"steps": sum(len(e.indices) for e in episodes), "trajectories": len(episodes)}


def _some(names: list[str]) -> dict[str, Any]:
    return {"count": len(names), "first": names[:FIRST_IDS]}


def _without_memory(parts: Mapping[str, Iterable[str]], categories: Mapping[str, str]) -> int:
    """Preference queries whose category has no step in the bank."""
    remembered = {categories[trajectory_of(step_id)] for step_id in parts[BANK]}
    return sum(categories[trajectory_of(step_id)] not in remembered for step_id in parts[PREFERENCE])


def shortfalls(parts: Mapping[str, Collection[str]], sizes: Mapping[str, PartSize]) -> list[str]:
    """Sentences on the parts that are not as large as asked, or hold more trajectories."""
    said = []
    for name, ids in parts.items():
        size, found = sizes[name], _count(ids)
        if found == {"steps": size.steps, "trajectories": size.trajectories}:
            continue
        why = (
            f"the first {size.trajectories} held too few steps"
            if found["trajectories"] > size.trajectories
            else "the data holds no more"
        )
        said.append(
            f"{name} has {found['steps']} of {size.steps} steps and {found['trajectories']} of "
            f"{size.trajectories} trajectories: {why}."
        )
    return said


def prove(parts: Mapping[str, Collection[str]], recording: Recording = _itself) -> dict[str, Any]:
    """Check by the ids alone that no step comes twice and no trajectory or recording is in two parts.

    Returns:
        What was checked, with the SHA-256 of each part's sorted ids, so that two splits can be compared.

    Raises:
        DataError: if the parts share anything.
    """
    names = {part: {trajectory_of(step_id) for step_id in ids} for part, ids in parts.items()}
    for what, groups in (
        ("trajectory", names),
        ("recording", {part: set(map(recording, members)) for part, members in names.items()}),
    ):
        places = Counter(member for members in groups.values() for member in members)
        in_two = sorted(member for member, count in places.items() if count > 1)
        if in_two:
            raise DataError(
                f"no {what} must be in two parts, got {in_two[0]!r} and {len(in_two) - 1} others in several. "
                "Nothing was written; report this as a defect of the split."
            )
    steps = Counter(step_id for ids in parts.values() for step_id in ids)
    twice = [step_id for step_id, count in steps.items() if count > 1]
    if twice:
        raise DataError(f"no step must come twice, got {twice[0]!r} again. Report this as a defect of the split.")
    digests = {part: {"steps": _digest(ids), "trajectories": _digest(names[part])} for part, ids in parts.items()}
    return {"trajectories_in_two_parts": 0, "recordings_in_two_parts": 0, "steps_twice": 0, "sha256": digests}


def _digest(names: Iterable[str]) -> str:
    return sha256("\n".join(sorted(names)).encode("utf-8", "surrogatepass")).hexdigest()
