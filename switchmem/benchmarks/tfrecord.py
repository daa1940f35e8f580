"""TFRecord files and `tf.train.Example` messages, read without TensorFlow.

A TFRecord file is a row of frames, ``length (uint64) | crc(length) | payload | crc(payload)``, little
endian, often gzipped as a whole. Both checksums are masked CRC-32C and both are checked here.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from switchmem.steps import RecordError

Bits: TypeAlias = NDArray[np.uint32]
Feature: TypeAlias = list[bytes] | NDArray[np.float32] | NDArray[np.int64]

_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, bits reversed
_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


def _byte_table() -> Bits:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1)
    return table


_TABLE = _byte_table()


def _apply(operator: Bits, states: Bits) -> Bits:
    """Multiply CRC states by a 32 x 32 matrix over GF(2); row i is the image of bit i."""
    product = np.zeros_like(states)
    for bit in range(32):
        product ^= np.where((states >> np.uint32(bit)) & np.uint32(1), operator[bit], np.uint32(0))
    return product


def _append_zeros(count: int) -> Bits:
    """The matrix that takes a CRC state past `count` zero bytes."""
    unit = np.uint32(1) << np.arange(32, dtype=np.uint32)
    power = _TABLE[unit & 0xFF] ^ (unit >> np.uint32(8))
    result = unit
    while count:
        if count & 1:
            result = _apply(power, result)
        power = _apply(power, power)
        count >>= 1
    return result


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes.

    A record holds a raw screenshot of megabytes, too much for a loop over bytes in Python. The bytes are cut
    into lanes of one width whose states advance together, and the lanes are joined two by two:
    ``state(A + B) = past_zeros(state(A), len(B)) ^ state(B)``.

    Returns:
        The checksum in [0, 2**32).

    Example:
        >>> hex(crc32c(b"123456789"))
        '0xe3069283'
    """
    lanes = 1 << (len(data).bit_length() // 2)
    width = -(-len(data) // lanes)
    padded = np.zeros(lanes * width, dtype=np.uint8)  # leading zeros leave a zero state as it is
    padded[lanes * width - len(data) :] = np.frombuffer(data, dtype=np.uint8)
    states = np.zeros(lanes, dtype=np.uint32)
    for column in np.ascontiguousarray(padded.reshape(lanes, width).T):
        states = _TABLE[(states ^ column) & 0xFF] ^ (states >> np.uint32(8))
    operator = _append_zeros(width)
    while len(states) > 1:
        states = _apply(operator, states[0::2]) ^ states[1::2]
        operator = _apply(operator, operator)
    start = _apply(_append_zeros(len(data)), np.array([0xFFFFFFFF], dtype=np.uint32))
    return int(states[0] ^ start[0]) ^ 0xFFFFFFFF


def masked_crc32c(data: bytes) -> int:
    """The checksum as TFRecord stores it: rotated by 15 bits plus a constant, in [0, 2**32)."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else path.open("rb")  # type: ignore[return-value]


def _frame(file: BinaryIO) -> tuple[bytes, bool] | None:
    """The next payload and whether its checksum holds; None at the end of the file.

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
    payload = file.read(length)
    footer = file.read(_CHECKSUM.size)
    if len(payload) + len(footer) < length + _CHECKSUM.size:
        raise RecordError(f"the file ends inside a record ({len(payload)} of {length} bytes)")
    return payload, masked_crc32c(payload) == _CHECKSUM.unpack(footer)[0]


def read_records(path: Path, on_damage: Callable[[int, str], None]) -> Iterator[tuple[int, bytes]]:
    """Payloads of a TFRecord file, gzipped or plain.

    Args:
        path: the file.
        on_damage: called with the record's number and the reason for each record that is damaged. Records
            after a damaged payload are still read; after a cut or a damaged length nothing more can be.

    Yields:
        ``(number, payload)``, numbered from 0.
    """
    number = 0
    with _open(path) as file:
        while True:
            try:
                frame = _frame(file)
            except (RecordError, EOFError, OSError, zlib.error) as error:
                on_damage(number, f"{error}; the rest of the file is lost. Fetch the file again.")
                return
            if frame is None:
                return
            payload, whole = frame
            if whole:
                yield number, payload
            else:
                on_damage(number, "the checksum of the record is wrong. Fetch the file again.")
            number += 1


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview) -> Iterator[tuple[int, int, memoryview | int]]:
    """``(field number, wire type, value)`` of one protobuf message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, wire, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + size > len(data):
            raise ValueError(f"a field of {size} bytes leaves its message")
        yield key >> 3, wire, data[at : at + size]
        at += size


def _chunks(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """``(field number, bytes)`` of a message whose fields all carry bytes."""
    for number, _, value in _fields(data):
        if isinstance(value, int):
            raise ValueError(f"field {number} holds a number where bytes belong")
        yield number, value


def _ints(data: memoryview) -> NDArray[np.int64]:
    values: list[int] = []
    for _, _, value in _fields(data):
        if isinstance(value, int):
            values.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = _varint(value, at)
            values.append(number)
    return np.array(values, dtype=np.uint64).astype(np.int64)  # negative numbers are sent as 64-bit complements


def _feature(data: memoryview) -> Feature | None:
    for kind, value in _chunks(data):
        if kind == 1:
            return [bytes(item) for _, item in _chunks(value)]
        if kind == 2:
            return np.frombuffer(b"".join(bytes(floats) for _, floats in _chunks(value)), "<f4")
        if kind == 3:
            return _ints(value)
    return None  # a feature without a kind says nothing, as an absent one


def parse_example(payload: bytes) -> dict[str, Feature]:
    """Features of a serialised `tf.train.Example` by name.

    Returns:
        A list of bytes, a float32 array or an int64 array per feature, each of its stored length.

    Raises:
        RecordError: if the bytes are not such a message.
    """
    features: dict[str, Feature] = {}
    try:
        for number, body in _chunks(memoryview(payload)):
            if number != 1:
                continue
            for _, entry in _chunks(body):
                parts = dict(_chunks(entry))
                feature = _feature(parts.get(2, memoryview(b"")))
                if feature is not None:
                    features[bytes(parts[1]).decode("utf-8")] = feature
    except (IndexError, KeyError, ValueError, OverflowError) as error:
        raise RecordError(
            f"a record must be a serialised tf.train.Example, got {len(payload)} bytes: {error}."
        ) from error
    return features
