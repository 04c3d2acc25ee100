"""Runs inside the container: JAX compiles and differentiates, and says what it sees."""

import jax
import jax.numpy as jnp

slope = jax.jit(jax.grad(lambda x: jnp.sum(x**2)))(jnp.arange(3.0))
if slope.tolist() != [0.0, 2.0, 4.0]:
    raise SystemExit(f"jax computed {slope.tolist()}")
print("jax", jax.__version__, "on", jax.default_backend())
