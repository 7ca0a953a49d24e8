"""Programs as data: building, cloning, pruning, printing."""

from __future__ import annotations

import pytest

import paddle.fluid as fluid
from refluid.errors import OpError, UnknownOpError
from refluid.ir import OpRole, Program, VarType


def classifier():
    image = fluid.layers.data("image", [784])
    label = fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.dropout(fluid.layers.fc(image, 100, act="relu"), 0.3)
    prediction = fluid.layers.fc(hidden, 10, act="softmax")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(prediction, label))
    return image, label, prediction, loss


def op_types(program):
    return [op.type for op in program.global_block().ops]


def test_parameters_and_temporaries_have_fluid_names():
    _, _, prediction, _ = classifier()
    names = [p.name for p in fluid.default_main_program().all_parameters()]
    assert names == ["fc_0.w_0", "fc_0.b_0", "fc_1.w_0", "fc_1.b_0"]
    assert prediction.name == "fc_1.tmp_2"
    assert prediction.shape == (-1, 10)


def test_a_test_clone_drops_training_and_sets_is_test():
    *_, loss = classifier()
    fluid.optimizer.Adam(0.001).minimize(loss)
    test = fluid.default_main_program().clone(for_test=True)
    roles = OpRole.Backward | OpRole.Optimize
    assert not [op.type for op in test.global_block().ops if op.role & roles]
    (dropout,) = [op for op in test.global_block().ops if op.type == "dropout"]
    assert dropout.attr("is_test") is True
    assert "fc_0.w_0@GRAD" not in test.global_block().vars
    (original,) = [op for op in fluid.default_main_program().global_block().ops if op.type == "dropout"]
    assert original.attr("is_test") is False


def test_a_clone_is_independent():
    classifier()
    program = fluid.default_main_program()
    before = str(program)
    copy = program.clone()
    assert str(copy) == before
    copy.global_block().ops[0].set_attr("x_num_col_dims", 2)
    copy.global_block().create_var(name="new")
    assert str(program) == before


def test_pruning_keeps_what_the_target_needs():
    _, _, prediction, loss = classifier()
    fluid.optimizer.SGD(0.1).minimize(loss)
    pruned = fluid.default_main_program().clone(for_test=True)._prune([prediction])
    assert op_types(pruned) == ["mul", "elementwise_add", "relu", "dropout", "mul", "elementwise_add", "softmax"]
    assert "label" not in pruned.global_block().vars


def test_every_change_makes_a_new_version():
    classifier()
    program = fluid.default_main_program()
    version = program.version
    program.global_block().ops[0].set_attr("x_num_col_dims", 1)
    assert program.version > version


def test_roles_mark_backward_and_optimizer_ops():
    *_, loss = classifier()
    fluid.optimizer.SGD(0.1).minimize(loss)
    by_type = {op.type: op for op in fluid.default_main_program().global_block().ops}
    assert by_type["mean"].role == OpRole.Forward | OpRole.Loss
    assert by_type["mul_grad"].role == OpRole.Backward
    assert by_type["sgd"].role == OpRole.Optimize
    assert len(by_type["sgd"].role_var) == 2


def test_the_text_form_is_readable():
    x = fluid.layers.data("x", [3])
    fluid.layers.scale(x, scale=2.0)
    text = str(fluid.default_main_program())
    assert "var x : LOD_TENSOR.FP32[-1, 3] stop_gradient is_data" in text
    assert "{Out=[scale_0.tmp_0]} = scale(inputs={X=[x]}, bias=0.0, bias_after_scale=True, scale=2.0)" in text


def test_name_scopes_are_carried_by_ops():
    x = fluid.layers.data("x", [3])
    with fluid.name_scope("encoder"), fluid.name_scope("block"):
        fluid.layers.relu(x)
    with fluid.name_scope("encoder"):
        fluid.layers.relu(x)
    scopes = [op.attr("op_namescope") for op in fluid.default_main_program().global_block().ops]
    assert scopes == ["/encoder/block/", "/encoder_1/"]


def test_every_op_has_the_attributes_of_the_framework():
    op = fluid.layers.relu(fluid.layers.data("x", [3])).op
    assert {"op_role", "op_role_var", "op_namescope"} <= set(op.attr_names)
    assert (op.attr("op_role"), op.attr("op_role_var"), op.attr("op_namescope")) == (0, [], "/")


def test_two_optimizers_can_update_the_same_parameters():
    weight = fluid.layers.create_parameter([1], "float32", default_initializer=fluid.initializer.Constant(0.0))
    for rate in (0.5, 0.25):
        _, updated = fluid.optimizer.SGD(rate).minimize(fluid.layers.mean(weight * 2.0))
        assert [param.name for param, _ in updated] == [weight.name]
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    assert exe.run(fetch_list=[weight])[0] == -2 * (0.5 + 0.25)


def test_an_appended_op_leaves_stop_gradient_as_it_is():
    x = fluid.layers.create_parameter([1], "float32")
    x.block.append_op(type="scale", inputs={"X": x}, outputs={"Out": x}, stop_gradient=True)
    assert not x.stop_gradient


