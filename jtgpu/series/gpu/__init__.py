"""Series and Toeplitz systems on CUDA devices; see cuda/series."""
