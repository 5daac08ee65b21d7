"""The gate that every value passes before it is written: what must not be kept is replaced by a placeholder.

A placeholder is `[redacted:RULE:DIGEST]`. The digest is keyed, so equal secrets are seen to be equal, and nobody
without the key can test a guess. Strings are digested as their text, so a token has one digest wherever it stands.

Nearly everything that passes is clean, so the way of the clean is short: encode, then a few searches in the encoded
bytes, where every string lies in one piece. Only what they find suspicious is taken apart, string by string.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from everstep.codec.delta import DELETE, SET, Op
from everstep.codec.values import encode, scan_encode, view
from everstep.errors import UnstorableError
from everstep.model import Redacted, Secret
from everstep.policy.key import load_key
from everstep.policy.patterns import Pattern
from everstep.policy.rules import HINTS, NEAR, RULES, RUN, Rule, is_secret_name
from everstep.policy.walk import rebuild

PLACEHOLDER = b"[redacted:"  # what stands where a secret was begins with it
_PLACEHOLDER = Pattern(r"\[redacted:[a-z0-9-]+:[0-9a-f]{16}\]")

# Bytes to two letters: x for what tokens are made of, a space for the rest.
_TOKEN_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_SHAPE = bytes(ord("x") if byte in _TOKEN_BYTES else ord(" ") for byte in range(256))
_LONG_RUN = b"x" * RUN

# A name and the opening quote of its value, as in JSON or a printed dict that is itself text; backslashes where such
# text was quoted again. And a name in the query of a URL or in a form. In bytes one pattern for each first character:
# a search jumps to a character, and crawls to one of several.
_NAME = "([A-Za-z][A-Za-z0-9_.-]{1,63})"
_IN_QUOTES = Pattern(rf"[\"'](?={_NAME}\\*[\"']\s*:\s*b?(\\*)([\"']))")
_IN_QUERY = Pattern(rf"(?:\?|&(?:amp;)?){_NAME}=([^\s&;#\"'<>\\]+)")
_NAMED = [
    (ord(first), Pattern(f"{re.escape(first)}{rest}".encode()))
    for first, rest in [
        ('"', rf"(?={_NAME}\\*[\"']\s*:\s*b?\\*[\"'])"),
        ("'", rf"(?={_NAME}\\*[\"']\s*:\s*b?\\*[\"'])"),
        ("?", f"(?={_NAME}=)"),
        ("&", f"(?:amp;)?(?={_NAME}=)"),
    ]
]
# What a name is set to, as in code or in the printed form of an object: `Login(user='me', password='...')`. The search
# jumps from one equals sign to the next and looks back for the name.
_EQUALS = ord("=")
_SET_TO = r"=b?(\\*)([\"'])"
_ASSIGNED, _ASSIGNED_BYTES = Pattern(_SET_TO), Pattern(_SET_TO.encode())
_BACKWARDS, _BACKWARDS_BYTES = Pattern("[A-Za-z0-9_.-]{2,64}"), Pattern(rb"[A-Za-z0-9_.-]{2,64}")
_LONGEST_NAME = 64
# The encoding of a list or tuple of _TWO whose first item is a str or bytes that may be the name of a secret.
_TWO = 0x92
_PAIR = Pattern(
    rb"\x92(?:[\xa1-\xbf]|[\xd9\xc4].)[A-Za-z0-9_.-]{0,60}?(?i:%s)" % HINTS.encode(),
    re.DOTALL,
)
# The dtype of an array of text: four bytes a character, so the searches would not see it.
_U = ord("U")
_WIDE_TEXT = Pattern(rb"U(?<=[<>]U)[1-9]")

_EMPTY = (str, bytes, list, tuple, dict, set, frozenset)
_TRIES = 16
_REMEMBERED = 4096
_SHORT = 256
# Letters from common to rare: a literal is looked for only where its rarest character is, which is quicker to see.
_COMMON = b" etaoinsrhldcumfpgwybvkxjqz_-/:.,ETAOINSRHLDCUMFPGWYBVKXJQZ"


class _Names(dict[str, bool]):
    """Verdicts on names, remembered: a program uses the same few names again and again."""

    def __missing__(self, name: str) -> bool:
        verdict = is_secret_name(name)
        if len(name) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[name] = verdict
        return verdict


class Gate:
    """Encodes values with every secret in them replaced. One gate serves all threads.

    Replaced are what the rules match (RULES, and `extra` rules before them), what stands under the name of a secret,
    and every Secret. `key` is asked for when the first secret is met.
    """

    def __init__(self, key: Callable[[], bytes] = load_key, extra: Iterable[Rule] = ()) -> None:
        self._key = key
        given = tuple(extra)
        self._rules = (*given, *RULES)
        self._names = _Names()
        self._clean: set[str] = set()
        in_run = [rule for rule in self._rules if rule.in_run]
        self._prefix = _any_of(literal for rule in in_run for literal in rule.literals)
        self._in_run = Pattern("|".join(f"(?:{_ungrouped(rule.loose)})" for rule in in_run).encode())
        self._anywhere = [
            (min(literal, key=_commonness), literal, Pattern(rule.loose.encode()) if rule.loose else None)
            for rule in self._rules
            if not rule.in_run
            for literal in map(str.encode, rule.literals)
        ]
        for rule in given:
            re.compile((rule.loose or "").encode())  # one that cannot be searched is refused now
        self._always = any(not rule.literals for rule in self._rules)

    def gate(self, value: Any) -> bytes:
        """The encoded value without its secrets. Raises UnstorableError as `encode` does, also without secrets."""
        try:
            data, seen = scan_encode(value, self._names)
        except UnstorableError as error:
            refused = self._cleaned(error)
        else:
            return encode(self._replace(view(data))) if seen or self._suspicious(data) else data
        # Outside the handler, so that the error does not carry the one it replaces.
        raise refused

    def both(self, first: Any, second: Any) -> tuple[bytes, bytes]:
        """`gate` for two values, clean ones at the price of little more than one: their bytes are searched together."""
        try:
            head, seen = scan_encode(first, self._names)
            tail, also_seen = scan_encode(second, self._names)
        except UnstorableError:
            seen = also_seen = True  # `gate` raises it again, without secrets
        if seen or also_seen or self._suspicious(head + tail):
            return self.gate(first), self.gate(second)
        return head, tail

    def text(self, text: str) -> str:
        """The text without its secrets: for names, ids, tags and messages."""
        if text in self._clean:
            return text
        cleaned = self._string(text)
        if cleaned != text:
            return str.__str__(cleaned)
        if len(text) <= _SHORT:
            if len(self._clean) >= _REMEMBERED:
                self._clean.clear()
            self._clean.add(text)
        return text

    def named_text(self, name: str, text: str) -> str:
        """The text as it may stand under a name: a placeholder under the name of a secret."""
        return str.__str__(self._under(name, text))

    def named(self, ops: Iterable[Sequence[Any]]) -> bool:
        """Whether an operation goes to, or through, the name of a secret, or a key that holds one."""
        names, clean = self._names, self._clean
        for op in ops:
            for part in (op[1],) if type(op[1]) is str else op[1]:
                if type(part) is str and (names[part] or (part not in clean and self.text(part) != part)):
                    return True
        return False

    def operations(self, ops: Iterable[Op], state: Mapping[str, Any] | None = None) -> list[Op]:
        """The operations that do to the stored state what `ops` do to the real one.

        `gate` knows a secret by the name above it; in an operation the name stands in the path, beside the value. So
        whatever goes to such a name, or below it, sets the name to a new placeholder: of what stands there in
        `state`, the real one after the operations, or else of what the operation carries. A key that holds a secret
        is cleaned as in a dict: a path is made of plain strings, so `gate` must not find anything in it.
        """
        return [self._operation(op, state) for op in ops]

    def _operation(self, op: Op, state: Any) -> Op:
        code, path, *rest = op
        parts = path if type(path) is list else [path]
        named = next((at for at, part in enumerate(parts) if type(part) is str and self._names[part]), None)
        stored = [self.text(part) if type(part) is str else part for part in parts]
        if named is None or (code == DELETE and named == len(parts) - 1):
            return op if stored == parts else [code, stored if type(path) is list else stored[0], *rest]
        value: Any = rest[-1] if rest else parts
        if state is not None and not (code == SET and named == len(parts) - 1):
            value = state
            for part in parts[: named + 1]:
                value = value[part] if part in value or type(value) is list else None
        return [SET, stored[: named + 1], value if _nothing_to_hide(value) else self._whole("field", value)]

    def _cleaned(self, error: UnstorableError) -> UnstorableError:
        message = str(error)
        if self.text(message) == message:
            return error
        return UnstorableError(self.text(error.path), self.text(error.reason), error.way_out)

    # The short way: is there anything to look at?

    def _suspicious(self, data: bytes) -> bool:
        """Whether encoded bytes may hold a secret. Never False when they do.

        This runs for every step that is recorded. A number in bytes is found ten times as fast as bytes in bytes,
        hence the look for one character before each search.
        """
        if self._always:
            return True
        shape = data.translate(_SHAPE)
        start = shape.find(_LONG_RUN)
        if start >= 0 and self._token_in_runs(data, shape, start):
            return True
        for rarest, literal, loose in self._anywhere:
            if rarest in data and literal in data and (loose is None or loose.search(data)):
                return True
        for first, pattern in _NAMED:
            if first in data and self._secret_among(pattern.findall(data)):
                return True
        if _EQUALS in data and self._secret_among(_set_names(data)):
            return True
        return (_TWO in data and _PAIR.search(data) is not None) or (_U in data and _WIDE_TEXT.search(data) is not None)

    def _token_in_runs(self, data: bytes, shape: bytes, start: int) -> bool:
        """Whether one of the long runs is a token. Most are ids, so only the runs are looked at, not all of `data`."""
        find, prefix = shape.find, self._prefix.search
        while start >= 0:
            end = find(b" ", start + RUN)
            if end < 0:
                end = len(data)
            found = prefix(data, start - NEAR if start > NEAR else 0, end)
            tries = 0
            while found:
                # A run full of beginnings is looked at closely instead: trying each of them could take forever.
                if self._in_run.match(data, found.start()) or tries == _TRIES:
                    return True
                tries += 1
                found = prefix(data, found.start() + 1, end)
            start = find(_LONG_RUN, end)
        return False

    def _secret_among(self, found: list[bytes]) -> bool:
        return bool(found) and any(self._names[name.decode()] for name in set(found))

    # The long way: take it apart, replace, put it together.

    def _replace(self, node: Any) -> Any:
        """The value of a view with its secrets replaced."""
        if isinstance(node, Redacted):
            return node
        if isinstance(node, str):
            return self._string(node)
        if isinstance(node, bytes | bytearray):
            return self._bytes(node)
        if isinstance(node, Secret):
            return self._whole("secret", node.reveal())
        return rebuild(node, self._replace, self._under)

    def _under(self, name: str, value: Any) -> Any:
        """What is kept of a value that stands under a name."""
        if self._names[name] and not _nothing_to_hide(value):
            return self._whole("field", value)
        return self._replace(value)

    def _whole(self, rule: str, value: Any) -> Redacted:
        if isinstance(value, Secret):
            return self._whole(rule, value.reveal())
        if isinstance(value, Redacted):
            return value
        if isinstance(value, str):
            if _PLACEHOLDER.fullmatch(value):
                return Redacted(value)
            return Redacted(self._placeholder(rule, value.encode()))
        return Redacted(self._placeholder(rule, scan_encode(value, self._names)[0], person=b"value"))

    def _placeholder(self, rule: str, secret: bytes, person: bytes = b"text") -> str:
        digest = blake2b(secret, digest_size=8, key=self._key(), person=person).hexdigest()
        return f"[redacted:{rule}:{digest}]"

    def _string(self, text: str) -> str:
        """The text with placeholders in it; a Redacted if nothing else is left of it."""
        spans = self._spans(text) if self._suspicious(text.encode("utf-8", "surrogatepass")) else None
        if not spans:
            return text
        if spans[0][:2] == (0, len(text)):
            return Redacted(self._placeholder(spans[0][2], text.encode("utf-8", "surrogatepass")))
        parts: list[str] = []
        done = 0
        for start, end, rule in spans:
            parts += text[done:start], self._placeholder(rule, text[start:end].encode("utf-8", "surrogatepass"))
            done = end
        return "".join((*parts, text[done:]))

    def _bytes(self, node: bytes | bytearray) -> Any:
        text = node.decode("latin-1")
        cleaned = self._string(text)
        if cleaned == text:
            return node
        return cleaned if isinstance(cleaned, Redacted) else type(node)(cleaned.encode("latin-1"))

    def _spans(self, text: str) -> list[tuple[int, int, str]]:
        """Where the secrets of a text are: start, end and rule, in order, none touching what another covers."""
        kept = [match.span() for match in _PLACEHOLDER.finditer(text)]
        starts = [start for start, _ in kept]
        merged: list[tuple[int, int, str]] = []
        # Sorting is stable: of two that begin together, the one of the earlier rule gives its name.
        for start, end, rule in sorted(self._matches(text), key=lambda span: span[0]):
            before = bisect_right(starts, start) - 1
            if before >= 0 and end <= kept[before][1]:
                continue  # what was replaced before stays as it is
            if merged and start < merged[-1][1]:
                first, last, name = merged[-1]
                merged[-1] = first, max(last, end), name
            else:
                merged.append((start, end, rule))
        return merged

    def _matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        for rule in self._rules:
            if rule.literals and not any(literal in text for literal in rule.literals):
                continue
            group = "secret" if "secret" in rule.regex.groupindex else 0
            yield from ((*match.span(group), rule.name) for match in rule.regex.finditer(text))
        yield from self._named_matches(text)

    def _named_matches(self, text: str) -> Iterator[tuple[int, int, str]]:
        for match in _IN_QUOTES.finditer(text):
            if self._names[match[1]]:
                start = match.end(3)
                end = _closing(text, start, len(match[2]), match[3])
                if end > start:
                    yield start, end, "field"
        for match in _IN_QUERY.finditer(text):
            if self._names[match[1]]:
                yield *match.span(2), "field"
        for match in _ASSIGNED.finditer(text):
            found = _BACKWARDS.match(text[max(0, match.start() - _LONGEST_NAME) : match.start()][::-1])
            if found and self._names[found[0][::-1]]:
                start = match.end()
                end = _closing(text, start, len(match[1]), match[2])
                if end > start:
                    yield start, end, "field"


def _set_names(data: bytes) -> list[bytes]:
    """The names that something in quotes is set to."""
    before = (data[max(0, match.start() - _LONGEST_NAME) : match.start()] for match in _ASSIGNED_BYTES.finditer(data))
    # Matched from behind: the name ends where the equals sign is.
    found = (_BACKWARDS_BYTES.match(chunk[::-1]) for chunk in before)
    return [match[0][::-1] for match in found if match]


def _closing(text: str, start: int, slashes: int, quote: str) -> int:
    r"""Where the quoted value that begins at `start` ends.

    Text that was quoted n times has 2^n - 1 backslashes before its quotes; a backslash in it has become 2^(n+1).
    """
    at = text.find(quote, start)
    while at >= 0:
        before = at
        while before > start and text[before - 1] == "\\":
            before -= 1
        if at - before < slashes:
            return before
        if (at - before) % (2 * (slashes + 1)) == slashes:
            return at - slashes
        at = text.find(quote, at + 1)
    return len(text)


def _nothing_to_hide(value: Any) -> bool:
    return value is None or isinstance(value, bool) or (isinstance(value, _EMPTY) and not value)


def _commonness(byte: int) -> int:
    return -_COMMON.find(byte) if byte in _COMMON else -len(_COMMON)


def _any_of(literals: Iterable[str]) -> Pattern:
    """A pattern for all literals, sorted by first letter: the search tries one group instead of every literal."""
    groups: dict[str, list[str]] = {}
    for literal in literals:
        groups.setdefault(literal[0], []).append(re.escape(literal[1:]))
    return Pattern("|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in groups.items()).encode())


def _ungrouped(loose: str | None) -> str:
    # A group name may be used once in a pattern, and here it is not needed.
    return (loose or "").replace("(?P<secret>", "(?:")
