"""gRPC transport: messages as bytes, connections, requests."""
