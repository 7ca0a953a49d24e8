"""DistributeTranspiler as scripts of all times call it."""

from __future__ import annotations

import inspect

import pytest

import paddle.fluid as fluid
from paddle.fluid.transpiler import HashName
from programs_to_distribute import FIRST, SECOND, SERVERS, lines, regression, transpile
from refluid.ir import Program


def sliced(transpiler):
    return {placed.param: len(placed.slices) for placed in transpiler.placement.params}


def large():
    """Weights of 20000 elements: two slices, as Fluid cuts them."""
    x, y = fluid.layers.data("x", [20]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 1000)
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    return fluid.optimizer.SGD(0.1).minimize(loss)


def test_the_signature_is_that_of_fluid():
    assert str(inspect.signature(fluid.DistributeTranspiler.transpile)) == (
        "(self, trainer_id, program=None, pservers='127.0.0.1:6174', trainers=1, sync_mode=True, startup_program=None, "
        "current_endpoint='127.0.0.1:6174')"
    )


def test_large_parameters_are_sliced_by_default():
    large()
    t = fluid.DistributeTranspiler()
    t.transpile(trainer_id=0, pservers=SERVERS, trainers=2)
    assert sliced(t) == {"fc_0.b_0": 1, "fc_0.w_0": 2, "fc_1.b_0": 1, "fc_1.w_0": 1}


def test_slicing_and_dispatching_may_be_arguments():
    large()
    t = fluid.DistributeTranspiler()
    t.transpile(0, pservers=SERVERS, trainers=4, slice_var_up=False, split_method=HashName)
    assert set(sliced(t).values()) == {1}
    expected = {name: HashName([FIRST, SECOND]).dispatch([fluid.default_main_program().global_block().var(name)])
                for name in sliced(t)}  # fmt: skip
    assert {placed.param: list(placed.endpoints) for placed in t.placement.params} == expected


def test_the_oldest_scripts_pass_what_minimize_returned(monkeypatch):
    optimize_ops, params_grads = regression()
    t = fluid.DistributeTranspiler()
    t.transpile(optimize_ops, params_grads, 1, pservers=SERVERS, trainers=2)
    assert t.get_trainer_program(wait_port=False).global_block().ops[-1].attr("trainer_id") == 1


def test_the_very_oldest_name_no_trainer(monkeypatch):
    monkeypatch.setenv("PADDLE_TRAINER_ID", "1")
    optimize_ops, params_grads = regression()
    t = fluid.DistributeTranspiler()
    t.transpile(optimize_ops, params_grads, pservers=SERVERS, trainers=2)
    assert t.get_trainer_program(wait_port=False).global_block().ops[-1].attr("trainer_id") == 1


def test_the_trainer_program_is_the_same_each_time_and_the_one_that_was_given():
    regression()
    main, loss = fluid.default_main_program(), fluid.default_main_program().global_block().var("mean_0.tmp_0")
    version = main.version
    t = transpile()
    assert t.get_trainer_program(wait_port=False) is t.get_trainer_program(False) is main
    assert main.version > version
    assert main.global_block().var("mean_0.tmp_0") is loss and loss.block is main.global_block()


def test_server_programs_come_one_by_one_or_together():
    regression()
    t = transpile()
    main, startup = t.get_pserver_programs(FIRST)
    assert t.get_pserver_program(FIRST) is main
    assert lines(t.get_startup_program(FIRST, main).global_block()) == lines(startup.global_block())
    assert str(t.get_pserver_program(SECOND)) != str(main)


def test_programs_may_be_given():
    main, startup = Program(), Program()
    with fluid.program_guard(main, startup):
        regression()
    t = transpile(program=main, startup_program=startup)
    assert t.get_trainer_program(wait_port=False) is main
    assert "recv" in [op.type for op in startup.global_block().ops]
    assert not fluid.default_main_program().global_block().ops


def test_every_process_makes_the_same_programs():
    made = []
    for trainer in (0, 1):
        with fluid.program_guard(Program(), Program()), fluid.unique_name.guard():
            regression(fluid.optimizer.Adam(0.1), clip=fluid.clip.GradientClipByGlobalNorm(1.0))
            made.append(str(transpile(trainer_id=trainer).get_pserver_program(FIRST)))
    assert made[0] == made[1]


def test_memory_may_be_optimised_before():
    regression()
    fluid.memory_optimize(fluid.default_main_program(), skip_grads=True)
    assert "send" in [op.type for op in transpile().get_trainer_program(wait_port=False).global_block().ops]


def test_what_is_where_can_be_printed(capsys):
    regression(size=2)
    settings = fluid.DistributeTranspilerConfig()
    settings.print_log, settings.min_block_size = True, 8
    transpile(settings)
    assert capsys.readouterr().out.splitlines() == [
        "sync training, 2 servers, 2 trainers",
        f"  {FIRST}  fc_0.b_0  [2]",
        f"  {SECOND}  fc_0.w_0.block0  [4, 2]",
        f"  {FIRST}  fc_0.w_0.block1  [4, 2]",
    ]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"pservers": ""}, ValueError, "an endpoint must be host:port"),
        ({"pservers": "127.0.0.1"}, ValueError, "an endpoint must be host:port"),
        ({"pservers": "a:1,b:2,a:1"}, ValueError, "pservers lists a server twice"),
        ({"pservers": 6174}, TypeError, "pservers must be a string such as"),
        ({"trainers": 0}, ValueError, "trainers must be a positive integer, not 0"),
        ({"trainers": "a:1,b:2"}, ValueError, "trainers must be a positive integer, not 'a:1,b:2'"),
    ],
)
def test_wrong_arguments_are_told(options, error, words):
    regression()
    with pytest.raises(error, match=words):
        transpile(**options)


def test_programs_are_there_after_transpile_only():
    with pytest.raises(RuntimeError, match="call transpile before get_trainer_program"):
        fluid.DistributeTranspiler().get_trainer_program(wait_port=False)


def test_a_program_is_transpiled_once():
    regression()
    transpile()
    with pytest.raises(ValueError, match="has already been transpiled"):
        transpile()


def test_a_program_without_updates_cannot_be_distributed():
    fluid.layers.fc(fluid.layers.data("x", [2]), 1)
    with pytest.raises(ValueError, match="call minimize before transpile"):
        transpile()


def test_a_server_that_nobody_named_has_no_program():
    regression()
    with pytest.raises(
        ValueError, match=f"'10.0.0.1:1' is not among the servers passed to transpile: {FIRST}, {SECOND}"
    ):
        transpile().get_pserver_program("10.0.0.1:1")


def test_servers_may_have_any_trainer_id_but_trainers_may_not():
    regression()
    t = transpile(trainer_id=5)
    assert t.get_pserver_program(FIRST)
    with pytest.raises(ValueError, match="trainer_id is 5; with 2 trainers it must be between 0 and 1"):
        t.get_trainer_program(wait_port=False)
