from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, PrivateAttr

from everstep.codec import registry
from everstep.codec.registry import register
from everstep.codec.values import decode, encode, view
from everstep.errors import ChangedClassError, UnknownClassError, UnstorableError


@pytest.fixture(autouse=True)
def _forget_afterwards() -> Iterator[None]:
    """Each test defines classes of its own; the next one must not meet them."""
    by_class, by_name = dict(registry._by_class), dict(registry._by_name)
    yield
    registry._by_class.clear()
    registry._by_class.update(by_class)
    registry._by_name.clear()
    registry._by_name.update(by_name)


def forget(cls: type) -> None:
    """As if in a new process that has not met the class."""
    known = registry._by_class.pop(cls)
    del registry._by_name[known.name]


def dataclass_of(name: str, **fields: Any) -> Any:
    made = dataclasses.make_dataclass(name, [(field, Any, default) for field, default in fields.items()])
    made.__module__ = "shop"
    return made


def enum_of(name: str, members: Any, kind: Any = enum.Enum, **options: Any) -> Any:
    return kind(name, members, **options)


# Known, unknown, of one name


def test_a_class_is_known_once_one_of_its_values_was_encoded() -> None:
    cart = dataclass_of("Cart", x=1)
    data = encode(cart(2))
    assert decode(data) == cart(2)
    assert view(data).name == "shop:Cart"


def test_a_class_this_process_does_not_know_is_named_and_never_imported() -> None:
    """Promise 8: no import by name."""
    cart = dataclass_of("Cart", x=1)
    data = encode([cart(2)])
    forget(cart)
    with pytest.raises(UnknownClassError) as caught:
        decode(data)
    assert caught.value.name == "shop:Cart"
    assert repr(view(data)) == "[Cart(x=2)]"
    register(cart)
    assert decode(data) == [cart(2)]


def test_two_classes_of_one_name_do_not_clash_in_silence() -> None:
    """Promise 7."""
    first, second = dataclass_of("Cart", x=1), dataclass_of("Cart", x=1)
    encode(first())
    with pytest.raises(UnstorableError, match="both named 'shop:Cart'") as caught:
        encode({"a": second()})
    assert caught.value.path == "value.a"
    register(second, name="shop:Other")
    assert type(decode(encode(second()))) is second
    assert type(decode(encode(first()))) is first


def test_a_name_that_another_class_has_is_refused() -> None:
    register(dataclass_of("Cart", x=1), name="thing")
    with pytest.raises(UnstorableError, match="thing"):
        register(dataclass_of("Basket", x=1), name="thing")


def test_a_class_defined_again_replaces_the_old_one_when_registered() -> None:
    old, new = dataclass_of("Cart", x=1), dataclass_of("Cart", x=1)
    data = encode(old())
    assert register(new) is new
    assert type(decode(data)) is new
    with pytest.raises(UnstorableError, match="both named"):
        encode(old())


def test_a_class_defined_in_a_function_is_kept_like_any_other() -> None:
    class Local(NamedTuple):
        x: int

    assert decode(encode(Local(1))) == Local(1)


# Changed classes


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        ({"x": 0}, "missing fields [], unexpected ['y']"),
        ({"x": 0, "y": 0, "z": 0}, "missing fields ['z'], unexpected []"),
        ({"x": 0, "w": 0}, "missing fields ['w'], unexpected ['y']"),
    ],
)
def test_fields_that_came_or_went_are_named(now: dict[str, Any], difference: str) -> None:
    data = encode(dataclass_of("Cart", x=0, y=0)())
    register(dataclass_of("Cart", **now))
    with pytest.raises(ChangedClassError) as caught:
        decode(data)
    assert (caught.value.name, caught.value.difference) == ("shop:Cart", difference)


def test_an_enum_member_that_is_gone_is_named() -> None:
    before, after = enum_of("Tint", ["RED", "BLUE"]), enum_of("Tint", ["RED"])
    red, blue = encode(before["RED"]), encode(before["BLUE"])
    register(after)
    assert decode(red) is after["RED"]
    with pytest.raises(ChangedClassError, match="no member 'BLUE'"):
        decode(blue)


@pytest.mark.parametrize("boundary", [enum.STRICT, enum.CONFORM, enum.EJECT])
def test_flags_that_are_gone_are_not_dropped(boundary: Any) -> None:
    before = enum_of("Can", {"READ": 1, "WRITE": 2, "RUN": 4}, enum.Flag)
    data = encode(before["READ"] | before["RUN"])
    register(enum_of("Can", {"READ": 1, "WRITE": 2}, enum.Flag, boundary=boundary))
    with pytest.raises(ChangedClassError, match="no member 5"):
        decode(data)


def test_a_class_that_became_another_kind_is_named() -> None:
    data = encode(dataclass_of("Cart", x=0)())
    register(enum_of("Cart", ["A"], module="shop"))
    with pytest.raises(ChangedClassError, match="was a dataclass and is a enum"):
        decode(data)


# Versions


def test_upcasters_lead_from_each_version_to_the_next() -> None:
    v1 = encode(dataclass_of("Cart", price=3)())
    second = register(dataclass_of("Cart", cents=0), version=2, upcast={1: _to_cents})
    v2 = encode(second(500))
    steps = {1: _to_cents, 2: lambda fields: fields | {"currency": "EUR"}}
    third = register(dataclass_of("Cart", cents=0, currency=""), version=3, upcast=steps)
    assert decode(v1) == third(300, "EUR")
    assert decode(v2) == third(500, "EUR")
    assert (view(v1).version, view(v2).version, view(encode(third())).version) == (1, 2, 3)


