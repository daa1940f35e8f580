"""JSON and file names from elsewhere: the worst of them is a `RecordError`."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchmem.benchmarks import untrusted
from switchmem.benchmarks.untrusted import decode_json, decode_object, numbered_lines, read_below, shorten
from switchmem.steps import RecordError


@pytest.mark.parametrize(
    "data, reason",
    [
        (b"", "must be JSON, got ''"),
        (b"{", "must be JSON"),
        (b"[1]", "one JSON object, got \\[1\\]"),
        (b'"a"', "one JSON object"),
        (b"{} {}", "nothing else, got ' {}' after it"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "-Infinity is no JSON number"),
        (b'{"a": 1, "a": 2}', "names a field twice"),
        (b'{"a": "\\ud800"}', "half a surrogate pair"),
        (b'{"\\uDFFF": 1}', "half a surrogate pair"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested deeper"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested deeper"),
        (b'{"a": ' * 100_000, "nested deeper"),
        (b'{"a": ' + b"9" * 5000 + b"}", "must be JSON"),
    ],
)
def test_what_is_no_object_says_why(data, reason):
    with pytest.raises(RecordError, match=reason) as error:
        decode_object(data)
    assert len(str(error.value)) < 700


def test_what_is_one_is_read():
    assert decode_object(b'\xef\xbb\xbf {"a": "\\ud83d\\ude00\\u2028"}\r\n') == {"a": "😀\u2028"}
    assert decode_object(b'{"a": 1e999, "b": 1.5}') == {"a": float("inf"), "b": 1.5}  # ranges are for the reader


@given(st.binary(max_size=60))
def test_bytes_are_an_object_as_json_has_it_or_a_record_error(data):
    try:
        values = decode_object(data)
    except RecordError:
        return
    assert values == json.loads(data.removeprefix(b"\xef\xbb\xbf").decode())


def test_values_are_read_one_after_another():
    text = '{"a": 1}  [2]'
    value, end = decode_json(text)
    assert (value, text[end:]) == ({"a": 1}, "  [2]")
    assert decode_json(text, end + 2) == ([2], len(text))


def test_lines_end_at_line_feeds_only(tmp_path):
    text = 'a\u2028b\u0085c\x0bd\re\n\n \t\n"f"\r\ng'
    (tmp_path / "lines").write_bytes(text.encode())
    lines = list(numbered_lines(tmp_path / "lines"))
    assert lines == [(1, "a\u2028b\u0085c\x0bd\re\n".encode()), (4, b'"f"\r\n'), (5, b"g")]


@pytest.mark.parametrize("length", [9, 10, 11, 20, 25, 40])
def test_a_long_line_is_cut_and_the_next_is_whole(tmp_path, monkeypatch, length):
    monkeypatch.setattr(untrusted, "MAX_LINE", 10)
    (tmp_path / "lines").write_bytes(b"x" * length + b"\n{}\n" + b"y" * length)
    lines = list(numbered_lines(tmp_path / "lines"))
    assert [number for number, _ in lines] == [1, 2, 3]
    assert lines[0][1] == (b"x" * length + b"\n")[:10] and lines[1][1] == b"{}\n"


@pytest.mark.parametrize("value", [[[[[1] * 9] * 9] * 9] * 9, "x" * 10_000, {"k" * 500: "v" * 500}, 10**4000])
def test_telling_a_value_is_short(value):
    assert len(shorten(value)) <= 160


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "ä 1.png").write_bytes(b"picture")
    (tmp_path / "outside").write_bytes(b"secret")
    return root


def test_a_file_below_the_folder_is_read(folder, tmp_path):
    assert read_below(folder, "sub/ä 1.png", "screenshot") == b"picture"
    assert read_below(folder, "sub/../sub/ä 1.png", "screenshot") == b"picture"
    (tmp_path / "link").symlink_to(folder)  # the folder itself may be a link
    assert read_below(tmp_path / "link", "sub/ä 1.png", "screenshot") == b"picture"


@pytest.mark.parametrize(
    "name, reason",
    [
        ("../outside", "stays in"),
        ("sub/../../outside", "stays in"),
        ("/etc/hostname", "stays in"),
        ("link", "stays in"),
        ("loop", "loop"),
        ("sub", "regular file"),
        ("pipe", "regular file"),
        (".", "regular file"),
        ("absent.png", "absent.png cannot be read: No such file"),
        ("a\0b", "must be the path of a file"),
        ("x" * 5000, "cannot be read: File name too long"),
        ("", "must be the path"),
        (None, "must be the path"),
        (7, "must be the path"),
        (["a"], "must be the path"),
    ],
)
def test_anything_else_is_refused(folder, tmp_path, name, reason):
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to(folder / "loop")
    os.mkfifo(folder / "pipe")
    with pytest.raises(RecordError, match=reason) as error:
        read_below(folder, name, "screenshot")
    assert "`screenshot`" in str(error.value)


def test_a_file_too_large_is_not_read(folder, monkeypatch):
    monkeypatch.setattr(untrusted, "MAX_FILE", 6)
    with pytest.raises(RecordError, match="at most 6 bytes, got 7"):
        read_below(folder, "sub/ä 1.png", "screenshot")
