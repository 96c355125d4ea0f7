"""The ONNX operator Attention on arrays, computed by the forms: `attn_exp.attention` and `attn_exp.trace`."""
