"""How fast AITW's TFRecords are surveyed and converted, and the shards streamed, against plain ways to do it.

    python -m benchmarks.conversion [--shards 8] [--steps-per-shard 256] [--repeats 3]

Synthetic shards of 540 x 1080 screens are written into a temporary folder: pieces of real screenshots if
$SWITCHMEM_REAL_DATA (else ../shared/data) is there, otherwise drawn ones. All ways are timed in this one process, in
turns, and the median of the turns counts. Ratios of ways that take one core compare their CPU time, which other
programs on the machine change little (all files are in the page cache, so that nothing waits). The scaling compares
wall-clock time of the same turn, and stands beside what the machine itself gives in that turn to two processes that
share nothing: two plain loops over files of their own, and two that only count. MB are those of raw pixels. The last
line is one JSON object.

(PyPI's tfrecord is imported where it is used: it imports torch, and worker processes import this file.)
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import multiprocessing
import os
import shutil
import statistics
import struct
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from switchmem.benchmarks.aitw.records import AitwReader, is_shard
from switchmem.benchmarks.convert import convert, survey
from switchmem.benchmarks.sources import find_files
from switchmem.benchmarks.store import StepStore

WIDTH, HEIGHT, EPISODE, ELEMENTS = 540, 1080, 8, 40
KEYS = {
    "episode_id": "byte",
    "episode_length": "int",
    "step_id": "int",
    "goal_info": "byte",
    "image/encoded": "byte",
    "image/height": "int",
    "image/width": "int",
    "image/channels": "int",
    "image/ui_annotations_positions": "float",
    "image/ui_annotations_text": "byte",
    "image/ui_annotations_ui_types": "byte",
    "results/action_type": "int",
    "results/type_action": "byte",
    "results/yx_touch": "float",
    "results/yx_lift": "float",
    "current_activity": "byte",
    "device_type": "byte",
    "android_api_level": "int",
}


def screens() -> tuple[str, list[Image.Image]]:
    """Where the screens come from, and some tens of them."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SWITCHMEM_REAL_DATA", default)) / "appagent_runs"
    paths = [path for path in sorted(folder.rglob("*.png")) if not path.stem.endswith("labeled")][:48]
    if paths:
        return "real", [Image.open(path).convert("RGB").resize((WIDTH, HEIGHT)) for path in paths]
    return "drawn", [drawn(np.random.default_rng(seed)) for seed in range(24)]


def drawn(rng: np.random.Generator) -> Image.Image:
    """A screen with rows of text on flat ground, a gradient, and a patch of noise as photographs have."""
    image = Image.new("RGB", (WIDTH, HEIGHT), tuple(rng.integers(200, 256, 3).tolist()))
    draw = ImageDraw.Draw(image)
    ramp = np.linspace(0, 255, WIDTH, dtype=np.uint8)
    image.paste(Image.fromarray(np.stack([np.roll(ramp, int(rng.integers(WIDTH)))] * 120)).convert("RGB"), (0, 0))
    for row in range(140, HEIGHT - 20, 22):
        words = "".join(chr(97 + int(letter)) for letter in rng.integers(0, 26, int(rng.integers(10, 60))))
        draw.text((16, row), words, fill=tuple(rng.integers(0, 120, 3).tolist()))
    noise = rng.normal(128, 30, (150, 200, 3)).clip(0, 255).astype(np.uint8)
    image.paste(Image.fromarray(noise), (int(rng.integers(WIDTH - 200)), int(rng.integers(HEIGHT - 150))))
    return image


