"""Names that scripts import besides layers and optimizers: versions, compatibility, scopes, tools for programs."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import paddle
import paddle.compat as cpt
import paddle.fluid as fluid
from paddle.fluid import annotations, default_scope_funcs, log_helper, wrapped_decorator
from paddle.fluid.layers import layer_function_generator, utils
from paddle.fluid.transpiler import details


def test_text_and_bytes_are_converted_wherever_they_are():
    assert cpt.to_text(b"ab") == "ab" and cpt.to_text(None) is None and cpt.to_text(3) == 3
    assert cpt.to_text([b"a", "b"]) == ["a", "b"] and cpt.to_text({b"a": b"b"}) == {"a": "b"}
    assert cpt.to_bytes({"a"}) == {b"a"} and cpt.to_bytes("ab") == b"ab"
    given = [b"a"]
    assert cpt.to_text(given, inplace=True) is given == ["a"]


def test_halves_are_rounded_away_from_zero():
    assert [cpt.round(x) for x in (0.5, 1.5, -0.5, 2.5, 0.0)] == [1, 2, -1, 3, 0]
    assert cpt.round(1.2345, 2) == 1.23
    assert cpt.floor_division(-7, 2) == -4
    assert cpt.get_exception_message(ValueError("why")) == "why"


def test_headers_are_said_to_be_missing():
    for ask in (paddle.sysconfig.get_include, paddle.sysconfig.get_lib):
        with pytest.raises(NotImplementedError, match="refluid.jax_layer"):
            ask()


def test_a_script_can_require_a_version(capsys):
    assert paddle.__version__ == paddle.version.full_version
    paddle.version.show()
    assert f"full_version: {paddle.__version__}" in capsys.readouterr().out
    fluid.require_version("1.5")
    fluid.require_version("1.5.2.0", max_version="1.8")
    with pytest.raises(Exception, match="version 99.0 or later is required, but refluid implements 1.6"):
        fluid.require_version("99.0")
    with pytest.raises(Exception, match="from 1.0 to 1.2 is required"):
        fluid.require_version("1.0", "1.2")
    with pytest.raises(ValueError, match="one to four numbers"):
        fluid.require_version("new")
    with pytest.raises(TypeError, match="max_version must be a string, not int"):
        fluid.require_version("1.0", 2)


def test_decorators_keep_the_name_of_what_they_decorate():
    @wrapped_decorator.signature_safe_contextmanager
    def opened():
        yield 3

    with opened() as number:
        assert number == 3
    assert opened.__name__ == "opened"


def test_a_deprecated_function_says_so(capsys):
    @annotations.deprecated(since="1.2", instead="new", extra_message="Soon.")
    def old():
        return 4

    assert old() == 4
    assert "API old is deprecated since 1.2. Please use new instead.\nSoon." in capsys.readouterr().err


def test_a_logger_of_a_script_has_its_own_level():
    logger = log_helper.get_logger("script", logging.INFO, fmt="%(message)s")
    assert logger.level == logging.INFO and not logger.propagate
    logger.handlers.clear()


def test_scopes_are_entered_and_left():
    default_scope_funcs.var("outer")

    def inside():
        default_scope_funcs.var("inner")
        assert default_scope_funcs.find_var("outer") is not None

    default_scope_funcs.scoped_function(inside)
    assert default_scope_funcs.find_var("inner") is None


def test_a_variable_of_a_scope_is_fetched_by_name():
    fluid.global_scope().var("x").get_tensor().set(np.float32([1, 2]), fluid.CPUPlace())
    assert fluid.executor._fetch_var("x").tolist() == [1, 2]
    assert fluid.executor._fetch_var("x", return_numpy=False).shape() == [2]
    with pytest.raises(ValueError, match="the scope has no variable y"):
        fluid.executor._fetch_var("y")
    with pytest.raises(TypeError, match="expects the name of a variable, not int"):
        fluid.executor._fetch_var(3)


def test_core_has_what_scripts_ask_it():
    core = fluid.core
    assert core.is_compiled_with_dist() and not core.is_compiled_with_mkldnn() and not core.is_compiled_with_brpc()
    assert core.get_cuda_device_count() == 0
    core._set_eager_deletion_mode(0, 1.0, True)
    core.globals()["FLAGS_check_nan_inf"] = True
    assert core.globals()["FLAGS_check_nan_inf"] is True
    core.globals()["FLAGS_check_nan_inf"] = False
    assert (core.grad_var_suffix(), core.empty_var_name(), core.kTempVarName()) == ("@GRAD", "@EMPTY@", "@TEMP@")
    assert core.size_of_dtype(core.VarDesc.VarType.FP64) == 8
    assert core.has_grad_op_maker("mul") and not core.has_grad_op_maker("accuracy")
    assert core.get_op_attrs_default_value(b"scale") == {"scale": 1.0, "bias": 0.0, "bias_after_scale": True}
    assert not core.is_profiler_enabled()
    core.set_num_threads(1)


@pytest.mark.parametrize("error", ["FeedError", "FetchError", "OpError", "OutOfRangeError", "UninitializedError"])
def test_errors_of_a_run_are_what_fluid_calls_enforce_not_met(error):
    from refluid import errors

    assert issubclass(getattr(errors, error), fluid.core.EnforceNotMet)


def test_optimizers_load_states_of_dynamic_graphs_only():
    with pytest.raises(RuntimeError, match="SGDOptimizer.load is for dynamic graphs(.|\n)*fluid.load"):
        fluid.optimizer.SGD(0.1).load({})


def test_structures_are_flattened_and_packed():
    nest = {"a": [1, (2, 3)], "b": 4}
    assert utils.flatten(nest) == [1, 2, 3, 4]
    assert utils.pack_sequence_as(nest, [5, 6, 7, 8]) == {"a": [5, (6, 7)], "b": 8}
    with pytest.raises(ValueError, match="4 places for 1 elements"):
        utils.pack_sequence_as(nest, [5])
    utils.assert_same_structure([1, 2], (1, 2), check_types=False)
    with pytest.raises(TypeError, match="different types"):
        utils.assert_same_structure([1, 2], (1, 2))
    with pytest.raises(ValueError, match="the structures differ"):
        utils.assert_same_structure([1], [1, 2])
    assert utils.convert_to_list(2, 3, "x") == [2, 2, 2] and utils.convert_to_list((1, 2), 2, "x") == [1, 2]
    for wrong in ([1, 2], "a", None):
        with pytest.raises(ValueError, match="x must be int, or a list of 3 of them"):
            utils.convert_to_list(wrong, 3, "x")


def test_layers_are_generated_from_ops():
    x = fluid.layers.data("x", [2])
    scale = layer_function_generator.generate_layer_fn("scale")
    halved = layer_function_generator.generate_activation_fn("relu")(scale(x, scale=0.5))
    assert [op.type for op in fluid.default_main_program().global_block().ops] == ["scale", "relu"]
    found = fluid.Executor(fluid.CPUPlace()).run(feed={"x": np.float32([[4, -4]])}, fetch_list=[halved])[0]
    assert found.tolist() == [[2, 0]]


def test_documentation_of_ops_is_put_into_that_of_layers():
    @layer_function_generator.templatedoc("scale")
    def scaled():
        """A layer: ${comment}"""

    @layer_function_generator.autodoc("The op: ")
    def relu(): ...

    assert scaled.__doc__.startswith("A layer: scale * x + bias") and relu.__doc__.startswith("The op: ")

    @layer_function_generator.deprecated
    def old():
        return 5

    with pytest.warns(DeprecationWarning, match="old is deprecated"):
        assert old() == 5


def test_programs_are_printed_and_searched(capsys):
    x = fluid.layers.data("x", [2])
    y = fluid.layers.scale(fluid.layers.relu(x), 2.0)
    block = fluid.default_main_program().global_block()
    details.program_to_code(fluid.default_main_program())
    assert capsys.readouterr().out == f"{block}\n"
    assert details.op_to_code(block.ops[0]) == str(block.ops[0]) and details.variable_to_code(x) == str(x)
    assert details.find_op_by_input_arg(block, "x") == 0 and details.find_op_by_output_arg(block, y.name) == 1
    assert details.find_op_by_output_arg(block, "nothing", reverse=True) == -1
    details.delete_ops(block, block.ops[1:])
    assert [op.type for op in block.ops] == ["relu"]


def test_elements_that_belong_together_are_found():
    sets = details.UnionFind(["a", "b", "c"])
    sets.union("a", "b")
    assert sets.is_connected("a", "b") and not sets.is_connected("a", "c")
    assert sets.find("nothing") == -1


def test_messages_of_programs_have_fluid_names():
    from paddle.fluid.proto import framework_pb2

    fluid.layers.data("x", [2])
    message = framework_pb2.ProgramDesc()
    message.ParseFromString(fluid.default_main_program().desc.serialize_to_string())
    assert [variable.name for variable in message.blocks[0].vars] == ["x"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("nn", "fc pool2d one_hot"),
        ("tensor", "concat zeros"),
        ("ops", "tanh cumsum"),
        ("control_flow", "While less_than"),
        ("detection", "ssd_loss"),
        ("metric_op", "accuracy auc"),
    ],
)
def test_layers_are_imported_from_the_modules_that_fluid_has_for_them(module, names):
    found: dict = {}
    exec(f"from paddle.fluid.layers.{module} import *", found)
    assert all(found[name] is getattr(fluid.layers, name) for name in names.split())


def test_tools_are_found_where_fluid_has_them():
    from paddle.fluid.contrib import slim, summary

    assert summary is fluid.contrib.model_stat.summary
    assert slim.Context is slim.core.Context and slim.Strategy is slim.core.Strategy and slim.ConfigFactory
