"""The embedding pass: all devices of a trainer embed steps, each step once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from switchmem.benchmarks.store import shard
from switchmem.memory.bank import StepSource
from switchmem.memory.embedding_shards import EmbeddingWriter
from switchmem.memory.embeddings import Damaged, EmbeddingJob, embed, read
from switchmem.ranks import Ranks
from switchmem.steps import Step

Chunk = list[Step | Damaged]


class ChunkStream(IterableDataset[Chunk]):
    """Chunks of steps, each exactly once over all ranks and workers.

    It has no length: loaders would round it per worker, and the trainer would then stop before the last chunks.

    Args:
        source: where the steps are.
        chunks: ids of the steps of each chunk, in the same order on every rank.
        rank, world: this process and their number.
    """

    def __init__(self, source: StepSource, chunks: Sequence[tuple[str, ...]], rank: int, world: int) -> None:
        self.source, self.chunks = source, {chunk[0]: chunk for chunk in chunks}
        self.rank, self.world = rank, world

    def __iter__(self) -> Iterator[Chunk]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info is not None else (0, 1)
        for first in shard(list(self.chunks), self.rank, self.world, worker, workers):
            yield read(self.source, self.chunks[first])

    @property
    def steps(self) -> int:
        """Number of steps in this rank's chunks."""
        return sum(len(self.chunks[first]) for first in shard(list(self.chunks), self.rank, self.world, 0, 1))


class EmbeddingPass(LightningModule):
    """What `Trainer.predict` runs: each rank embeds its chunks on its own device and writes shards of its own.

    Args:
        job: what to embed.
        num_workers: processes of each rank that read steps, at least 0.
        rows_per_shard, flush_seconds: see `EmbeddingWriter`.
        progress_seconds: between two lines about the progress, where no bar is shown.

    Raises:
        EmbeddingError: if steps are missing or there twice at the end, or a kept shard is damaged.
    """

    def __init__(
        self,
        job: EmbeddingJob,
        num_workers: int = 0,
        rows_per_shard: int = 4096,
        flush_seconds: float = 60.0,
        progress_seconds: float = 30.0,
    ) -> None:
        super().__init__()
        self.job, self.num_workers = job, num_workers
        self.rows_per_shard, self.flush_seconds = rows_per_shard, flush_seconds
        self.progress_seconds = progress_seconds
        self._writer: EmbeddingWriter | None = None
        self._ranks: Ranks | None = None

    def setup(self, stage: str) -> None:
        """Look up what is done; Lightning's barriers around it let no rank write before all looked."""
        self._ranks = Ranks.join(self.trainer, "embedding", self.flush)
        self._todo = self.job.todo()

    def predict_dataloader(self) -> DataLoader[Chunk]:
        """This rank's chunks."""
        return DataLoader(self._stream(), batch_size=None, num_workers=self.num_workers)

    def _stream(self) -> ChunkStream:
        return ChunkStream(self.job.source, self._todo, self.trainer.global_rank, self.trainer.world_size)

    def on_predict_start(self) -> None:
        """Take the rank's own device, and open its writer."""
        self.job.embedder.place(self.device)
        rank = self.trainer.global_rank
        self._writer = EmbeddingWriter(self.job.stage.folder, rank, self.rows_per_shard, self.flush_seconds)
        self._total, self._done = self._stream().steps, 0
        self._start = self._told = time.monotonic()
        kept = len(self.job.step_ids) - sum(len(chunk) for chunk in self._todo)
        self._tell(f"{self._total} steps to do, {kept} of all {len(self.job.step_ids)} kept from before")

    def transfer_batch_to_device(self, batch: Chunk, device: object, dataloader_idx: int) -> Chunk:
        """Steps stay where they are: the embedder makes its own tensors of them."""
        return batch

    def predict_step(self, batch: Chunk, batch_idx: int = 0) -> int:
        """Embed a chunk, keep its vectors, and return the number of its steps."""
        assert self._writer is not None
        self._writer.append(embed(batch, self.job.embedder))
        self._done += len(batch)
        now = time.monotonic()
        if now - self._told >= self.progress_seconds:
            rate = self._done / (now - self._start)
            left = (self._total - self._done) / rate / 60
            self._told = now
            self._tell(f"{self._done} of {self._total} steps, {rate:.1f} steps/s, about {left:.0f} min left")
        return len(batch)

    def on_predict_end(self) -> None:
        """Wait for all ranks, check that every step is there, and finish the stage."""
        assert self._ranks is not None
        self.flush()
        self._ranks.wait("embeddings written")
        self.job.finish(write=self.trainer.is_global_zero)
        self._ranks.wait("embeddings finished")
        self._ranks.leave()

    def fail(self, error: BaseException) -> None:
        """Tell the other ranks why this one stops."""
        if self._ranks is not None:
            self._ranks.fail(f"stops: {error}")

    def flush(self) -> None:
        """Keep what has been embedded so far."""
        if self._writer is not None:
            self._writer.flush()

    def _tell(self, text: str) -> None:
        if self.trainer.progress_bar_callback is None or not sys.stdout.isatty():
            world = self.trainer.world_size
            who = f" rank {self.trainer.global_rank} of {world}:" if world > 1 else ""
            sys.stdout.write(f"embedding:{who} {text}\n")
            sys.stdout.flush()


def embed_on_all_devices(job: EmbeddingJob, trainer: Trainer, num_workers: int = 0) -> None:
    """Embed what is left with a trainer's devices, and finish the stage; an interrupted pass keeps what it did.

    Args:
        job: what to embed.
        trainer: a fresh one.
        num_workers: processes of each rank that read steps.
    """
    module = EmbeddingPass(job, num_workers)
    try:
        trainer.predict(module, return_predictions=False)
    except BaseException as error:
        module.fail(error)
        raise
    finally:
        module.flush()
