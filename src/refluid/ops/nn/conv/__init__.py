"""Convolutions and their transposes, in two and three dims.

The mathematics works on channels-last arrays, x ``[N, *space, C]`` and filters ``[*kernel, C / groups, O]``; the rules
turn Fluid's layouts into that and back. Two linear maps make everything: `correlate` (a convolution) and its transpose
`spread` (the gradient of the input, and conv2d_transpose); both share `weight_gradient`.

XLA's CPU backend is good at one of these products, correlate over many channels. So each product chooses, by static
shape, between XLA's convolution and forms made of dots and slices.
"""
