"""The split recipe: what must hold for any data, and the paper's numbers where there is enough."""

import random
from collections import Counter, defaultdict
from hashlib import blake2b, sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.benchmarks.base import DataError
from switchmem.benchmarks.split_report import prove
from switchmem.benchmarks.splits import AITW_SIZES, PartSize, draw, seeded_roles, split_steps, thin
from switchmem.benchmarks.survey import Episode

SETS = ("general", "google_apps", "install", "single", "web_shopping")


def episode(name, category="general", steps=3):
    indices = tuple(range(steps)) if isinstance(steps, int) else tuple(steps)
    return Episode(f"aitw/{name}", category, indices, (0,) * len(indices))


def plenty(count, steps=range(4, 13), seed=0):
    """`count` episodes of each of AITW's sets."""
    lot = random.Random(seed)
    return [episode(f"{name}-{n}", name, lot.choice(steps)) for name in SETS for n in range(count)]


def before_dot(trajectory):
    """Recordings of the tests: segments are ``recording.number``."""
    return trajectory.partition(".")[0]


@st.composite
def data(draw_):
    """Episodes, some of them segments of one recording, with roles for most."""
    names = draw_(st.lists(st.tuples(st.integers(0, 25), st.integers(0, 3)), unique=True, min_size=1, max_size=40))
    episodes, roles = [], {}
    for recording, segment in names:
        indices = draw_(st.sets(st.integers(0, 12), min_size=1, max_size=8))
        one = episode(f"{recording}.{segment}", draw_(st.sampled_from("abc")), sorted(indices))
        episodes.append(one)
        role = draw_(st.sampled_from(["train", "train", "train", "val", "test", "test", None]))
        if role:
            roles[one.trajectory] = role
    return episodes, roles


@st.composite
def sizes(draw_):
    found = {}
    for part in ("preference", "bank", "test"):
        trajectories = draw_(st.integers(1, 12))
        found[part] = PartSize(trajectories + draw_(st.integers(0, 40)), trajectories)
    return found


def by_trajectory(ids):
    found = defaultdict(set)
    for step_id in ids:
        found[step_id[: step_id.rindex("/")]].add(int(step_id.split("/")[-1]))
    return found


@given(data(), sizes(), st.integers(0, 9), st.sampled_from(["equal", "proportional"]), st.randoms())
@settings(deadline=None, max_examples=300)
def test_what_holds_for_any_data(found, asked, seed, balance, lot):
    episodes, roles = found
    split = split_steps(episodes, roles, asked, seed, balance, before_dot)
    known = {e.trajectory: e for e in episodes}
    drawn = {part: by_trajectory(ids) for part, ids in split.parts.items()}
    for part, members in drawn.items():
        assert len(split.parts[part]) == sum(map(len, members.values())) <= asked[part].steps
        for trajectory, indices in members.items():
            assert indices and indices <= set(known[trajectory].indices)
            assert roles[trajectory] == ("test" if part == "test" else "train")
    recordings = [{before_dot(t) for t in members} for members in drawn.values()]
    assert sum(map(len, recordings)) == len(set.union(*recordings))
    tested = {before_dot(t) for t, role in roles.items() if role == "test"}
    assert not tested & (recordings[0] | recordings[1])
    remembered = {known[t].category for t in drawn["bank"]}
    assert {known[t].category for t in drawn["preference"]} <= remembered
    shuffled = list(episodes)
    lot.shuffle(shuffled)
    assert split_steps(shuffled, dict(sorted(roles.items(), reverse=True)), asked, seed, balance, before_dot) == split
    report = split.report
    for part, members in drawn.items():
        assert report["found"][part] == {"steps": len(split.parts[part]), "trajectories": len(members)}
        short = report["found"][part] != report["asked"][part]
        assert short == any(line.startswith(f"{part} has ") for line in report["shortfalls"])
        for category, counts in report["by_category"][part].items():
            of_it = {t: i for t, i in members.items() if known[t].category == category}
            assert counts == {"steps": sum(map(len, of_it.values())), "trajectories": len(of_it)}
    assert report["not_listed"]["count"] == len(known.keys() - roles.keys())
    assert report["queries_without_memory"] == 0


def rotation(episodes, seed):
    """The order of drawing, told by queues: each category in turn gives its next, until all are empty."""
    queues = defaultdict(list)
    for one in episodes:
        key = blake2b(one.trajectory.encode(), digest_size=8, key=str(seed).encode()).digest()
        queues[one.category].append((key, one))
    for queue in queues.values():
        queue.sort(key=lambda pair: pair[0], reverse=True)
    while any(queues.values()):
        for category in sorted(queues):
            if queues[category]:
                yield queues[category].pop()[1]


