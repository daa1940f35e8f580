"""Lossless PNG files from raw pixels, at a fraction of the time that a general encoder takes.

A general encoder tries five filters on every row. Screenshots are flat areas, whose bytes repeat as they are. Taking
from each byte the one above it would make them a twelfth smaller, and take a fifth longer to decode, every time.
"""

from __future__ import annotations

import struct

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGB8 = b"\x08\x02\x00\x00\x00"  # 8 bits per sample, RGB, deflate, the five filters, not interlaced
_NO_FILTER = 0


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = isal_zlib.crc32(data, isal_zlib.crc32(kind))
    return b"".join((struct.pack(">I", len(data)), kind, data, struct.pack(">I", checksum)))


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """A PNG file (ISO/IEC 15948) of an RGB picture.

    The same pixels give the same bytes with the same release of isal on the same kind of processor.

    Args:
        pixels: uint8, [height, width, 3], both sides at least 1.

    Raises:
        ValueError: if the array has another type or shape.
    """
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise ValueError(f"`pixels` must be uint8 of shape [height, width, 3], got {pixels.dtype} {pixels.shape}.")
    height, width, _ = pixels.shape
    header = _chunk(b"IHDR", struct.pack(">II", width, height) + _RGB8)
    data = isal_zlib.compress(_unfiltered(pixels.reshape(height, -1)), 1)
    return b"".join((_SIGNATURE, header, _chunk(b"IDAT", data), _chunk(b"IEND", b"")))


def _unfiltered(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The rows, each behind its filter's number."""
    numbered = np.empty((len(rows), 1 + rows.shape[1]), np.uint8)
    numbered[:, 0] = _NO_FILTER
    numbered[:, 1:] = rows
    return numbered
