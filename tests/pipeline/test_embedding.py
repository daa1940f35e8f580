"""The embedding pass over ranks, workers, kills and restarts: the vectors of an undisturbed one, each step once."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import lightning as L
import pytest
import torch

from switchmem.memory.embedding_shards import EmbeddingError, read_shards
from switchmem.memory.embeddings import Embeddings
from switchmem.pipeline.embedding import EmbeddingPass, embed_on_all_devices

SCRIPT = Path(__file__).with_name("embedding_run.py")


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("embedding_run", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def undisturbed(made, tmp_path_factory):
    """All vectors by one rank in one go, in the order of the ids; and the ids."""
    data, embeddings = made.run(tmp_path_factory.mktemp("one"))
    ids = data.embedding_job("preference").step_ids
    assert len(embeddings) == len(ids) == 370
    return ids, embeddings.rows(ids)[:]


def start(folder, *arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("LOCAL_RANK", "WORLD_SIZE", "RANK", "NODE_RANK")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), *arguments],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def stage_folder(folder):
    return next(iter(folder.glob("embeddings-*")), folder / "none")


def test_the_pass_and_the_data_module_alone_give_the_same(made, undisturbed, tmp_path, capsys):
    ids, vectors = undisturbed
    data = made.MadeUp(tmp_path, 300)
    data.prepare_embeddings("preference")
    assert torch.equal(Embeddings.open(data.embeddings_stage("preference").folder).rows(ids)[:], vectors)
    with_workers, embeddings = made.run(tmp_path / "w", workers=2)
    assert torch.equal(embeddings.rows(ids)[:], vectors)
    assert with_workers.embedder.placed == [torch.device("cpu")]  # the rank's own device
    output = capsys.readouterr().out
    assert "embedding: 370 steps to do, 0 of all 370 kept from before" in output and "steps/s" in output


def test_an_interrupted_pass_keeps_what_it_embedded_and_goes_on(made, undisturbed, tmp_path, monkeypatch):
    ids, vectors = undisturbed
    data = made.MadeUp(tmp_path, 300)
    data.prepare_steps()
    texts, calls = data.embedder.texts, []

    def fail(some):
        calls.append(some)
        if len(calls) == 4:
            raise RuntimeError("stop")
        return texts(some)

    monkeypatch.setattr(data.embedder, "texts", fail)
    trainer = L.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)
    with pytest.raises(RuntimeError, match="stop"):
        embed_on_all_devices(data.embedding_job("preference"), trainer)
    done = [i for shard in read_shards(data.embeddings_stage("preference").folder) for i in shard.ids]
    assert len(done) == 3 * 64 and not data.embeddings_stage("preference").complete
    again, embeddings = made.run(tmp_path)
    assert torch.equal(embeddings.rows(ids)[:], vectors) and again.embeddings_stage("preference").complete


def test_a_limited_pass_is_not_finished(made, tmp_path):
    data = made.MadeUp(tmp_path, 300)
    data.prepare_steps()
    trainer = L.Trainer(
        accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False, limit_predict_batches=2
    )
    with pytest.raises(EmbeddingError, match="each of 370 steps once, got 128 vectors: 242 missing"):
        trainer.predict(EmbeddingPass(data.embedding_job("preference")), return_predictions=False)
    assert not data.embeddings_stage("preference").complete


@pytest.mark.slow
def test_two_ranks_give_what_one_does(undisturbed, tmp_path):
    ids, vectors = undisturbed
    process = start(tmp_path, "--devices", "2", "--workers", "1")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 0, output
    embeddings = Embeddings.open(stage_folder(tmp_path))
    assert len(embeddings) == 370 and torch.equal(embeddings.rows(ids)[:], vectors)
    manifest = json.loads((stage_folder(tmp_path) / "manifest.json").read_text())
    assert {shard["name"][:8] for shard in manifest["shards"]} == {"rank-000", "rank-001"}
    assert "rank 0 of 2: 192 steps to do" in output and "rank 1 of 2: 178 steps to do" in output


@pytest.mark.slow
def test_a_killed_pass_of_two_ranks_resumes_on_one(made, undisturbed, tmp_path):
    ids, vectors = undisturbed
    process = start(tmp_path, "--devices", "2", "--delay", "0.7")
    deadline = time.monotonic() + 120
    while len(read_shards(stage_folder(tmp_path))) < 2 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    partial = {i for shard in read_shards(stage_folder(tmp_path)) for i in shard.ids}
    assert 64 <= len(partial) < 370 and not (stage_folder(tmp_path) / "manifest.json").exists()
    _, embeddings = made.run(tmp_path)
    assert len(embeddings) == 370 and torch.equal(embeddings.rows(ids)[:], vectors)
