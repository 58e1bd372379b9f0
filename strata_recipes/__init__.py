"""Run mixture-of-experts models bigger than the GPU, and than the RAM, from one declarative config."""

__version__ = "0.1.0"
