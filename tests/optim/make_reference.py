#!/usr/bin/env python3
"""Writes tests/data/golden/optim.json: what torch's optimizers and transformers' schedules and Adafactor compute.

    python3 tests/optim/make_reference.py > tests/data/golden/optim.json

Needs torch 2.15 and transformers 5.24 (scripts/peer-check makes such an environment). Numbers are
printed so that they read back to the same bits.
"""
import json
import math
import random

import torch
import transformers
from transformers.optimization import Adafactor, get_scheduler

STEPS = 10
LEARNING_RATE = 1e-2


def scheduled(name, warmup, total, lr, **kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total,
                              scheduler_specific_kwargs=kwargs)
    rates = []
    for _ in range(total + 3):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return {"name": name, "warmup": warmup, "total": total, "learning_rate": lr, "kwargs": kwargs, "rates": rates}


def schedules():
    return [
        scheduled("linear", 0, 7, 5e-5),
        scheduled("linear", 3, 11, 2e-5),
        scheduled("cosine", 2, 9, 1e-3),
        scheduled("cosine", 0, 9, 1e-3, num_cycles=1.25),
        scheduled("cosine_with_restarts", 2, 13, 1e-3),
        scheduled("cosine_with_restarts", 1, 13, 1e-3, num_cycles=3),
        scheduled("polynomial", 2, 9, 1e-4),
        scheduled("polynomial", 0, 9, 1e-4, lr_end=2e-5, power=2.5),
        scheduled("constant", 3, 5, 1e-4),
        scheduled("constant_with_warmup", 3, 6, 1e-4),
        scheduled("inverse_sqrt", 3, 9, 1e-4),
        scheduled("inverse_sqrt", 0, 9, 1e-4),
        scheduled("inverse_sqrt", 2, 9, 1e-4, timescale=5),
        scheduled("cosine_with_min_lr", 2, 9, 1e-4, min_lr=1e-5),
        scheduled("cosine_with_min_lr", 0, 9, 1e-4, min_lr_rate=0.25, num_cycles=0.75),
        scheduled("cosine_warmup_with_min_lr", 3, 9, 1e-4, min_lr_rate=0.1),
        scheduled("cosine_warmup_with_min_lr", 4, 9, 1e-4, min_lr=1e-5, warmup_lr_rate=0.2),
        scheduled("cosine_warmup_with_min_lr", 1, 9, 1e-4, min_lr=1e-5, warmup_lr_rate=0.2),
        scheduled("warmup_stable_decay", 3, 14, 1e-4, num_decay_steps=5),
        scheduled("warmup_stable_decay", 3, 14, 1e-4, num_decay_steps=5, num_stable_steps=2, min_lr_ratio=0.1,
                  warmup_type="cosine", decay_type="linear"),
        scheduled("warmup_stable_decay", 3, 14, 1e-4, num_decay_steps=6, min_lr_ratio=0.05, warmup_type="1-sqrt",
                  decay_type="1-sqrt"),
        scheduled("warmup_stable_decay", 4, 6, 1e-4, num_decay_steps=5, num_cycles=0.4),
    ]


def followed(name, lr, metrics, **kwargs):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = get_scheduler(name, optimizer, scheduler_specific_kwargs=kwargs)
    rates = []
    for metric in metrics:
        scheduler.step(metric)
        rates.append(optimizer.param_groups[0]["lr"])
    return {"name": name, "learning_rate": lr, "kwargs": kwargs, "metrics": metrics, "rates": rates}


def metric_schedules():
    source = random.Random(5)
    noisy = [round(2 * math.exp(-k / 15) + 0.4 * source.random(), 6) for k in range(60)]
    wave = [round(1 + math.sin(k / 4) + 0.1 * source.random(), 6) for k in range(80)]
    return [
        followed("reduce_lr_on_plateau", 1e-3, noisy, patience=2),
        followed("reduce_lr_on_plateau", 1e-3, noisy, patience=0, factor=0.7, cooldown=2, min_lr=1e-4),
        followed("reduce_lr_on_plateau", 1e-3, wave, mode="max", patience=1, threshold=0.01, threshold_mode="abs"),
        followed("reduce_lr_on_plateau", 1e-3, wave, patience=1, factor=0.5, threshold=0.05, eps=1e-5),
        followed("greedy", 1e-3, noisy),
        followed("greedy", 1e-2, noisy, patience=1, factor=0.8, cooldown=1, warmup=2, max_lr=0.02),
        followed("greedy", 1e-2, wave, patience=0, factor=0.5, min_lr=1e-3, reset_start=3),
        followed("greedy", 1e-2, wave, patience=1, mode="max", threshold=0.01, threshold_mode="rel", smooth=True,
                 window_size=4, min_lr=1e-4),
    ]


