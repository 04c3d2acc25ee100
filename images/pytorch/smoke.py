"""Runs inside the container: torch computes, and says what it sees."""

import torch

left = torch.arange(6, dtype=torch.float32).reshape(2, 3)
product = left @ left.T
if product.tolist() != [[5.0, 14.0], [14.0, 50.0]]:
    raise SystemExit(f"torch computed {product.tolist()}")
print("torch", torch.__version__, "CUDA build" if torch.version.cuda else "CPU build")
