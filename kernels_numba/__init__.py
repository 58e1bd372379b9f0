"""Kernels for quantized mixture-of-experts models: numpy truth, CPU and CUDA under one name. Knows nothing of strata_recipes.

The CUDA kernels live in `gpu`, because numba-cuda's import hook recurses without end on any module with "numba.cuda" in its name.
"""
