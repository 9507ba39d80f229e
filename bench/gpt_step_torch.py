"""The peer of bench/gpt_step.cpp: the same training step in PyTorch on a CPU. Prints one JSON line.

    python3 bench/gpt_step_torch.py --layers 4 --width 256 --heads 8 --length 256 --batch 8 --vocab 256
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(C, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(o.vocab, o.width), nn.Embedding(o.length, o.width)
        self.blocks = nn.ModuleList(Block(o.width, o.heads) for _ in range(o.layers))
        self.norm = nn.LayerNorm(o.width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def main():
    a = argparse.ArgumentParser()
    for name, value in dict(layers=4, width=256, heads=8, vocab=256, batch=8, length=256, steps=20, threads=2).items():
        a.add_argument("--" + name, type=int, default=value)
    a.add_argument("--compile", action="store_true")
    o = a.parse_args()
    torch.set_num_threads(o.threads)
    torch.manual_seed(1)
    model = Gpt(o)
    step_model = torch.compile(model) if o.compile else model
    adam = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    ids, targets = (torch.randint(o.vocab, (o.batch, o.length)) for _ in range(2))
    times, losses = [], []
    for step in range(3 + o.steps):
        start = time.perf_counter()
        adam.zero_grad(set_to_none=True)
        loss = step_model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        losses.append(loss.item())
        if step >= 3:
            times.append((time.perf_counter() - start) * 1000)
    ms = statistics.median(times)
    print(json.dumps(dict(
        peer="torch", torch=torch.__version__, compile=o.compile, device="cpu", layers=o.layers, dim=o.width,
        heads=o.heads, batch=o.batch, seq=o.length, vocab=o.vocab, precision="f32", threads=o.threads, ms=ms,
        ms_min=min(times), ms_max=max(times), tokens_per_s=o.batch * o.length / ms * 1000,
        first_loss=losses[0], last_loss=losses[-1])))


main()
