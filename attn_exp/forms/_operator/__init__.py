"""The ONNX operator Attention on arrays, computed by the forms."""
