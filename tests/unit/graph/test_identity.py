"""Which code it is: other code is never taken for the same, and the same code is known again wherever it stands."""

from __future__ import annotations

import functools
import importlib.util
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from everstep import step
from everstep.graph.identity import Identity, UnidentifiedError
from everstep.policy.redaction import Gate

GATE = Gate(key=lambda: b"k" * 32)


def identity(called: Any) -> bytes:
    made = Identity(GATE)
    made.callable(called)
    return made.digest()


def compiled(source: str, **names: Any) -> Any:
    """The function `f` of a module with this text."""
    module: dict[str, Any] = {"__name__": "made", "step": step, "functools": functools, **names}
    exec(compile(source, "made", "exec", dont_inherit=True), module)
    return module["f"]


def same(*functions: Any) -> bool:
    return len({identity(each) for each in functions}) == 1


def all_differ(*functions: Any) -> bool:
    return len({identity(each) for each in functions}) == len(functions)


# The code itself


def test_two_functions_on_one_line_are_not_the_same() -> None:
    one, two, again = lambda x: x + 1, lambda x: x + 2, lambda x: x + 1
    assert all_differ(one, two)
    assert same(one, again)


def test_neither_name_nor_place_nor_comments_matter() -> None:
    assert same(
        compiled("def f(x):\n    return x + 1"),
        compiled("\n\n\ndef g(x):\n\n    # a reason\n    return x + 1\nf = g"),
    )


@pytest.mark.parametrize(
    "bodies",
    [
        ("x + 1", "x + 1.0", "x + True", "x + 2", "x - 1"),
        (r"'\ud800'", r"'\ud801'", "'é'", "'é'.encode()", "['é'.encode()]"),
        ("...", "'...'", "['...']", "(...,)", "('...',)", "b'...'"),
        ("x in {1, 2}", "x in (1, 2)", "x in {1, 3}"),
        ("x.a", "x.b", "x.a()", "x['a']"),
        ("[i for i in x]", "[i + 1 for i in x]", "(i for i in x)", "lambda: x", "lambda y: x"),
    ],
)
def test_other_code_is_not_the_same(bodies: tuple[str, ...]) -> None:
    assert all_differ(*(compiled(f"def f(x): return {body}") for body in bodies))


def test_how_a_function_takes_its_parameters_matters() -> None:
    heads = ("def f(x, y)", "def f(y, x)", "def f(x, *, y)", "def f(x, /, y)", "async def f(x, y)")
    assert all_differ(*(compiled(f"{head}: return x") for head in heads))
    assert all_differ(compiled("def f(): return 1"), compiled("def f():\n    return 1\n    yield"))


