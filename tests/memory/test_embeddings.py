"""Kept embeddings: each step once, whatever was killed, damaged or altered meanwhile."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from switchmem.memory.embedder import HashingEmbedder
from switchmem.memory.embedding_shards import Embedded, EmbeddingError, EmbeddingWriter, read_shards
from switchmem.memory.embeddings import CHUNK, EmbeddingJob, Embeddings, MappedRows, embed, read
from switchmem.memory.views import query_text
from switchmem.stages import Stage
from switchmem.steps import Action, ActionType, RecordError, Screenshot, Step

SHOT = Screenshot.from_image(Image.new("RGB", (8, 12), (9, 90, 30)))
EMBEDDER = HashingEmbedder(32)


class Source(dict):
    """Steps by id; those in `broken` cannot be read."""

    broken = ()

    def __getitem__(self, step_id):
        if step_id in self.broken:
            raise RecordError(f"step {step_id!r}: its bytes have changed.")
        return super().__getitem__(step_id)


def source(count=150):
    steps = (Step("aitw", f"e{n}", 0, f"Open item {n}", SHOT, (), Action(ActionType.BACK)) for n in range(count))
    return Source({step.step_id: step for step in steps})


def job_of(folder, steps=None):
    steps = source() if steps is None else steps
    return EmbeddingJob(Stage("embeddings", {}, folder), steps, tuple(steps), EMBEDDER)


def finished(folder, steps=None):
    job = job_of(folder, steps)
    job.run()
    return job, Embeddings.open(job.stage.folder)


def test_vectors_are_those_of_the_query_texts(tmp_path):
    steps, told = source(), []
    job = job_of(tmp_path, steps)
    job.run(lambda done, total: told.append((done, total)))
    embeddings = Embeddings.open(job.stage.folder)
    ids = list(reversed(steps))[::3]
    expected = EMBEDDER.texts([query_text(dict.__getitem__(steps, i)) for i in ids])
    assert torch.equal(embeddings.rows(ids)[:], expected)
    assert len(embeddings) == 150 and "aitw/e7/0" in embeddings and "aitw/e7/1" not in embeddings
    assert told == [(64, 150), (128, 150), (150, 150)]
    assert job.stage.complete and job.todo() == []
    with pytest.raises(KeyError):
        embeddings.rows(["aitw/e7/1"])


def test_rows_are_read_by_slice_and_by_number(tmp_path):
    _, embeddings = finished(tmp_path)
    rows = embeddings.rows([f"aitw/e{n}/0" for n in range(149, -1, -1)])
    whole = rows[:]
    assert rows.shape == whole.shape == (150, 32) and whole.dtype == torch.float32
    assert torch.equal(rows[3:70], whole[3:70]) and rows[5:5].shape == (0, 32)
    numbers = np.array([149, 0, 64, 64])
    assert torch.equal(rows[numbers], whole[numbers])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_mapped_rows_are_rows_of_the_files_one_after_another(tmp_path_factory, lengths, data):
    folder = tmp_path_factory.mktemp("rows")
    arrays = [np.random.default_rng(n).normal(size=(length, 3)).astype(np.float32) for n, length in enumerate(lengths)]
    files = [folder / f"{n}.npy" for n in range(len(arrays))]
    for path, array in zip(files, arrays, strict=True):
        np.save(path, array)
    places = np.array(data.draw(st.lists(st.integers(0, sum(lengths) - 1), max_size=9)), dtype=np.int64)
    expected = np.concatenate(arrays)[places]
    rows = MappedRows(files, lengths, places, 3)
    assert np.array_equal(rows[:].numpy(), expected)
    start, stop = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 9))
    assert np.array_equal(rows[start:stop].numpy(), expected[start:stop])


def test_a_killed_run_goes_on_in_whole_chunks(tmp_path):
    job = job_of(tmp_path)
    writer = EmbeddingWriter(job.stage.begin(), rows_per_shard=CHUNK)
    for chunk in job.todo()[1:2]:
        writer.append(embed(read(job.source, chunk), EMBEDDER))
    (job.stage.folder / ".rank-000-00001.77.tmp").write_bytes(b"half")
    (job.stage.folder / "rank-000-00001.npy").write_bytes(b"renamed, but its ids never came")
    assert [len(chunk) for chunk in job.todo()] == [64, 22]
    job.run()
    embeddings = Embeddings.open(job.stage.folder)
    _, undisturbed = finished(tmp_path / "other")
    assert torch.equal(embeddings.rows(job.step_ids)[:], undisturbed.rows(job.step_ids)[:])
    assert not list(job.stage.folder.glob(".rank*"))


def test_a_chunk_waits_no_longer_than_flush_seconds(tmp_path):
    writer = EmbeddingWriter(tmp_path, rank=3, flush_seconds=0.0)
    writer.append(Embedded(["a"], torch.ones(1, 2)))
    writer.append(Embedded(["b"], torch.ones(1, 2)))
    EmbeddingWriter(tmp_path, rank=3, flush_seconds=0.0).append(Embedded(["c"], torch.ones(1, 2)))
    assert [(shard.name, shard.ids) for shard in read_shards(tmp_path)] == [
        ("rank-003-00000", ["a"]),
        ("rank-003-00001", ["b"]),
        ("rank-003-00002", ["c"]),
    ]


def test_damaged_steps_are_kept_with_their_reasons_and_tried_again_while_unfinished(tmp_path):
    steps = source()
    steps.broken = ("aitw/e3/0", "aitw/e149/0")
    job = job_of(tmp_path, steps)
    writer = EmbeddingWriter(job.stage.begin(), rows_per_shard=1)
    writer.append(embed(read(steps, job.todo()[0]), EMBEDDER))
    steps.broken = ("aitw/e149/0",)  # the first one is whole again
    job.run()
    embeddings = Embeddings.open(job.stage.folder)
    assert embeddings.damaged == {"aitw/e149/0": "step 'aitw/e149/0': its bytes have changed."}
    assert len(embeddings) == 149 and "aitw/e3/0" in embeddings and "aitw/e149/0" not in embeddings
    assert job.stage.read()["facts"] == {"vectors": 149, "damaged": 1, "cut": 0}


def test_all_may_be_damaged(tmp_path):
    steps = source(70)
    steps.broken = tuple(steps)
    _, embeddings = finished(tmp_path, steps)
    assert len(embeddings) == 0 and len(embeddings.damaged) == 70 and embeddings.rows([])[:].shape == (0, 32)


def test_ids_need_not_be_valid_unicode(tmp_path):
    odd = Step("aitw", 'goal "\ud800"/ç', 0, "Open", SHOT, (), Action(ActionType.BACK))
    _, embeddings = finished(tmp_path, Source({odd.step_id: odd}))
    assert embeddings.rows([odd.step_id])[:].shape == (1, 32)


def test_missing_doubled_and_foreign_steps_are_refused_and_kept(tmp_path):
    job = job_of(tmp_path)
    writer = EmbeddingWriter(job.stage.begin(), rows_per_shard=1)
    first = embed(read(job.source, job.todo()[0]), EMBEDDER)
    writer.append(first)
    with pytest.raises(EmbeddingError, match="each of 150 steps once, got 64 vectors: 86 missing .first 'aitw/e100/0'"):
        job.finish()
    EmbeddingWriter(job.stage.folder, rank=1, rows_per_shard=1).append(first)
    with pytest.raises(EmbeddingError, match="64 twice .first 'aitw/e0/0'"):
        job.finish()
    other = EmbeddingJob(job.stage, job.source, job.step_ids[1:], EMBEDDER)
    with pytest.raises(EmbeddingError, match="1 not expected .first 'aitw/e0/0'"):
        other.finish()
    assert not job.stage.complete and len(read_shards(job.stage.folder)) == 2


def test_a_rank_that_only_checks_writes_nothing(tmp_path):
    job, _ = finished(tmp_path)
    (job.stage.folder / "manifest.json").unlink()
    job.finish(write=False)
    assert not (job.stage.folder / "manifest.json").exists()


def alter(path, change):
    content = bytearray(path.read_bytes())
    path.write_bytes(change(content))


def flip(content):
    content[-2] ^= 1
    return content


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("rank-000-00000.npy", flip, "rank-000-00000.npy must hold the 19328 bytes .* got 19328 bytes or other"),
        ("rank-000-00000.npy", lambda c: c[:-1], "must hold the 19328 bytes that were written, got 19327 bytes"),
        ("rank-000-00000.npy", None, "must hold the 19328 bytes that were written, got no file"),
        ("rank-000-00000.json", lambda c: c[:-1], "rank-000-00000.json must hold the ids of a shard"),
        ("rank-000-00000.json", None, "rank-000-00000.json must be as it was written, got no file"),
        ("rank-000-00000.json", lambda c: c.replace(b"e17/", b"e18/"), "must be as it was written, got other content"),
        ("manifest.json", None, "must hold finished embeddings, got: FileNotFoundError"),
        ("manifest.json", lambda c: c[:-1], "must hold finished embeddings, got: JSONDecodeError"),
        ("manifest.json", lambda c: b"{}", "must hold finished embeddings, got: KeyError"),
    ],
)
def test_altered_files_are_found_and_the_way_out_works(tmp_path, name, change, message):
    job, before = finished(tmp_path)
    vectors = before.rows(job.step_ids)[:]
    path = job.stage.folder / name
    path.unlink() if change is None else alter(path, change)
    with pytest.raises(EmbeddingError, match=message) as error:
        Embeddings.open(job.stage.folder)
    assert "Delete" in str(error.value) and "run again" in str(error.value)
    for stem in ("stage.json", "manifest.json", *(f"{path.stem}{s}" for s in (".json", ".npy") if "rank" in name)):
        (job.stage.folder / stem).unlink(missing_ok=True)
    assert not job.stage.complete
    job.run()
    assert torch.equal(Embeddings.open(job.stage.folder).rows(job.step_ids)[:], vectors)


def test_manifest_says_what_is_there(tmp_path):
    job, _ = finished(tmp_path)
    manifest = json.loads((job.stage.folder / "manifest.json").read_text())
    assert manifest["embedder"] == EMBEDDER.name and (manifest["dim"], manifest["vectors"]) == (32, 150)
    assert [(shard["name"], shard["rows"]) for shard in manifest["shards"]] == [("rank-000-00000", 150)]
