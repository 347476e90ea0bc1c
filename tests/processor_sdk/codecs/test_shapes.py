"""The types that codecs accept and refuse, and the limits of equality, floats, depth and size."""

import enum
import json
import math
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Any, Dict, List, Literal  # noqa: UP035

import cbor2
import pytest

from processor_sdk import CborCodec, JsonCodec, NotDecodable
from processor_sdk.codecs.trees import DEPTH_MAX, ITEMS_MAX

MAKERS: list[Callable[[Any], Any]] = [CborCodec, JsonCodec]


class Huge(enum.Enum):
    MANY = 2**64


class Half(enum.Enum):
    TEXT = "\ud800"


class Unhashable(enum.Enum):
    LIST = [1]  # noqa: RUF012


class Empty(enum.Enum):
    pass


@dataclass
class Initial:
    x: int
    seed: InitVar[int] = 0


@dataclass(init=False)
class OwnArguments:
    x: int

    def __init__(self, number: int) -> None:
        self.x = number


@dataclass(init=False)
class OwnUnnamed:
    x: int

    def __init__(self, x: int, /) -> None:
        self.x = x


@dataclass
class Lost:
    x: int
    total: int = field(init=False, default=0)


@dataclass(eq=False)
class Incomparable:
    x: int


@dataclass
class Unequal:
    x: int
    note: str = field(default="", compare=False)


@dataclass
class WrongDefault:
    x: str = None  # type: ignore[assignment]


@dataclass
class WrongFactory:
    x: list[int] = field(default_factory=lambda: ["a"])  # type: ignore[list-item]


@dataclass
class NumberKey:
    x: int = field(metadata={"key": 5})


@dataclass
class HalfKey:
    x: int = field(metadata={"key": "\ud800"})


@dataclass
class Clash:
    x: int
    y: int = field(metadata={"key": "x"})


@dataclass
class BadSyntax:
    x: "int |"  # type: ignore[valid-type]  # noqa: F722


@dataclass
class BadName:
    x: "enum.Nothing"  # type: ignore[name-defined]


@dataclass
class Holder:
    inner: tuple[WrongDefault, ...]


@dataclass
class Nothing:
    pass


def spaced_json(value: Any) -> bytes:
    return json.dumps(value, separators=(" ,\n", "\t:  ")).encode()


def nested(kind: Any, levels: int) -> Any:
    for _ in range(levels):
        kind = list[kind]
    return kind


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Initial, r"Initial\.seed is an argument of Initial and no field"),
        (OwnArguments, r"OwnArguments\.number is an argument of OwnArguments and no field"),
        (OwnUnnamed, r"OwnUnnamed\.x is a field that OwnUnnamed\.__init__ does not take"),
        (Lost, r"Lost\.total is a field\(init=False\)"),
        (Incomparable, r"Incomparable is Incomparable, a dataclass\(eq=False\)"),
        (Unequal, r"Unequal\.note is a field\(compare=False\)"),
        (WrongDefault, r"the default of WrongDefault\.x is None, not text"),
        (WrongFactory, r"the default of WrongFactory\.x\[0\] is 'a', not an integer"),
        (Holder, r"the default of Holder\.inner\[\]\.x is None"),
        (NumberKey, r"the key of NumberKey\.x is 5, not text"),
        (HalfKey, r"the key of HalfKey\.x is .*lone surrogate"),
        (Clash, r"Clash\.y has the key 'x', as x has"),
        (BadSyntax, r"types of BadSyntax's fields are not known: .*int \|"),
        (BadName, r"types of BadName's fields are not known: .*Nothing"),
        (dict[str, Huge], r"dict\[\] is an integer of 65 bits, not from"),
        (dict[str, Half], r"dict\[\] is .*lone surrogate"),
        (dict[str, Unhashable], r"dict\[\] can be \[1\], neither text nor an integer"),
        (dict[str, Empty], r"dict\[\] is <enum 'Empty'>, which has no members"),
        (list[Literal["a", True]], r"list\[\] can be True, neither text nor an integer"),
        (list[Literal["a", 2**70]], r"list\[\] is an integer of 71 bits"),  # type: ignore[misc]
        (List, "cannot be carried"),  # noqa: UP006
        (Dict, "cannot be carried"),  # noqa: UP006
        (nested(int, DEPTH_MAX + 1), r"needs 33 maps and lists within each other; at most 32"),
        (nested(Nothing, DEPTH_MAX), r"needs 33 maps and lists"),
    ],
)
def test_types_that_would_break_a_codec_are_refused_when_it_is_made(
    make: Callable[[Any], Any], kind: Any, said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        make(kind)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("kind", "leaf"), [(int, 1), (str, "a" * 30), (bytes, b"a"), (bool, True), (float, 0.5)])