@given(data(), st.integers(1, 12), st.integers(0, 60), st.integers(0, 9))
@settings(deadline=None)
def test_one_part_is_drawn_in_rotation_until_it_has_both_its_numbers(found, trajectories, more, seed):
    episodes, _ = found
    size = PartSize(trajectories + more, trajectories)
    expected, steps = [], 0
    for one in rotation(episodes, seed):
        if len(expected) >= size.trajectories and steps >= size.steps:
            break
        expected.append(one.trajectory)
        steps += len(one.indices)
    drawn = draw(episodes, {"test": size}, seed)["test"]
    assert [one.trajectory for one in drawn] == expected
    kept = thin(drawn, size.steps, seed)
    assert len(kept) == min(steps, size.steps) and set(by_trajectory(kept)) == set(expected)


def test_the_papers_numbers_come_out_exactly():
    episodes = plenty(2_000)
    roles = {e.trajectory: "test" if i % 10 == 0 else "train" for i, e in enumerate(episodes)}
    split = split_steps(episodes, roles, AITW_SIZES, 42)
    report = split.report
    assert report["found"] == report["asked"] and report["shortfalls"] == []
    assert {part: len(ids) for part, ids in split.parts.items()} == {"preference": 10_019, "bank": 9_981, "test": 5_000}
    trajectories = {part: len(by_trajectory(ids)) for part, ids in split.parts.items()}
    assert trajectories == {"preference": 3_100, "bank": 3_087, "test": 759}
    for part, total in trajectories.items():
        counts = [counts["trajectories"] for counts in report["by_category"][part].values()]
        assert len(counts) == 5 and max(counts) - min(counts) <= 3 and sum(counts) == total


def test_another_seed_draws_others_and_proportional_draws_as_the_data_is():
    episodes = plenty(200) + [episode(f"more-{n}", "google_apps", 8) for n in range(1_000)]
    roles = {e.trajectory: "test" if i % 5 == 0 else "train" for i, e in enumerate(episodes)}
    asked = {part: PartSize(200, 100) for part in ("preference", "bank", "test")}
    first, second = (split_steps(episodes, roles, asked, seed).parts for seed in (0, 1))
    assert all(first[part] != second[part] for part in asked)
    found = split_steps(episodes, roles, asked, 0, "proportional").report["by_category"]
    assert {part: counts["google_apps"]["trajectories"] for part, counts in found.items()} == dict.fromkeys(asked, 60)


def test_long_trajectories_are_thinned_and_short_ones_are_joined_by_more():
    sizes = {"preference": PartSize(30, 10), "bank": PartSize(30, 10), "test": PartSize(30, 10)}
    episodes = [episode(f"long-{n}", "general", 20) for n in range(40)]
    roles = {e.trajectory: "test" if n < 15 else "train" for n, e in enumerate(episodes)}
    split = split_steps(episodes, roles, sizes, 0)
    assert split.report["found"] == split.report["asked"]
    episodes = [episode(f"short-{n}", "general", 1) for n in range(120)]
    roles = {e.trajectory: "test" if n < 40 else "train" for n, e in enumerate(episodes)}
    split = split_steps(episodes, roles, sizes, 0)
    assert split.report["found"] == dict.fromkeys(sizes, {"steps": 30, "trajectories": 30})
    assert split.report["shortfalls"][2] == (
        "test has 30 of 30 steps and 30 of 10 trajectories: the first 10 held too few steps."
    )


def test_little_data_is_divided_in_proportion_to_what_was_asked():
    episodes = [episode(f"{name}-{n}", name, 5) for name in SETS for n in range(40)]
    roles = dict.fromkeys((e.trajectory for e in episodes), "train")
    sizes = {"preference": PartSize(30_000, 9_000), "bank": PartSize(10_000, 3_000), "test": PartSize(5_000, 759)}
    report = split_steps(episodes, roles, sizes, 42).report
    assert report["found"]["preference"] == {"steps": 750, "trajectories": 150}
    assert report["found"]["bank"] == {"steps": 250, "trajectories": 50}
    assert {c["trajectories"] for c in report["by_category"]["bank"].values()} == {10}
    assert report["found"]["test"] == {"steps": 0, "trajectories": 0}
    assert (
        "preference has 750 of 30000 steps and 150 of 9000 trajectories: the data holds no more."
        in report["shortfalls"]
    )


