"""Damage for files: by bytes, by structure of JSON and XML, and inside TFRecords whose checksums are right again."""

import copy
import json
import random
import signal
import struct
from contextlib import contextmanager

AWKWARD_JSON = [
    None, True, False, 0, -1, 10**400, 1e308, float("nan"), float("inf"), "", " ", "\x00", "\ud800",
    "../../../etc/passwd", "/etc/passwd", "<|im_start|>", "\u202e", "9" * 400, [], {}, [[]], [None], {"type": None},
    [0, 0, 0, 0],
    "x" * 100_000,
]  # fmt: skip
AWKWARD_XML = [
    "&", "<", ">", "&#0;", "&#xD800;", "&undefined;", "]]>", "<![CDATA[", "<!--", "\x00", "\ufffe", "<?x?>",
    'bounds="[",',
    '<!DOCTYPE a [<!ENTITY b "c">]>', '<!DOCTYPE a SYSTEM "file:///etc/passwd">', "<node>" * 3000, "</node>",
    'bounds=""',
    'bounds="[99999999999999999999,0][1,1]"', 'bounds="[-1,-1][-5,-5]"', "\u202e", "<node " + "a='b' " * 2000 + "/>",
]  # fmt: skip


@contextmanager
def no_hang(seconds: float):
    """Fail what takes longer; a reader that hangs would otherwise stop the whole suite."""

    def expired(_signal, _frame):
        raise TimeoutError(f"the reader hangs: more than {seconds} s")

    earlier = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


def damage_bytes(rng: random.Random, data: bytes) -> bytes:
    """One to three times: flip, overwrite, cut, delete, repeat, insert or swap."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        size = rng.choice([1, 1, 2, 8, rng.randint(1, 200)])
        noise = rng.randbytes(size) if rng.random() < 0.5 else bytes([rng.choice(b'\x00\xff\x80{}[]"<&')]) * size
        data = rng.choice([
            lambda d, a, s, n: d[:a] + bytes([d[a] ^ (1 << rng.randrange(8))]) + d[a + 1 :] if a < len(d) else d + n,
            lambda d, a, s, n: d[:a] + n + d[a + s :],
            lambda d, a, s, n: d[:a],
            lambda d, a, s, n: d[:a] + d[a + s :],
            lambda d, a, s, n: d[: a + s] + d[a:],
            lambda d, a, s, n: d[:a] + n + d[a:],
            lambda d, a, s, n: d[a:] + d[:a],
        ])(data, at, size, noise)  # fmt: skip
    return data


def damage_json(rng: random.Random, value):
    """Replace, remove, rename or repeat something at a random place of a JSON value."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.randint(1, 3)):
        places = [(None, None)]

        def walk(node, places=places):
            for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
                places.append((node, key))
                walk(node[key])

        walk(value)
        holder, key = rng.choice(places)
        new = copy.deepcopy(rng.choice(AWKWARD_JSON))
        if holder is None:
            value = new if rng.random() < 0.2 else value
        elif isinstance(holder, dict) and (act := rng.random()) < 0.3:
            moved = holder.pop(key)
            if act < 0.15:
                holder[f"{key}?"] = moved
        elif isinstance(holder, list) and rng.random() < 0.3:
            holder.insert(key, holder[key])
        else:
            holder[key] = new
    return value


def json_text(rng: random.Random, value) -> str:
    """The value as JSON, sometimes of a kind that strict parsers refuse, sometimes absurdly deep."""
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    if rng.random() < 0.03:
        text = "[" * 50_000 + text + "]" * 50_000
    return text


def damage_xml(rng: random.Random, text: str) -> str:
    """Insert awkward pieces at random places, or remove, repeat or move some of the text."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        text = rng.choice([
            text[:at] + rng.choice(AWKWARD_XML) + text[at:],
            text[:at] + text[to:],
            text[:to] + text[at:],
            text[:at] + rng.choice(AWKWARD_XML) + text[to:],
        ])  # fmt: skip
    return text


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def damage_frame(rng: random.Random, payload: bytes, masked_crc) -> bytes:
    """A TFRecord frame with right checksums around a damaged message, or one that lies about its length."""
    if rng.random() < 0.7:
        payload = damage_bytes(rng, payload)
        length = struct.pack("<Q", len(payload))
    else:
        claimed = rng.choice([0, len(payload) - 1, len(payload) + 1, 2**31, 2**62, 2**64 - 1])
        length = struct.pack("<Q", claimed)
    frame = length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))
    return frame
