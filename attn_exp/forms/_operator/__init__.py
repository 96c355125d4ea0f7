"""The ONNX operator Attention on arrays, computed by the forms: `attn_exp.attention` and `attn_exp.trace`.

`functional` holds both; `arguments` reads what they are given, `arrange` puts shapes in order, `choice` says which form
computes a call, and `blame` says which argument brought NaN.
"""
