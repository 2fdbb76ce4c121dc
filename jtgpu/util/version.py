"""The version of jtgpu."""

__version__ = "0.1.0"
