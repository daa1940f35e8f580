"""TFRecord files and `tf.train.Example` messages, read without TensorFlow.

A TFRecord file is a row of frames, ``length (uint64) | crc(length) | payload | crc(payload)``, little
endian, often gzipped as a whole. Both checksums are masked CRC-32C and both are checked here.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from isal import igzip_lib
from numpy.typing import NDArray

from switchmem.benchmarks.wire import cut_value
from switchmem.steps import RecordError

Feature: TypeAlias = list[bytes] | NDArray[np.float32] | NDArray[np.int64] | NDArray[np.uint8]

MAX_RECORD = 1 << 25
"""Bytes of the longest record that is read. A raw 4K screenshot has 25 million; a damaged length can claim 2**64."""

_DAMAGE: tuple[type[Exception], ...] = (RecordError, EOFError, cast(Any, igzip_lib.IsalError))
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
BUFFER = 1 << 18  # bytes per read
_PIECE = 3 << 17  # of a payload; what is inflated in one go and copied while it is in the processor's cache


def masked_crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """The checksum as TFRecord stores it: CRC-32C, rotated by 15 bits plus a constant, in [0, 2**32).

    >>> hex(masked_crc32c(b""))
    '0xa282ead8'
    """
    crc: int = google_crc32c.value(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


class _Content(Protocol):
    """What records are read from."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, fewer at the end only."""
        ...


class _Inflated:
    """The content of a gzip stream. Of a damaged one, everything before the damage is given first.

    Ready-made gzip readers lose what they have inflated when the stream ends early, and copy it once more.
    """

    def __init__(self, file: io.BufferedReader) -> None:
        self._file, self._member = file, igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, fewer at the end only."""
        parts: list[bytes] = []
        while size:
            data = self._some(size)
            if data is None:
                break
            parts.append(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _some(self, size: int) -> bytes | None:
        """At most `size` bytes, perhaps none yet; None at the end."""
        fresh = b""
        if self._member.eof:  # another member may follow, or padding
            fresh = (self._member.unused_data or self._file.read1(BUFFER)).lstrip(b"\0")
            if not fresh:
                return None
            self._member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
        elif self._member.needs_input:
            fresh = self._file.read1(BUFFER)
            if not fresh:
                raise EOFError("the file ends inside its gzip stream")
        return self._member.decompress(fresh, size)


def _unzipped(file: BinaryIO) -> _Content:
    """The content of a file that may be gzipped; nothing is sought, so that a stream will do."""
    buffered = cast(io.BufferedReader, file if hasattr(file, "peek") else io.BufferedReader(cast(Any, file)))
    return _Inflated(buffered) if buffered.peek(2)[:2] == b"\x1f\x8b" else buffered


def _skip(file: _Content, count: int) -> bool:
    """Read past `count` bytes; False where the file ends before."""
    while count > 0:
        data = file.read(min(count, BUFFER))
        if not data:
            return False
        count -= len(data)
    return True


def _payload(file: _Content, length: int) -> NDArray[np.uint8]:
    """The next `length` bytes, fewer at the end only.

    Pieces go into one array: an inflater that gives megabytes at once grows its result step by step, and a join holds
    them twice; either asks the system for fresh memory at every record.
    """
    data, done = np.empty(length, np.uint8), 0
    while done < length:
        piece = file.read(min(_PIECE, length - done))
        if not piece:
            break
        data[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
    return data[:done]


def _frame(file: _Content) -> tuple[NDArray[np.uint8], str] | None:
    """The next payload and what is wrong with it, or ""; None at the end of the file.

    Raises:
        RecordError: if the file is cut or the length itself is damaged, after which nothing can be found.
    """
    header = file.read(_HEADER.size)
    if not header:
        return None
    if len(header) < _HEADER.size:
        raise RecordError(f"the file ends inside a record's header ({len(header)} of {_HEADER.size} bytes)")
    length, length_crc = _HEADER.unpack(header)
    if masked_crc32c(header[:8]) != length_crc:
        raise RecordError("the checksum of a record's length is wrong")
    if length > MAX_RECORD:
        if not _skip(file, length + _CHECKSUM.size):
            raise RecordError(f"a record claims {length} bytes, which leaves the file")
        return np.empty(0, np.uint8), f"the record must have at most {MAX_RECORD} bytes, got {length}"
    payload = _payload(file, length)
    footer = file.read(_CHECKSUM.size)
    if len(payload) + len(footer) < length + _CHECKSUM.size:
        raise RecordError(f"the file ends inside a record ({len(payload)} of {length} bytes)")
    whole = masked_crc32c(payload) == _CHECKSUM.unpack(footer)[0]
    return payload, "" if whole else "the checksum of the record is wrong"


def read_records(
    file: str | Path | BinaryIO, on_damage: Callable[[int, str], None]
) -> Iterator[tuple[int, memoryview]]:
    """Payloads of a TFRecord file, gzipped or plain, one in memory at a time.

    Args:
        file: the path, or an open binary file, which need not be seekable and is left open.
        on_damage: called with the record's number and the reason for each record that is damaged. Records
            after a damaged payload are still read; after a cut or a damaged length nothing more can be.

    Yields:
        ``(number, payload)``, numbered from 0; the payload cannot be written to.
    """
    number = 0
    with ExitStack() as stack:
        opened = stack.enter_context(open(file, "rb")) if isinstance(file, (str, Path)) else file
        content = _unzipped(opened)
        while True:
            try:
                frame = _frame(content)
            except _DAMAGE as error:
                on_damage(number, f"{error}; the rest of the file is lost. Fetch the file again.")
                return
            if frame is None:
                return
            payload, damage = frame
            if damage:
                on_damage(number, f"{damage}. Fetch the file again.")
            else:
                yield number, payload.data.toreadonly()
            number += 1


def _message_types() -> tuple[Any, Any]:
    """The message classes of `tf.train.Example` and `tf.train.Features`, from their published schema.

    It is built here, in a pool of its own: a generated module would pin a version of protobuf, and TensorFlow or
    another reader in the same process may have registered its own.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="switchmem/example.proto", package="tensorflow", syntax="proto3")
    feature = descriptor_pb2.DescriptorProto(name="Feature")
    feature.oneof_decl.add(name="kind")
    kinds = (("Bytes", field.TYPE_BYTES), ("Float", field.TYPE_FLOAT), ("Int64", field.TYPE_INT64))
    for number, (kind, scalar) in enumerate(kinds, 1):
        values = file.message_type.add(name=f"{kind}List")
        values.field.add(name="value", number=1, type=scalar, label=field.LABEL_REPEATED)
        one = feature.field.add(name=f"{kind.lower()}_list", number=number, type=field.TYPE_MESSAGE, oneof_index=0)
        one.label, one.type_name = field.LABEL_OPTIONAL, f".tensorflow.{kind}List"
    file.message_type.append(feature)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    value = entry.field.add(name="value", number=2, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL)
    value.type_name = ".tensorflow.Feature"
    rows = features.field.add(name="feature", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED)
    rows.type_name = ".tensorflow.Features.FeatureEntry"
    example = file.message_type.add(name="Example")
    body = example.field.add(name="features", number=1, type=field.TYPE_MESSAGE, label=field.LABEL_OPTIONAL)
    body.type_name = ".tensorflow.Features"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("tensorflow.Example", "tensorflow.Features")
    whole, inner = (message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names)
    return whole, inner


