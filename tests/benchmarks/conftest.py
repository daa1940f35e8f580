"""Small recordings written by the tests themselves: steps, TFRecord shards, AppAgent runs."""

import gzip
import json
import struct

import numpy as np
import pytest
from PIL import Image

from switchmem.steps import Action, ActionType, Screenshot, Step, UIElement

PROMPT = (
    "You are an agent.\n\nThe task you need to complete is to {task}. Your past actions to proceed with this task "
    "are summarized as \nfollows: None\nNow, given the documentation, call the function."
)


@pytest.fixture(scope="session")
def make_step():
    """Build a valid step; every field can be set."""

    def make(episode="e0", index=0, **fields):
        pixels = np.random.default_rng(index).integers(0, 256, (12, 8, 3), dtype=np.uint8)
        values = {
            "benchmark": "test",
            "episode_id": episode,
            "index": index,
            "instruction": f"Do task {episode}",
            "screenshot": Screenshot.from_image(Image.fromarray(pixels)),
            "elements": (UIElement((0.1, 0.2, 0.5, 0.4), text="Wi-Fi", kind="Switch", clickable=True),),
            "action": Action(ActionType.TAP, point=(0.3, 0.3)),
        }
        return Step(**{**values, **fields})

    return make


def varint(number):
    """A whole number as protobuf writes it: seven bits per byte, least first; negative ones as 64-bit complements."""
    number %= 2**64
    data = bytearray()
    while number >= 128:
        data.append(number % 128 + 128)
        number //= 128
    return bytes([*data, number])


def sized(field, data):
    """A field that carries bytes."""
    return varint(field * 8 + 2) + varint(len(data)) + data


@pytest.fixture(scope="session")
def encode_example():
    """Serialise ``{name: list of bytes | float | int}`` as a `tf.train.Example`, written by the published schema."""

    def feature(values):
        first = values[0] if values else b""
        if isinstance(first, bytes):
            return sized(1, b"".join(sized(1, value) for value in values))
        if isinstance(first, int):
            return sized(3, sized(1, b"".join(varint(value) for value in values)))
        return sized(2, sized(1, struct.pack(f"<{len(values)}f", *values)))

    def encode(features):
        entries = (sized(1, name.encode()) + sized(2, feature(values)) for name, values in features.items())
        return sized(1, b"".join(sized(1, entry) for entry in entries))

    return encode


@pytest.fixture(scope="session")
def reference_crc():
    """Masked CRC-32C one bit at a time, straight from its definition."""

    def masked(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    return masked


@pytest.fixture(scope="session")
def write_tfrecord(reference_crc):
    """Write payloads as a TFRecord file, gzipped unless told otherwise."""

    def write(path, payloads, zipped=True):
        frames = b""
        for payload in payloads:
            length = struct.pack("<Q", len(payload))
            frames += length + struct.pack("<I", reference_crc(length)) + payload
            frames += struct.pack("<I", reference_crc(payload))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(frames, mtime=0) if zipped else frames)
        return path

    return write


@pytest.fixture(scope="session")
def aitw_features():
    """Features of one AITW record as the release has them; a feature set to None is left out."""

    def features(**changes):
        names = {
            "episode_id": [b"18446744073709551615"],
            "episode_length": [2],
            "step_id": [0],
            "goal_info": [b"open the clock"],
            "image/encoded": [bytes(range(6 * 4 * 3))],
            "image/height": [6],
            "image/width": [4],
            "image/channels": [3],
            "image/ui_annotations_positions": [0.25, 0.5, 0.125, 0.25, 0.5, 0.0, 0.5, 1.0],
            "image/ui_annotations_text": ["Çlock <|im_start|>".encode(), b""],
            "image/ui_annotations_ui_types": [b"TEXT", b"ICON_STAR"],
            "results/action_type": [4],
            "results/type_action": [b""],
            "results/yx_touch": [0.25, 0.5],
            "results/yx_lift": [0.25, 0.5],
            "current_activity": [b"com.android.deskclock/.DeskClock"],
            "device_type": [b"PIXEL_3"],
            "android_api_level": [31],
        }
        return {name: value for name, value in {**names, **changes}.items() if value is not None}

    return features


def node(bounds, text="", children="", **attributes):
    """One UIAutomator node as XML; flags not given are false."""
    flags = {
        name: "false" for name in ("clickable", "focusable", "scrollable", "checked", "password", "long-clickable")
    }
    words = {"index": "0", "text": text, "resource-id": "", "class": "android.widget.TextView", "package": "com.app"}
    values = {**words, "content-desc": "", **flags, **{name.replace("_", "-"): v for name, v in attributes.items()}}
    escaped = {k: v.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;") for k, v in values.items()}
    inner = " ".join(f'{name}="{value}"' for name, value in escaped.items())
    left, top, right, bottom = bounds
    return f'<node {inner} bounds="[{left},{top}][{right},{bottom}]">{children}</node>'


def hierarchy(*nodes):
    """A whole dump, as bytes."""
    head = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>"
    return f'{head}<hierarchy rotation="0">{"".join(nodes)}</hierarchy>'.encode()


@pytest.fixture(scope="session")
def ui():
    """The two functions that write UIAutomator XML: ``ui.node`` and ``ui.hierarchy``."""

    class Writers:
        pass

    Writers.node, Writers.hierarchy = staticmethod(node), staticmethod(hierarchy)
    return Writers


SCREEN = hierarchy(
    node(
        (0, 0, 100, 200),
        children=node((0, 0, 100, 40), text="Wi-Fi", clickable="true")
        + node((0, 40, 100, 80), text="Sound", clickable="true", focusable="true")
        + node((0, 100, 100, 200), focusable="true", scrollable="true"),
        **{"class": "android.widget.FrameLayout"},
    )
)


@pytest.fixture
def write_run(tmp_path):
    """Write an AppAgent run: one answer per round, the same small screen in each unless `dumps` says otherwise."""

    def write(answers, folder="task_system_2024-01-01_00-00-00", task="turn on wifi", dumps=None):
        run = tmp_path / "runs" / folder
        run.mkdir(parents=True)
        lines = []
        for number, answer in enumerate(answers, 1):
            Image.new("RGBA", (100, 200), (number, 0, 0, 255)).save(run / f"{folder}_{number}.png")
            (run / f"{folder}_{number}.xml").write_bytes((dumps or {}).get(number, SCREEN))
            if answer is not None:
                response = f"Observation: a list.\nThought: It is there.\nAction: {answer}\nSummary: I did it."
                image = f"{folder}_{number}_labeled.png"
                lines.append({"step": number, "prompt": PROMPT.format(task=task), "image": image, "response": response})
        (run / f"log_system_{folder}.txt").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return run

    return write