def test_a_parameter_can_be_shared_but_not_with_another_shape():
    x = fluid.layers.data("x", [4])
    shared = fluid.ParamAttr(name="shared")
    fluid.layers.fc(x, 4, param_attr=shared, bias_attr=False)
    fluid.layers.fc(x, 4, param_attr=shared, bias_attr=False)
    inits = [op for op in fluid.default_startup_program().global_block().ops if "shared" in op.output_arg_names]
    assert len(inits) == 1
    with pytest.raises(ValueError, match=r"parameter shared already exists with shape \[4, 4\]"):
        fluid.layers.fc(x, 5, param_attr=shared, bias_attr=False)


def test_an_unknown_op_names_the_nearest_one():
    block = Program().global_block()
    with pytest.raises(UnknownOpError, match="elementwise_ad: refluid has no op of this type(.|\n)*elementwise_add"):
        block.append_op(type="elementwise_ad")


def test_wrong_shapes_are_told_with_variables_and_the_users_line():
    x = fluid.layers.data("x", [128])
    bias = fluid.layers.create_parameter([10], "float32", name="bias")
    with pytest.raises(OpError) as caught:
        fluid.layers.elementwise_add(x, bias, axis=1)
    message = str(caught.value)
    assert message.startswith("elementwise_add: ")
    assert "x  float32[-1, 128]" in message
    assert "bias  float32[10]" in message
    assert "test_program.py" in message
    assert "fluid.layers.elementwise_add(x, bias, axis=1)" in message


def test_programs_are_printed_as_protobuf_text_where_fluid_throws_on_errors():
    x = fluid.layers.data("x", [2, 3], append_batch_size=False)
    scaled = fluid.layers.scale(x, 2.0)
    program = fluid.default_main_program()
    block, op = program.global_block(), program.global_block().ops[0]
    assert scaled.to_string(True) == (
        'name: "scale_0.tmp_0"\ntype {\n  type: LOD_TENSOR\n  lod_tensor {\n    tensor {\n      data_type: FP32\n'
        "      dims: 2\n      dims: 3\n    }\n    lod_level: 0\n  }\n}\npersistable: false\n"
    )
    assert 'type: "scale"' in op.to_string(True) and 'arguments: "x"' in op.to_string(True)
    indented = "".join(f"  {line}\n" for line in block.to_string(True).splitlines())
    assert program.to_string(throw_on_error=True).startswith(f"blocks {{\n{indented}}}\n")
    assert program.to_string(False) == str(program) != program.to_string(True)


def test_protobuf_text_with_details_says_what_messages_have_no_fields_for():
    x = fluid.layers.data("x", [2])
    fluid.layers.fc(x, 1, param_attr="w", bias_attr=False)
    program = fluid.default_main_program()
    details = "error_clip: None\nstop_gradient: True\n"
    assert x.to_string(True, with_details=True) == x.to_string(True) + details
    assert (
        program.all_parameters()[0]
        .to_string(True, True)
        .endswith(
            "stop_gradient: False\ntrainable: True\noptimize_attr: {'learning_rate': 1.0}\nregularizer: None\n"
            "do_model_average: True\n"
        )
    )
    text = program.to_string(True, with_details=True)
    assert text.startswith("blocks {\n  idx: 0\n  parent_idx: -1\n  vars {\n    name: ")
    assert "    persistable: false\n    error_clip: None\n    stop_gradient: True\n  }\n" in text
    assert text.endswith("  }\n}\n") and '    type: "mul"\n' in text


def test_dtypes_compare_with_the_enumeration_and_print_like_it():
    x = fluid.layers.data("x", [1], dtype="int64")
    assert x.dtype == fluid.core.VarDesc.VarType.INT64 == VarType.INT64
    assert str(x.dtype) == "VarType.INT64"


def test_a_variable_cannot_be_created_again_with_another_shape():
    block = fluid.default_main_program().global_block()
    block.create_var(name="v", shape=[2, 3], dtype="float32")
    assert block.create_var(name="v").shape == (2, 3)
    with pytest.raises(ValueError, match="variable v already exists with shape"):
        block.create_var(name="v", shape=[3, 2])


def test_an_unsupported_attribute_value_is_named():
    x = fluid.layers.data("x", [3, 8, 8])
    out = fluid.layers.create_tensor("float32")
    attrs = {"pooling_type": "median", "ksize": [2, 2]}
    with pytest.raises(OpError, match=r"pool2d: pooling_type must be max or avg, not median(.|\n)*test_program.py"):
        x.block.append_op(type="pool2d", inputs={"X": x}, outputs={"Out": out}, attrs=attrs)


def test_an_unknown_activation_names_the_nearest_one():
    x = fluid.layers.data("x", [8])
    with pytest.raises(UnknownOpError, match=r"wish: refluid has no op of this type(.|\n)*swish"):
        fluid.layers.fc(x, 4, act="wish")