_Example, _Features = _message_types()


def parse_example(payload: bytes | memoryview, large: str = "") -> dict[str, Feature]:
    """Features of a serialised `tf.train.Example` by name.

    Args:
        payload: the message.
        large: name of a feature whose one value is long, such as a picture. It is not copied where the message is laid
            out as all known writers do it, and comes as a list as any other where it is not.

    Returns:
        A list of bytes, a float32 array or an int64 array per feature, each of its stored length; for `large` a uint8
        array over the payload's own memory. A feature without a kind says nothing and is left out, as an absent one.

    Raises:
        RecordError: if the bytes are not such a message.
    """
    cut = cut_value(payload, large) if large else None
    if cut is None:
        return _features(_parsed(_Example, payload, len(payload)).features)
    value, rest = cut
    features = _features(_parsed(_Features, rest, len(payload)))
    if large in features:  # it is there twice, and the last counts
        return parse_example(payload)
    features[large] = np.frombuffer(value, np.uint8)
    return features


def _parsed(kind: Any, data: bytes | memoryview, size: int) -> Any:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RecordError(f"a record must be a serialised tf.train.Example, got {size} bytes: {error}.") from error


def _features(message: Any) -> dict[str, Feature]:
    features: dict[str, Feature] = {}
    for name, feature in message.feature.items():
        kind = feature.WhichOneof("kind")
        if kind == "bytes_list":
            features[name] = list(feature.bytes_list.value)
        elif kind == "float_list":
            features[name] = np.array(list(feature.float_list.value), np.float32)
        elif kind == "int64_list":
            features[name] = np.array(list(feature.int64_list.value), np.int64)
    return features
