"""Channels between threads."""

import threading

import pytest

from refluid.readers.threads import Channel, Closed


def in_thread(function, *arguments):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*arguments)))
    thread.start()
    return thread, results


def test_an_item_reaches_the_thread_that_takes_it_whoever_else_looks():
    channel = Channel(1)
    looking = [in_thread(channel.ended) for _ in range(3)]
    taking = in_thread(channel.get, None)
    looking += [in_thread(channel.ended) for _ in range(3)]
    channel.put(7)
    taking[0].join(10)
    assert taking[1] == [7]
    channel.finish()
    for thread, results in looking:
        thread.join(10)
        assert results in ([False], [True])  # before or after the item was taken


def test_a_producer_goes_on_when_the_channel_is_half_empty():
    channel = Channel(4)

    def fill():
        for number in range(6):
            channel.put(number)

    thread, _ = in_thread(fill)
    assert [channel.get(None) for _ in range(6)] == list(range(6))
    thread.join(10)
    assert len(channel) == 0


def test_both_ends_can_close_a_channel():
    channel = Channel(2)
    channel.put(1)
    channel.finish(KeyError("lost"))
    assert channel.get(None) == 1
    for _ in range(2):
        with pytest.raises(KeyError, match="lost"):
            channel.get(None)
    channel = Channel(1)
    channel.put(1)

    def put():
        try:
            channel.put(2)
        except Closed:
            return "closed"

    thread, results = in_thread(put)
    channel.close()
    thread.join(10)
    assert results == ["closed"]
    assert channel.get(None) is None
