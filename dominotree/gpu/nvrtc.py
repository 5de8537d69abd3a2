"""Compile the CUDA C++ kernels of ``kernels/`` at first use (NVRTC), keep the binaries, launch on torch's stream.

Needs the ``cuda-bindings`` package, which a CUDA build of torch brings along, and the CUDA headers that Triton or the
CUDA toolkit carry. No compiler has to be installed. Binaries are kept in the cache folder, named by a hash of source,
defines, architecture and compiler version.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dominotree.errors import DominoTreeError
from dominotree.folders import cache_folder

FOLDER = Path(__file__).resolve().parent / "kernels"


class KernelError(DominoTreeError, RuntimeError):
    """A kernel that cannot be compiled, loaded or launched here; the message says why in one sentence first."""


@functools.cache
def bindings() -> tuple[Any, Any]:
    """(cuda.bindings.driver, cuda.bindings.nvrtc); KernelError where they are missing."""
    try:
        from cuda.bindings import driver, nvrtc
    except ImportError as error:
        raise KernelError(
            "the GPU kernels need the package cuda-bindings (pip install cuda-bindings); without it the engine runs "
            "in plain torch"
        ) from error
    return driver, nvrtc


def check(result: tuple[Any, ...]) -> Any:
    """Unpack what a CUDA call returned; KernelError with the code's name when it failed."""
    code, *values = result
    if int(code) != 0:
        raise KernelError(f"CUDA call failed: {code!s}")
    return values[0] if len(values) == 1 else values or None


@functools.cache
def include_folders() -> tuple[str, ...]:
    """Where cuda_bf16.h and its companions lie: Triton's copy, the toolkit's, or the wheels'."""
    places: list[Path] = []
    for package, inside in (("triton", "backends/nvidia/include"), ("nvidia", "cu13/include")):
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            places.append(Path(root) / inside)
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"
    places += [Path(home) / "include"]
    found = tuple(str(p) for p in places if (p / "cuda_bf16.h").is_file())
    if not found:
        raise KernelError("no folder with cuda_bf16.h was found (Triton and the CUDA toolkit carry one)")
    return found


def compile_source(source: Path, defines: Mapping[str, int | str], arch: str) -> bytes:
    """The binary of one .cu file for an architecture such as "sm_90a"; raises KernelError with the compiler's log."""
    _, nvrtc = bindings()
    text = source.read_bytes()
    locals_ = b"".join(p.read_bytes() for p in sorted(FOLDER.glob("*.cuh")))
    options = [
        f"--gpu-architecture={arch}", "--std=c++17", "-default-device", f"-I{FOLDER}",
        *(f"-I{p}" for p in include_folders()),
        *(f"-D{name}={value}" for name, value in sorted(defines.items())),
    ]  # fmt: skip
    version = check(nvrtc.nvrtcVersion())
    key = hashlib.sha256(b"\0".join([text, locals_, repr((sorted(defines.items()), arch, version)).encode()]))
    place = cache_folder() / "kernels" / f"{source.stem}-{key.hexdigest()[:20]}.cubin"
    if place.is_file():
        return place.read_bytes()
    program = check(nvrtc.nvrtcCreateProgram(text, source.name.encode(), 0, [], []))
    encoded = [o.encode() for o in options]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if int(code) != 0:
        log = b" " * check(nvrtc.nvrtcGetProgramLogSize(program))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise KernelError(f"{source.name} does not compile for {arch}:\n{log.decode(errors='replace')}")
    binary = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
    check(nvrtc.nvrtcGetCUBIN(program, binary))
    check(nvrtc.nvrtcDestroyProgram(program))
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_suffix(f".{os.getpid()}.tmp")
    scratch.write_bytes(binary)
    scratch.replace(place)
    return binary


