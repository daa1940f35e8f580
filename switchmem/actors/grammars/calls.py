"""Calls such as ``type(content='it's')`` in free text, read without ever running anything.

Models leave out closing quotes and parentheses, do not escape, and break lines; what they meant is plain in most cases.
A quote ends a text only where a parenthesis, another argument or the end of the answer follows it.
Every function here takes a time linear in the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Container, Mapping
from dataclasses import dataclass

from switchmem.actors.grammars.base import ParseReason, Unreadable

_MARKER = re.compile(r"\bAction[ \t]*:", re.IGNORECASE)
_NEW_LINE_MARKER = re.compile(r"\n[ \t*#]*(?:Thought|Action)[ \t*]*:", re.IGNORECASE)
_HEAD = re.compile(r"[\s`*]*([A-Za-z_][\w.]*)[ \t]*\(")
_NAME = re.compile(r"\b([A-Za-z_]\w*+)[ \t]*\(")
_BARE = re.compile(r"[\s`*]*([A-Za-z_]\w*)[ \t`*.]*(?=\n|<|\Z)")
_TEXT_START = re.compile(r"\s*(?:([A-Za-z_]\w*)\s*=\s*)?")
_QUOTE_OR_ESCAPE = re.compile(r"\\.|['\"]", re.DOTALL)
_CLOSING = re.compile(r"\s*(?:\)|,\s*[A-Za-z_]\w*\s*=|<\||\Z)")
_PARENTHESIS = re.compile(r"[()]|\n[ \t]*\n")
_KEY = re.compile(r"(?:^|(?<=[\s,(]))([A-Za-z_]\w*)\s*=\s*")
_ESCAPE = re.compile(r"\\([nrt'\"\\])")
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t"}
_LONGEST = 2000


@dataclass(frozen=True)
class Call:
    """A call that was found.

    Args:
        name: lower case, without a module before it.
        arguments: texts by name, without quotes; positional ones together under "".
        end: where the text goes on.
    """

    name: str
    arguments: Mapping[str, str]
    end: int


class CallReader:
    """Reads the calls of one answer.

    Args:
        text: the answer.
        verbal: names, in lower case, of the calls whose argument is free text.
    """

    def __init__(self, text: str, verbal: Container[str]) -> None:
        self.text = text
        self._verbal = verbal
        self._closing: dict[str, list[int]] = {"'": [], '"': []}
        for match in _QUOTE_OR_ESCAPE.finditer(text):
            if match[0] in self._closing and _CLOSING.match(text, match.end()):
                self._closing[match[0]].append(match.start())
        self._breaks = [match.start() for match in _NEW_LINE_MARKER.finditer(text)]

    def last_action(self, known: Container[str], bare: Container[str]) -> Call:
        """The first call behind the last ``Action:``; without one, the first known call of the text.

        An ``Action:`` inside a call's text does not count, nor one that no call follows where there is an earlier call.

        Args:
            known: names of calls, in lower case.
            bare: those that may stand without parentheses.

        Raises:
            Unreadable: if there is none.
        """
        markers = list(_MARKER.finditer(self.text))
        stops = [marker.start() for marker in markers[1:]] + [len(self.text)]
        found = self._leading(known, markers[0].start() if markers else len(self.text))
        tail, end = 0, found.end if found else 0
        for marker, stop in zip(markers, stops, strict=False):
            if marker.start() >= end:
                tail = marker.end()
                call = self.call_at(tail, stop) or self._bare_at(tail, bare)
                found, end = (call, call.end) if call else (found, end)
        return found or self._first_known(tail, known, bare)

    def call_at(self, start: int, stop: int) -> Call | None:
        """The call at a position, behind blanks alone; None where there is none.

        Args:
            start: where it starts.
            stop: where it ends at the latest, except inside a closed text.

        Raises:
            Unreadable: if its places do not come to an end.
        """
        head = _HEAD.match(self.text, start)
        if head is None:
            return None
        name = head[1].rpartition(".")[2].lower()
        if name in self._verbal:
            key, value, end = self._text_argument(head.end(), stop)
            return Call(name, {key or "": value} if value is not None else {}, end)
        return Call(name, *self._arguments(head.end(), stop))

    def _leading(self, known: Container[str], stop: int) -> Call | None:
        """The known call with which the text starts; None where it starts otherwise."""
        head = _HEAD.match(self.text)
        return self.call_at(0, stop) if head and head[1].lower() in known else None

    def _bare_at(self, start: int, bare: Container[str]) -> Call | None:
        match = _BARE.match(self.text, start)
        if match is None or match[1].lower() not in bare:
            return None
        return Call(match[1].lower(), {}, match.end())

    def _first_known(self, tail: int, known: Container[str], bare: Container[str]) -> Call:
        names = (m for m in _NAME.finditer(self.text, tail) if m[1].lower() in known)
        first = next(names, None)
        call = self._bare_at(tail, bare) if first is None else self.call_at(first.start(), len(self.text))
        if call is not None:
            return call
        word = _BARE.match(self.text, tail)
        if word is None:
            raise Unreadable(ParseReason.NO_ACTION)
        raise Unreadable(ParseReason.MISSING_ARGUMENT if word[1].lower() in known else ParseReason.UNKNOWN_ACTION)

    def _text_argument(self, start: int, stop: int) -> tuple[str | None, str | None, int]:
        """Name, text and end of the only argument of a call."""
        match = _TEXT_START.match(self.text, start)
        key, at = (match[1], match.end()) if match else (None, start)
        quote = self.text[at : at + 1]
        if quote == ")":
            return key, None, at + 1
        if quote not in self._closing:
            line = self._line_end(at, stop)
            value = self.text[at:line].rstrip()
            return key, value.removesuffix(")").rstrip(), line
        closings, limit = self._closing[quote], self._next_break(at)
        index = bisect_left(closings, at + 1)
        if index == len(closings) or closings[index] >= limit:
            end = min(stop, limit)
            value = self.text[at + 1 : end].rstrip()
            return key, unescape(value.removesuffix(")").removesuffix(quote)), end
        end = self._last_closing(closings[index], quote, stop)
        return key, unescape(self.text[at + 1 : end]), end + 1

    def _last_closing(self, closing: int, quote: str, stop: int) -> int:
        """A quote and parenthesis inside a text, as in ``'say ('hi') now'``: the line's last ones close it then."""
        line = self._line_end(closing, stop)
        rest = self.text[closing + 1 : line].rstrip()
        is_inner = rest.lstrip().startswith(")") and rest.endswith(f"{quote})")
        if not is_inner or _NAME.search(rest):
            return closing
        return closing + 1 + len(rest) - 2

    def _line_end(self, start: int, stop: int) -> int:
        end = self.text.find("\n", start, stop)
        return stop if end < 0 else end

    def _next_break(self, start: int) -> int:
        index = bisect_left(self._breaks, start)
        return self._breaks[index] if index < len(self._breaks) else len(self.text)

    def _arguments(self, start: int, stop: int) -> tuple[dict[str, str], int]:
        """Arguments up to the closing parenthesis, a blank line, or ``stop``."""
        depth, end, after = 1, stop, stop
        for match in _PARENTHESIS.finditer(self.text, start, stop):
            depth += {"(": 1, ")": -1}.get(match[0], -depth)
            if depth <= 0:
                end, after = match.span()
                break
        if end - start > _LONGEST:
            raise Unreadable(ParseReason.BAD_PLACE)
        first, *pieces = _KEY.split(self.text[start:end])
        arguments = {"": _value(first)} if _value(first) else {}
        for key, value in zip(pieces[::2], pieces[1::2], strict=True):
            arguments.setdefault(key.lower(), _value(value))
        return arguments, after


def _value(raw: str) -> str:
    line = raw.strip().partition("\n")[0]
    return line.strip(" \t,'\"")


def unescape(text: str) -> str:
    r"""Read ``\n``, ``\t``, ``\r``, quotes and backslashes; any other backslash is itself.

    >>> unescape(r"it\'s \d")
    "it's \\d"
    """
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text)


def escape(text: str) -> str:
    r"""Inverse of `unescape`, for single quotes and on one line.

    >>> escape("it's\n")
    "it\\'s\\n"
    """
    text = text.replace("\\", "\\\\").replace("'", "\\'")
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
