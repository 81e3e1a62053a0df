"""Layers in torch, random weights: `peer_torch.py THREADS`, then lines such as `vit bf16`; each times one pass."""

import json
import sys
import time

import torch
from torch.nn import functional

torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(1)
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
made = {}


def vit(kind):
    """A block of ViT-L: 576 tokens, 1024 wide, 16 heads, 4096 inside."""
    norm = lambda: torch.nn.LayerNorm(1024)
    linear = lambda inner, outer: torch.nn.Linear(inner, outer)
    parts = [norm(), linear(1024, 3072), linear(1024, 1024), norm(), linear(1024, 4096), linear(4096, 1024)]
    first, qkv, out, second, up, down = torch.nn.ModuleList(parts).to(kind)
    x = torch.randn(1, 576, 1024, dtype=kind)

    def run():
        q, k, v = qkv(first(x)).view(1, 576, 3, 16, 64).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 576, 1024)
        hidden = x + out(attended)
        return hidden + down(functional.gelu(up(second(hidden))))

    return run


def attention(kind):
    """512 queries over 512 keys, 16 heads of 64."""
    q, k, v = (torch.randn(1, 16, 512, 64, dtype=kind) for _ in range(3))
    return lambda: functional.scaled_dot_product_attention(q, k, v)


def snac(frames):
    """The decoder of SNAC at 24 kHz, with the sizes of the published one."""

    def make(kind):
        from snac import SNAC

        codec = SNAC(
            sampling_rate=24000, encoder_dim=48, encoder_rates=[2, 4, 8, 8], decoder_dim=1024,
            decoder_rates=[8, 8, 4, 2], attn_window_size=None, codebook_size=4096, codebook_dim=8,
            vq_strides=[4, 2, 1], noise=True, depthwise=True,
        )
        codec = codec.eval().to(kind)
        z = torch.randn(1, codec.latent_dim, frames, dtype=kind)
        return lambda: codec.decoder(z)

    return make


def vae(kind):
    """A residual block on each of three levels of FLUX's decoder, from 64 x 64 x 512 to 256 x 256 x 128."""
    conv = lambda inputs, outputs, side=3: torch.nn.Conv2d(inputs, outputs, side, padding=side // 2)
    norm = lambda channels: torch.nn.GroupNorm(32, channels, eps=1e-6)
    blocks, ups = [], []
    for inputs, outputs in ((512, 512), (512, 256), (256, 128)):
        around = torch.nn.Identity() if inputs == outputs else conv(inputs, outputs, 1)
        parts = [norm(inputs), conv(inputs, outputs), norm(outputs), conv(outputs, outputs), around, conv(outputs, outputs)]
        *block, up = torch.nn.ModuleList(parts).to(kind).to(memory_format=torch.channels_last)
        blocks.append(block)
        ups.append(up)
    image = torch.randn(1, 512, 64, 64, dtype=kind).to(memory_format=torch.channels_last)

    def run():
        x = image
        for level, ((first, narrow, second, same, around), up) in enumerate(zip(blocks, ups)):
            y = narrow(functional.silu(first(x)))
            x = around(x) + same(functional.silu(second(y)))
            if level < 2:
                x = up(functional.interpolate(x, scale_factor=2.0, mode="nearest"))
        return x

    return run


WORKS = {"vit": vit, "attention": attention, "snac_4s": snac(188), "snac_window": snac(16), "vae": vae}


@torch.inference_mode()
def main():
    print(json.dumps({"version": torch.__version__}), flush=True)
    for line in sys.stdin:
        name, kind = line.split()
        if line not in made:
            made[line] = WORKS[name](TYPES[kind])
            for _ in range(3):
                made[line]()
        began = time.perf_counter()
        made[line]()
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


main()
