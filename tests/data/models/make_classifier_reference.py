#!/usr/bin/env python3
"""Reference values of sequence classification on the tiny decoders, and of losses on given logits.

usage: make_classifier_reference.py TINY_MODELS_FOLDER OUTPUT_FILE

Needs torch and transformers (5.24.0 was used). float32 on the CPU, eager attention, no dropout. The head is given by a
formula, so that no weights need to be kept; README.md describes the fields.
"""
import json
import os
import sys

import torch
import transformers as tf
from transformers.trainer_pt_utils import LabelSmoother

HIDDEN, LABELS = 64, 3
NAMES = ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight",
         "model.norm.weight", "score.weight"]


def head_weights():
    index = torch.arange(LABELS * HIDDEN, dtype=torch.float64)
    return (0.05 * torch.sin(index + 1)).float().view(LABELS, HIDDEN)


def inputs(vocab, pad):
    """Two rows; the second holds the padding token once in the middle and once at its end."""
    generator = torch.Generator().manual_seed(77)
    rows = [torch.randint(3, vocab, (length,), generator=generator).tolist() for length in (13, 9)]
    rows[1][4] = rows[1][8] = pad
    rows[1] += [pad] * 4
    mask = [[1] * 13, [1] * 9 + [0] * 4]
    return rows, mask


def decoder(folder, name):
    config = tf.AutoConfig.from_pretrained(os.path.join(folder, name), num_labels=LABELS)
    model = tf.AutoModelForSequenceClassification.from_pretrained(
        os.path.join(folder, name), config=config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        model.score.weight.copy_(head_weights())
    rows, mask = inputs(config.vocab_size, config.pad_token_id)
    batch = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(mask)}
    cases = []
    for problem, labels in (("single_label_classification", [2, 0]),
                            ("multi_label_classification", [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]),
                            ("regression", [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])):
        model.config.problem_type = problem
        model.zero_grad(set_to_none=True)
        out = model(**batch, labels=torch.tensor(labels))
        out.loss.backward()
        grads = dict(model.named_parameters())
        total = sum(float(p.grad.double().pow(2).sum()) for p in model.parameters() if p.grad is not None) ** 0.5
        cases.append({"name": problem, "problem": problem, "labels": labels, "loss": float(out.loss.detach()),
                      "logits": out.logits.detach().tolist(),
                      "grad_norms": {n: float(grads[n].grad.double().norm()) for n in NAMES},
                      "grad_norm_total": total})
    return {"inputs": {"input_ids": rows, "attention_mask": mask}, "cases": cases}


def losses():
    logits = torch.tensor([[2.0, -1.0, 0.5, 0.25], [0.0, 3.0, -2.0, 1.0], [-8.0, 0.0, 9.0, 4.0]], requires_grad=True)
    classes = torch.tensor([0, -100, 3])
    out = []

    def add(name, loss, **more):
        logits.grad = None
        loss.backward()
        out.append({"name": name, "loss": float(loss.detach()), "dlogits": logits.grad.tolist(), **more})

    add("cross_entropy", torch.nn.functional.cross_entropy(logits, classes), labels=classes.tolist())
    for epsilon in (0.1, 0.5):
        smoother = LabelSmoother(epsilon=epsilon)
        add("label_smoothing", smoother({"logits": logits}, classes), labels=classes.tolist(), epsilon=epsilon)
    targets = torch.tensor([[1.0, 0.0, 0.25, 1.0], [0.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.5]])
    add("binary_cross_entropy", torch.nn.functional.binary_cross_entropy_with_logits(logits, targets),
        labels=targets.tolist())
    add("mean_squared_error", torch.nn.functional.mse_loss(logits, targets), labels=targets.tolist())
    return {"logits": logits.detach().tolist(), "cases": out}


def main():
    folder, target = sys.argv[1:]
    torch.set_num_threads(1)
    values = {"computed": {"dtype": "float32", "torch": torch.__version__.split("+")[0], "transformers": tf.__version__},
              "head": "score.weight[i][j] = float32(0.05 * sin(i * 64 + j + 1))",
              "decoders": {name: decoder(folder, name) for name in ("llama", "qwen2", "qwen3")}, "losses": losses()}
    with open(target, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