def test_what_python_was_read_from_may_change_afterwards(tmp_path: Path) -> None:
    """A digest of the source would take the old code for the new: it reads the file when it is asked."""
    file = tmp_path / "changing.py"
    file.write_text("def f(x):\n    return x + 1\n")
    spec = importlib.util.spec_from_file_location("changing", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    file.write_text("def f(x):\n    return x + 2\n")
    assert same(module.f, compiled("def f(x):\n    return x + 1"))


PROGRAM = """
from everstep.graph.identity import Identity
from everstep.policy.redaction import Gate
NAMES = frozenset({"red", "green", "blue"})
def helper(x): return x in {"one", "two", "three", "four"}
def f(x, y=("a", 1)): return helper(x) and x in NAMES
made = Identity(Gate(key=lambda: b"k" * 32))
made.callable(f)
print(made.digest().hex())
"""


def test_another_process_comes_to_the_same() -> None:
    """Sets have another order in each process."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(digests) == 1


# What it names


def test_a_constant_of_its_module_matters_and_other_names_do_not() -> None:
    source = "def f(x): return x + PROMPT"
    assert all_differ(*(compiled(source, PROMPT=value) for value in ("a", "b", 1, 1.0, True, ("a",), None)))
    assert same(compiled(source, PROMPT="a"), compiled(source, PROMPT="a", OTHER="b"))


def test_lists_and_dicts_of_its_module_are_not_looked_at() -> None:
    source = "def f(x): seen.append(x)"
    assert same(compiled(source, seen=[]), compiled(source, seen=[1]))


def test_what_it_sets_itself_does_not_matter() -> None:
    source = "def f(x):\n    global count\n    count += 1\n    return x"
    assert same(compiled(source, count=0), compiled(source, count=1))


def test_functions_that_it_calls_by_name_matter() -> None:
    source = (
        "def inner(x, n=1): return x + n\n{deco}def helper(x): return inner(x)\ndef f(x): return [helper(i) for i in x]"
    )
    plain = source.format(deco="")
    assert all_differ(
        compiled(plain),
        compiled(plain.replace("x + n", "x - n")),
        compiled(plain.replace("n=1", "n=2")),
        compiled(source.format(deco="@step\n")),
        compiled(source.format(deco="@step\n").replace("x + n", "x - n")),
        compiled(source.format(deco="@functools.cache\n")),
    )


def test_functions_may_call_each_other() -> None:
    source = "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n > {n} and even(n - 1)\nf = even"
    assert all_differ(compiled(source.format(n=0)), compiled(source.format(n=1)))


def test_what_cannot_be_told_of_a_helper_does_not_stand_in_the_way() -> None:
    source = "def helper(x, lock=LOCK): return x\ndef f(x): return helper(x)"
    assert same(compiled(source, LOCK=threading.Lock()), compiled(source, LOCK=threading.Lock()))


# What it is bound to


def adder(n: Any) -> Callable[[Any], Any]:
    return lambda x: (x, n)


def test_what_it_closes_over_matters() -> None:
    assert all_differ(*map(adder, (1, 2, 1.0, True, "1", [1], [2], {"a": 1}, len, sum, math, adder(1), adder(2))))
    assert same(adder([1]), adder([1]))


def test_what_it_closes_over_is_looked_at_when_it_is_asked() -> None:
    words = ["a"]
    function = adder(words)
    before = identity(function)
    words.append("b")
    assert identity(function) != before


def counter() -> Callable[[], int]:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


def test_what_it_counts_with_does_not_matter() -> None:
    function = counter()
    before = identity(function)
    function()
    assert identity(function) == before


def shadowing(n: int) -> Callable[[], Any]:
    """A function that reads `n`; the one that is set inside it is another."""

    def outer() -> Any:
        def middle(given: int) -> Any:
            n = given

            def inner() -> int:
                nonlocal n
                n += 1
                return n

            return inner

        return n, middle

    return outer


def test_another_variable_of_the_same_name_is_not_taken_for_it() -> None:
    assert all_differ(shadowing(1), shadowing(2))


def decorated(times: int, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> Any:
        return [function(*args)] * times

    return wrapper


def test_a_decorator_matters_and_what_it_decorates_too() -> None:
    def plus(x: int) -> int:
        return x + 1

    def minus(x: int) -> int:
        return x - 1

    assert all_differ(plus, minus, decorated(1, plus), decorated(2, plus), decorated(1, minus))


@dataclass
class Scale:
    factor: int

    def times(self, x: int) -> int:
        return x * self.factor

    def plus(self, x: int) -> int:
        return x + self.factor

    def __call__(self, x: int) -> int:
        return x - self.factor


def test_methods_partials_and_objects_are_what_they_are_bound_to() -> None:
    two, three = Scale(2), Scale(3)
    assert all_differ(two.times, three.times, two.plus, two, three, Scale.times)
    assert same(two.times, Scale(2).times)
    assert all_differ(
        functools.partial(pow, 2), functools.partial(pow, 3), functools.partial(pow, exp=2),
        functools.partial(pow, mod=2), functools.partial(divmod, 2), pow,
    )  # fmt: skip


# What cannot be told


def test_what_cannot_be_told_from_another_is_named() -> None:
    class Local:
        pass

    class Client:
        def ask(self) -> None: ...

    for called, why in (
        (adder(threading.Lock()), "its outer 'n' cannot be told from another"),
        (adder(Local), "its outer 'n' cannot be told from another"),
        (Client().ask, "its 'self' cannot be told from another"),
        (functools.partial(pow, exp=threading.Lock()), "its argument 'exp' cannot be told from another"),
        (Scale, "it is a class"),
    ):
        with pytest.raises(UnidentifiedError, match=why):
            identity(called)


@pytest.mark.parametrize("where", ["constant", "closure", "input"])
def test_secrets_count_by_their_keyed_digest(where: str) -> None:
    """Nobody without the key can try out what a short password was."""

    def digest(password: str, key: bytes) -> bytes:
        made = Identity(Gate(key=lambda: key))
        if where == "constant":
            made.callable(compiled("def f(x): return PASSWORD", PASSWORD=password))
        elif where == "closure":
            made.callable(lambda: password)
        else:
            made.add("password", password)
        return made.digest()

    mine, other = b"k" * 32, b"j" * 32
    assert len({digest("hunter2", mine), digest("hunter3", mine), digest("hunter2", other)}) == 3
    assert digest("hunter2", mine) == digest("hunter2", mine)


def test_a_long_way_from_one_function_to_the_next_is_gone_to_its_end() -> None:
    lines = [f"def g{number}(x): return g{number + 1}(x)" for number in range(3000)]
    source = "\n".join([*lines, "def g3000(x): return x + {n}", "f = g0"])
    assert all_differ(compiled(source.format(n=1)), compiled(source.format(n=2)))