def floats(tensor):
    """Nine digits name a float32 uniquely."""
    return [float(f"{value:.9g}") for value in tensor.flatten().tolist()]


def tensors(shape):
    generator = torch.Generator().manual_seed(7)
    start = torch.randn(shape, generator=generator)
    grads = [torch.randn(shape, generator=generator) * 10 ** (3 * torch.rand(shape, generator=generator) - 2)
             for _ in range(STEPS)]
    return start, grads


def stepped(make, shape):
    start, grads = tensors(shape)
    weight = torch.nn.Parameter(start.clone())
    optimizer = make([weight], LEARNING_RATE)
    for k, grad in enumerate(grads):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - k / STEPS)
        weight.grad = grad.clone()
        optimizer.step()
    state = {name: floats(value) for name, value in optimizer.state[weight].items()
             if torch.is_tensor(value) and value.dim() > 0}
    return {"shape": list(shape), "weight": floats(weight.detach()), "state": state}


SHAPES = ((37,), (7, 11), (2, 3, 5))


def problems():
    return [{"shape": list(shape), "learning_rate": LEARNING_RATE, "start": floats(start), "grads": [floats(g) for g in grads]}
            for shape in SHAPES for start, grads in [tensors(shape)]]


def optimizers():
    cases = []

    def add(name, args, make, shape=SHAPES[0]):
        cases.append({"optim": name, "optim_args": args, "weight_decay": 0.1, **stepped(make, shape)})

    sgd, adagrad, rmsprop = torch.optim.SGD, torch.optim.Adagrad, torch.optim.RMSprop
    add("sgd", "", lambda p, lr: sgd(p, lr=lr, weight_decay=0.1))
    add("sgd", "momentum=0.9, dampening=0.25",
        lambda p, lr: sgd(p, lr=lr, momentum=0.9, dampening=0.25, weight_decay=0.1))
    add("sgd", "momentum=0.9,nesterov=True", lambda p, lr: sgd(p, lr=lr, momentum=0.9, nesterov=True, weight_decay=0.1))
    add("adagrad", "", lambda p, lr: adagrad(p, lr=lr, weight_decay=0.1))
    add("adagrad", "lr_decay=0.2,eps=1e-3", lambda p, lr: adagrad(p, lr=lr, lr_decay=0.2, eps=1e-3, weight_decay=0.1))
    add("rmsprop", "", lambda p, lr: rmsprop(p, lr=lr, weight_decay=0.1))
    add("rmsprop", "alpha=0.9,momentum=0.8,eps=1e-4",
        lambda p, lr: rmsprop(p, lr=lr, alpha=0.9, momentum=0.8, eps=1e-4, weight_decay=0.1))
    add("rmsprop", "centered=true,alpha=0.8,eps=1e-2",
        lambda p, lr: rmsprop(p, lr=lr, centered=True, alpha=0.8, eps=1e-2, weight_decay=0.1))
    add("rmsprop", "centered=yes,momentum=0.5,alpha=0.8,eps=1e-2",
        lambda p, lr: rmsprop(p, lr=lr, centered=True, momentum=0.5, alpha=0.8, eps=1e-2, weight_decay=0.1))
    for shape in SHAPES:
        add("adafactor", "", lambda p, lr: Adafactor(p, lr=lr, scale_parameter=False, relative_step=False,
                                                     weight_decay=0.1), shape=shape)
    return cases


def main():
    reference = {
        "made_by": f"tests/optim/make_reference.py, torch {torch.__version__}, transformers {transformers.__version__}",
        "schedules": schedules(),
        "metric_schedules": metric_schedules(),
        "problems": problems(),
        "optimizers": optimizers(),
    }
    lines = [f' "{key}": ' + (json.dumps(value) if isinstance(value, str)
                              else "[\n  " + ",\n  ".join(json.dumps(each) for each in value) + "\n ]")
             for key, value in reference.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
