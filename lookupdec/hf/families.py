"""The families of models whose passes over drafts are known to be right. Knows no model object."""

from __future__ import annotations

_NAMES = """
afmoe apertus apertus1p5_text arcee aria_text bart beam bert bert-generation big_bird bigbird_pegasus biogpt
bitnet blenderbot blenderbot-small bloom camembert codegen cohere cohere2 cohere2_moe ctrl cwm data2vec-text
deepseek_v2 deepseek_v3 deepseek_v32 diffllama electra ernie ernie4_5 ernie4_5_moe exaone exaone4 exaone_moe
falcon flex_olmo flint gemma gemma2 gemma3_text gemma4_text gemma4_unified_text glm glm4 glm4_moe
glm4_moe_lite glm_moe_dsa gpt-sw3 gpt2 gpt_bigcode gpt_neox gpt_neox_japanese gpt_oss gptj granite
granite_swa granitemoe granitemoe_swa granitemoeshared helium hrm_text hunyuan_v1_dense hunyuan_v1_moe hy_v3
hy_v4 hyperclovax internlm3 iquestcoder jais2 jetmoe kolibri1 laguna lfm2 llama llama4_text marian mbart
megatron-bert mellum mimo_v2_flash minicpm3 minimax_m2 minimax_m3_vl_text ministral ministral3 mistral
mixtral modernbert-decoder moshi mvp nanochat nemotron olmo olmo2 olmo3 olmoe openai-gpt opt pegasus
persimmon phi phi3 phimoe plbart qwen2 qwen2_moe qwen3 qwen3_moe rembert roberta roberta-prelayernorm
roc_bert roformer sarvam_moe seed_oss smollm3 solar_open stablelm starcoder2 trocr vaultgemma whisper xglm
xlm-roberta xlm-roberta-xl youtu
"""

TESTED = frozenset(_NAMES.split())
"""By ``model_type`` in transformers. Others are tried before their first draft, see ``draft_check``."""
