"""The peer of bench/optimizer.cpp: PyTorch's fused AdamW, and its gradient norm with clipping.

    python3 bench/optimizer_torch.py [--elements 124000000] [--threads 2] [--device cpu]

The parameters are those of GPT-2 small in number and shape, since PyTorch passes over them one by one.
Prints one JSON line.
"""
import argparse
import json
import statistics
import time

import torch


def parameters(elements, device):
    """Blocks of width 768 until `elements` are reached, then one more matrix with the rest."""
    shapes, left, c = [], elements, 768
    block = [(3 * c, c), (3 * c,), (c, c), (c,), (4 * c, c), (4 * c,), (c, 4 * c), (c,), (c,), (c,)]
    size = sum(torch.Size(s).numel() for s in block)
    while left > size and len(shapes) < 120:
        shapes += block
        left -= size
    shapes.append((left,))
    made = [torch.zeros(s, device=device, requires_grad=True) for s in shapes]
    for p in made:
        p.grad = torch.randn_like(p)
    return made


def milliseconds(f, device, repeats):
    times = []
    for i in range(repeats + 2):
        if device != "cpu":
            torch.cuda.synchronize()
        start = time.perf_counter()
        f()
        if device != "cpu":
            torch.cuda.synchronize()
        if i >= 2:
            times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--elements", type=int, default=124_000_000)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--repeats", type=int, default=7)
    a.add_argument("--device", default="cpu")
    o = a.parse_args()
    torch.set_num_threads(o.threads)
    ps = parameters(o.elements, o.device)
    adamw = torch.optim.AdamW(ps, lr=1e-3, weight_decay=0.1, fused=True)
    source = torch.randn(o.elements * 7 // 2, device=o.device)
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source), o.device, o.repeats)
    del source, target
    step = milliseconds(adamw.step, o.device, o.repeats)
    clip = milliseconds(lambda: torch.nn.utils.clip_grad_norm_(ps, 1.0), o.device, o.repeats)
    print(json.dumps(dict(peer="torch", torch=torch.__version__, device=o.device, threads=o.threads,
                          elements=o.elements, copy_ms=copy, adamw_ms=step, clip_ms=clip,
                          adamw_of_copy=copy / step)))


main()
