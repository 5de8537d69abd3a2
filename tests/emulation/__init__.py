"""Kernels of ``dominotree/gpu/kernels`` on the CPU: compiled with g++, one fiber a CUDA thread. For tests only."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from dominotree.gpu.nvrtc import FOLDER

HERE = Path(__file__).parent
ENTRY = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(')


def why_not() -> str | None:
    """None where kernels can be emulated, else the reason."""
    if platform.machine() != "x86_64" or platform.system() != "Linux":
        return "the emulation's stack switch is written for Linux on x86-64"
    return None if shutil.which("g++") else "there is no g++ here"


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="emulated-kernels-"))


@functools.cache
def library(source: str, defines: tuple[tuple[str, Any], ...]) -> ctypes.CDLL:
    """One source with its defines, compiled; ``emulate_NAME`` launches the entry NAME."""
    text = (FOLDER / source).read_text()
    place = folder() / hashlib.sha256(repr((source, defines)).encode()).hexdigest()[:16]
    place.mkdir()
    for header in FOLDER.glob("builder*.cuh"):
        shutil.copy(header, place)
    for header in ("candidates.cuh", "finish.cuh"):
        shutil.copy(FOLDER / header, place)
    shutil.copy(HERE / "builder_ptx.cuh", place)
    names = [n for n in ENTRY.findall(text)]
    entries = "".join(
        f"#ifndef WITHOUT_{n}\n"
        f'extern "C" void emulate_{n}(const int* grid, const int* block, size_t shared, void** arguments) {{\n'
        f"    launch([](void** a) {{ call(&{n}, a); }}, grid, block, shared, arguments);\n}}\n#endif\n"
        for n in names
    )
    (place / "kernel.cpp").write_text(f'#include "device.h"\n{text}\n#include "launch.h"\n{entries}')
    without = []
    if "CHAIN" not in dict(defines):
        without.append("-DWITHOUT_chain")
    if dict(defines).get("TABLE") == 0:
        without.append("-DWITHOUT_root_state")
    command = [
        "g++", "-O1", "-std=c++17", "-w", "-fpermissive", "-fPIC", "-shared", "-ffp-contract=off", *without,
        *(f"-D{name}={value}" for name, value in defines), f"-I{place}", f"-I{HERE}", "kernel.cpp", "-o", "kernel.so",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(place / "kernel.so"))


class Kernel:
    """Stands in for ``dominotree.gpu.nvrtc.Kernel``."""

    def __init__(self, source: str, entry: str, defines: Mapping[str, int | str] | None = None) -> None:
        self.source, self.entry, self.defines = source, entry, tuple(sorted((defines or {}).items()))

    def launch(self, grid: Any, block: Any, *args: Any, smem: int = 0) -> None:
        def three(size: Any) -> ctypes.Array[ctypes.c_int]:
            sizes = (size,) if isinstance(size, int) else tuple(size)
            return (ctypes.c_int * 3)(*(*sizes, 1, 1)[:3])

        def value(arg: Any) -> Any:
            if isinstance(arg, Tensor) or arg is None:
                return ctypes.c_void_p(arg.data_ptr() if arg is not None else 0)
            return ctypes.c_int(arg) if isinstance(arg, int) else ctypes.c_float(arg)

        values = [value(arg) for arg in args]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        run = getattr(library(self.source, self.defines), f"emulate_{self.entry}")
        run(three(grid), three(block), ctypes.c_size_t(smem), pointers)
