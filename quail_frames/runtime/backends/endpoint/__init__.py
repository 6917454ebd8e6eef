"""Endpoints that speak OpenAI's protocol: texts go out over HTTP, an allowed answer or nothing comes back."""
