"""Runs inside the container: TensorFlow computes, and says what it sees."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

product = tf.matmul([[1.0, 2.0]], [[3.0], [4.0]]).numpy().tolist()
if product != [[11.0]]:
    raise SystemExit(f"tensorflow computed {product}")
print("tensorflow", tf.__version__, "CUDA build" if tf.test.is_built_with_cuda() else "CPU build")
