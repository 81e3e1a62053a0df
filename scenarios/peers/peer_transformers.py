"""The Llama of `make_llama.py` in transformers, random weights: `peer_transformers.py THREADS bf16|f32`, then lines such
as `run 4 256 32`: 4 sequences read 256 tokens, then take 32 steps."""

import json
import sys
import time

import torch
import transformers
from make_llama import CONTEXT, HEADS, INNER, KV_HEADS, LAYERS, VOCABULARY, WIDTH

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)
KIND = {"f32": torch.float32, "bf16": torch.bfloat16}[sys.argv[2]]
CONFIG = transformers.LlamaConfig(
    hidden_size=WIDTH, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS, vocab_size=VOCABULARY, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5,
    tie_word_embeddings=False, attn_implementation="sdpa",
)


@torch.inference_mode()
def run(model, sequences, prompt, steps):
    tokens = torch.randint(0, VOCABULARY, (sequences, prompt))
    began = time.perf_counter()
    # Only the last position's logits, as when a reply begins.
    told = model(tokens, use_cache=True, logits_to_keep=1)
    following = told.logits[:, -1].argmax(-1, keepdim=True)
    read = time.perf_counter()
    for _ in range(steps):
        told = model(following, past_key_values=told.past_key_values, use_cache=True)
        following = told.logits[:, -1].argmax(-1, keepdim=True)
    ended = time.perf_counter()
    return {
        "prefill_tokens_per_s": sequences * prompt / (read - began),
        "decode_tokens_per_s": sequences * steps / (ended - read),
    }


def main():
    model = transformers.LlamaForCausalLM(CONFIG).eval().to(KIND)
    run(model, 1, 16, 2)
    print(json.dumps({"torch": torch.__version__, "transformers": transformers.__version__}), flush=True)
    for line in sys.stdin:
        _, sequences, prompt, steps = line.split()
        print(json.dumps(run(model, int(sequences), int(prompt), int(steps))), flush=True)


main()
