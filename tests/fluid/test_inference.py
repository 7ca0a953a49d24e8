"""The predictors of Fluid 1.5 and 1.6, under fluid.core."""

import numpy as np
import pytest

from paddle.fluid import core
from refluid.errors import FeedError
from saved_models import MODELS, feed_of, save


def make(folder, config=core.AnalysisConfig, **options):
    return core.create_paddle_predictor(config(str(folder), **options))


def tensors(name, named=True):
    feed = feed_of(name)
    lods = {key: value.lod() if hasattr(value, "lod") else [] for key, value in feed.items()}
    return [core.PaddleTensor(np.array(v), k if named else "", lods[k]) for k, v in feed.items()]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("named", [True, False])
def test_run_takes_and_gives_lists_of_tensors(tmp_path, name, named):
    expected = save(tmp_path, name)
    found = make(tmp_path).run(tensors(name, named))
    for tensor, array in zip(found, expected, strict=True):
        np.testing.assert_allclose(tensor.as_ndarray(), array, rtol=1e-6)
        assert tensor.shape == list(array.shape) and tensor.dtype == core.PaddleDType.FLOAT32
        assert tensor.data.float_data() == tensor.as_ndarray().ravel().tolist()
        assert tensor.data.length() == array.nbytes


def test_inputs_by_name_may_come_in_any_order(tmp_path):
    expected = save(tmp_path, "recommender")
    found = make(tmp_path).run(tensors("recommender")[::-1])
    np.testing.assert_allclose(found[0].as_ndarray(), expected[0], rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_zero_copy_tensors_are_filled_and_read(tmp_path, name):
    expected = save(tmp_path, name)
    config = core.AnalysisConfig(str(tmp_path))
    config.disable_gpu()
    config.switch_use_feed_fetch_ops(False)
    config.switch_specify_input_names(True)
    predictor = core.create_paddle_predictor(config)
    for feed, value in feed_of(name).items():
        place = predictor.get_input_tensor(feed)
        place.reshape(np.shape(value))
        place.copy_from_cpu(np.array(value))
        if hasattr(value, "lod"):
            place.set_lod(value.lod())
    other = predictor.clone()
    assert predictor.zero_copy_run() is True
    names = predictor.get_output_names()
    for output, array in zip(names, expected, strict=True):
        place = predictor.get_output_tensor(output)
        np.testing.assert_allclose(place.copy_to_cpu(), array, rtol=1e-6)
        assert place.shape() == list(array.shape) and place.type() == core.PaddleDType.FLOAT32
    with pytest.raises(FeedError, match="it has not been filled"):
        other.zero_copy_run()
    with pytest.raises(RuntimeError, match="has no value yet"):
        other.get_output_tensor(names[0]).copy_to_cpu()


def test_tensors_can_be_put_together_by_hand(tmp_path):
    save(tmp_path, "dense")
    tensor = core.PaddleTensor()
    tensor.name, tensor.shape, tensor.dtype = "x", [2, 13], core.PaddleDType.FLOAT32
    tensor.data = core.PaddleBuf([0.5] * 26)
    assert tensor.data.tolist("float32") == [0.5] * 26
    assert make(tmp_path).run([tensor])[0].shape == [2, 3]
    assert core.PaddleBuf(np.ones(3, "int64")).int64_data() == [1, 1, 1]
    assert core.PaddleBuf(12).length() == 12


def test_models_come_from_folders_files_and_memory(tmp_path):
    expected = save(tmp_path, "dense", params_filename="weights")
    program, params = tmp_path / "__model__", tmp_path / "weights"
    memory, native = core.AnalysisConfig(), core.NativeConfig()
    contents = program.read_bytes(), params.read_bytes()
    memory.set_model_buffer(contents[0], len(contents[0]), contents[1], len(contents[1]))
    native.prog_file, native.param_file = str(program), str(params)
    apart = tmp_path / "apart"
    apart.mkdir()
    (apart / "weights").write_bytes(contents[1])
    files = core.AnalysisConfig(str(program), str(params))
    separate = core.AnalysisConfig(str(program), str(apart / "weights"))
    for config in (memory, native, files, files.to_native_config(), separate):
        found = core.create_paddle_predictor(config).run(tensors("dense"))
        np.testing.assert_allclose(found[0].as_ndarray(), expected[0], rtol=1e-6)
    assert memory.model_from_memory() and files.prog_file() == str(program) and files.model_dir() == ""


def test_a_predictor_saves_its_model(tmp_path):
    (expected,) = save(tmp_path / "model", "dense")
    make(tmp_path / "model").SaveOptimModel(str(tmp_path / "again"))
    config = core.AnalysisConfig(str(tmp_path / "again" / "model"), str(tmp_path / "again" / "params"))
    (found,) = core.create_paddle_predictor(config).run(tensors("dense"))
    np.testing.assert_allclose(found.as_ndarray(), expected, rtol=1e-6)


def test_a_predictor_tells_about_its_model(tmp_path):
    save(tmp_path, "recommender")
    predictor = make(tmp_path)
    assert predictor.get_input_names() == ["user", "item"]
    assert predictor.get_input_tensor_shape() == {"user": [-1, 1], "item": [-1, 1]}
    assert predictor.get_serialized_program() == (tmp_path / "__model__").read_bytes()


def test_a_configuration_keeps_what_it_is_told(tmp_path):
    config = core.AnalysisConfig(str(tmp_path))
    assert (config.ir_optim(), config.use_feed_fetch_ops_enabled(), config.specify_input_name()) == (True, True, False)
    config.switch_ir_optim(False)
    config.disable_glog_info()
    config.enable_memory_optim()
    config.enable_tensorrt_engine(workspace_size=1 << 20, precision_mode=core.AnalysisConfig.Precision.Float32)
    config.set_cpu_math_library_num_threads(3)
    assert not config.ir_optim() and config.glog_info_disabled() and config.cpu_math_library_num_threads() == 3
    passes = config.pass_builder()
    for name in ("first", "second", "third"):
        passes.append_pass(name)
    passes.insert_pass(1, "between")
    config.delete_pass("second")
    passes.delete_pass(0)
    assert config.pass_builder().all_passes() == ["between", "third"] and "between" in passes.debug_string()
    with pytest.raises(NotImplementedError, match="int8"):
        config.enable_quantizer()
    assert core.paddle_dtype_size(core.PaddleDType.INT64) == 8
    config.enable_use_gpu(200, 1)
    assert config.use_gpu() and config.gpu_device_id() == 1 and config.memory_pool_init_size_mb() == 200


def test_mistakes_are_told(tmp_path):
    save(tmp_path, "dense")
    predictor = make(tmp_path)
    with pytest.raises(ValueError, match="has 1 inputs"):
        predictor.run([])
    with pytest.raises(FeedError, match="no such input"):
        predictor.get_input_tensor("z")
    with pytest.raises(ValueError, match="no output z"):
        predictor.get_output_tensor("z")
    with pytest.raises(TypeError, match="not float64"):
        core.PaddleTensor(np.zeros(3))
    with pytest.raises(TypeError, match="expects an AnalysisConfig or a NativeConfig, not str"):
        core.create_paddle_predictor(str(tmp_path))
    config = core.AnalysisConfig()
    config.set_prog_file(str(tmp_path / "__model__"))
    with pytest.raises(ValueError, match="the configuration has no model"):
        core.create_paddle_predictor(config)
