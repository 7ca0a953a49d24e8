"""Shuffles across trainers, which are threads of one process here."""

import numpy as np
import pytest

from cluster.groups import trainers
from cluster.shuffle_job import Texts, block, texts, texts_of
from refluid.errors import PeerError
from refluid.runtime.trainer import shuffle
from refluid.runtime.trainer.mailbox import Mailbox
from refluid.runtime.trainer.shuffle import chunk_size, destinations, shuffle_records
from refluid.runtime.transport import wire
from refluid.runtime.transport.wire import Rows, pb


def run(count, blocks, **options):
    """What each trainer has after a shuffle of ``blocks(trainer)``."""
    options = {"form": "texts", "seed": 3, "chunk_records": 16, "threads": 4, **options}
    with trainers(count) as (members, everybody):
        return everybody(lambda i: texts_of(shuffle_records(members[i], blocks(i), **options)))


def test_nothing_is_lost_and_nothing_is_doubled():
    shuffled = run(3, lambda i: [block(i, 0), block(i, 1, rows=0), block(i, 2, rows=91)])

    expected = [text for i in range(3) for text in texts(i, 0) + texts(i, 2, rows=91)]
    assert sorted(text for each in shuffled for text in each) == sorted(expected)
    assert all(len(each) > 20 for each in shuffled)


def test_a_shuffle_can_be_repeated():
    first, again, other = (run(2, lambda i: [block(i, 0, rows=200)], seed=seed) for seed in (5, 5, 6))
    assert first == again and first != other


def test_records_of_the_same_key_meet():
    class Rows(Texts):
        def keys(self):
            return np.array([int(text.split("/")[2]) for text in self._texts], np.int64)

    shuffled = run(2, lambda i: [Rows(texts(i, 0))])
    rows = [sorted(int(text.split("/")[2]) for text in each) for each in shuffled]
    assert sorted(rows[0] + rows[1]) == sorted([*range(40), *range(40)])
    assert not set(rows[0]) & set(rows[1]) and all(rows)


def test_a_trainer_without_data_receives_its_share():
    shuffled = run(2, lambda i: [block(0, 0, rows=100)] if i == 0 else [])
    assert 20 < len(shuffled[1]) < 80 and len(shuffled[0]) + len(shuffled[1]) == 100


def test_blocks_are_read_while_others_are_sent():
    """So that a trainer that gives its data away block by block frees it."""
    alive = []

    class Watched(Texts):
        def __del__(self):
            alive.remove(id(self))

    def blocks(i):
        for number in range(10):
            alive.append(id(watched := Watched(texts(i, number))))
            most.append(len(alive))
            yield watched
            del watched

    most = []
    run(2, blocks)
    assert max(most) == 2, "one of each trainer"


def test_an_error_while_reading_reaches_all():
    def blocks(i):
        yield block(i, 0)
        if i == 1:
            raise ValueError("line 3 of a.txt is no sample")

    errors = []

    def attempt(i):
        with pytest.raises((ValueError, PeerError)) as error:
            shuffle_records(members[i], blocks(i), "texts", seed=1, chunk_records=16, threads=2)
        errors.append(str(error.value))
        return members[i].is_closed

    with trainers(2) as (members, everybody):
        assert everybody(attempt) == [True, True]
    assert any("trainer 1 at 127.0.0.1" in text and "line 3 of a.txt is no sample" in text for text in errors)


def test_records_that_did_not_arrive_are_noticed(monkeypatch):
    lost = []

    def lose(self, message):
        if not lost:
            lost.append(wire.decode(pb.RecordsRequest, message))
            return wire.encode(pb.Empty())
        return kept(self, message)

    kept = Mailbox._records
    monkeypatch.setattr(Mailbox, "_records", lose)

    def attempt(i):
        with pytest.raises(PeerError) as error:
            shuffle_records(members[i], [block(i, 0)], "texts", seed=1, chunk_records=16, threads=2)
        return str(error.value)

    with trainers(2) as (members, everybody):
        texts = everybody(attempt)
    assert any("records, and" in text and "have arrived" in text for text in texts), texts


def test_a_chunk_that_arrives_again_counts_once():
    mailbox = Mailbox(0, 2)
    mailbox.expect_records(4)
    data = {"data": block(1, 0, rows=3).pack()}
    request = {"caller": pb.Caller(trainer=1), "shuffle": 4, "chunk": 0, "count": 3}
    for _ in range(2):
        mailbox.methods["Records"](b"".join(wire.encode(pb.RecordsRequest(**request), data)))
    with pytest.raises(ValueError, match="trainer 0 takes no records: it is not in shuffle 5"):
        mailbox.methods["Records"](b"".join(wire.encode(pb.RecordsRequest(**{**request, "shuffle": 5}), data)))
    assert texts_of([*mailbox.take_records().values()]) == texts(1, 0, rows=3)


def test_trainers_with_different_records_are_told_so():
    def attempt(i):
        with pytest.raises((ValueError, PeerError), match="trainer . has other records than trainer .: .*words"):
            shuffle_records(members[i], [], ["texts", "words"][i], seed=1, chunk_records=16, threads=2)

    with trainers(2) as (members, everybody):
        everybody(attempt)


def test_chunks_are_bounded_in_records_and_bytes(monkeypatch):
    monkeypatch.setattr(shuffle, "CHUNK", 100)
    assert chunk_size(Texts(["x" * 10] * 50), most=8) == 8
    assert chunk_size(Texts(["x" * 40] * 50), most=8) == 2
    assert chunk_size(Texts(["x" * 400] * 50), most=8) == 1
    assert chunk_size(Texts([]), most=8) == 1


def test_every_trainer_is_chosen_equally_often():
    counts = np.bincount(destinations(seed=1, trainer=0, first=0, count=30000, trainers=3))
    assert counts.min() > 9700 and len(counts) == 3
    halves = [destinations(1, 0, first, 100, 5) for first in (0, 100)]
    assert np.array_equal(np.concatenate(halves), destinations(1, 0, 0, 200, 5))


@pytest.mark.parametrize(
    "sent", [{}, {"data": np.zeros(3, np.float32)}, {"data": Rows(np.zeros(1, np.int64), np.zeros((1, 2), np.uint8))}]
)
def test_what_is_no_chunk_is_malformed(sent):
    mailbox = Mailbox(0, 2)
    mailbox.expect_records(4)
    request = pb.RecordsRequest(caller=pb.Caller(trainer=1), shuffle=4)
    with pytest.raises(wire.MalformedError, match="records are one tensor of bytes"):
        mailbox.methods["Records"](b"".join(wire.encode(request, sent)))
