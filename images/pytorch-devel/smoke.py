"""Runs inside the container: a C++ extension of torch is compiled and computes."""

import os
import shutil
import subprocess
import tempfile

import torch

os.environ["TORCH_EXTENSIONS_DIR"] = tempfile.mkdtemp()
from torch.utils import cpp_extension

SOURCE = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
module = cpp_extension.load_inline("smoke", SOURCE, functions=["twice"])
if module.twice(torch.ones(2)).tolist() != [2.0, 2.0]:
    raise SystemExit("the compiled extension computes something else")
nvcc = shutil.which("nvcc")
if torch.version.cuda and not nvcc:
    raise SystemExit("a CUDA build without nvcc")
said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout if nvcc else ""
print("g++ builds a torch extension;", said.strip().splitlines()[-1] if said else "no nvcc in a CPU build")
