"""What training one router from a finished harvest costs, against a bare PyTorch loop that does the same updates.

    python benchmarks/router.py [--steps 10000] [--epochs 6] [--rounds 3] [--folder DIR]

A synthetic harvest of the given size is written once (D = 4096, E = 2048; 0.8 GB at one probed block), with targets
that are drawn instead of fitted, since both sides take them as given. Then each side runs in turn, as its own process:

- `python train.py fit`, as users run it: configs, Lightning, checkpoints of the best and the last epoch, metrics, the
  cut, the frozen policy;
- the loop: read the same tensors, the same number of epochs of AdamW over the same batches with a pass over the same
  validation share, the cut. It shuffles, batches and computes as plainly as one would by hand.

Compared are the training (from the first batch that is asked for to the end of the fit) and the whole process. Of the
rounds the smallest times count: other work on the machine can only add. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

D, E, K, LAYERS = 4096, 2048, 7, 1
BATCH, VALIDATED, LR, DECAY = 256, 0.1, 1e-3, 0.01
MARKS = "SWITCHMEM_BENCHMARK_MARKS"
"""Environment variable: the file to which a side appends its times."""


def mark(name: str, **facts: Any) -> None:
    """Note wall and CPU time of this moment."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    row = {"name": name, "wall": time.time(), "cpu": usage.ru_utime + usage.ru_stime, **facts}
    with open(os.environ[MARKS], "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


# --- the bare loop ---


def bare(folder: Path, targets: Path, epochs: int) -> None:
    """Train as one would by hand; marks the start and the end of the training."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file

    from switchmem.policy import choose_threshold
    from switchmem.router import PairwiseRouter

    torch.manual_seed(0)
    shards = sorted(folder.glob("rank-*.safetensors"))
    known = load_file(targets / "targets.safetensors")
    columns = {"state": "states.state", "text": "embeddings.text", "image": "embeddings.image"}
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in columns}
    for shard in shards:
        with safe_open(shard, framework="pt") as file:
            for name, key in columns.items():
                parts[name].append(file.get_tensor(key))
    state, text, image = (torch.cat(parts[name]) for name in columns)
    state = state[:, -1].contiguous()
    kept = known["delta"].nonzero()[:, 0]
    t = known["target"].float()
    held = int(len(kept) * (1 - VALIDATED))
    train, val = kept[:held], kept[held:]
    router = PairwiseRouter(D, E)
    optimizer = torch.optim.AdamW(router.parameters(), lr=LR, weight_decay=DECAY)  # imports half of torch
    mark("start")
    best, weights = float("inf"), router.state_dict()
    for _ in range(epochs):
        router.train()
        for rows in train[torch.randperm(len(train))].split(BATCH):
            loss = (router(state[rows], text[rows], image[rows]) - t[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        router.eval()
        with torch.inference_mode():
            losses = [(router(state[r], text[r], image[r]) - t[r]).square() for r in val.split(BATCH)]
        if (mean := float(torch.cat(losses).mean())) < best:
            best, weights = mean, {name: value.clone() for name, value in router.state_dict().items()}
    router.load_state_dict(weights)
    mark("end")
    with torch.inference_mode():
        r = router(state, text, image)
    choose_threshold(r, known["text"], known["image"])


# --- the project's side ---


def data_module() -> type:
    """A data module over a harvest that is there already; it marks the first batch and the end of the fit."""
    from data_modules import StepsDataModule
    from switchmem.benchmarks import DataReport

    class KeptHarvest(StepsDataModule):
        """Nothing to read: the harvest is finished."""

        def read(self, report: DataReport) -> Any:
            raise RuntimeError("the harvest must be finished before the benchmark runs `fit`.")

        def fingerprint(self) -> str:
            return "benchmark"

        def prepare_steps(self) -> None:
            pass

        def prepare_memory(self, part: str) -> None:
            pass

        def embedded_with(self, part: str) -> tuple[str, ...]:
            return ()

        def part_counts(self) -> dict[str, int]:
            return {"preference": 0, "test": 0}

        def data_report(self) -> DataReport:
            return DataReport()

        def train_dataloader(self) -> Any:
            mark("start")
            return super().train_dataloader()

        def teardown(self, stage: str) -> None:
            mark("end", actor=bool({"switchmem.actors.vlm", "transformers.modeling_utils"} & set(sys.modules)))

    return KeptHarvest


def __getattr__(name: str) -> Any:
    """`router.KeptHarvest`, made when the command line asks for it: the loop imports no Lightning."""
    if name != "KeptHarvest":
        raise AttributeError(name)
    made = globals()[name] = data_module()
    made.__module__, made.__qualname__ = __name__, name
    return made


def flags(folder: Path, epochs: int, seed: int) -> list[str]:
    """Arguments of `train.py` for one run."""
    return [
        "--config=pocket.yaml", "--data=router.KeptHarvest", f"--data.router_batch_size={BATCH}",
        f"--data.val_fraction={VALIDATED}", f"--memory.dim={E}", "--study.targets=[]", f"--study.seeds=[{seed}]",
        f"--run.dir={folder}", f"--trainer.max_epochs={epochs}", "--trainer.callbacks=null",
        f"--study.probe_layers={list(range(LAYERS))}",
    ]  # fmt: skip


def write(folder: Path, steps: int) -> tuple[Path, Path]:
    """The finished harvest and targets, where `fit` will look for them; kept if they are there.

    Returns:
        Both folders.
    """
    import torch

    from switchmem.actors.sampling import Sampling
    from switchmem.actors.spec import ActorSpec
    from switchmem.harvest import HarvestWriter, Record, bind_settings, merge
    from switchmem.memory.embedder import HashingEmbedder
    from switchmem.pipeline import Study
    from switchmem.pipeline.targets import FILES, Targets
    from switchmem.preference import PreferenceEstimator
    from switchmem.runs import RunFolder
    from switchmem.settings import StudySettings
    from switchmem.stages import Stages

    actor = ActorSpec("pocket", dtype="float32", grammar="pocket", template="pocket", device="cpu")
    study = Study(
        data_module()(), actor, HashingEmbedder(E), Sampling(0.7, tuple(range(42, 49)), 16),
        StudySettings(probe_layers=list(range(LAYERS))), RunFolder(folder / "unused"), Stages(folder / "stages"), None,
    )  # fmt: skip
    stage, targets = study.harvest_stage("preference"), study.targets_stage
    if targets.complete:
        return stage.folder, targets.folder
    rng = torch.Generator().manual_seed(0)
    stage.begin()
    bind_settings(stage.folder, {"layers": list(range(LAYERS)), "parameters_hash": "benchmark"})
    writer = HarvestWriter(stage.folder, 0, 64, 1e9)
    scores = (torch.rand(2, steps, K, generator=rng) < 0.5).double()
    ids = []
    for n in range(steps):
        episode, index = divmod(n, 4)
        ids.append(f"benchmark/{episode:06}/{index}")
        rows = torch.randn(3, LAYERS, D, generator=rng)
        vectors = torch.randn(4, E, generator=rng)
        writer.append(Record(
            step_id=ids[-1], trajectory=f"benchmark/{episode:06}", memory_id="benchmark/m/0", cosine=0.5,
            states=dict(zip(("state", "text", "image"), rows, strict=True)),
            embeddings=dict(zip(("text", "image", "instruction", "screenshot"), vectors, strict=True)),
            answers={c: ["tap"] * K for c in ("text", "image")}, actions={c: [None] * K for c in ("text", "image")},
            reasons={c: [None] * K for c in ("text", "image")},
            scores={c: scores[z, n].tolist() for z, c in enumerate(("text", "image"))},
            context={"index": index, "action_type": "tap", "is_spatial": True, "density": 1.0, "category": ""},
            seconds=0.1,
        ))  # fmt: skip
    writer.flush()
    merge(stage.folder, ids)
    stage.finish()
    text, image = scores.mean(dim=2)
    delta = ((scores[1] - scores[0]).sum(dim=1) / K).where((scores[0].sum(1) != scores[1].sum(1)), torch.tensor(0.0))
    drawn = torch.randn(steps, generator=rng).double().where(delta != 0, torch.tensor(float("nan")))
    target = targets.begin()
    counts = {"steps": steps, "tied": int((delta == 0).sum()), "text": 0, "image": 0, "components": 1}
    zeros = torch.zeros(D).double().numpy()
    PreferenceEstimator(zeros, zeros + 1, zeros[None], zeros[:1], zeros[0], counts).save(target)
    Targets(drawn, delta, text, image, counts, {0: None}).save(target)
    targets.finish(*FILES)
    return stage.folder, targets.folder


# --- both, in turns ---


def timed(command: list[str], folder: Path) -> dict[str, Any]:
    """Run a side; its wall and CPU seconds in all, until the training, and for it."""
    marks = folder / "marks.jsonl"
    marks.unlink(missing_ok=True)
    paths = os.pathsep.join([str(ROOT / "benchmarks"), str(ROOT)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, MARKS: str(marks)}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    wall, after = time.time() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{command} ended with status {done.returncode}:\n{done.stdout}\n{done.stderr}")
    rows = [json.loads(line) for line in marks.read_text(encoding="utf-8").splitlines()]
    first, last = (next(r for r in rows if r["name"] == name) for name in ("start", "end"))
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "startup": first["wall"] - started,
        "training": last["wall"] - first["wall"],
        "training_cpu": last["cpu"] - first["cpu"],
        "whole": wall,
        "whole_cpu": cpu,
        "actor": bool(last.get("actor")),
    }


def main() -> None:
    """Write the harvest, run both sides in turns, and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps the harvest for another call")
    parser.add_argument("--bare", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        bare(*options.bare, options.epochs)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        harvest, targets = write(folder, options.steps)
        loop = [sys.executable, __file__, "--bare", str(harvest), str(targets), "--epochs", str(options.epochs)]
        rounds: dict[str, list[dict[str, Any]]] = {"fit": [], "loop": []}
        for n in range(options.rounds):
            seed = int(time.time()) + n  # another router each time: a finished one would be kept
            fit = [sys.executable, str(ROOT / "train.py"), "fit", *flags(folder, options.epochs, seed)]
            for name, command in (("fit", fit), ("loop", loop)):
                rounds[name].append(timed(command, folder))
                print(f"{name}: " + ", ".join(f"{k} {v:.1f} s" for k, v in rounds[name][-1].items() if k != "actor"))
    least = {n: {k: min(r[k] for r in rows) for k in rows[0] if k != "actor"} for n, rows in rounds.items()}
    ratios = {k: least["fit"][k] / least["loop"][k] for k in least["fit"]}
    summary = {
        "steps": options.steps,
        "epochs": options.epochs,
        "ratio_router": round(ratios["training"], 3),
        "ratio_router_cpu": round(ratios["training_cpu"], 3),
        "ratio_whole_process": round(ratios["whole"], 3),
        "startup_seconds": round(least["fit"]["startup"], 2),
        "startup_seconds_loop": round(least["loop"]["startup"], 2),
        "training_seconds": round(least["fit"]["training"], 2),
        "training_seconds_loop": round(least["loop"]["training"], 2),
        "actor_loaded": any(row["actor"] for row in rounds["fit"]),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
