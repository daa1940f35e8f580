"""TFRecord framing and Example parsing against a bitwise CRC, a written-out encoder and the PyPI writer."""

import gzip
import io
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tfrecord.writer import TFRecordWriter

from switchmem.benchmarks import DataError, tfrecord
from switchmem.benchmarks.tfrecord import masked_crc32c, parse_example, read_records
from switchmem.steps import RecordError

FEATURES = st.one_of(
    st.lists(st.binary(max_size=40), max_size=5),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9),
)


def read(path):
    """Payloads and damage of a file."""
    damage = []
    return [bytes(payload) for _, payload in read_records(path, lambda *what: damage.append(what))], damage


@pytest.mark.parametrize(
    "data, expected",  # RFC 3720, B.4
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(reversed(range(32))), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_checksum_is_the_published_one(data, expected):
    unmasked = (masked_crc32c(data) - 0xA282EAD8) % 2**32
    assert (unmasked << 15 | unmasked >> 17) % 2**32 == expected


@given(st.binary(max_size=600))
@example(bytes(257))
@settings(deadline=None)
def test_masked_crc_equals_the_bitwise_reference(reference_crc, data):
    assert masked_crc32c(data) == reference_crc(data)


def test_crc_of_a_megabyte(reference_crc):
    data = np.random.default_rng(0).integers(0, 256, 200_001, dtype=np.uint8).tobytes()
    assert masked_crc32c(data) == reference_crc(data)


@given(st.dictionaries(st.text(max_size=12), FEATURES, max_size=6))
@settings(max_examples=200, deadline=None)
def test_what_was_encoded_is_parsed(encode_example, features):
    parsed = parse_example(encode_example(features))
    assert parsed.keys() == features.keys()
    for name, values in features.items():
        assert list(parsed[name]) == values
    kinds = {bytes: "list", float: "float32", int: "int64"}
    for name, values in features.items():
        if values:
            assert str(getattr(parsed[name], "dtype", "list")) == kinds[type(values[0])]


def test_unpacked_numbers_are_read_too():
    ints = bytes([0x08, 5, 0x08, 7])  # two varint fields of an Int64List, unpacked
    floats = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(-2).tobytes()

    def message(number, body):
        return bytes([number << 3 | 2, len(body)]) + body

    entries = message(1, message(1, b"i") + message(2, message(3, ints)))
    entries += message(1, message(1, b"f") + message(2, message(2, floats)))
    parsed = parse_example(message(1, entries))
    assert parsed["i"].tolist() == [5, 7]
    assert parsed["f"].tolist() == [1.5, -2.0]


@given(st.binary(min_size=1, max_size=200))
@settings(max_examples=300, deadline=None)
def test_any_bytes_parse_or_raise_record_error(data):
    try:
        parse_example(data)
    except RecordError as error:
        assert "tf.train.Example" in str(error)


@pytest.mark.parametrize("zipped", [True, False])
def test_records_come_back_in_order(write_tfrecord, tmp_path, zipped):
    payloads = [b"", b"one", bytes(5000), b"\x00\xff" * 77]
    assert read(write_tfrecord(tmp_path / "r", payloads, zipped)) == (payloads, [])


def test_a_damaged_payload_is_reported_and_the_rest_goes_on(write_tfrecord, tmp_path):
    path = write_tfrecord(tmp_path / "r", [b"first", b"second", b"third"], zipped=False)
    path.write_bytes(path.read_bytes().replace(b"second", b"sEcond"))
    payloads, damage = read(path)
    assert payloads == [b"first", b"third"]
    assert [number for number, _ in damage] == [1]
    assert "checksum of the record" in damage[0][1]


def test_a_damaged_length_ends_the_file(write_tfrecord, tmp_path):
    path = write_tfrecord(tmp_path / "r", [b"first", b"second", b"third"], zipped=False)
    data = bytearray(path.read_bytes())
    data[12 + 5 + 4 + 2] ^= 1  # inside the second record's length
    path.write_bytes(data)
    payloads, damage = read(path)
    assert payloads == [b"first"]
    assert damage[0][0] == 1 and "length" in damage[0][1]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_cut_file_gives_its_whole_records_and_one_damage(write_tfrecord, tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("cut")
    payloads = [b"first" * 9, b"second" * 9]
    zipped = data.draw(st.booleans())
    whole = write_tfrecord(folder / "r", payloads, zipped).read_bytes()
    at = data.draw(st.integers(3, len(whole) - 1))
    (folder / "r").write_bytes(whole[:at])
    found, damage = read(folder / "r")
    assert found == payloads[: len(found)]
    if not zipped:
        ends = {16 + len(payloads[0])}
        assert len(damage) == (0 if at in ends else 1)
        assert len(found) == int(at >= 16 + len(payloads[0]))
    else:
        assert len(damage) == 1


def test_garbage_is_reported(tmp_path):
    (tmp_path / "r").write_bytes(gzip.compress(b"these are not frames at all"))
    payloads, damage = read(tmp_path / "r")
    assert payloads == [] and len(damage) == 1


def frame(reference_crc, payload, length=None):
    """One frame; `length` is what it claims."""
    head = struct.pack("<Q", len(payload) if length is None else length)
    return head + struct.pack("<I", reference_crc(head)) + payload + struct.pack("<I", reference_crc(payload))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("length", [2**25 + 1, 2**31, 2**60, 2**64 - 1])
def test_a_hostile_length_allocates_nothing_and_is_told(reference_crc, zipped, length):
    data = frame(reference_crc, b"first") + frame(reference_crc, bytes(1000), length)
    damage = []
    tracemalloc.start()
    file = io.BytesIO(gzip.compress(data) if zipped else data)
    found = [payload for _, payload in read_records(file, lambda *what: damage.append(what))]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == [b"first"] and [number for number, _ in damage] == [1]
    assert f"claims {length} bytes" in damage[0][1]
    assert peak < 2**22


def test_a_record_that_is_too_long_is_passed_over(reference_crc, monkeypatch):
    monkeypatch.setattr(tfrecord, "MAX_RECORD", 100)
    data = b"".join(frame(reference_crc, payload) for payload in (b"a" * 100, b"b" * 101, b"c"))
    damage = []
    found = [payload for _, payload in read_records(io.BytesIO(data), lambda *what: damage.append(what))]
    assert found == [b"a" * 100, b"c"]
    assert damage == [(1, "the record must have at most 100 bytes, got 101. Fetch the file again.")]


def test_members_and_padding_of_gzip_are_one_content(reference_crc, tmp_path):
    payloads = [b"one", b"two" * 500, b"three"]
    frames = b"".join(frame(reference_crc, payload) for payload in payloads)
    cuts = [frames[:30], frames[30:900], b"", frames[900:]]
    (tmp_path / "r").write_bytes(b"".join(map(gzip.compress, cuts)) + bytes(512))
    assert read(tmp_path / "r") == (payloads, [])
    (tmp_path / "r").write_bytes(gzip.compress(frames) + b"no gzip")
    found, damage = read(tmp_path / "r")
    assert found == payloads and [number for number, _ in damage] == [3]


def test_a_changed_byte_of_the_gzip_stream_is_damage(reference_crc, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3000), dtype=np.uint8)
    whole = gzip.compress(b"".join(frame(reference_crc, row.tobytes()) for row in pixels))
    for at in range(10, len(whole) - 8, len(whole) // 23):
        (tmp_path / "r").write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        found, damage = read(tmp_path / "r")
        assert damage and set(found) < {row.tobytes() for row in pixels}


def test_a_stream_that_cannot_be_sought_is_enough_and_its_failure_passes(write_tfrecord, tmp_path):
    data = write_tfrecord(tmp_path / "r", [b"first", b"second"]).read_bytes()

    class Stream(io.RawIOBase):
        def __init__(self, fails):
            self.left, self.fails = io.BytesIO(data), fails

        def readable(self):
            return True

        def readinto(self, buffer):
            if self.fails and self.left.tell():
                raise DataError("the connection ended")
            return self.left.readinto(memoryview(buffer)[:20])

    assert [payload for _, payload in read_records(Stream(False), print)] == [b"first", b"second"]
    with pytest.raises(DataError, match="connection ended"):  # the file is not damaged: it must not count as such
        list(read_records(Stream(True), print))


@pytest.mark.parametrize("zipped", [True, False])
def test_files_of_the_pypi_writer_are_read(tmp_path, zipped):
    writer = TFRecordWriter(str(tmp_path / "plain"))
    for i in range(3):
        writer.write({"id": (b"%d" % i, "byte"), "n": ([i, -i], "int"), "f": ([0.5, float(i)], "float")})
    writer.close()
    data = (tmp_path / "plain").read_bytes()
    (tmp_path / "r").write_bytes(gzip.compress(data) if zipped else data)
    payloads, damage = read(tmp_path / "r")
    assert damage == [] and len(payloads) == 3
    for i, parsed in enumerate(map(parse_example, payloads)):
        assert parsed["id"] == [b"%d" % i] and parsed["n"].tolist() == [i, -i] and parsed["f"].tolist() == [0.5, i]


def test_a_name_that_is_no_utf8_and_deep_nesting_are_refused():
    for data in (b"\x0a\x08\x0a\x06\x0a\x02\xff\xfe\x12\x00", b"\x0b" * 5000, b"\x0a\xff\xff\xff\xff\x0f"):
        with pytest.raises(RecordError, match=r"tf\.train\.Example"):
            parse_example(data)
