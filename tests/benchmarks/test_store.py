"""Step shards: random access, damage by id, exact cover, and what other WebDataset readers see."""

import hashlib
import io
import json
import pickle
import tarfile

import pytest
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.benchmarks import DataError, DataReport
from switchmem.benchmarks.store import StepStore, shard, step_key, write_steps
from switchmem.steps import RecordError, Screenshot

ODD_ID = '12.0-3.open "a/b" ’café’ <|im_start|> \n' + "x" * 400


@pytest.fixture
def steps(make_step):
    return [make_step(f"e{i // 3}", i % 3, category="general") for i in range(10)] + [make_step(ODD_ID, 5)]


@pytest.fixture
def store(steps, tmp_path):
    return write_steps(steps, tmp_path / "steps", steps_per_shard=4)


def test_steps_come_back_equal_in_any_order(store, steps):
    assert store.step_ids == tuple(step.step_id for step in steps)
    assert len(store) == 11
    assert [store[step.step_id] for step in reversed(steps)] == list(reversed(steps))
    assert list(store.iterate(store.step_ids[3:6])) == steps[3:6]


def test_meta_is_known_without_shards(store, steps):
    for file in store.folder.glob("*.tar"):
        file.unlink()
    opened = StepStore(store.folder)
    for step in steps:
        meta = opened.meta(step.step_id)
        fields = ("step_id", "trajectory", "episode_id", "index", "category", "instruction")
        assert [getattr(meta, name) for name in fields] == [getattr(step, name) for name in fields]


@pytest.mark.parametrize("kind, suffix", [("PNG", "png"), ("WEBP", "webp"), ("JPEG", "jpg")])
def test_pictures_keep_their_bytes_and_suffix(make_step, tmp_path, kind, suffix):
    file = tmp_path / "picture"
    Image.new("RGB", (5, 7), "red").save(file, kind)
    step = make_step(screenshot=Screenshot.from_bytes(file.read_bytes()))
    store = write_steps([step], tmp_path / "steps")
    with tarfile.open(store.folder / "steps-00000.tar") as tar:
        assert tar.getnames() == [f"{step_key(step.step_id)}.json", f"{step_key(step.step_id)}.{suffix}"]
    assert store[step.step_id].screenshot == step.screenshot


def test_webdataset_reads_the_shards(store, steps):
    urls = [str(path) for path in sorted(store.folder.glob("*.tar"))]
    samples = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert [sample["__key__"] for sample in samples] == [step_key(step.step_id) for step in steps]
    assert [json.loads(sample["json"])["step_id"] for sample in samples] == [step.step_id for step in steps]
    assert [sample["png"] for sample in samples] == [step.screenshot.data for step in steps]


def test_same_steps_give_the_same_bytes(steps, tmp_path):
    folders = [write_steps(iter(steps), tmp_path / name, 4).folder for name in ("a", "b")]
    names = [sorted(file.name for file in folder.iterdir()) for folder in folders]
    assert names[0] == names[1] == ["index.json", "steps-00000.tar", "steps-00001.tar", "steps-00002.tar"]
    assert all((folders[0] / name).read_bytes() == (folders[1] / name).read_bytes() for name in names[0])


def test_store_survives_pickling(store, steps):
    assert pickle.loads(pickle.dumps(store))[steps[4].step_id] == steps[4]


def test_a_writer_that_fails_leaves_nothing(steps, tmp_path):
    def broken():
        yield from steps[:5]
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        write_steps(broken(), tmp_path / "steps", 2)
    assert list(tmp_path.iterdir()) == []


def test_a_step_id_that_comes_twice_is_refused(steps, tmp_path):
    with pytest.raises(RecordError, match="'test/e0/0' twice"):
        write_steps([steps[0], steps[1], steps[0]], tmp_path / "steps")
    assert list(tmp_path.iterdir()) == []


def test_a_full_folder_is_not_overwritten(store, steps):
    with pytest.raises(DataError, match="new or empty"):
        write_steps(steps, store.folder)


def test_unknown_id_is_a_key_error(store):
    with pytest.raises(KeyError, match="no/such/1"):
        store["no/such/1"]


def _damage(store, change):
    file = store.folder / "steps-00001.tar"
    file.write_bytes(change(file.read_bytes()))


def test_truncated_tar_is_counted_by_id_and_the_rest_goes_on(store, steps):
    place = json.loads((store.folder / "index.json").read_text())["steps"][6]
    _damage(store, lambda data: data[: place["image_offset"] + 10])
    opened, report = StepStore(store.folder), DataReport()
    whole = opened.verify(report)
    lost = [step.step_id for step in steps[6:8]]
    assert [fault.id for fault in report.faults] == lost
    assert whole == tuple(s.step_id for s in steps if s.step_id not in lost)
    assert (report.read, report.kept) == (11, 9)
    assert opened[steps[5].step_id] == steps[5]
    with pytest.raises(RecordError, match=rf"'{lost[0]}'.*cut off"):
        opened[lost[0]]


