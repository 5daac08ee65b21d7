from __future__ import annotations

import enum
import json
import re
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.codec.values import decode, encode, view
from everstep.errors import RedactionKeyError, UnstorableError
from everstep.model import Redacted, Secret
from everstep.policy.redaction import Gate
from everstep.policy.rules import Rule
from tests.unit.policy.samples import KEY, MIXED, MORE, SAMPLES, Sample

TOKEN = "gh" + "p_" + MIXED[:36]
OPAQUE = "tr0ub4dor&3"
PLACEHOLDER = re.compile(r"\[redacted:[a-z0-9-]+:[0-9a-f]{16}\]")


@dataclass(frozen=True)
class Login:
    user: str
    password: str


class Form(NamedTuple):
    note: str
    api_key: str


class Model(pydantic.BaseModel):
    note: str
    hidden: pydantic.SecretStr = pydantic.SecretStr("")


class Open(pydantic.BaseModel, extra="allow"):
    note: str


class Field(enum.Enum):
    PASSWORD = 1


@pytest.fixture
def gate() -> Gate:
    return Gate(lambda: KEY)


def no_key() -> bytes:
    raise AssertionError("a clean value needs no key")


# Where a token may stand

PLACES: list[Callable[[str], Any]] = [
    lambda t: t,
    lambda t: f"{t} at the start",
    lambda t: f"at the end {t}",
    lambda t: f"ünï cödé {t} 日本語 {t}é",
    lambda t: f"(“{t}”)",
    lambda t: {"messages": [{"role": "user", "content": f"my key is {t}, keep it"}]},
    lambda t: {t: 1},
    lambda t: {f"user {t}": {"n": [t]}},
    lambda t: {1: t, (2, t): None},
    lambda t: (1, (t, None)),
    lambda t: {t, "other"},
    lambda t: frozenset({(t, 1)}),
    lambda t: [deque([t], 3), OrderedDict(a=t), defaultdict(list, a=[t]), Counter([t])],
    lambda t: t.encode(),
    lambda t: b"\x00\xff" + t.encode() + b"\xff",
    lambda t: [bytearray(t.encode() + b".")],
    lambda t: Login(f"me {t}", ""),
    lambda t: Form(t, ""),
    lambda t: Model(note=f"see {t}"),
    lambda t: f"ValueError: cannot reach it with {t!r}",
    lambda t: json.dumps({"args": {"text": f"line\n{t}\tx"}}),
    lambda t: json.dumps({"outer": json.dumps({"text": f"line\n{t}"})}),
    lambda t: f"caf\\u00e9{t}",
    lambda t: f"https://example.com/?next=a%3D{t}",
    lambda t: ["x" * 65, t, 65, "A" * 48 + " " + t, 48],
    lambda t: np.array([[t, "b"]]),
    lambda t: np.array([t.encode()]),
    lambda t: [np.str_(t), np.bytes_(t.encode())],
    lambda t: Open.model_validate({"note": "", "found": [t]}),
]


@pytest.mark.parametrize("place", range(len(PLACES)))
@pytest.mark.parametrize("sample", [*SAMPLES, *MORE], ids=lambda sample: sample.rule)
def test_no_token_is_left_wherever_it_stands(gate: Gate, sample: Sample, place: int) -> None:
    """Promise 10."""
    secret = sample.secret or sample.text
    if "\n" in sample.text or not sample.text.isascii():
        secret = secret.partition("\n")[2][:20] or "w\xf6rd"  # what no escape changes
    data = gate.gate(PLACES[place](sample.text))
    wide = secret.encode("utf-32-le")
    if len(secret) > 1:
        assert secret.encode() not in data
        assert wide not in data
    assert f"[redacted:{sample.rule}:" in data.decode("latin-1").replace("\0", "")


def test_a_path_loses_its_token_and_stays_a_path(gate: Gate) -> None:
    cleaned = decode(gate.gate(PurePosixPath("a", TOKEN, "b")))
    assert type(cleaned) is PurePosixPath
    assert PLACEHOLDER.fullmatch(cleaned.parts[1])


def test_containers_and_classes_keep_their_types(gate: Gate) -> None:
    value = [deque([TOKEN], 3), OrderedDict(a=TOKEN), defaultdict(list, a=[TOKEN]), Login(TOKEN, "x"), Form(TOKEN, "")]
    cleaned = decode(gate.gate(value))
    assert [type(item) for item in cleaned] == [type(item) for item in value]
    assert cleaned[0].maxlen == 3
    assert cleaned[2].default_factory is list
    assert isinstance(cleaned[3].user, Redacted)


