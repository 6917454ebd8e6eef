"""Other engines that answer a plan's asks, each ask as one request with its whole prompt: vLLM, and HTTP endpoints."""
