"""The fields of config.json of well-known checkpoints, by what they are called where they are published."""

from __future__ import annotations

from typing import Any

SIZES = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
FREED = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "hidden_act": "gelu",
}
MARKS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
OF_BERT = {
    "model_type": "bert", **SIZES, **FREED, "max_position_embeddings": 512, "type_vocab_size": 2, "vocab_size": 30522,
    "layer_norm_eps": 1e-12, "pad_token_id": 0, "position_embedding_type": "absolute", "use_cache": True,
}  # fmt: skip
OF_GPT2 = {
    "model_type": "gpt2", "activation_function": "gelu_new", "attn_pdrop": 0.1, "bos_token_id": 50256,
    "embd_pdrop": 0.1,
    "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "n_ctx": 1024, "n_embd": 768,
    "n_head": 12,
    "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True, "vocab_size": 50257,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
}  # fmt: skip
OF_LLAMA = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
    "intermediate_size": 11008,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "rms_norm_eps": 1e-05,
    "use_cache": True,
    "rope_scaling": None, "tie_word_embeddings": False, "torch_dtype": "float16", "transformers_version": "4.31.0.dev0",
    "vocab_size": 32000, "bos_token_id": 1, "eos_token_id": 2, "pretraining_tp": 1, "max_position_embeddings": 4096,
}  # fmt: skip
LLAMA3 = {
    "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
OF_MISTRAL = {
    "model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
    "rope_theta": 10000.0,
    "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "sliding_window": 4096, "vocab_size": 32000, "torch_dtype": "bfloat16", "use_cache": True,
}  # fmt: skip
OF_QWEN2 = {
    "model_type": "qwen2", "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
    "hidden_act": "silu",
    "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
    "rope_theta": 1e6,
    "sliding_window": 32768, "tie_word_embeddings": True, "use_mrope": False, "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
OF_VIT = {
    "model_type": "vit", **SIZES, **FREED, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "image_size": 224,
    "patch_size": 16, "num_channels": 3, "layer_norm_eps": 1e-12, "qkv_bias": True, "encoder_stride": 16,
    "id2label": {"0": "tench", "1": "goldfish"}, "label2id": {"tench": 0, "goldfish": 1},
}  # fmt: skip
POOLER = {
    "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
    "pooler_size_per_head": 128, "pooler_type": "first_token_transform",
}  # fmt: skip
OLD: dict[str, Any] = {
    "do_sample": False, "eos_token_ids": None, "finetuning_task": None, "is_decoder": False, "length_penalty": 1.0,
    "max_length": 20, "num_beams": 1, "num_labels": 5, "num_return_sequences": 1, "output_attentions": False,
    "output_hidden_states": False, "output_past": True, "pruned_heads": {}, "repetition_penalty": 1.0,
        "temperature": 1.0, "top_k": 50, "top_p": 1.0, "torchscript": False, "use_bfloat16": False,
}  # fmt: skip
PLACES = {"max_position_embeddings": 514}

KNOWN: dict[str, dict[str, Any]] = {
    "bert-base-uncased": OF_BERT | {"architectures": ["BertForMaskedLM"], "gradient_checkpointing": False},
    "bert-base-multilingual-cased": OF_BERT | POOLER | {"vocab_size": 119547},
    "all-MiniLM-L6-v2": OF_BERT
    | {"_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "hidden_size": 384, "intermediate_size": 1536},
    "bge-small-en": OF_BERT | {"hidden_size": 384, "classifier_dropout": None, "id2label": {"0": "LABEL_0"}},
    "roberta-base": OF_BERT | MARKS | PLACES | {"model_type": "roberta", "vocab_size": 50265},
    "roberta-base, 2020": OF_BERT | MARKS | PLACES | OLD | {"model_type": "roberta", "vocab_size": 50265},
    "xlm-roberta-base": OF_BERT | MARKS | PLACES | {"model_type": "xlm-roberta", "vocab_size": 250002,
        "output_past": True},
    "camembert-base": OF_BERT | MARKS | PLACES | {"model_type": "camembert", "vocab_size": 32005, "output_past": True},
    "distilbert-base-uncased": {
        "model_type": "distilbert", "activation": "gelu", "attention_dropout": 0.1, "dim": 768, "dropout": 0.1,
        "n_layers": 6,
        "hidden_dim": 3072, "initializer_range": 0.02, "max_position_embeddings": 512, "n_heads": 12, "pad_token_id": 0,
        "qa_dropout": 0.1, "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True,
        "vocab_size": 30522, "finetuning_task": "sst-2", "output_past": True,
    },
    "gpt2": OF_GPT2,
    "distilgpt2": OF_GPT2 | {"_num_labels": 1, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "n_layer": 6},
    "gpt2, today": {"model_type": "gpt2", "reorder_and_upcast_attn": False, "scale_attn_weights": True, "n_inner": None,
                    "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False, "dtype": "float32"},
    "Llama-2-7b": OF_LLAMA,
    "Llama-3-8B": OF_LLAMA | {"num_key_value_heads": 8, "rope_theta": 500000.0, "attention_bias": False,
        "mlp_bias": False, "attention_dropout": 0.0, "intermediate_size": 14336, "vocab_size": 128256},
    "Llama-3.2-1B": OF_LLAMA | {"hidden_size": 2048, "head_dim": 64, "rope_scaling": LLAMA3, "num_key_value_heads": 8,
                                "eos_token_id": [128001, 128008, 128009], "vocab_size": 128256,
                                "tie_word_embeddings": True},
    "Llama-3.2-1B, today": OF_LLAMA | {"rope_parameters": {**LLAMA3, "rope_theta": 500000.0}, "unsloth_fixed": True},
    "TinyLlama-1.1B": OF_LLAMA | {"hidden_size": 2048, "num_key_value_heads": 4, "max_position_embeddings": 2048},
    "SmolLM2-135M": OF_LLAMA | {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3,
        "is_llama_config": True, "rope_interleaved": False,
                                "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}},
    "Mistral-7B-v0.1": OF_MISTRAL,
    "Mistral-7B-v0.3": OF_MISTRAL | {"sliding_window": None, "rope_theta": 1e6, "vocab_size": 32768},
    "Mistral-Nemo": OF_MISTRAL | {"hidden_size": 5120, "head_dim": 128, "sliding_window": None},
    "Qwen2.5-0.5B": OF_QWEN2,
    "Qwen2.5-0.5B, today": OF_QWEN2 | {"layer_types": ["full_attention"] * 24, "sliding_window": None,
        "dtype": "bfloat16"}, "vit-base-patch16-224": OF_VIT | {"architectures": ["ViTForImageClassification"]},
    "vit-base-patch16-224-in21k": OF_VIT | {"pooler_act": "tanh", "pooler_output_size": 768},
    "deit-base-patch16-224": OF_VIT | {"torch_dtype": "float32"},
}  # fmt: skip
