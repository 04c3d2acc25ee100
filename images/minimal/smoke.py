"""Runs inside the container: a kernel starts and runs a cell."""

import sys

from jupyter_client.manager import KernelManager

manager = KernelManager(kernel_name="python3", transport="ipc")
manager.start_kernel()
client = manager.client()
client.start_channels()
try:
    client.wait_for_ready(timeout=60)
    outputs = []
    reply = client.execute_interactive(
        "import allotment, sys; print(sys.version_info[:2])", timeout=60, output_hook=outputs.append
    )
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
text = "".join(one["content"].get("text", "") for one in outputs)
if reply["content"]["status"] != "ok" or not text.startswith("(3,"):
    sys.exit(f"the cell failed: {reply['content']} {outputs}")
print("kernel runs a cell:", text.strip())