def test_a_token_behind_the_beginning_of_another_is_found(gate: Gate) -> None:
    """Promise 10."""
    assert PLACEHOLDER.sub("#", gate.text(f"AKIA-npm_-{TOKEN}")) == "AKIA-npm_-#"


@pytest.mark.parametrize(
    "beginning",
    [
        "sk-", "eyJ", "-eyJ", ".eyJ", "://a:", "-----BEGIN PRIVATE KEY-----", '"password": "\\', "Basic a", "\\",
        "AKIA", 'form-data; name="password"', 'form-data; name="password"\r\n', 'form-data; name="a"\r\n\r\nb',
    ],
)  # fmt: skip
def test_a_text_made_of_beginnings_does_not_take_forever(gate: Gate, beginning: str) -> None:
    text = '"password": "' + beginning * (200_000 // len(beginning))
    assert gate.text(gate.text(text)) == gate.text(text)


# Names


@pytest.mark.parametrize(
    "value",
    [
        {"password": OPAQUE},
        {"a": [{"apiKey": OPAQUE}]},
        {"Authorization": [OPAQUE]},
        {"credentials": {"user": "me", "word": OPAQUE}},
        {"secret": OPAQUE.encode()},
        {"client_secret": (OPAQUE, 1)},
        {1: {"cookie": {"a": OPAQUE}}},
        {Field.PASSWORD: OPAQUE},
        OrderedDict(access_token=OPAQUE),
        Login("me", OPAQUE),
        [Form("me", OPAQUE)],
        {"headers": [["Accept", "x"], ["Authorization", OPAQUE]]},
        {"headers": [("X-Api-Key", OPAQUE)]},
        [(b"accept", b"x"), (b"cookie", OPAQUE.encode())],
        (("password", OPAQUE), ("user", "me")),
        json.dumps({"user": "me", "password": OPAQUE, "n": 1}),
        json.dumps({"body": json.dumps({"api_key": OPAQUE})}),
        json.dumps({"a": json.dumps({"b": json.dumps({"api_key": f'"{OPAQUE}\\"'})})}),
        json.dumps({"password": OPAQUE}).encode(),
        f"called with {{'password': '{OPAQUE}', 'n': 1}}",
        f"{{'token': 1, 'secret': b'{OPAQUE}'}}",
        f'{{"password": "{OPAQUE}',
        f"https://example.com/?q=1&api_key={OPAQUE.replace('&', '')}#x",
        ["login", "--password", OPAQUE, "--verbose"],
        ("--api-key", OPAQUE),
        ["login", "--user", "me", "--token", OPAQUE],
        {"args": ["login", f"--client-secret={OPAQUE}"]},
        f"--token={OPAQUE}",
        f'--x\r\nContent-Disposition: form-data; name="password"\r\n\r\n{OPAQUE}\r\n--x--\r\n',
        f'--x\r\nContent-Disposition: form-data; name="api_key"\r\nContent-Type: text/plain\r\n\r\n{OPAQUE}\r\n--x',
        f'\r\n--x\r\nContent-Disposition: form-data; name="secret"\r\n\r\n{OPAQUE}\r\n--x\r\n'.encode() + b"\xff",
        Model(note="x", hidden=pydantic.SecretStr(OPAQUE)),
        Secret(OPAQUE),
        {"x": [Secret({"deep": (OPAQUE,)})]},
        {"password": Secret(OPAQUE)},
    ],
    ids=repr,
)
def test_what_stands_under_the_name_of_a_secret_is_replaced(gate: Gate, value: Any) -> None:
    """Promise 10."""
    data = gate.gate(value)
    assert OPAQUE.encode() not in data
    assert OPAQUE.replace("&", "").encode() not in data
    assert len(PLACEHOLDER.findall(data.decode("latin-1"))) == 1


@pytest.mark.parametrize("value", [12345, 1.5, ["x"], {"a": 1}, b"x", "x", (None,)])
def test_a_value_under_such_a_name_is_replaced_whole_whatever_its_type(gate: Gate, value: Any) -> None:
    [kept] = decode(gate.gate({"secret": value})).values()
    assert type(kept) is Redacted
    assert PLACEHOLDER.fullmatch(kept)


@pytest.mark.parametrize("value", [None, True, False, "", b"", [], {}])
def test_a_value_that_hides_nothing_is_kept(value: Any) -> None:
    assert Gate(no_key).gate({"password": value}) == encode({"password": value})


def test_text_beside_a_quoted_secret_is_kept(gate: Gate) -> None:
    text = json.dumps({"user": "me", "password": 'a"b\\', "after": "x"})
    cleaned = json.loads(gate.text(text))
    assert PLACEHOLDER.fullmatch(cleaned.pop("password"))
    assert cleaned == {"user": "me", "after": "x"}


def test_two_words_that_are_no_pair_are_kept() -> None:
    value = {"required_fields": ["password", "user"], "rows": [["password", "user", 1]], "mixed": [["cookie", "x"], 1]}
    assert Gate(no_key).gate(value) == encode(value)


# Placeholders


def test_a_whole_value_becomes_redacted_and_a_part_stays_text(gate: Gate) -> None:
    whole, part, named = decode(gate.gate([TOKEN, f"see {TOKEN}", {"password": TOKEN}]))
    assert type(whole) is Redacted
    assert type(part) is str
    assert part == f"see {whole}"
    assert type(named["password"]) is Redacted


def test_equal_secrets_have_equal_digests_and_others_do_not(gate: Gate) -> None:
    def digest(value: Any) -> str:
        [found] = re.findall(rb"\[redacted:[a-z-]+:([0-9a-f]{16})\]", gate.gate(value))
        return str(found)

    same = [TOKEN, f"see {TOKEN}!", TOKEN.encode(), {TOKEN: 1}, Secret(TOKEN), {"password": TOKEN}, f"://u:{TOKEN}@"]
    assert len({digest(value) for value in same}) == 1
    others = [
        TOKEN + "x",
        Secret("x"),
        Secret(b"x"),
        Secret(["x"]),
        Secret(1),
        Secret(1.0),
        Secret("1"),
        Secret("\x01"),
    ]
    assert len({digest(value) for value in [*others, TOKEN]}) == len(others) + 1
    assert digest(Secret(Login("a", "b"))) == digest({"secret": Login("a", "b")})


def test_another_key_gives_another_digest_and_the_plain_digest_is_none_of_them(gate: Gate) -> None:
    """Promise 10: whoever lacks the key cannot test a guess."""
    assert gate.gate(TOKEN) != Gate(lambda: bytes(32)).gate(TOKEN)
    assert gate.gate(TOKEN) == Gate(lambda: KEY).gate(TOKEN)


@pytest.mark.parametrize("sample", [*SAMPLES, *MORE], ids=lambda sample: sample.rule)
def test_redacting_twice_changes_nothing(gate: Gate, sample: Sample) -> None:
    text = f"a {sample.text} b {json.dumps({'password': sample.text})} https://{TOKEN}:{OPAQUE}@x/?api_key={TOKEN}"
    value = [text, {"password": text, sample.text: 1}, [["Cookie", text]], Login(text, text), Secret(text)]
    once = gate.gate(value)
    assert gate.gate(view(once)) == once
    assert gate.gate(decode(once)) == once
    assert gate.text(gate.text(text)) == gate.text(text)


def test_a_placeholder_that_became_plain_text_is_not_replaced_again(gate: Gate) -> None:
    text = gate.text(TOKEN)
    assert decode(gate.gate({"password": text})) == {"password": text}


def test_of_two_shapes_in_one_place_all_is_replaced_once(gate: Gate) -> None:
    assert (
        PLACEHOLDER.sub("#", gate.text(f"https://{TOKEN}:{OPAQUE}@host Bearer {TOKEN}."))
        == "https://#:#@host Bearer #."
    )
    assert PLACEHOLDER.sub("#", gate.text(f"postgres://me:{TOKEN}{OPAQUE}@host")) == "postgres://me:#@host"


# Clean values, text, errors, extension

CLEAN: list[Any] = [
    None,
    {"messages": [{"role": "assistant", "content": "done", "usage": {"input_tokens": 5, "max_tokens": 10}}]},
    {"id": "call_" + MIXED[:24], "uuid": "550e8400-e29b-41d4-a716-446655440000", "note": 'it\'s "fine" = & ? <b>'},
    (1, {2.5: b"\x00" * 100}, {"x"}, Field.PASSWORD, np.array(["a", "b"]), PurePosixPath("x", "y")),
    json.dumps({"query": "weather", "limit": 5, "author": "me"}),
    [["a", 1], ["b", 2]],
    Login("me", ""),
]


@pytest.mark.parametrize("value", CLEAN, ids=str)
def test_a_clean_value_comes_out_as_encode_makes_it_and_needs_no_key(value: Any) -> None:
    assert Gate(no_key).gate(value) == encode(value)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Login, st.text(max_size=5), st.just(""))
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_whatever_holds_no_secret_is_not_changed(value: Any) -> None:
    assert Gate(no_key).gate(value) == encode(value)