def _to_cents(fields: dict[str, Any]) -> dict[str, Any]:
    return {"cents": fields["price"] * 100}


def test_a_value_of_a_later_version_is_refused() -> None:
    data = encode(register(dataclass_of("Cart", x=0), version=2)())
    register(dataclass_of("Cart", x=0))
    with pytest.raises(ChangedClassError, match="stored as version 2, the class is version 1"):
        decode(data)


def _broken(fields: dict[str, Any]) -> dict[str, Any]:
    return {"x": fields["gone"]}


@pytest.mark.parametrize(("upcast", "reason"), [({}, "no upcaster leaves 1"), ({1: _broken}, "failed with KeyError")])
def test_an_upcaster_that_is_missing_or_fails_is_named(upcast: dict[int, Callable[..., Any]], reason: str) -> None:
    data = encode(dataclass_of("Cart", x=0)())
    register(dataclass_of("Cart", x=0), version=2, upcast=upcast)
    with pytest.raises(ChangedClassError, match=reason):
        decode(data)


@pytest.mark.parametrize(("version", "steps"), [(0, []), (1, [1]), (2, [0]), (2, [2])])
def test_versions_that_make_no_sense_are_refused_when_registered(version: int, steps: list[int]) -> None:
    with pytest.raises(ValueError, match="versions count from 1"):
        register(dataclass_of("Cart", x=0), version=version, upcast=dict.fromkeys(steps, _to_cents))


def test_an_enum_member_can_be_renamed_by_an_upcaster() -> None:
    data = encode(enum_of("Tint", ["GREY"])["GREY"])
    after = enum_of("Tint", ["GRAY"])
    register(after, version=2, upcast={1: lambda _: {"name": "GRAY"}})
    assert decode(data) is after["GRAY"]


def test_fields_that_an_upcaster_of_a_model_renamed_count_as_set() -> None:
    class Before(BaseModel):
        old: int = 0
        same: int = 0

    class After(BaseModel):
        new: int = 0
        same: int = 0

    register(Before, name="model")
    data = encode(Before(old=5))
    forget(Before)
    register(After, name="model", version=2, upcast={1: lambda f: {"new": f["old"], "same": f["same"]}})
    made = decode(data)
    assert (made.new, made.model_fields_set) == (5, {"new"})


def test_a_private_attribute_that_a_model_no_longer_has_is_named() -> None:
    class Before(BaseModel):
        _cache: int = PrivateAttr(default=1)

    class After(BaseModel):
        pass

    register(Before, name="model")
    data = encode(Before())
    forget(Before)
    register(After, name="model")
    with pytest.raises(ChangedClassError, match=r"unexpected private attributes \['_cache'\]"):
        decode(data)


# Made again without running the class


def test_nothing_of_the_class_runs_when_a_value_is_made_again() -> None:
    """Promise 7."""
    ran: list[str] = []

    @dataclasses.dataclass(frozen=True)
    class Careful:
        x: int

        def __post_init__(self) -> None:
            ran.append("post_init")
            object.__setattr__(self, "y", self.x * 2)

    class Model(BaseModel):
        model_config = ConfigDict(frozen=True)
        x: int
        _y: int = PrivateAttr(default=0)

        def model_post_init(self, context: Any, /) -> None:
            ran.append("model_post_init")

    value = [Careful(1), Model(x=1)]
    data = encode(value)
    ran.clear()
    made = decode(data)
    assert made == value
    assert made[0].y == 2
    assert ran == []


def test_a_cached_property_is_not_part_of_the_value() -> None:
    @dataclasses.dataclass
    class Circle:
        r: int

        @functools.cached_property
        def area(self) -> int:
            return 3 * self.r**2

    circle = Circle(2)
    before = encode(circle)
    assert circle.area == 12
    assert encode(circle) == before
    assert decode(before).area == 12


def test_a_field_that_was_never_set_is_refused() -> None:
    @dataclasses.dataclass
    class Late:
        x: int = dataclasses.field(init=False)

    with pytest.raises(UnstorableError, match=r"'x' of this .*Late was never set"):
        encode(Late())


# Registered classes of no special kind


class Tool:
    def __init__(self, name: str) -> None:
        self.name = name


def test_a_class_of_no_special_kind_must_be_registered() -> None:
    with pytest.raises(UnstorableError, match=r"Tool.*everstep\.register"):
        encode([Tool("a")])
    register(Tool)
    assert decode(encode([Tool("a")]))[0].name == "a"


def test_a_subclass_is_not_taken_for_its_registered_parent() -> None:
    class Hammer(Tool):
        pass

    register(Tool)
    with pytest.raises(UnstorableError, match="Hammer"):
        encode(Hammer("a"))


def test_an_attribute_without_a_place_in_the_class_of_today_is_named() -> None:
    class Slim:
        __slots__ = ("name",)

    register(Tool, name="tool")
    data = encode(Tool("a"))
    forget(Tool)
    register(Slim, name="tool")
    assert decode(data).name == "a"
    forget(Slim)
    register(type("Slim", (), {"__slots__": ("other",)}), name="tool")
    with pytest.raises(ChangedClassError, match="no place for the attribute 'name'"):
        decode(data)


@pytest.mark.parametrize("base", [dict, list, str, int, set, bytes, float, Exception])
def test_a_class_that_hides_state_from_python_is_refused_when_registered(base: type) -> None:
    with pytest.raises(UnstorableError):
        register(type("Odd", (base,), {}))


def test_a_dataclass_on_top_of_a_built_in_type_is_refused() -> None:
    @dataclasses.dataclass
    class Bag(dict[str, int]):
        x: int = 0

    with pytest.raises(UnstorableError, match="keeps state that its attributes do not show"):
        encode(Bag())
