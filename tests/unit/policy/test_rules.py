from __future__ import annotations

import re
from typing import Any

import pytest

from everstep.codec.values import encode
from everstep.policy.redaction import Gate
from everstep.policy.rules import RULES, Rule, is_secret_name
from tests.unit.policy.samples import HEX, KEY, LINE, MIXED, MORE, SAMPLES, Sample, block


def found(text: str) -> list[str]:
    """The rules that replaced something in the text."""
    return re.findall(r"\[redacted:([a-z0-9-]+):[0-9a-f]{16}\]", Gate(lambda: KEY).text(text))


@pytest.mark.parametrize("sample", [*SAMPLES, *MORE], ids=lambda sample: sample.rule)
def test_every_shape_is_replaced_and_nothing_around_it(sample: Sample) -> None:
    """Promise 10."""
    cleaned = Gate(lambda: KEY).text(f"see {sample.text} there")
    before, _, after = f"see {sample.text} there".partition(sample.secret or sample.text)
    assert re.fullmatch(
        re.escape(before) + rf"\[redacted:{sample.rule}:[0-9a-f]{{16}}\]" + re.escape(after),
        cleaned,
    )


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.rule)
def test_one_character_less_is_not_that_shape(sample: Sample) -> None:
    at = -2 if sample.rule == "url-password" else -1
    shorter = sample.text[:at] + sample.text[len(sample.text) + at + 1 :]
    assert sample.rule not in found(f"see {shorter} there")


@pytest.mark.parametrize("sample", [*SAMPLES, *MORE], ids=lambda sample: sample.rule)
def test_the_shortest_match_passes_its_own_pre_filter(sample: Sample) -> None:
    """What a rule declares to be skipped cheaply holds for the least of its matches, in bytes as in text."""
    gate = Gate(lambda: KEY)
    rules = [rule for rule in RULES if rule.name == sample.rule and rule.regex.search(sample.text)]
    assert rules
    for rule in rules:
        assert any(literal in sample.text for literal in rule.literals)
        assert rule.loose is not None
        assert re.search(rule.loose.encode(), sample.text.encode())
        if rule.in_run:
            shape = re.sub("[A-Za-z0-9_-]", "x", sample.text)
            assert "x" * 16 in shape
    assert gate.is_suspicious(sample.text.encode())


def test_every_rule_has_a_sample() -> None:
    unseen = [rule for rule in RULES if not any(rule.regex.search(sample.text) for sample in [*SAMPLES, *MORE])]
    assert unseen == []


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.loose], ids=lambda rule: rule.name)
def test_every_loose_pattern_begins_where_a_literal_does(rule: Rule) -> None:
    """The search in runs tries a rule at its literals only, and other searches jump to plain text."""
    assert rule.literals
    for sample in [*SAMPLES, *MORE]:
        if rule.in_run and rule.regex.search(sample.text):
            match = re.search(rule.loose or "", sample.text)
            assert match
            assert match[0].startswith(rule.literals)


@pytest.mark.parametrize(
    "text",
    [
        "the task-oriented-dialogue-systems-2024 survey",
        "use sk-learn-compatible-estimators-everywhere",
        "a risk-based-approach-to-Everything-1234567",
        "call_" + MIXED[:24],
        "toolu_" + MIXED[:24],
        "550e8400-e29b-41d4-a716-446655440000",
        "sha256:" + HEX,
        "resp_" + HEX,
        "shelf_" + MIXED[:34],
        "highpr_" + MIXED,
        "MAKIA" + MIXED.upper()[:16],
        "AKIA" + MIXED.upper()[:17],
        "eyJ" + MIXED,
        "eyJ" + "short.eyJ.x",
        "pip install pypi-attestations-and-some-other-long-names",
        "-----BEGIN PRIVATE KEY-----",
        'if text.startswith("-----BEGIN RSA PRIVATE KEY-----"): raise ValueError',
        block("PUBLIC KEY", LINE),
        block("CERTIFICATE", LINE),
        "Bearer authentication is described in RFC 6750",
        "the bearer of this letter",
        "Authorization: Bearer $TOKEN",
        "Basic Operations, basic understanding, Basic OpenGL",
        "http://example.com:8080/a@b",
        "https://example.com/?q=a:b@c",
        "mail me@example.com: soon",
        "ssh://git@example.com:22/x",
        "secretAccessKey = process.env.AWS_SECRET",
        "hooks.slack.com/services/ is where they go",
        "12:AAAA",
        "data:image/png;base64," + "iVBORw0KGgo+/" * 20,
        '{"input_tokens": "12", "author": "me", "session_id": "abc"}',
        "https://example.com/?page=2&token_count=7&q=password",
        '{"password": ""}',
        '"password": {"type": "string"}',
    ],
)
def test_what_only_looks_like_a_secret_is_kept(text: str) -> None:
    assert Gate(lambda: KEY).text(text) == text


