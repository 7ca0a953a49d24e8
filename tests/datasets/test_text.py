"""MultiSlot text becomes records: numbers as C reads them, and errors that say where and what."""

import pickle
import random
from fractions import Fraction

import numpy as np
import pytest

from refluid.datasets.batches import feed_of
from refluid.datasets.schema import Schema, Slot
from refluid.datasets.text import TextParser
from refluid.errors import MalformedLineError

INT64, FLOAT32 = np.dtype("int64"), np.dtype("float32")
IDS, FLOATS = Slot("ids", INT64, dense=False), Slot("floats", FLOAT32, dense=False)
PAIR = Slot("pair", FLOAT32, dense=True, shape=(-1, 2))


def parse(text, *slots, **options):
    parser = TextParser(Schema(slots), **options)
    return parser, parser.parse(np.frombuffer(text.encode(), np.uint8), "part-0")


def values(text, *slots, **options):
    """What each slot of a batch of all lines holds."""
    feed = feed_of(parse(text, *slots, **options)[1])
    return [np.array(feed[slot.name]).ravel().tolist() for slot in slots]


def as_float32(text):
    """The nearest float32 of a decimal, from the definition."""
    exact = Fraction(text)
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
        around = [np.nextafter(near, np.float32(side)) for side in (-np.inf, np.inf)] + [near]
    numbers = {x: Fraction(float(x)) if np.isfinite(x) else 2**128 * int(np.sign(x)) for x in around}
    return min(around, key=lambda x: (abs(numbers[x] - exact), x.view(np.uint32) & 1))


def test_ids_are_64_bits_whatever_their_sign():
    words = "0 -0 7 -7 +8 0012345678901234567 123456789 9223372036854775807 18446744073709551615 18446744073709551614"
    expected = [0, 0, 7, -7, 8, 12345678901234567, 123456789, 2**63 - 1, -1, -2]
    assert values(f"{len(expected)} {words}\n", IDS) == [expected]


def test_ids_of_any_length_are_read():
    numbers = [random.Random(n).randrange(10 ** (n % 19), 10 ** (n % 19 + 1)) for n in range(200)]
    assert values(f"{len(numbers)} {' '.join(map(str, numbers))}\n", IDS)[0] == [
        n - 2**64 if n >= 2**63 else n for n in numbers
    ]


@pytest.mark.parametrize(
    "word",
    ["0", "-0.0", "1", "1.", ".5", "+2.5e3", "1e-3", "1E+5", "0.1", "16777217", "16777219", "0.30000000000000004",
     "123456789012345678901234567890", "0.00000000000000000000000000000001234567890123456789", "3.4028235e38",
     "3.4028235677973366e38",
     "3.4028235677973367e38", "-3.4028236e38",
     "1.17549435e-38", "1e-40", "1.4e-45", "7e-46", "1e-300", "0e999", "1.00000005960464477539062499999",
     "1.00000005960464477539062500001", "1.000000059604644775390625", "8388608.5", "9007199791611905"],
)  # fmt: skip
def test_floats_are_rounded_correctly(word):
    [[value]] = values(f"1 {word}\n", FLOATS)
    assert np.float32(value).tobytes() == (as_float32(word) if word != "-0.0" else np.float32(-0.0)).tobytes()


def test_random_floats_are_rounded_correctly():
    rng = random.Random(3)
    words = [repr(rng.uniform(-1, 1) * 10.0 ** rng.randint(-44, 37)) for _ in range(1000)]
    words += [f"{rng.uniform(-1000, 1000):.{rng.randint(0, 25)}f}" for _ in range(1000)]
    # Decimals in the middle between two float32, and next to it.
    for _ in range(300):
        low = np.float32(rng.uniform(0.001, 1000))
        middle = (Fraction(float(low)) + Fraction(float(np.nextafter(low, np.float32(np.inf))))) / 2
        digits = f"{middle.numerator * 10**60 // middle.denominator:061d}"
        words += [f"{digits[:-60]}.{digits[-60:]}{last}" for last in ("", "1")]
    assert values(f"{len(words)} {' '.join(words)}\n", FLOATS)[0] == [float(as_float32(word)) for word in words]


def test_infinity_and_nan_are_floats():
    [found] = values("6 inf -INF nan Infinity 1e999999999 1e-999999999\n", FLOATS)
    np.testing.assert_array_equal(found, [np.inf, -np.inf, np.nan, np.inf, np.inf, 0])


