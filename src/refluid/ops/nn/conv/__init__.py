"""2-D and 3-D convolutions and their transposes.

The products work on channels-last arrays, x ``[N, *space, C]`` and filters ``[*kernel, C / groups, O]``; the rules
convert from and to Fluid's layouts. Two linear maps suffice: `correlate` (a convolution) and its transpose `spread`
(the gradient of the input, and conv2d_transpose); both share `weight_gradient`.

Of these products, XLA's CPU backend is fast only at correlate over many channels. So each product chooses, by static
shape, between XLA's convolution and forms made of dots and slices.
"""
