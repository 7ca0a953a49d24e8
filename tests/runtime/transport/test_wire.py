"""Messages as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from refluid.alignment import phase_of
from refluid.lowering.staging import Shifted
from refluid.runtime.transport import connection as transport
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import Rows, RowSizes, pb

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.float16, np.bool_, np.uint8])
DENSE = arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))


@st.composite
def rows(draw):
    count = draw(st.integers(0, 6))
    values = draw(arrays.arrays(np.float32, (count, draw(st.integers(0, 3)))))
    return Rows(np.array(draw(st.lists(st.integers(0, 2**62), min_size=count, max_size=count)), np.int64), values)


def same(left, right):
    if isinstance(left, Rows):
        return np.array_equal(left.rows, right.rows) and left.values.tobytes() == right.values.tobytes()
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@given(st.lists(st.one_of(DENSE, rows()), max_size=5))
def test_tensors_come_back_as_they_were_sent(values):
    named = {f"v{i}": value for i, value in enumerate(values)}
    header = pb.ExchangeRequest(sequence=9)

    message = b"".join(wire.encode(header, named))
    decoded = wire.decode(pb.ExchangeRequest, message)

    assert decoded == header
    found = wire.decode_tensors(decoded, message)
    assert list(found) == list(named)
    assert all(same(found[name], named[name]) for name in named)


def test_received_tensors_are_views_of_the_message():
    value = np.arange(1000, dtype=np.float32)
    message = b"".join(wire.encode(pb.ExchangeReply(), {"w": value}))
    header = wire.decode(pb.ExchangeReply, message)

    found = wire.decode_tensors(header, message)["w"]

    assert np.shares_memory(found, np.frombuffer(message, np.uint8))


def test_large_tensors_are_read_in_place_and_alike_wherever_the_message_lies():
    value = np.arange(50000, dtype=np.float32)
    encoded = b"".join(wire.encode(pb.ExchangeReply(), {"w": value}))
    sizes, starts = set(), set()
    for shift in (0, 16, 32, 48):
        memory = bytearray(len(encoded) + 64)
        begin = (shift - phase_of(np.frombuffer(memory, np.uint8))) % 64
        memory[begin : begin + len(encoded)] = encoded
        message = memoryview(memory)[begin : begin + len(encoded)]

        found = Shifted.of(wire.dense(wire.decode_tensors(wire.decode(pb.ExchangeReply, message), message)["w"]))

        assert np.shares_memory(found.memory, np.frombuffer(memory, np.uint8))
        np.testing.assert_array_equal(found.memory[found.start :][: value.size], value)
        sizes.add(found.memory.size)
        starts.add(int(found.start))
    assert len(sizes) == 1  # so that one compiled update takes them all
    assert starts == {0, 4, 8, 12}


@given(st.binary(max_size=80))
def test_bytes_of_a_stranger_are_an_error_and_nothing_worse(message):
    try:
        header = wire.decode(pb.ExchangeRequest, message)
        wire.decode_tensors(header, message)
    except wire.BAD_MESSAGE:
        return


def test_a_tensor_that_claims_more_than_the_message_holds_is_refused():
    header = pb.ExchangeRequest(tensors=[pb.Tensor(name="w", dtype="float32", dims=[1 << 40])])
    message = b"".join(wire.encode(header))
    decoded = wire.decode(pb.ExchangeRequest, message)

    with pytest.raises(wire.BAD_MESSAGE):
        wire.decode_tensors(decoded, message)


@pytest.mark.parametrize("sizes", [[3], [0, 5], [transport.CHUNK, 1], [2 * transport.CHUNK + 7, 3, 0, transport.LARGE]])
def test_chunks_put_together_are_the_message(sizes):
    rng = np.random.default_rng(0)
    buffers = [rng.bytes(size) for size in sizes]

    chunks = list(transport.chunks(buffers))

    assert b"".join(chunks) == b"".join(buffers)
    assert len(chunks) == 1 or all(len(chunk) <= transport.CHUNK for chunk in chunks)
    assert (len(chunks) == 1) == (sum(sizes) <= transport.LARGE)


def test_numbers_of_rows_that_are_close_share_a_compiled_size():
    sizes = RowSizes()
    assert len({sizes.fit("t", count) for count in (50, 60, 40, 64, 30)}) == 1
    assert sizes.fit("t", 1000) >= 1000
    assert sizes.fit("t", 10) < 1000 // 4, "far fewer rows are not padded to the largest size for good"
    assert sizes.fit("other", 10) == 64


@pytest.mark.parametrize(
    "tensors",
    [
        [pb.Tensor(name="w", dtype="float32", dims=[2**40, 2**40])],
        [pb.Tensor(name="w", dtype="float32", dims=[2**62] * 100_000)],
        [pb.Tensor(name="w", dtype="float32", dims=[-1])],
        [pb.Tensor(name="w", dtype="float32", dims=[1000])],
        [pb.Tensor(name="w", dtype="O", dims=[1])],
        [pb.Tensor(name="w", dtype="f4,f4", dims=[1])],
        [pb.Tensor(name="w", dtype="(1000000,)f4", dims=[1])],
        [pb.Tensor(name="w", dtype="float32", sparse=True)],
        [pb.Tensor(name="w", dtype="float32", dims=[2**61, 0], sparse=True)],
        [pb.Tensor(name="w", dtype="float32", dims=[1])] * 2,
    ],
)
def test_a_header_that_promises_what_the_message_has_not(tensors):
    header = pb.ExchangeRequest(tensors=tensors)
    message = b"".join(wire.encode(header)) + bytes(256)
    with pytest.raises(wire.MalformedError):
        wire.decode_tensors(wire.decode(pb.ExchangeRequest, message), message)


@pytest.mark.parametrize("message", [b"", b"\1\0\0", b"\5\0\0\0abcd", b"\xff\xff\xff\xff", b"\2\0\0\0\xff\xff"])
def test_bytes_without_a_header(message):
    with pytest.raises(wire.MalformedError):
        wire.decode(pb.JoinRequest, message)


def test_the_header_of_a_request_has_an_end():
    long = pb.NoteRequest(text="x" * wire.LONGEST_HEADER)
    with pytest.raises(wire.MalformedError, match="4194304 are allowed"):
        wire.decode(pb.NoteRequest, b"".join(wire.encode(long)))
    assert wire.decode(pb.Text, b"".join(wire.encode(pb.Text(text=long.text)))).text == long.text


@pytest.mark.parametrize("kind", [pb.JoinRequest, pb.ExchangeRequest])
@pytest.mark.parametrize("field", ["pushes", "tensors", "pulls"])
def test_a_request_has_so_many_tensors_and_not_more(kind, field):
    if field not in kind.DESCRIPTOR.fields_by_name:
        return
    header = kind(**{field: [pb.Tensor()] * (wire.MOST_FIELDS - 1)})
    header.caller.incarnation = 5
    assert wire.decode(kind, b"".join(wire.encode(header))) == header
    getattr(header, field).add()
    with pytest.raises(wire.MalformedError, match="more than 65536 fields"):
        wire.decode(kind, b"".join(wire.encode(header)))