SECRET_NAMES = """
    api_key apiKey APIKey ApiKey api-key x-api-key X-Api-Key X_API_KEY OPENAI_API_KEY apikey api_keys api_key_2
    password Password PASSWORD passwd passphrase pass_word db_password userPassword password2 password_hash
    secret secrets client_secret clientSecret webhook-secret secret_key SecretString
    access_token accessToken refresh_token id_token idToken auth_token session_token sessionToken security_token
    bearer_token api_token oauth_token GITHUB_TOKEN HF_TOKEN bot_token PRIVATE-TOKEN X-Auth-Token X-Vault-Token
    X-Amz-Security-Token x-goog-api-key x-csrf-token ocp-apim-subscription-key x-functions-key
    authorization Authorization AUTHORIZATION proxy-authorization Proxy-Authorization HTTP_AUTHORIZATION
    cookie Cookie cookies set-cookie Set-Cookie setCookie
    private_key privateKey signing_key encryption_key credentials credential gcp_credentials
    aws_secret_access_key AWS_SECRET_ACCESS_KEY SecretAccessKey secretAccessKey
"""

OTHER_NAMES = """
    input_tokens output_tokens max_tokens token_count total_tokens cached_tokens tokens token tokenizer token_type
    next_token page_token eos_token pad_token_id stop_token time_to_first_token cost_per_token invalid_token
    secretary secret_name author authors authority authored_by authentication authorization_url session_id public_key
    key keys primary_key cache_key foreign_key access_key_id api_key_id monkey keyboard keyword pass passed passage
    passenger compass password_required cookie_policy content name value x_key messages
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_a_name_that_means_a_secret_is_known_in_every_spelling(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", [*OTHER_NAMES.split(), "password" * 20, ""])
def test_a_name_that_counts_tokens_or_resembles_a_secret_is_not_one(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("name", "pattern", "literals"),
    [
        ("Bad Name", "x", ()),
        ("bad", "(", ()),
        ("bad", "x*", ()),
        ("bad", "x", ("",)),
        ("bad", "x", "x"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(name: str, pattern: str, literals: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"rule"):
        Rule(name, pattern, literals)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_of_our_own_would_be_taken_from_anybody(rule: Rule) -> None:
    """They are not checked when they are loaded."""
    Rule(rule.name, rule.pattern, rule.literals, loose=rule.loose, in_run=rule.in_run)


@pytest.mark.parametrize(
    "value",
    [
        ["run", "--max-tokens", "5", "--tokenizer", "x", "--key-file", "id"],
        ["run", "--password", "--verbose"],
        ["say --password hunter2 to log in"],
        "Give it --token=hunter2, or --password hunter2.",
        "--max-tokens=5",
        '--x\r\nContent-Disposition: form-data; name="max_tokens"\r\n\r\n5\r\n--x--\r\n',
        'form-data; name="password"\r\n\r\n\r\n--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n5\r\n--x--\r\n',
    ],
    ids=repr,
)
def test_options_and_parts_with_other_names_and_words_of_a_text_are_kept(value: Any) -> None:
    assert Gate(lambda: KEY).gate(value) == encode(value)


def test_in_a_set_nothing_stands_behind_an_option() -> None:
    value = {"--password", "x"}
    assert Gate(lambda: KEY).gate(value) == encode(value)


PASSWORD = {"title": "Password", "type": "string", "description": "Of the account.", "default": None}


@pytest.mark.parametrize(
    "schema",
    [
        PASSWORD,
        {"type": ["string", "null"]},
        {"anyOf": [{"type": "string"}]},
        {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Password"},
        {"$ref": "#/$defs/Password"},
        {"allOf": [{"$ref": "#/$defs/Password"}], "description": "Of the account."},
        {"type": "array", "items": {"type": "string"}, "minItems": 1},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"user": {"type": "string"}, "secret": PASSWORD}, "required": ["user"]},
        {"type": "object", "properties": {}, "additionalProperties": False},
    ],
    ids=repr,
)
def test_the_schema_of_a_parameter_by_the_name_of_a_secret_is_kept(schema: Any) -> None:
    """A tool that takes a password: the program would get a placeholder in the place of what its client reads."""
    tool = {"name": "login", "inputSchema": {"properties": {"user": {"type": "string"}, "password": schema}}}
    assert Gate(lambda: KEY).gate(tool) == encode(tool)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "string", "default": "hunter2"},
        {"type": "string", "enum": ["hunter2"]},
        {"type": "basic", "title": "hunter2"},
        {"title": "hunter2"},
        {"anyOf": "hunter2"},
        {"type": "string", "value": "hunter2"},
        {"type": [], "title": "hunter2"},
        {"$ref": "hunter2"},
        {"type": "string", "allOf": ["hunter2"]},
        {"anyOf": [{"const": "hunter2"}]},
        {"anyOf": [{"type": "string", "default": "hunter2"}, {"type": "null"}]},
        {"type": "array", "items": "hunter2"},
        {"type": "object", "properties": {"user": "hunter2"}},
        {"type": "object", "properties": "hunter2"},
        {"type": "object", "additionalProperties": {"enum": ["hunter2"]}},
    ],
    ids=repr,
)
def test_what_only_looks_like_a_schema_is_replaced(value: Any) -> None:
    """Promise 10."""
    assert b"hunter2" not in Gate(lambda: KEY).gate({"password": value})
