"""Compositions of layers: paddle.fluid.nets."""

from golden.case import distinct, f32, layer_case

CASES = []


@layer_case(CASES, x=f32(2, 1, 8, 8))
def conv_pool(fluid, x):
    return fluid.nets.simple_img_conv_pool(x, num_filters=3, filter_size=3, pool_size=2, pool_stride=2, act="relu")


@layer_case(CASES, x=f32(2, 2, 9, 9))
def conv_pool_with_every_argument(fluid, x):
    return fluid.nets.simple_img_conv_pool(
        x,
        num_filters=4,
        filter_size=3,
        pool_size=3,
        pool_stride=1,
        pool_padding=1,
        pool_type="avg",
        conv_stride=2,
        conv_padding=1,
        conv_dilation=2,
        conv_groups=2,
        bias_attr=False,
        act="tanh",
    )


@layer_case(CASES, x=f32(2, 2, 6, 6))
def conv_pool_globally(fluid, x):
    return fluid.nets.simple_img_conv_pool(
        x, num_filters=2, filter_size=3, pool_size=2, pool_stride=2, pool_type="avg", global_pooling=True
    )


@layer_case(CASES, x=f32(2, 1, 6, 6))
def conv_group(fluid, x):
    return fluid.nets.img_conv_group(x, conv_num_filter=[2, 3], pool_size=2, pool_stride=2, conv_act="relu")


@layer_case(CASES, x=f32(2, 1, 8, 8))
def conv_group_of_different_convolutions(fluid, x):
    return fluid.nets.img_conv_group(
        x,
        conv_num_filter=[2, 3],
        pool_size=2,
        conv_padding=[1, 2],
        conv_filter_size=[3, 5],
        conv_act="tanh",
        pool_type="avg",
    )


@layer_case(
    CASES,
    skip="conv2d_0.b_0@GRAD",
    reason="batch normalisation takes the mean away, so this gradient is zero but for rounding",
    x=f32(4, 1, 5, 5),
)
def conv_group_with_batch_norm(fluid, x):
    return fluid.nets.img_conv_group(
        x, conv_num_filter=[2, 2], pool_size=2, pool_stride=2, conv_act="sigmoid", conv_with_batchnorm=[True, False]
    )


@layer_case(CASES, grads=False, check="shapes", x=f32(2, 1, 4, 4))
def conv_group_with_dropout(fluid, x):
    return fluid.nets.img_conv_group(
        x, conv_num_filter=[2], pool_size=2, conv_with_batchnorm=True, conv_batchnorm_drop_rate=0.3
    )


@layer_case(CASES, x=f32(3, 6))
def glu_of_the_last_dim(fluid, x):
    return fluid.nets.glu(x)


@layer_case(CASES, x=f32(2, 4, 3))
def glu_of_a_middle_dim(fluid, x):
    return fluid.nets.glu(x, dim=1)


@layer_case(CASES, q=f32(2, 3, 4), k=f32(2, 5, 4), v=f32(2, 5, 6))
def attention_with_one_head(fluid, q, k, v):
    return fluid.nets.scaled_dot_product_attention(q, k, v)


@layer_case(
    CASES,
    skip="fc_1.b_0@GRAD",
    reason="softmax does not see what is added to all keys, so this gradient is zero but for rounding",
    q=f32(2, 3, 4),
    k=f32(2, 5, 4),
    v=f32(2, 5, 6),
)
def attention_with_two_heads(fluid, q, k, v):
    return fluid.nets.scaled_dot_product_attention(q, k, v, num_heads=2)


@layer_case(CASES, grads=False, check="shapes", q=f32(2, 3, 4), k=distinct(2, 5, 4), v=f32(2, 5, 4))
def attention_with_dropout(fluid, q, k, v):
    return fluid.nets.scaled_dot_product_attention(q, k, v, num_heads=2, dropout_rate=0.5)
