"""The runtime on `quail_frames.kernels`: what a batch looks like to them, the decoder made of them, the model on CUDA.

The same code runs on a CPU (`device="kernels"`), by the kernels' references or under Triton's interpreter.
"""