def test_a_flipped_bit_and_a_missing_shard_name_the_id(store, steps):
    place = json.loads((store.folder / "index.json").read_text())["steps"][4]
    at = place["json_offset"] + 3
    _damage(store, lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    with pytest.raises(RecordError, match=rf"'{steps[4].step_id}'.*have changed"):
        store[steps[4].step_id]
    (store.folder / "steps-00001.tar").unlink()
    with pytest.raises(RecordError, match=rf"'{steps[5].step_id}'.*cannot be read"):
        store[steps[5].step_id]


def test_empty_split_and_missing_folder_are_clear(tmp_path):
    with pytest.raises(DataError, match="split is empty"):
        write_steps([], tmp_path / "steps")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"index\.json is missing"):
        StepStore(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "text, found",
    [
        ('{"format": "switchmem-st', "not a step index"),
        ("[]", "not a step index"),
        ('{"format": "other/9"}', "'other/9'"),
        ('{"format": "switchmem-steps/2", "steps": []}', "lacks 'shards'"),
        ('{"format": "switchmem-steps/2", "steps": [{}], "shards": []}', "lacks 'step_id'"),
        ('{"format": "switchmem-steps/2", "steps": [], "shards": []}', "split is empty"),
    ],
)
def test_a_damaged_index_is_clear(tmp_path, text, found):
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(DataError, match=found):
        StepStore(tmp_path)


@given(n=st.integers(0, 60), world=st.integers(1, 9), workers=st.integers(1, 7))
@settings(deadline=None)
def test_shards_cover_every_id_exactly_once(n, world, workers):
    ids = [f"id{i}" for i in range(n)]
    parts = [shard(ids, rank, world, worker, workers) for rank in range(world) for worker in range(workers)]
    assert sorted(sum(parts, [])) == sorted(ids)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    ranks = [sum(len(parts[rank * workers + worker]) for worker in range(workers)) for rank in range(world)]
    assert max(ranks) - min(ranks) <= 1


@pytest.mark.parametrize("rank, world, worker, workers", [(2, 2, 0, 1), (-1, 2, 0, 1), (0, 1, 1, 1), (0, 1, 0, 0)])
def test_shard_refuses_numbers_out_of_range(rank, world, worker, workers):
    with pytest.raises(ValueError, match="must be in"):
        shard(["a"], rank, world, worker, workers)


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/steps-00000.tar", "..\\steps-00000.tar", "", "steps-00000.tar\n", "index.json", 7],
)
@pytest.mark.parametrize("where", ["steps", "shards"])
def test_an_index_that_leads_out_of_its_folder_is_refused(store, where, name):
    index = json.loads((store.folder / "index.json").read_text())
    index[where][0]["shard" if where == "steps" else "name"] = name
    (store.folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match=r"must name shards as steps-00000\.tar|Write the store again"):
        StepStore(store.folder)


@pytest.mark.parametrize(
    "changes",
    [{"json_offset": -1}, {"image_size": 1.5}, {"json_size": "9"}, {"image_offset": 0}, {"json_size": 10**9}],
)
def test_places_that_no_writer_leaves_are_refused(store, changes):
    index = json.loads((store.folder / "index.json").read_text())
    index["steps"][2].update(changes)
    (store.folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(DataError, match="must give places in a shard"):
        StepStore(store.folder)


def test_a_size_beyond_the_file_allocates_nothing(store, steps):
    index = json.loads((store.folder / "index.json").read_text())
    index["steps"][2]["image_size"] = 2**60
    (store.folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(RecordError, match=rf"'{steps[2].step_id}'.*cut off"):
        StepStore(store.folder)[steps[2].step_id]


def test_streaming_opens_each_shard_once_and_closes_it(store, steps, monkeypatch):
    opened = []
    plain = StepStore._open
    monkeypatch.setattr(StepStore, "_open", lambda self, step_id: opened.append(plain(self, step_id)) or opened[-1])
    assert list(store.iterate(store.step_ids)) == steps
    assert len(opened) == 3 and all(file.closed for file in opened)
    steps_there = store.iterate(store.step_ids)
    next(steps_there)
    steps_there.close()
    assert len(opened) == 4 and opened[-1].closed
    with pytest.raises(KeyError):
        list(store.iterate([store.step_ids[0], "no/such/1"]))
    assert opened[-1].closed


def test_tars_are_those_of_the_standard_library(store, steps, tmp_path):
    """Byte for byte: members with no time and no owner, the end mark, and the padding."""
    for number in range(3):
        with tarfile.open(tmp_path / "plain.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for step in steps[4 * number : 4 * number + 4]:
                record = json.dumps(step.to_dict(), separators=(",", ":")).encode()
                for suffix, data in (("json", record), ("png", step.screenshot.data)):
                    member = tarfile.TarInfo(f"{step_key(step.step_id)}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
        data = (tmp_path / "plain.tar").read_bytes()
        assert (store.folder / f"steps-{number:05d}.tar").read_bytes() == data
        digests = []
        for step in steps[4 * number : 4 * number + 4]:
            record = json.dumps(step.to_dict(), separators=(",", ":")).encode()
            digests.append(hashlib.blake2b(record + step.screenshot.data, digest_size=16).hexdigest())
        whole = hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest()
        assert store.shards[f"steps-{number:05d}.tar"] == whole
