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
from everstep.policy.rules import RULES, Rule, is_secret_name
from everstep.policy.suspicion import BACKWARDS, LONGEST_NAME, NAME, OPTION, SET_TO, Suspicion
from everstep.policy.walk import rebuild

PLACEHOLDER = b"[redacted:"  # what stands where a secret was begins with it
_PLACEHOLDER = Pattern(r"\[redacted:[a-z0-9-]+:[0-9a-f]{16}\]")

_IN_QUOTES = Pattern(rf"[\"'](?={NAME}\\*[\"']\s*:\s*b?(\\*)([\"']))")
_IN_QUERY = Pattern(rf"(?:\?|&(?:amp;)?){NAME}=([^\s&;#\"'<>\\]+)")
# What is read from the beginning of a part ends where another begins: of one made of beginnings each byte is read once.
_IN_HEADER = r"(?:[^\r\nf]|f(?!orm-data; name=))"
_IN_PART = Pattern(
    rf"form-data; name=\"{NAME}\"{_IN_HEADER}*+\r\n(?:{_IN_HEADER}++\r\n)*+\r\n((?:[^\r]++|\r(?!\n--))++)"
)
_OPTION = Pattern(rf"{OPTION}=(.+)", re.DOTALL)
_ASSIGNED = Pattern(SET_TO)
_BACKWARDS = Pattern(BACKWARDS)

# Of JSON Schema what says no value: in `const`, `enum` and `examples` there may be a secret, and in a `default`.
_OF_ONE = frozenset({"additionalProperties", "items"})
_OF_SEVERAL = frozenset({"allOf", "anyOf", "oneOf"})
_SCHEMA = _OF_ONE | _OF_SEVERAL | {
    "$ref", "default", "deprecated", "description", "format", "maxItems", "maxLength", "minItems", "minLength",
    "nullable", "pattern", "properties", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly",
}  # fmt: skip
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_EMPTY = (str, bytes, list, tuple, dict, set, frozenset)
_REMEMBERED = 4096
_SHORT = 256


def only_secrets_differ(old: Any, new: Any) -> bool:
    """Whether two texts that differ are the same but for their placeholders."""
    is_text = isinstance(old, str) and isinstance(new, str)
    return is_text and _PLACEHOLDER.sub("", old) == _PLACEHOLDER.sub("", new)


class _Verdicts(dict[str, bool]):
    """Verdicts on names. Those that are harmless are remembered: a program uses the same few again and again."""

    def __init__(self, judge: Callable[[str], bool]) -> None:
        self._judge = judge

    def __missing__(self, name: str) -> bool:
        verdict = self._judge(name)
        if not verdict and len(name) <= _SHORT:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[name] = verdict
        return verdict


class Gate:
    """Encodes values with every secret in them replaced. One gate serves all threads.

    Replaced are what the rules match (RULES, and `extra` rules before them), what stands under the name of a secret,
    and every Secret. `key` is asked for when the first secret is met.

    What `plain(value, gate.names)` gives, and is not suspicious, is what `gate` gives.
    """

    def __init__(self, key: Callable[[], bytes] = load_key, extra: Iterable[Rule] = ()) -> None:
        self._key = key
        given = tuple(extra)
        self._rules = (*given, *RULES)
        self.names = _Verdicts(is_secret_name)
        self._unfit = _Verdicts(lambda name: self.names[name] or self.text(name) != name)  # for the state
        self._clean: set[str] = set()
        self.is_suspicious = Suspicion(self._rules, self.names).is_suspicious
        for rule in given:
            re.compile((rule.loose or "").encode())  # one that cannot be searched is refused now

    def gate(self, value: Any) -> bytes:
        """The encoded value without its secrets. Raises UnstorableError as `encode` does, also without secrets."""
        try:
            data, seen = scan_encode(value, self.names)
        except UnstorableError as error:
            refused = self._cleaned(error)
        else:
            return encode(self._replace(view(data))) if seen or self.is_suspicious(data) else data
        # Outside the handler, so that the error does not carry the one it replaces.
        raise refused

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
        unfit = self._unfit
        for op in ops:
            path = op[1]
            if unfit[path] if type(path) is str else any(type(part) is str and unfit[part] for part in path):
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
        named = next((at for at, part in enumerate(parts) if type(part) is str and self.names[part]), None)
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
        if self.names[name] and not _nothing_to_hide(value) and not _is_schema(value):
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
        return Redacted(self._placeholder(rule, scan_encode(value, self.names)[0], person=b"value"))

    def _placeholder(self, rule: str, secret: bytes, person: bytes = b"text") -> str:
        digest = blake2b(secret, digest_size=8, key=self._key(), person=person).hexdigest()
        return f"[redacted:{rule}:{digest}]"

    def _string(self, text: str) -> str:
        """The text with placeholders in it; a Redacted if nothing else is left of it."""
        spans = self._spans(text) if self.is_suspicious(text.encode("utf-8", "surrogatepass")) else None
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
            if self.names[match[1]]:
                start = match.end(3)
                end = _closing(text, start, len(match[2]), match[3])
                if end > start:
                    yield start, end, "field"
        option = _OPTION.fullmatch(text)
        for match in (*_IN_QUERY.finditer(text), *_IN_PART.finditer(text), *([option] if option else ())):
            if self.names[match[1]]:
                yield *match.span(2), "field"
        for match in _ASSIGNED.finditer(text):
            found = _BACKWARDS.match(text[max(0, match.start() - LONGEST_NAME) : match.start()][::-1])
            if found and self.names[found[0][::-1]]:
                start = match.end()
                end = _closing(text, start, len(match[1]), match[2])
                if end > start:
                    yield start, end, "field"


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


def _is_schema(value: Any) -> bool:
    """Whether a value only says of what kind another is, as for a tool's parameter that is a password."""
    if not isinstance(value, dict) or not value.keys() <= _SCHEMA or not _nothing_to_hide(value.get("default")):
        return False
    types, parts = value.get("type", []), list(_parts_of(value))
    kinds = types if isinstance(types, list) else [types]
    says = kinds or parts or str(value.get("$ref")).startswith("#")
    return (
        bool(says) and all(isinstance(each, str) and each in _TYPES for each in kinds) and all(map(_is_schema, parts))
    )


def _parts_of(schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas that one is made of. What stands in the place of one is given, too."""
    yield from (schema[name] for name in _OF_ONE & schema.keys() if not isinstance(schema[name], bool))
    for name in _OF_SEVERAL & schema.keys():
        yield from schema[name] if isinstance(schema[name], list) else [schema[name]]
    named = schema.get("properties", {})
    yield from named.values() if isinstance(named, dict) else [named]


def _nothing_to_hide(value: Any) -> bool:
    return value is None or isinstance(value, bool) or (isinstance(value, _EMPTY) and not value)
