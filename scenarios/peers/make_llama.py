"""Writes a Llama of 248 M random parameters in bf16: `make_llama.py OUT.gguf`. Only what it costs makes sense."""

import sys

import gguf
import numpy

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, VOCABULARY, CONTEXT = 12, 1024, 4096, 16, 4, 32000, 4096
HEAD = WIDTH // HEADS
random = numpy.random.default_rng(1)


def weight(writer, name, *shape):
    values = random.standard_normal(shape, dtype=numpy.float32) * (0.6 / shape[-1] ** 0.5)
    bits = gguf.quants.quantize(values, gguf.GGMLQuantizationType.BF16)
    writer.add_tensor(name, bits, raw_dtype=gguf.GGMLQuantizationType.BF16)


def gain(writer, name):
    writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))


def main():
    writer = gguf.GGUFWriter(sys.argv[1], "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    # A vocabulary of invented words: nothing is tokenised, but llama.cpp wants one.
    words = ["<s>", "</s>"] + [f"w{number}" for number in range(VOCABULARY - 2)]
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (VOCABULARY - 2)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types(kinds)
    writer.add_token_merges(["w 1"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    weight(writer, "token_embd.weight", VOCABULARY, WIDTH)
    weight(writer, "output.weight", VOCABULARY, WIDTH)
    gain(writer, "output_norm.weight")
    for layer in range(LAYERS):
        part = lambda name: f"blk.{layer}.{name}.weight"
        gain(writer, part("attn_norm"))
        gain(writer, part("ffn_norm"))
        weight(writer, part("attn_q"), WIDTH, WIDTH)
        weight(writer, part("attn_k"), KV_HEADS * HEAD, WIDTH)
        weight(writer, part("attn_v"), KV_HEADS * HEAD, WIDTH)
        weight(writer, part("attn_output"), WIDTH, WIDTH)
        weight(writer, part("ffn_gate"), INNER, WIDTH)
        weight(writer, part("ffn_up"), INNER, WIDTH)
        weight(writer, part("ffn_down"), WIDTH, INNER)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