def test_the_deepest_type_is_carried_with_any_leaf(make: Callable[[Any], Any], kind: Any, leaf: Any) -> None:
    codec, value = make(nested(kind, DEPTH_MAX)), leaf
    for _ in range(DEPTH_MAX):
        value = [value]
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(NotDecodable, match="deeper than 32 levels"):
        codec.decode((b"[" * 33 + b"]" * 33) if make is JsonCodec else b"\x81" * 32 + b"\x80")


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(
    ("kind", "value_of", "items_each", "items_around"),
    [
        (list[int], lambda count: [7] * count, 1, 1),
        (list[list[int]], lambda count: [[]] * count, 1, 1),
        (dict[str, int], lambda count: {f"{number:x}": 7 for number in range(count)}, 2, 1),
        (list[list[str]], lambda count: [['[{",:}]\\']] * count, 2, 1),
    ],
)
def test_both_encodings_carry_the_same_number_of_items(
    make: Callable[[Any], Any], kind: Any, value_of: Callable[[int], Any], items_each: int, items_around: int
) -> None:
    most = (ITEMS_MAX - items_around) // items_each
    codec, value, more = make(kind), value_of(most), value_of(most + 1)
    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(ValueError, match="more than 131072 keys and values"):
        codec.encode(more)
    with pytest.raises(NotDecodable, match="more than 131072 keys and values"):
        codec.decode(spaced_json(more) if make is JsonCodec else cbor2.dumps(more))


@pytest.mark.parametrize(
    ("make", "data"),
    [
        (CborCodec, b"\x9f" + b"\xa0" * 1_000_000 + b"\xff"),
        (CborCodec, b"\x9a\x00\x0f\x42\x40" + b"\x80" * 1_000_000),
        (JsonCodec, b"[" + b"[]," * 300_000 + b"[]]"),
        (JsonCodec, b'["' + b'","' * 300_000 + b'"]'),
        (JsonCodec, b"[" + b'""' * 300_000 + b"," * ITEMS_MAX + b"]"),
    ],
)
def test_small_items_do_not_become_a_large_tree(make: Callable[[Any], Any], data: bytes) -> None:
    with pytest.raises(NotDecodable, match="more than 131072 keys and values"):
        make(list[int]).decode(data)


def test_a_long_text_is_one_item() -> None:
    text = '[{",:\\' * 50_000
    assert JsonCodec(str).decode(JsonCodec(str).encode(text)) == text
    assert JsonCodec(list[str]).decode(JsonCodec(list[str]).encode([text, text])) == [text, text]


@pytest.mark.parametrize(
    "text", ["AAAA=", "AAAA==", "AAAA====", "AA===", "AA====", "=", "====", "A", "AB==", "AA=A", "AA==\n", "A A=", "é"]
)
def test_base64_has_one_form(text: str) -> None:
    with pytest.raises(NotDecodable, match="not base64 text"):
        JsonCodec(bytes).decode(f'"{text}"'.replace("\n", "\\n").encode())


@pytest.mark.parametrize(("text", "data"), [("", b""), ("AA==", b"\0"), ("AAA=", b"\0\0"), ("+/+/", b"\xfb\xff\xbf")])
def test_base64_is_read(text: str, data: bytes) -> None:
    assert JsonCodec(bytes).decode(f'"{text}"'.encode()) == data


@pytest.mark.parametrize("make", MAKERS)
def test_an_integer_is_a_float_if_a_float_holds_it_exactly(make: Callable[[Any], Any]) -> None:
    codec = make(float)
    for number in (0, -1, 2**53, -(2**53), 2**54 + 4, 2**64, 10**22, 2**1023):
        assert codec.decode(codec.encode(number)) == number
    for number in (2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**23):
        with pytest.raises(ValueError, match="which no float holds exactly"):
            codec.encode(number)
    with pytest.raises(ValueError, match="an integer of 1329 bits, not a finite number"):
        codec.encode(10**400)


def test_floats_are_read_as_other_languages_write_them() -> None:
    assert JsonCodec(float).decode(b"20000000000000000000") == 2e19
    assert JsonCodec(float).decode(b"147573952589676410000") == 2.0**67
    assert JsonCodec(float).decode(b"-999999999999999900000") == -999999999999999900000.0
    assert CborCodec(float).decode(cbor2.dumps(2**53)) == 2.0**53
    for codec, data in ((JsonCodec(float), b"9007199254740993"), (CborCodec(float), cbor2.dumps(2**53 + 1))):
        with pytest.raises(NotDecodable, match="9007199254740993, which no float holds exactly"):
            codec.decode(data)


def test_json_integers_are_bounded_by_their_characters() -> None:
    with pytest.raises(NotDecodable, match="an integer of 70 bits"):
        JsonCodec(int).decode(b"-" + b"9" * 21)
    with pytest.raises(NotDecodable, match="an integer of 23 characters, at most 22"):
        JsonCodec(int).decode(b"-" + b"9" * 22)


class Level(enum.IntEnum):
    LOW = 1


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("kind", "others"), [(Literal[1], [True, 1.0, Level.LOW]), (Level, [1, True, 1.0])])
def test_one_of_a_few_is_taken_to_the_letter(make: Callable[[Any], Any], kind: Any, others: list[Any]) -> None:
    codec = make(kind)
    assert codec.decode(codec.encode(codec.decode(b"\x01" if make is CborCodec else b"1"))) == 1
    for other in [*others, math.nan, "1", [], None]:
        with pytest.raises(ValueError, match="not one of 1"):
            codec.encode(other)
    with pytest.raises(NotDecodable, match="is True, not one of 1"):
        codec.decode(cbor2.dumps(True) if make is CborCodec else b"true")