def record(number: int, pixels: bytes) -> dict[str, tuple[object, str]]:
    """One step of an episode of eight, as PyPI's writer takes it."""
    rng = np.random.default_rng(number)
    corner, size = rng.uniform(0, 0.8, (ELEMENTS, 2)), rng.uniform(0.01, 0.2, (ELEMENTS, 2))
    last = number % EPISODE == EPISODE - 1
    touch = [-1.0, -1.0] if last else rng.uniform(0.1, 0.9, 2).tolist()
    values: dict[str, object] = {
        "episode_id": str(10**18 + number // EPISODE).encode(),
        "episode_length": EPISODE,
        "step_id": number % EPISODE,
        "goal_info": b"turn on the wifi and open the clock",
        "image/encoded": pixels,
        "image/height": HEIGHT,
        "image/width": WIDTH,
        "image/channels": 3,
        "image/ui_annotations_positions": np.concatenate([corner, size], axis=1).ravel().tolist(),
        "image/ui_annotations_text": [b"Settings %d" % i if i % 4 else b"" for i in range(ELEMENTS)],
        "image/ui_annotations_ui_types": [b"TEXT" if i % 4 else b"ICON_STAR" for i in range(ELEMENTS)],
        "results/action_type": 10 if last else 4,
        "results/type_action": b"",
        "results/yx_touch": touch,
        "results/yx_lift": touch,
        "current_activity": b"com.android.settings/.Settings",
        "device_type": b"PIXEL_3",
        "android_api_level": 31,
    }
    return {name: (value, KEYS[name]) for name, value in values.items()}


def write_shards(folder: Path, shards: int, steps_per_shard: int) -> tuple[str, list[Path]]:
    """Shards by PyPI's writer, gzipped by the standard library; where the screens come from, and the files."""
    from tfrecord.writer import TFRecordWriter

    origin, pictures = screens()
    paths = []
    (folder / "general").mkdir(parents=True)
    for shard in range(shards):
        plain = folder / "plain"
        writer = TFRecordWriter(str(plain))
        for step in range(steps_per_shard):
            number = shard * steps_per_shard + step
            image = pictures[number % len(pictures)].copy()
            ImageDraw.Draw(image).text((10, 4), f"{number}", fill=(number % 256, 99, 0))
            writer.write(record(number, image.tobytes()))
        writer.close()
        paths.append(folder / "general" / f"general-{shard:05d}-of-{shards:05d}")
        with plain.open("rb") as source, gzip.open(paths[-1], "wb", 6) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        plain.unlink()
    return origin, paths


def by_tfrecord(paths: list[Path]) -> int:
    """PyPI's reader, all keys."""
    from tfrecord import tfrecord_loader

    return sum(1 for path in paths for _ in tfrecord_loader(str(path), None, KEYS, compression_type="gzip"))


def by_tfrecord_pixels(paths: list[Path]) -> int:
    """PyPI's reader, and the picture as an array of its shape."""
    from tfrecord import tfrecord_loader

    count = 0
    for path in paths:
        for row in tfrecord_loader(str(path), None, KEYS, compression_type="gzip"):
            shape = int(row["image/height"][0]), int(row["image/width"][0]), int(row["image/channels"][0])
            count += np.frombuffer(row["image/encoded"], np.uint8).reshape(shape).shape[0] > 0
    return count


def plain_examples(path: Path) -> Iterator[object]:
    """The loop that anyone would write: gunzip, cut into records, parse."""
    from tfrecord import example_pb2

    with gzip.open(path, "rb") as file:
        while header := file.read(12):
            payload = file.read(struct.unpack("<Q", header[:8])[0])
            file.read(4)
            yield example_pb2.Example.FromString(payload)


def by_plain_loop(paths: list[Path]) -> int:
    """Gunzip, cut and parse, and nothing more."""
    return sum(1 for path in paths for _ in plain_examples(path))


def by_plain_loop_with_png(paths: list[Path], folder: Path) -> int:
    """The plain loop, and the pictures as PNG files into a tar."""
    count = 0
    with tarfile.open(folder / "plain.tar", "w") as tar:
        for path in paths:
            for example in plain_examples(path):
                raw = example.features.feature["image/encoded"].bytes_list.value[0]  # type: ignore[attr-defined]
                buffer = io.BytesIO()
                Image.frombytes("RGB", (WIDTH, HEIGHT), raw).save(buffer, "PNG")
                member = tarfile.TarInfo(f"{count:09d}.png")
                member.size = buffer.tell()
                buffer.seek(0)
                tar.addfile(member, buffer)
                count += 1
    return count


def silent(done: float, total: float) -> None:
    """No bar."""


def by_survey(paths: list[Path], folder: Path, workers: int) -> int:
    """Our survey, from nothing."""
    shutil.rmtree(folder, ignore_errors=True)
    return survey(AitwReader(), find_files(paths[0].parent, is_shard), folder, workers, silent).report.kept


def by_convert(found, folder: Path, workers: int) -> int:
    """Our conversion, from nothing, after a survey."""
    shutil.rmtree(folder, ignore_errors=True)
    ids = [step_id for episode in found.episodes for step_id in episode.step_ids]
    return convert(found.reader, found, {"all": ids}, folder, workers, silent)["all"]


def by_stream(folder: Path, decoded: bool, count: int) -> int:
    """Our shards as steps, with their pictures decoded or not."""
    store = StepStore(folder)
    read = 0
    for step in store.iterate(store.step_ids[:count]):
        read += np.asarray(step.screenshot.image()).shape[0] > 0 if decoded else 1
    return read


def seconds_per_step(work: Callable[[], int]) -> tuple[float, float]:
    """Wall-clock and CPU seconds (of this process and of those that it has ended) of one call, by its steps."""
    start, used = time.perf_counter(), cpu_seconds()
    count = work()
    return (time.perf_counter() - start) / count, (cpu_seconds() - used) / count


def cpu_seconds() -> float:
    """CPU time of this process and of those that it has ended."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def spin(count: int) -> int:
    """Work for one core that shares nothing with anyone."""
    return sum(range(count))


def scaling_of_the_machine(work: Callable[[Any], int], one: Any, other: Any) -> float:
    """How much more two processes that share nothing get done than one: what no conversion can be asked to exceed."""
    spans = []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        pool.map(work, [one, other], chunksize=1)  # both have started
        for tasks in ([one], [other], [one, other]):
            start = time.perf_counter()
            pool.map(work, tasks, chunksize=1)
            spans.append(time.perf_counter() - start)
    return (spans[0] + spans[1]) / spans[2]


def peak_rss_mb(work: Callable[[], int]) -> float:
    """Greatest resident memory of any process that `work` spawns; 0 where there is no /proc."""
    peak, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            for child in multiprocessing.active_children():
                status = Path(f"/proc/{child.pid}/status")
                lines = status.read_text().splitlines() if status.exists() else []
                peak = max([peak, *(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return peak


Seconds = dict[str, tuple[float, float]]
"""Wall-clock and CPU seconds per step, by way."""


def measure(folder: Path, options: argparse.Namespace) -> tuple[str, Seconds, dict[str, float], float]:
    """Where the screens come from, medians of all turns (times, scalings), and the peak memory of a worker of two."""
    origin, paths = write_shards(folder / "source", options.shards, options.steps_per_shard)
    found = survey(AitwReader(), find_files(paths[0].parent, is_shard), folder / "survey", 1, silent)
    by_convert(found, folder / "store", 1)
    some, store = paths[:2], folder / "store" / "all"
    ways: dict[str, Callable[[], int]] = {
        "tfrecord": partial(by_tfrecord, some),
        "plain": partial(by_plain_loop, some),
        "plain_png": partial(by_plain_loop_with_png, some[:1], folder),
        "survey": partial(by_survey, paths, folder / "new", 1),
        "convert": partial(by_convert, found, folder / "new", 1),
        "convert_2": partial(by_convert, found, folder / "new", 2),
        "stream": partial(by_stream, store, False, found.report.kept),
        "stream_decoded": partial(by_stream, store, True, options.steps_per_shard),
        "tfrecord_pixels": partial(by_tfrecord_pixels, some),
    }
    turns, scalings = [], []
    half = len(paths) // 2
    for _ in range(options.repeats):
        turns.append({name: seconds_per_step(way) for name, way in ways.items()})
        scaling = {
            "scaling_2_cores": turns[-1]["convert"][0] / turns[-1]["convert_2"][0],
            "scaling_2_plain_loops": scaling_of_the_machine(by_plain_loop, paths[:half], paths[half:]),
            "scaling_2_cores_of_the_machine": scaling_of_the_machine(spin, 20_000_000, 20_000_000),
        }
        scalings.append(scaling)
    medians = {
        name: (statistics.median(turn[name][0] for turn in turns), statistics.median(turn[name][1] for turn in turns))
        for name in ways
    }
    scales = {name: statistics.median(turn[name] for turn in scalings) for name in scalings[0]}
    return origin, medians, scales, peak_rss_mb(ways["convert_2"])


TITLES = {
    "tfrecord": "PyPI tfrecord, all keys",
    "plain": "plain loop: gunzip, cut, parse",
    "plain_png": "plain loop that writes PNGs (Pillow) into a tar",
    "survey": "survey: everything checked",
    "convert": "convert: checked, PNG, step shards",
    "convert_2": "convert, two workers",
    "stream": "step shards to Step, pictures encoded",
    "stream_decoded": "step shards to Step, pictures decoded",
    "tfrecord_pixels": "PyPI tfrecord, pictures as arrays",
}


def main() -> None:
    """Time all ways and print the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shards", type=int, default=8, help="at least 2")
    parser.add_argument("--steps-per-shard", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        origin, medians, scales, peak = measure(Path(folder), options)
    megabytes = WIDTH * HEIGHT * 3 / 1e6
    wall = {name: pair[0] for name, pair in medians.items()}
    seconds = {name: pair[1] for name, pair in medians.items()}
    for name, title in TITLES.items():
        rate = 1 / wall[name]
        cpu = 1e3 * seconds[name]
        print(f"{title:<50} {rate:8.0f} steps/s {rate * megabytes:8.0f} MB/s {cpu:8.2f} ms of CPU per step")
    print(
        "two processes against one, wall clock: conversion {:.2f}, two plain loops of their own {:.2f}, counting "
        "{:.2f}".format(*scales.values())
    )
    ratios = {
        "ratio_stream_vs_tfrecord": seconds["tfrecord"] / seconds["stream"],
        "ratio_stream_vs_plain": seconds["plain"] / seconds["stream"],
        "ratio_decoded_vs_tfrecord": seconds["tfrecord_pixels"] / seconds["stream_decoded"],
        "ratio_survey_vs_plain": seconds["plain"] / seconds["survey"],
        "ratio_convert_vs_plain_per_core": seconds["plain"] / seconds["convert"],
        "ratio_survey_and_convert_vs_plain": seconds["plain"] / (seconds["survey"] + seconds["convert"]),
        "ratio_convert_vs_plain_png": seconds["plain_png"] / seconds["convert"],
        **scales,
    }
    summary = {"steps": options.shards * options.steps_per_shard, "screens": origin}
    rates = {f"{name}_steps_per_s": round(1 / value, 1) for name, value in wall.items()}
    print(json.dumps(summary | rates | {k: round(v, 2) for k, v in ratios.items()} | {"peak_rss_mb": round(peak)}))


if __name__ == "__main__":
    main()
