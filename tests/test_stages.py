"""Stages: the same inputs find the same folder, other inputs never do, unfinished work is not taken for finished."""

import json
import multiprocessing
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.stages import StageError, Stages, fingerprint, write_json

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(plain)
def test_a_fingerprint_survives_json(value):
    assert fingerprint(value) == fingerprint(json.loads(json.dumps(value)))


@given(st.dictionaries(st.text(), st.integers(), min_size=1), st.data())
def test_any_changed_value_changes_the_fingerprint(values, data):
    key = data.draw(st.sampled_from(sorted(values)))
    assert fingerprint(values) != fingerprint({**values, key: values[key] + 1})


def test_what_is_not_plain_json_is_refused():
    with pytest.raises(TypeError, match="not JSON serializable"):
        fingerprint({"a": object()})
    with pytest.raises(ValueError, match="Out of range float"):
        fingerprint(float("nan"))


def test_a_stage_is_complete_only_when_finished_and_names_its_inputs(tmp_path):
    stage = Stages(tmp_path).stage("harvest", {"actor": "pocket", "seeds": [42, 43]})
    assert not stage.complete
    folder = stage.begin()
    (folder / "half").touch()
    assert not stage.complete
    stage.finish(steps=3)
    again = Stages(tmp_path).stage("harvest", {"seeds": [42, 43], "actor": "pocket"})
    assert again.complete and again.folder == folder and (folder / "half").exists()
    said = json.loads((folder / "stage.json").read_text())
    assert said["inputs"] == {"actor": "pocket", "seeds": [42, 43]} and said["facts"] == {"steps": 3}
    other = Stages(tmp_path).stage("harvest", {"actor": "pocket", "seeds": [42, 44]})
    assert not other.complete and other.folder != folder


def test_a_damaged_stage_file_is_an_error_that_names_the_way_out(tmp_path):
    stage = Stages(tmp_path).stage("a", {})
    (stage.begin() / "stage.json").write_text("{")
    with pytest.raises(StageError, match=r"stage\.json must be JSON.*Remove .* and run again"):
        _ = stage.complete


def test_json_is_written_whole(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": "é"})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "é"} and [p.name for p in tmp_path.iterdir()] == [
        "x.json"
    ]


def hold(root, started, release):
    with Stages(root).stage("a", {}).lock():
        started.set()
        release.wait(20)


def test_one_process_at_a_time_works_on_a_stage(tmp_path):
    context = multiprocessing.get_context("spawn")
    started, release = context.Event(), context.Event()
    holder = context.Process(target=hold, args=(tmp_path, started, release))
    holder.start()
    assert started.wait(20)
    before = time.monotonic()
    holder.kill()  # the lock goes with its process, so a killed run blocks nobody
    with Stages(tmp_path).stage("a", {}).lock():
        assert time.monotonic() - before < 10
    holder.join()