def plant(value: Any, token: str, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """The value with the token put at a place of its own choosing."""
    choice = draw(st.integers(0, 5))
    if isinstance(value, list) and value and choice:
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], plant(value[at], token, draw), *value[at + 1 :]]
    if isinstance(value, tuple) and choice:
        return plant(value[0], token, draw), value[1]
    if isinstance(value, dict) and value and choice:
        key = draw(st.sampled_from(list(value)))
        return {**value, key: plant(value[key], token, draw)}
    around = draw(st.text(st.characters(exclude_characters="\\%", exclude_categories=["Cs", "L", "N"]), max_size=4))
    text = around + token + around
    return [text, text.encode(), {text: value}, Login(text, ""), (value, text), {0: text}][choice]


@given(PLAIN, st.sampled_from([sample for sample in [*SAMPLES, *MORE] if not sample.secret]), st.data())
def test_a_token_planted_anywhere_in_any_value_is_gone(value: Any, sample: Sample, data: st.DataObject) -> None:
    """Promise 10."""
    gate = Gate(lambda: KEY)
    stored = gate.gate(plant(value, sample.text, data.draw))
    assert sample.text.encode() not in stored
    assert f"[redacted:{sample.rule}:".encode() in stored
    assert gate.gate(view(stored)) == stored


