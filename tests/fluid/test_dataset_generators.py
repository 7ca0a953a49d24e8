"""incubate.data_generator prints what real Fluid prints, which was recorded from it."""

import io
import sys

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.incubate.data_generator import MultiSlotDataGenerator, MultiSlotStringDataGenerator


class Numbers(MultiSlotDataGenerator):
    def generate_sample(self, line):
        def samples():
            if line is None:
                yield from ([("w", [k, 2]), ("f", [0.5 * k])] for k in range(3))
                return
            yield None
            yield from ([("w", [int(x), 2]), ("f", [0.25, 1e-7, 3, 1e20, 10**12])] for x in line.split())

        return samples


class Words(MultiSlotStringDataGenerator):
    def generate_sample(self, line):
        return lambda: iter([[("w", (line or "a b").split()), ("l", ["1"])]])


class Reversed(Numbers):
    def generate_batch(self, samples):
        return lambda: reversed(samples)


def run(generator, text, monkeypatch, capsys):
    generator.run_from_memory()
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    generator.run_from_stdin()
    return capsys.readouterr().out


def test_numbers_are_printed_as_python_prints_them(monkeypatch, capsys):
    assert run(Numbers(), "1 2\n3\n", monkeypatch, capsys) == (
        "2 0 2 1 0.0\n2 1 2 1 0.5\n2 2 2 1 1.0\n"
        "2 1 2 5 0.25 1e-07 3 1e+20 1000000000000\n"
        "2 2 2 5 0.25 1e-07 3 1e+20 1000000000000\n"
        "2 3 2 5 0.25 1e-07 3 1e+20 1000000000000\n"
    )


def test_strings_are_printed_as_they_are(monkeypatch, capsys):
    assert run(Words(), "x\ny z\n", monkeypatch, capsys) == "2 a b 1 1\n1 x 1 1\n2 y z 1 1\n"


def test_a_batch_may_be_rearranged(monkeypatch, capsys):
    generator = Reversed()
    generator.set_batch(2)
    first = [line.split()[1] for line in run(generator, "1 2\n3 4 5\n", monkeypatch, capsys).splitlines()]
    assert first == ["1", "0", "2", "2", "1", "4", "3", "5"]


def test_types_of_slots_are_noted():
    generator = MultiSlotDataGenerator()
    assert generator._gen_str([("a", [1]), ("b", [np.int64(2), np.float32(0.5)])]) == "1 1 2 2 0.5\n"
    assert generator._proto_info == [("a", "uint64"), ("b", "float")]
    assert generator._gen_str((("a", [1.5]), ("b", [1]))) == "1 1.5 1 1\n"
    assert generator._proto_info == [("a", "float"), ("b", "float")]


@pytest.mark.parametrize(
    "sample, expected",
    [
        ("text", "a sample must be a list or tuple, not str"),
        ([(1, [1])], "the name of a slot must be a str, not 1"),
        ([("a", 1)], "the values of slot a must be a list, not int"),
        ([("a", (1,))], "the values of slot a must be a list, not tuple"),
        ([("a", [])], "slot a has no values"),
        ([("a", ["x"])], "the elements of a must be numbers, but there is 'x'"),
        ([("b", [1])], "in the same order: expected a, got b"),
        ([("a", [1]), ("b", [1])], "the first has 1, this one 2"),
    ],
)
def test_samples_that_do_not_fit_are_explained(sample, expected):
    generator = MultiSlotDataGenerator()
    generator._gen_str([("a", [1])])
    with pytest.raises(ValueError, match=expected):
        generator._gen_str(sample)


def test_a_generator_must_define_its_samples():
    with pytest.raises(NotImplementedError, match="MultiSlotDataGenerator must define generate_sample"):
        MultiSlotDataGenerator().generate_sample("1")
    with pytest.raises(ValueError, match="a sample must be a list or tuple, not str"):
        MultiSlotStringDataGenerator()._gen_str("text")
    with pytest.raises(ValueError, match="line_limit must be at least 1, not 0"):
        Numbers()._set_line_limit(0)
    with pytest.raises(ValueError, match="line_limit must be an int, not str"):
        Numbers()._set_line_limit("1")


def test_a_generator_is_a_pipe_command(tmp_path):
    script = tmp_path / "generate.py"
    script.write_text(
        "from paddle.fluid.incubate.data_generator import MultiSlotDataGenerator\n"
        "class Lengths(MultiSlotDataGenerator):\n"
        "    def generate_sample(self, line):\n"
        "        return lambda: [[('length', [len(word) for word in line.split()])]]\n"
        "Lengths().run_from_stdin()\n"
    )
    (tmp_path / "part").write_text("one three\nfour\n")
    dataset = fluid.DatasetFactory().create_dataset()
    dataset.set_use_var([fluid.layers.data("length", [1], dtype="int64", lod_level=1)])
    dataset.set_filelist([str(tmp_path / "part")])
    dataset.set_pipe_command(f"{sys.executable} {script}")
    [feed] = dataset.feeds()
    assert (np.array(feed["length"])[:, 0].tolist(), feed["length"].lod()) == ([3, 5, 4], [[0, 2, 3]])