def test_counts_above_127_take_more_bytes():
    counts = (1, 127, 128, 20000)  # the first float is a hard one, whose place moves
    text = "".join(f"{n} {' '.join(map(str, range(n)))} {n} 1e-44{' 0.5' * (n - 1)}\n" for n in counts)
    ids, floats = values(text, IDS, FLOATS)
    assert ids == [i for n in counts for i in range(n)]
    assert floats == [x for n in counts for x in [float(np.float32(1e-44))] + [0.5] * (n - 1)]


@pytest.mark.parametrize(
    "line, expected",
    [
        ("", "slot ids (ids), number 1 of 3: expected the number of its values, but the line ends"),
        ("1 5", "slot floats (floats), number 2 of 3: expected the number of its values, but the line ends"),
        ("x 5 1 .5 2 1 1", "slot ids (ids), number 1 of 3: expected the number of its values, found 'x'"),
        ("-1 5 1 .5 2 1 1", "expected the number of its values, found '-1'"),
        ("9999999999 5", "expected the number of its values, found '9999999999'"),
        ("0 1 .5 2 1 1", "slot ids (ids), number 1 of 3: has 0 values; a slot needs at least one"),
        ("3 5 6", "slot ids (ids), number 1 of 3: expected 3 values, but the line ends before"),
        ("1 5 2 .5", "slot floats (floats), number 2 of 3: expected 2 values, but the line ends before"),
        ("1 5x 1 .5 2 1 1", "slot ids (ids), number 1 of 3: expected an integer, found '5x'"),
        ("1 3.7 1 .5 2 1 1", "expected an integer, found '3.7'"),
        ("1 - 1 .5 2 1 1", "expected an integer, found '-'"),
        ("1 18446744073709551616 1 .5 2 1 1", "expected an integer of 64 bits, found 18446744073709551616"),
        ("1 99999999999999999999 1 .5 2 1 1", "expected an integer of 64 bits, found 99999999999999999999"),
        ("1 999999999999999999999 1 .5 2 1 1", "expected an integer of 64 bits, found 999999999999999999999"),
        ("1 5 1 1.2.3 2 1 1", "slot floats (floats), number 2 of 3: expected a number, found '1.2.3'"),
        ("1 5 1 1e 2 1 1", "expected a number, found '1e'"),
        ("1 5 1 0x10 2 1 1", "expected a number, found '0x10'"),
        ("1 5 1 . 2 1 1", "expected a number, found '.'"),
        ("1 5 1 nano 2 1 1", "expected a number, found 'nano'"),
        ("1 5 1 .5 3 1 1 1", "slot pair (floats of shape [-1, 2]), number 3 of 3: expected a multiple of 2"),
    ],
)  # fmt: skip
def test_a_malformed_line_is_explained(line, expected):
    good = "1 5 1 .5 2 1 1\n"
    with pytest.raises(MalformedLineError) as raised:
        parse(good * 3 + line + "\n" + good, IDS, FLOATS, PAIR)
    assert f"part-0, line 4: {expected}" in str(raised.value) or expected in str(raised.value)
    assert (raised.value.file, raised.value.line, raised.value.text) == ("part-0", 4, line)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    parser, records = parse(good * 3 + line + "\n" + good, IDS, FLOATS, PAIR, skip_malformed=True)
    assert (parser.skipped, len(records), parser.lines) == (1, 4, 5)


def test_what_follows_the_last_slot_is_ignored_and_counted():
    parser, records = parse("1 5\n1 6 1 7\n1 8 \n", IDS)
    assert (parser.longer, len(records)) == (1, 3)


def test_zeros_are_left_out_on_request_and_an_empty_slot_becomes_one():
    ids, floats = values("3 0 5 0 1 0.5\n2 0 0 3 1e-7 -1e-9 0\n", IDS, FLOATS, drop_zeros=True)
    assert (ids, floats) == ([5, 0], [0.5, 0.0])


def test_more_hard_numbers_than_fit_are_read_in_turns():
    hard = "1.000000059604644775390625"  # the middle between two float32
    text = f"2 {hard} {hard}\n" * 400 + f"2000 {' '.join([hard] * 2000)}\n" + "1 7\n"
    assert values(text, FLOATS) == [[1.0] * 2800 + [7.0]]
