"""What a pause asks, and what it may be answered with.

A question is plain data, kept with the pause: whoever opens the trail later, in another process and without the code
that asked, can check an answer. So a question that is read back is to be trusted as little as the file it came from.
Its schema is interpreted, never compiled to code, and may point nowhere but into itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

from everstep import actual
from everstep.codec.shown import cut
from everstep.errors import AnswerError, QuestionError
from everstep.trail.schemas import NotPlainError, derived, described, kind_of, nests, plain, shown

_YES, _NO = frozenset({"y", "yes", "true"}), frozenset({"n", "no", "false"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_PROBLEMS, _WORDS = 3, 600  # problems that an error tells of, and characters for what is allowed
_LEVELS = 60  # that a schema or an option may have: enough to say anything, and far from Python's own limit
_Unknown: Any = object()


def question(
    prompt: str,
    schema: Any = None,
    options: list[Any] | None = None,
    deadline: timedelta | float | datetime | None = None,
) -> dict[str, Any]:
    """The question as plain data: `prompt`, `schema`, `options` and `deadline`. Raises QuestionError.

    The schema is a JSON schema, or something it can be derived from: bool, int, float, str, list, dict, `list[int]`,
    `Literal[...]`, an Enum, `X | None`, a dataclass or a pydantic model. A deadline that has passed is no error: code
    that is run again asks the same question later.
    """
    if not isinstance(prompt, str) or not prompt.strip():
        raise QuestionError(str(prompt), "it is no text", "Say in a few words what is to be answered.")
    try:
        asked = {
            "prompt": prompt,
            "schema": None if schema is None else derived(schema),
            "options": None if options is None else _listed(options),
            "deadline": None if deadline is None else _moment(deadline).isoformat(),
        }
    except NotPlainError as error:
        raise QuestionError(prompt, f"{error.path} is {error.found}", error.way_out) from error
    except RecursionError:
        raise QuestionError(prompt, "it is nested too deeply", "Ask for less at a time.") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise QuestionError(prompt, str(error), "See everstep.pause for what can be asked.") from error
    _check_question(asked)
    return asked


def check(question: dict[str, Any], answer: Any) -> None:
    """Nothing, when the answer is allowed. Raises AnswerError, and QuestionError when the question itself is broken."""
    prompt, schema, options = _parts(question)
    if schema is None and options is None:
        return  # what can be stored can be answered
    problem = _problem(prompt, schema, options, answer)
    if problem is not None:
        words = described({"enum": options} if options is not None else schema)
        raise AnswerError(prompt, problem, cut(words, _WORDS))


def expired(question: dict[str, Any], now: datetime) -> bool:
    """Whether the time for an answer is over. A naive `now` counts as UTC."""
    prompt, *_ = _parts(question)
    deadline = question.get("deadline")
    if deadline is None:
        return False
    try:
        end = datetime.fromisoformat(deadline)
    except (TypeError, ValueError):
        raise _broken(prompt, "its deadline is no time") from None
    return _aware(now) >= _aware(end)


def parse(question: dict[str, Any], text: str) -> Any:
    """The answer that a person typed: JSON if that fits, else the text itself, else yes or no. Raises AnswerError.

    An option can be given by its value, in any case when it is text, or by its number in the list, from 1, unless there
    are numbers among the options.
    """
    _, _, options = _parts(question)
    readings = list(_readings(text))
    if options is not None:
        readings = [*_chosen(options, text.strip(), readings), *readings]
    refused: AnswerError | None = None
    for reading in readings:
        try:
            check(question, reading)
        except AnswerError as error:
            refused = refused or error
        else:
            return reading
    raise refused or AssertionError("the text itself is always a reading")


# Reading.


def _readings(text: str) -> Iterator[Any]:
    """What a typed text can mean, the likeliest first."""
    with suppress(ValueError, RecursionError):
        yield json.loads(text, parse_constant=_no_constant)
    yield text
    word = text.strip()
    if word != text:
        yield word
    if word.lower() in _YES | _NO:
        yield word.lower() in _YES


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _chosen(options: list[Any], word: str, readings: list[Any]) -> Iterator[Any]:
    """The options that a typed word can mean."""
    for reading in readings:
        yield from (option for option in options if _same(option, reading))
    alike = [option for option in options if isinstance(option, str) and option.lower() == word.lower()]
    if len(alike) == 1:
        yield alike[0]
    numbers = any(isinstance(option, int | float) and not isinstance(option, bool) for option in options)
    if not numbers and word.isascii() and word.isdecimal() and len(word) < 10 and 0 < int(word) <= len(options):
        yield options[int(word) - 1]


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1, though Python says so; 1.0 is 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# Time.


def _moment(deadline: timedelta | float | datetime) -> datetime:
    if isinstance(deadline, datetime):
        if deadline.tzinfo is None:
            raise ValueError("its deadline has no time zone")
        return deadline.astimezone(UTC)
    if isinstance(deadline, timedelta):
        return actual.now() + deadline
    if isinstance(deadline, bool) or not isinstance(deadline, int | float) or not math.isfinite(deadline):
        raise TypeError("its deadline is no timedelta, number of seconds or datetime")
    return actual.now() + timedelta(seconds=deadline)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _listed(options: Any) -> list[Any]:
    if not isinstance(options, list | tuple):
        raise TypeError("its options are no list")
    listed: list[Any] = plain(list(options), "options")
    return listed


# What is stored of a question.


def _broken(prompt: str, reason: str) -> QuestionError:
    return QuestionError(
        prompt, reason, "Mend the call of pause; if this was read from a trail, the trail was damaged."
    )


def _parts(question: dict[str, Any]) -> tuple[str, dict[str, Any] | None, list[Any] | None]:
    if not isinstance(question, dict) or not isinstance(question.get("prompt"), str):
        raise _broken("?", "it has no prompt")
    prompt, schema, options = question["prompt"], question.get("schema"), question.get("options")
    if schema is not None and not isinstance(schema, dict):
        raise _broken(prompt, "its schema is no JSON schema")
    if options is not None and not isinstance(options, list):
        raise _broken(prompt, "its options are no list")
    if nests(schema) > _LEVELS or nests(options) > _LEVELS:
        raise _broken(prompt, "it is nested too deeply")
    return prompt, schema, options


def _check_question(asked: dict[str, Any]) -> None:
    """Refuse what nobody could ever answer."""
    prompt, schema, options = _parts(asked)
    if options is not None and not options:
        raise QuestionError(prompt, "there are no options", "Name at least one, or leave options out.")
    if schema is None:
        return
    _problems(prompt, schema, None)  # whatever they are: a schema that goes in circles is found by using it
    for place, option in enumerate(options or ()):
        wrong = _problems(prompt, schema, option)
        if wrong:
            raise QuestionError(prompt, f"option {place + 1} does not fit the schema", f"There, {wrong[0]}.")


# The schema at work.


def _problem(prompt: str, schema: dict[str, Any] | None, options: list[Any] | None, answer: Any) -> str | None:
    try:
        plain(answer, "answer")
    except NotPlainError as error:
        return f"{error.path} is {error.found}"
    except RecursionError:
        return "it is nested too deeply"
    if options is not None and not any(_same(answer, option) for option in options):
        return "it is none of the options"
    return "; ".join(_problems(prompt, schema, answer)) or None if schema is not None else None


def _problems(prompt: str, schema: dict[str, Any], answer: Any) -> list[str]:
    """What is wrong with an answer, and where. Raises QuestionError when the schema is broken."""
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - 70 ms that only a run with a question pays

    validator = _validator(prompt, schema)
    try:
        errors = sorted(validator.iter_errors(answer), key=lambda error: [str(key) for key in error.absolute_path])
        told = [_told(best_match([error]), schema) for error in errors]
    except RecursionError:
        raise _broken(prompt, "its schema goes in circles") from None
    except Exception as error:  # noqa: BLE001 - a hostile schema can make the library fail in any way
        raise _broken(prompt, f"its schema cannot be used ({type(error).__name__})") from None
    return list(dict.fromkeys(told))[:_PROBLEMS]


def _validator(prompt: str, schema: dict[str, Any]) -> Any:
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above
    from jsonschema.validators import Draft202012Validator, extend, validator_for  # noqa: PLC0415 - as above
    from referencing import Registry  # noqa: PLC0415 - as above

    try:
        named = schema.get("$schema", Draft202012Validator.META_SCHEMA["$id"])
        dialect = validator_for({"$schema": named}, default=_Unknown) if isinstance(named, str) else _Unknown
        if dialect is _Unknown:
            raise _broken(prompt, "its $schema names a dialect that is not known here")
        dialect.check_schema(schema)
        _check_references(prompt, schema)
    except SchemaError as error:
        raise _broken(prompt, f"its schema is no JSON schema: {error.message:.120}") from None
    except RecursionError:
        raise _broken(prompt, "its schema is nested too deeply") from None
    # 2.0 is a whole number by the dialects, and to the code that asked for an int it is none.
    whole = dialect.TYPE_CHECKER.redefine("integer", lambda _, given: type(given) is int)
    # A registry of our own knows nothing and fetches nothing; without one, the library would ask the network.
    strict: Any = extend(dialect, type_checker=whole)  # type: ignore[no-untyped-call] # the library's types end here
    return strict(schema, registry=Registry(), format_checker=_formats())


def _check_references(prompt: str, schema: dict[str, Any]) -> None:
    from referencing import Registry, Resource  # noqa: PLC0415 - as above
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - as above
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415 - as above

    for reference in _references(schema):
        if not reference.startswith("#"):
            raise _broken(prompt, f"its schema points outside itself ({reference!r:.60}), and nothing is fetched")
        try:
            resource = Resource.from_contents(schema, default_specification=DRAFT202012)
            Registry().with_resource("", resource).resolver().lookup(reference)
        except Unresolvable:
            raise _broken(prompt, f"its schema points to {reference!r:.60}, and nothing is there") from None


def _references(schema: Any) -> Iterator[str]:
    """Every reference in a schema. Data that only looks like one counts too: rather refuse than fetch."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield from (part[key] for key in _REFERENCES & part.keys() if isinstance(part[key], str))
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _formats() -> Any:
    """The formats that are checked: those that dataclasses and models come to."""
    from jsonschema import FormatChecker  # noqa: PLC0415 - as above

    checker = FormatChecker(formats=("uuid", "email", "ipv4", "ipv6"))
    for name, kind in (("date", date), ("time", time), ("date-time", datetime)):
        checker.checks(name, raises=ValueError)(partial(_is_read, kind))
    return checker


def _is_read(kind: Any, value: object) -> bool:
    if isinstance(value, str):
        kind.fromisoformat(value)
    return True


def _told(error: Any, schema: dict[str, Any]) -> str:
    """One problem in words. The answer's own text is left out: it may be a secret."""
    where = "answer" + "".join(shown(key) for key in error.absolute_path)
    rule, wanted, given = error.validator, error.validator_value, error.instance
    if rule in {"enum", "const", "type", "anyOf", "oneOf"}:
        return f"{where} is {kind_of(given)}, not {described({rule: wanted}, schema)}"
    if rule == "required" and isinstance(wanted, list):
        missing = [name for name in wanted if name not in given]
        return f"{where} lacks {', '.join(map(repr, missing))}"
    if rule == "additionalProperties" and wanted is False:
        extra = sorted(set(given) - set(error.schema.get("properties", ())))
        return f"{where} has {', '.join(map(repr, extra))[:120]}, which nobody asked for"
    if rule is None:
        return f"{where} holds something that may not be there"
    return f"{where} breaks the rule {rule}: {json.dumps(wanted)[:120]}"