def test_text_loses_its_secrets_and_clean_text_is_remembered_in_bounds(gate: Gate) -> None:
    """Promise 10: names, ids and tags reach the disk too."""
    assert TOKEN not in gate.text(f"run-{TOKEN}")
    assert type(gate.text(TOKEN)) is str
    for number in range(10_000):
        assert gate.text(f"step {number}") == f"step {number}"
        assert gate.gate({f"name {number}": 1}) == encode({f"name {number}": 1})
    assert gate.text("x " * 1000) == "x " * 1000
    assert len(gate._clean) <= 4096
    assert len(gate.names) <= 4096
    assert max(map(len, gate._clean)) <= 256


def test_a_refused_value_is_named_without_its_secrets(gate: Gate) -> None:
    """Promise 10."""
    with pytest.raises(UnstorableError) as caught:
        gate.gate({"users": {TOKEN: {"password": [OPAQUE, object()]}}})
    assert TOKEN not in str(caught.value)
    assert OPAQUE not in str(caught.value)
    assert TOKEN not in caught.value.path
    assert caught.value.__context__ is None
    assert re.search(r"value\.users.*redacted:github.*password\[1\]", str(caught.value))


def test_a_refused_value_without_secrets_keeps_its_way_out(gate: Gate) -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnstorableError, match=r"contains itself.*Break the cycle"):
        gate.gate(value)


def test_a_secret_without_a_key_is_refused_and_not_written() -> None:
    """Promise 13."""

    def unsafe() -> bytes:
        raise RedactionKeyError("key", "others may use it")

    with pytest.raises(RedactionKeyError):
        Gate(unsafe).gate([TOKEN])


@pytest.mark.parametrize("literals", [("EMP-",), ()])
def test_rules_of_ones_own_are_applied_first(literals: tuple[str, ...]) -> None:
    rule = Rule("employee", r"\bEMP-(?P<secret>[0-9]{4})\b", literals)
    gate = Gate(lambda: KEY, extra=[rule])
    value = {"a": ["x" * 65, "EMP-1234"], "b": "EMP-12345", "c": TOKEN}
    cleaned = decode(gate.gate(value))
    assert re.fullmatch(r"EMP-\[redacted:employee:[0-9a-f]{16}\]", cleaned["a"][1])
    assert cleaned["b"] == "EMP-12345"
    assert isinstance(cleaned["c"], Redacted)
    assert gate.gate(cleaned) == gate.gate(value)
