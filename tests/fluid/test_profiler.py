"""The profiler: a table on the screen, a trace in a file."""

import json
import threading
import timeit

import pytest

from paddle.fluid import profiler
from refluid import profiling


@pytest.fixture(autouse=True)
def nothing_records():
    yield
    profiling.stop()


def test_a_table_and_a_trace_are_made(tmp_path, capsys):
    path = tmp_path / "profile"
    with profiler.profiler("CPU", sorted_key="calls", profile_path=str(path)):
        for _ in range(3):
            with profiling.record("run"), profiling.record("feed"):
                pass
        with profiling.record("compile"):
            pass

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Profiling report, times in milliseconds, sorted by calls"
    assert lines[1].split() == ["Event", "Calls", "Total", "Min.", "Max.", "Ave.", "Ratio."]
    assert [line.split()[:2] for line in lines[2:]] == [["run", "3"], ["feed", "3"], ["compile", "1"]]
    events = json.loads(path.read_text())["traceEvents"]
    assert sorted(event["name"] for event in events) == ["compile", "feed", "feed", "feed", "run", "run", "run"]
    assert all(event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0 for event in events)


def test_rows_add_up_and_are_sorted():
    milliseconds = 1_000_000
    events = [profiling.Event("a", 1, 0, 2 * milliseconds), profiling.Event("b", 1, 0, 3 * milliseconds)]
    events += [profiling.Event("a", 2, 0, 6 * milliseconds)]
    recording = profiling.Recording(events, 0, 10 * milliseconds)
    assert profiling.summarize(recording, "total") == [
        ("a", 2, 8.0, 2.0, 6.0, 4.0, 0.8),
        ("b", 1, 3.0, 3.0, 3.0, 3.0, 0.3),
    ]
    assert [row.name for row in profiling.summarize(recording, "min")] == ["b", "a"]


def test_threads_are_told_apart(tmp_path):
    profiling.start()
    with profiling.record("here"):
        pass

    def elsewhere():
        with profiling.record("there"):
            pass

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    profiling.write_trace(profiling.stop(), str(tmp_path / "trace"))
    here, there = json.loads((tmp_path / "trace").read_text())["traceEvents"]
    assert (here["name"], there["name"]) == ("here", "there")
    assert here["tid"] != there["tid"]


def test_reset_forgets_and_a_second_start_changes_nothing():
    profiler.start_profiler("All")
    with profiling.record("before"):
        pass
    profiler.reset_profiler()
    profiler.start_profiler("CPU")
    with profiling.record("after"):
        pass
    assert [event.name for event in profiling.stop().events] == ["after"]


def test_stop_without_start_does_nothing(tmp_path, capsys):
    profiler.stop_profiler(profile_path=str(tmp_path / "profile"))
    profiler.reset_profiler()
    assert capsys.readouterr().out == "" and not (tmp_path / "profile").exists()


def test_an_event_costs_next_to_nothing_while_nothing_records():
    assert profiling.recorder is None
    assert profiling.record("a") is profiling.record("b")
    per_event = min(timeit.repeat(lambda: profiling.record("a").__enter__(), number=1000, repeat=5)) / 1000
    assert per_event < 5e-6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: profiler.start_profiler("TPU"), "state must be one of 'CPU', 'GPU', 'All', not 'TPU'"),
        (lambda: profiler.start_profiler("CPU", tracer_option="All"), "profiler: tracer_option must be"),
        (lambda: profiler.stop_profiler(sorted_key="name"), "profiler: sorted_key must be"),
        (lambda: profiler.cuda_profiler("out", output_mode="xml").__enter__(), "profiler: output_mode must be"),
    ],
)
def test_wrong_words_are_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_cuda_profiler_runs_what_is_inside_and_says_that_nvprof_is_gone():
    ran = []
    with pytest.warns(UserWarning, match="nvprof, which no longer exists"), profiler.cuda_profiler("out.txt"):
        ran.append(1)
    assert ran == [1]


def test_jax_writes_its_own_trace_when_asked(tmp_path):
    with profiler.profiler("CPU", profile_path=str(tmp_path / "profile"), jax_trace_dir=str(tmp_path / "jax")):
        pass
    assert [path for path in (tmp_path / "jax").rglob("*") if path.is_file()]
