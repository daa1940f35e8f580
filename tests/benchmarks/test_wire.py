"""A long value taken out of a message against the parser that reads the whole message."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from switchmem.benchmarks.tfrecord import parse_example
from switchmem.benchmarks.wire import cut_value
from switchmem.steps import RecordError

NAMES = st.sampled_from(["picture", "pictur", "pictures", "a", ""])
VALUES = st.one_of(
    st.lists(st.binary(max_size=300), max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=3),
)


def plain(features):
    """Features as lists, a large value as the list that the parser makes of it."""
    lists = {}
    for name, values in features.items():
        taken = isinstance(values, np.ndarray) and values.dtype == np.uint8
        lists[name] = [values.tobytes()] if taken else list(values)
    return lists


def outcome(payload, large):
    try:
        return plain(parse_example(payload, large))
    except RecordError as error:
        return str(error)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
@settings(max_examples=200, deadline=None)
def test_features_are_those_of_the_parser(encode_example, features):
    payload = encode_example(features)
    parsed = parse_example(payload, "picture")
    assert plain(parsed) == plain(parse_example(payload))
    one = [type(value) for value in features.get("picture", [])] == [bytes]
    assert (cut_value(payload, "picture") is not None) == one


@given(st.dictionaries(NAMES, VALUES, min_size=1, max_size=4), st.data())
@settings(max_examples=300, deadline=None)
def test_a_changed_message_is_read_or_refused_as_the_parser_does(encode_example, features, data):
    payload = bytearray(encode_example({"picture": [b"pixels"]} | features))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    payload = bytes(payload[: data.draw(st.integers(at, len(payload)))])
    found, expected = outcome(payload, "picture"), outcome(payload, "")
    if isinstance(expected, str):
        assert isinstance(found, str) and f"got {len(payload)} bytes" in found
    else:
        assert repr(sorted(found.items())) == repr(sorted(expected.items()))  # a NaN equals itself as text only


def test_a_value_is_not_copied(encode_example):
    payload = encode_example({"a": [1], "picture": [b"pixels"], "z": [b"last"]})
    features = parse_example(payload, "picture")
    assert np.shares_memory(features["picture"], np.frombuffer(payload, np.uint8))
    assert not features["picture"].flags.writeable


def test_of_a_feature_that_is_there_twice_the_last_counts(encode_example):
    def entries(features):
        message = encode_example(features)
        return message[2:]  # behind the tag and the length of the features

    both = entries({"picture": [b"first"]}) + entries({"picture": [b"last"]})
    payload = bytes([0x0A, len(both)]) + both
    assert plain(parse_example(payload, "picture")) == plain(parse_example(payload)) == {"picture": [b"last"]}


@pytest.mark.parametrize(
    "payload", [b"", b"\x0a", b"\x0a\x80", b"\x0a\x80\x80\x80\x80\x80\x01", b"\x0a\x05\x0a", b"\x12\x00"]
)
def test_what_is_cut_short_is_left_to_the_parser(payload):
    assert cut_value(payload, "picture") is None