@functools.cache
def architecture(device: int) -> str:
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class Kernel:
    """One ``extern "C" __global__`` entry of a file in ``kernels/``, compiled for the current device at first launch."""

    def __init__(self, source: str, entry: str, defines: Mapping[str, int | str] | None = None) -> None:
        self.source, self.entry, self.defines = FOLDER / source, entry, dict(defines or {})
        self._function: Any = None
        self._smem = 0

    def _load(self) -> Any:
        if self._function is None:
            driver, _ = bindings()
            device = torch.cuda.current_device()
            torch.cuda.current_stream()  # makes torch's context current
            binary = compile_source(self.source, self.defines, architecture(device))
            self._module = check(driver.cuModuleLoadData(binary))
            self._function = check(driver.cuModuleGetFunction(self._module, self.entry.encode()))
        return self._function

    def compile(self) -> None:
        """Have the binary in the cache folder. Loads nothing, so any thread may do it."""
        if self._function is None:
            compile_source(self.source, self.defines, architecture(torch.cuda.current_device()))

    def most_clusters(self, threads: int, smem: int, cluster: int) -> int:
        """Clusters of ``cluster`` CTAs that the device can hold at once; what a kernel with a grid barrier may launch."""
        driver, _ = bindings()
        function = self._load()
        self._allow(function, smem)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.sharedMemBytes = smem
        attribute = _cluster(driver, cluster)
        config.attrs, config.numAttrs = [attribute], 1
        return int(check(driver.cuOccupancyMaxActiveClusters(function, config)))

    def _allow(self, function: Any, smem: int) -> None:
        """Let the kernel use ``smem`` bytes of dynamic shared memory."""
        driver, _ = bindings()
        if smem > max(self._smem, 48 * 1024):
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(driver.cuFuncSetAttribute(function, attribute, smem))
            self._smem = smem

    def launch(
        self, grid: int | tuple[int, ...], block: int | tuple[int, ...], *args: Any,
        smem: int = 0, pdl: bool = False, cluster: int = 1,
    ) -> None:  # fmt: skip
        """Launch on torch's current stream; may be captured in a CUDA graph.

        ``args``: a Tensor becomes its address, int an int32, float a float32, a ctypes object stays itself, None a
        null pointer. ``smem``: dynamic shared memory in bytes. ``pdl``: the kernel may start before its predecessor
        has ended (it calls griddepcontrol.wait itself). ``cluster``: CTAs per cluster along x.
        """
        driver, _ = bindings()
        function = self._load()
        self._allow(function, smem)
        values: list[Any] = []
        types: list[Any] = []
        for arg in args:
            if isinstance(arg, Tensor):
                values.append(arg.data_ptr())
                types.append(ctypes.c_void_p)
            elif arg is None:
                values.append(0)
                types.append(ctypes.c_void_p)
            elif isinstance(arg, int):
                values.append(arg)
                types.append(ctypes.c_int)
            elif isinstance(arg, float):
                values.append(arg)
                types.append(ctypes.c_float)
            else:
                values.append(arg.value)
                types.append(type(arg))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = _three(grid)
        config.blockDimX, config.blockDimY, config.blockDimZ = _three(block)
        config.sharedMemBytes = smem
        config.hStream = torch.cuda.current_stream().cuda_stream
        attributes = []
        if pdl:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        if cluster > 8:  # more than every device promises
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            check(driver.cuFuncSetAttribute(function, attribute, 1))
        if cluster > 1:
            attributes.append(_cluster(driver, cluster))
        if attributes:
            config.attrs, config.numAttrs = attributes, len(attributes)
        check(driver.cuLaunchKernelEx(config, function, (tuple(values), tuple(types)), 0))


def compile_together(kernels: Iterable[Kernel]) -> None:
    """Compile kernels side by side, as one takes up to a second of a core. Raises KernelError as each of them would."""
    distinct = list(dict.fromkeys(kernels))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(Kernel.compile, distinct))


def _cluster(driver: Any, ctas: int) -> Any:
    """The launch attribute for clusters of ``ctas`` CTAs along x."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x = ctas
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1
    return attribute


def _three(size: int | tuple[int, ...]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int) else tuple(size)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z
