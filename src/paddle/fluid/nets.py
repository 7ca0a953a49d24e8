"""Common compositions of layers."""

from paddle.fluid import layers

__all__ = ["glu", "img_conv_group", "scaled_dot_product_attention", "sequence_conv_pool", "simple_img_conv_pool"]


def simple_img_conv_pool(
    input,
    num_filters,
    filter_size,
    pool_size,
    pool_stride,
    pool_padding=0,
    pool_type="max",
    global_pooling=False,
    conv_stride=1,
    conv_padding=0,
    conv_dilation=1,
    conv_groups=1,
    param_attr=None,
    bias_attr=None,
    act=None,
    use_cudnn=True,
):
    """Applies a 2-D convolution followed by pooling."""
    window = {"stride": conv_stride, "padding": conv_padding, "dilation": conv_dilation, "groups": conv_groups}
    layer = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act, "use_cudnn": use_cudnn}
    convolved = layers.conv2d(input, num_filters, filter_size, **window, **layer)
    return layers.pool2d(convolved, pool_size, pool_type, pool_stride, pool_padding, global_pooling, use_cudnn)


def img_conv_group(
    input,
    conv_num_filter,
    pool_size,
    conv_padding=1,
    conv_filter_size=3,
    conv_act=None,
    param_attr=None,
    conv_with_batchnorm=False,
    conv_batchnorm_drop_rate=0.0,
    pool_stride=1,
    pool_type="max",
    use_cudnn=True,
):
    """Applies several convolutions, each with optional batch normalization and dropout, then pooling, as in VGG.

    Args:
      conv_num_filter: a list with one entry per convolution. Other ``conv_`` arguments and ``param_attr`` may be
        lists of the same length, or a single value for all.
    """
    if not isinstance(conv_num_filter, list | tuple):
        raise TypeError(f"conv_num_filter must be a list or tuple, not {type(conv_num_filter).__name__}")
    count = len(conv_num_filter)
    per_convolution = zip(
        conv_num_filter,
        _per_conv(count, "conv_filter_size", conv_filter_size),
        _per_conv(count, "conv_padding", conv_padding),
        _per_conv(count, "param_attr", param_attr),
        _per_conv(count, "conv_with_batchnorm", conv_with_batchnorm),
        _per_conv(count, "conv_batchnorm_drop_rate", conv_batchnorm_drop_rate),
        strict=True,
    )
    for filters, size, padding, attr, with_batchnorm, drop_rate in per_convolution:
        act = None if with_batchnorm else conv_act
        input = layers.conv2d(input, filters, size, padding=padding, param_attr=attr, act=act, use_cudnn=use_cudnn)
        if with_batchnorm:
            input = layers.batch_norm(input=input, act=conv_act)
            if abs(drop_rate) > 1e-5:
                input = layers.dropout(x=input, dropout_prob=drop_rate)
    return layers.pool2d(input, pool_size, pool_type, pool_stride, use_cudnn=use_cudnn)


def _per_conv(count, name, value):
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ValueError(f"{name} has {len(value)} entries for {count} convolutions")
    return value


def sequence_conv_pool(
    input, num_filters, filter_size, param_attr=None, act="sigmoid", pool_type="max", bias_attr=None
):
    """Applies a convolution along each sequence, followed by sequence pooling."""
    layer = {"param_attr": param_attr, "bias_attr": bias_attr, "act": act}
    return layers.sequence_pool(layers.sequence_conv(input, num_filters, filter_size, **layer), pool_type)


def glu(input, dim=-1):
    """Applies a gated linear unit: one half of ``input`` along ``dim`` times the sigmoid of the other half."""
    value, gate = layers.split(input, num_or_sections=2, dim=dim)
    return layers.elementwise_mul(x=value, y=layers.sigmoid(x=gate))


def scaled_dot_product_attention(queries, keys, values, num_heads=1, dropout_rate=0.0):
    """Computes attention: values averaged with weights softmax(queries . keys / sqrt(size)).

    Args:
      queries, keys, values: of shape [batch, length, size].
      num_heads: with more than one, each input goes through a fully connected layer and is split into heads.
      dropout_rate: the dropout rate of the weights.
    """
    _check_attention(queries, keys, values, num_heads)
    if num_heads > 1:
        queries, keys, values = (
            layers.fc(input=part, size=part.shape[-1], num_flatten_dims=2) for part in (queries, keys, values)
        )
    q, k, v = (_split_heads(part, num_heads) for part in (queries, keys, values))
    q = layers.scale(x=q, scale=(keys.shape[-1] // num_heads) ** -0.5)
    product = layers.matmul(x=q, y=k, transpose_y=True)
    flat = layers.reshape(x=product, shape=[-1, product.shape[-1]], act="softmax")
    weights = layers.reshape(x=flat, shape=product.shape)
    if dropout_rate:
        weights = layers.dropout(weights, dropout_prob=dropout_rate, is_test=False)
    return _join_heads(layers.matmul(weights, v))


def _check_attention(queries, keys, values, num_heads):
    shapes = [list(part.shape) for part in (queries, keys, values)]
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"queries, keys and values must have three dims, got {shapes}")
    if shapes[0][-1] != shapes[1][-1]:
        raise ValueError(f"queries and keys must have the same size, got {shapes[0][-1]} and {shapes[1][-1]}")
    if shapes[1][-2] != shapes[2][-2]:
        raise ValueError(f"keys and values must have the same length, got {shapes[1][-2]} and {shapes[2][-2]}")
    for name, shape in zip(("keys", "values"), shapes[1:], strict=True):
        if shape[-1] % num_heads:
            raise ValueError(f"the size of {name}, {shape[-1]}, is not divisible by {num_heads} heads")


def _split_heads(x, num_heads):
    """[batch, length, size] -> [batch, heads, length, size / heads]."""
    if num_heads == 1:
        return x
    cut = layers.reshape(x=x, shape=[*x.shape[:-1], num_heads, x.shape[-1] // num_heads])
    return layers.transpose(x=cut, perm=[0, 2, 1, 3])


def _join_heads(x):
    if len(x.shape) == 3:
        return x
    joined = layers.transpose(x, perm=[0, 2, 1, 3])
    return layers.reshape(x=joined, shape=[*joined.shape[:2], joined.shape[2] * joined.shape[3]])
