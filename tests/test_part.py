"""Parts and presets: short forms, kinds, aliases, presets with single values changed, and the words of errors."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from clustersim.hardware.gpu import Gpu
from clustersim.hardware.node import Node
from clustersim.part import Block, Part, expand_preset, merge


class Engine(Part, family="test engine", key="engine"):
    speed: int = 1


class Fast(Engine, kind="fast", aliases=("quick",)):
    """Runs."""

    boost: int = Field(default=2, ge=0)


class Slow(Engine, kind="slow"):
    nap: int


class Car(Block):
    engine: Engine = Fast()
    more: tuple[Engine, ...] = ()
    spare: Engine | None = None


def errors(data: object) -> list[tuple[tuple[int | str, ...], str]]:
    with pytest.raises(ValidationError) as caught:
        Car.model_validate(data)
    return [(error["loc"], error["msg"]) for error in caught.value.errors()]


@pytest.mark.parametrize(
    "value", ["fast", "quick", {"kind": "fast"}, {"engine": "fast"}, {"engine": {"kind": "fast"}}, {"preset": "fast"}, Fast()]
)
def test_ways_to_write_a_part(value: object) -> None:
    assert Car.model_validate({"engine": value}).engine == Fast()


def test_keys_may_stand_beside_or_inside_the_name() -> None:
    outside = Car.model_validate({"engine": {"engine": "fast", "boost": 5, "speed": 3}})
    inside = Car.model_validate({"engine": {"engine": {"kind": "fast", "boost": 5}, "speed": 3}})
    assert outside == inside == Car(engine=Fast(boost=5, speed=3))


def test_dump_names_the_kind_by_the_family_s_key_and_reads_back() -> None:
    car = Car(engine=Slow(nap=3), more=(Fast(),), spare=Fast(boost=1))
    data = car.model_dump(mode="json")
    assert data["engine"] == {"engine": "slow", "speed": 1, "nap": 3}
    assert Car.model_validate(data) == car


def test_dump_of_what_was_given_alone() -> None:
    car = Car.model_validate({"engine": {"engine": "fast", "boost": 2}})
    assert car.model_dump(mode="json", exclude_unset=True) == {"engine": {"engine": "fast", "boost": 2}}


@pytest.mark.parametrize(
    ("data", "loc", "words"),
    [
        ({"engine": "fats"}, ("engine",), "there is no test engine 'fats'; did you mean 'fast'?"),
        ({"engine": "zzz"}, ("engine",), "there is no test engine 'zzz'; known: fast, slow"),
        ({"engine": {"boost": 1}}, ("engine",), "needs the key 'engine': one of fast, slow"),
        ({"engine": 3}, ("engine",), "needs a test engine: one of fast, slow, or a mapping with 'engine'"),
        ({"engine": {"kind": "fast", "bost": 1}}, ("engine", "bost"), "there is no key 'bost' here; did you mean 'boost'?"),
        ({"engine": {"kind": "fast", "nap": 1}}, ("engine", "nap"), "it is a key of engine slow, this is 'fast'"),
        ({"engine": {"kind": "slow", "nap": True}}, ("engine", "nap"), "must be a number, not true"),
        ({"more": ["fast", "slow"]}, ("more", 1, "nap"), "Field required"),
        ({"enginee": "fast"}, ("enginee",), "there is no key 'enginee' here; did you mean 'engine'?"),
    ],
)
def test_errors_stand_where_the_user_wrote(data: object, loc: tuple[int | str, ...], words: str) -> None:
    found = errors(data)
    assert [item[0] for item in found] == [loc]
    assert words in found[0][1]


def test_an_unknown_kind_does_not_hide_what_else_is_wrong() -> None:
    found = errors({"engine": {"kind": "fsat", "boost": "x", "bots": 1}, "more": [{"kind": "zzz", "speed": "y", "nap": 1}]})
    assert {item[0] for item in found} == {
        ("engine",), ("engine", "boost"), ("engine", "bots"), ("more", 0), ("more", 0, "speed")
    }  # fmt: skip


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="two test engine parts are called 'fast'"):

        class Other(Engine, kind="fast"):
            pass


def test_a_part_defined_later_is_known_at_once() -> None:
    class Odd(Engine, kind="odd-one"):
        pass

    assert isinstance(Car.model_validate({"engine": "odd-one"}).engine, Odd)
    del Engine.kinds["odd-one"]


def test_values_never_change() -> None:
    with pytest.raises(ValidationError):
        Car().engine = Fast()  # type: ignore[misc]


def test_preset_and_single_values_of_it() -> None:
    plain = Gpu.preset("h100-sxm")
    changed = Gpu.model_validate({"preset": "h100-sxm", "power": "500 W", "efficiency": {"memory": 0.5}})
    assert changed.power == 500.0
    assert changed.efficiency.memory == 0.5
    assert changed.efficiency.gemm == plain.efficiency.gemm
    assert changed.memory == plain.memory


def test_a_value_inside_a_preset_that_a_preset_names() -> None:
    node = Node.model_validate({"preset": "dgx-h100", "gpu": {"power": "500 W"}})
    assert node.gpu.power == 500.0
    assert node.gpu.memory == Gpu.preset("h100-sxm").memory


@pytest.mark.parametrize("value", ["h100-smx", {"preset": "h100-smx"}])
def test_unknown_preset_names_the_nearest(value: object) -> None:
    with pytest.raises(ValidationError, match="there is no 'h100-smx' among the gpus; did you mean 'h100-sxm'"):
        Gpu.model_validate(value)


def test_preset_data_is_not_shared_between_users() -> None:
    first = expand_preset("gpus", "h100-sxm")
    first["memory"] = "changed"
    assert expand_preset("gpus", "h100-sxm")["memory"] != "changed"


@pytest.mark.parametrize(
    ("base", "over", "merged"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {"kind": "p", "x": 1}}, {"a": {"kind": "q"}}, {"a": {"kind": "q"}}),
        ({"a": "name"}, {"a": {"x": 1}}, {"a": {"preset": "name", "x": 1}}),
        ({"a": "30 s"}, {"a": {"kind": "q"}}, {"a": {"kind": "q"}}),
        ({"a": {"x": 1}}, {"a": None}, {"a": None}),
    ],
)
def test_merge(base: dict[str, object], over: dict[str, object], merged: dict[str, object]) -> None:
    assert merge(base, over) == merged
