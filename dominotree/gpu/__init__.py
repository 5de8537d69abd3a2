"""The engine on a GPU: own kernels, static shapes, whole rounds as CUDA graphs. Nothing here is imported on a CPU."""