def test_a_category_of_one_trajectory_is_memory_alone():
    episodes = [episode("lonely", "single"), *(episode(f"g{n}") for n in range(6))]
    split = split_steps(episodes, dict.fromkeys((e.trajectory for e in episodes), "train"), AITW_SIZES, 3)
    assert (
        "aitw/lonely" in by_trajectory(split.parts["bank"])
        and "single" not in split.report["by_category"]["preference"]
    )


def test_segments_of_one_recording_stay_together_and_out_of_a_tested_one():
    episodes = [episode(f"{n}.{s}", "single", 1) for n in range(30) for s in range(4)]
    episodes += [episode(str(n), "web_shopping", 9) for n in range(30)]
    roles = {e.trajectory: "train" for e in episodes} | {f"aitw/{n}.0": "test" for n in range(5)}
    sizes = {"preference": PartSize(200, 60), "bank": PartSize(200, 60), "test": PartSize(5, 5)}
    report = split_steps(episodes, roles, sizes, 0, recording=before_dot).report
    assert report["recording_is_tested"]["count"] == 20 and report["proof"]["recordings_in_two_parts"] == 0
    assert report["found"]["preference"]["trajectories"] + report["found"]["bank"]["trajectories"] > 100
    loose = split_steps(episodes, roles, sizes, 0)
    shared = [{before_dot(t) for t in by_trajectory(ids)} for ids in loose.parts.values()]
    assert shared[0] & shared[1] and shared[1] & shared[2]  # the reason for keeping them apart


def test_the_digests_are_those_of_the_sorted_ids():
    episodes = plenty(20)
    split = split_steps(episodes, seeded_roles(episodes, 0.2, 0), AITW_SIZES, 0)
    for part, ids in split.parts.items():
        found = split.report["proof"]["sha256"][part]
        assert found["steps"] == sha256("\n".join(sorted(ids)).encode()).hexdigest()
        assert found["trajectories"] == sha256("\n".join(sorted(by_trajectory(ids))).encode()).hexdigest()


@pytest.mark.parametrize(
    "parts, what",
    [
        ({"bank": ["a/1/0"], "test": ["a/1/1"]}, "no trajectories in two parts, got 1, 'a/1' first"),
        ({"bank": ["a/1.0/0"], "test": ["a/1.1/0"]}, "no recordings in two parts, got 1, 'a/1' first"),
        ({"bank": ["a/1/0", "a/1/0"], "test": []}, "no steps twice, got 1, 'a/1/0' first"),
    ],
)
def test_the_proof_finds_what_it_looks_for(parts, what):
    with pytest.raises(DataError, match=what):
        prove(parts, before_dot)


def test_a_trajectory_that_comes_twice_is_refused():
    with pytest.raises(DataError, match="'aitw/x' again"):
        split_steps([episode("x"), episode("x", "install")], {}, AITW_SIZES, 0)


@pytest.mark.parametrize("steps, trajectories", [(0, 0), (5, 6), (5, 0)])
def test_a_size_that_cannot_be_is_refused(steps, trajectories):
    with pytest.raises(DataError, match="1 <= trajectories <= steps"):
        PartSize(steps, trajectories)


@given(data(), st.floats(0.01, 0.9), st.integers(0, 9))
@settings(deadline=None)
def test_roles_by_chance_keep_recordings_whole_and_hold_some_of_each_category_out(found, share, seed):
    episodes, _ = found
    roles = seeded_roles(episodes, share, seed, before_dot)
    assert roles.keys() == {e.trajectory for e in episodes} and set(roles.values()) <= {"train", "test"}
    by_recording = defaultdict(set)
    for trajectory, role in roles.items():
        by_recording[before_dot(trajectory)].add(role)
    assert all(len(found) == 1 for found in by_recording.values())
    assert roles == seeded_roles(episodes[::-1], share, seed, before_dot)


@pytest.mark.parametrize("share, held_out", [(0.1, 2), (0.5, 10), (0.001, 1)])
def test_the_share_of_the_test_by_chance(share, held_out):
    episodes = plenty(20)
    counts = Counter(e.category for e in episodes if seeded_roles(episodes, share, 1)[e.trajectory] == "test")
    assert counts == dict.fromkeys(SETS, held_out)


def test_two_recordings_are_not_enough_for_a_test():
    episodes = [episode("a"), episode("b")]
    assert set(seeded_roles(episodes, 0.5, 0).values()) == {"train"}
