"""What images/build does: from an environment's folder to an image that was tried."""
