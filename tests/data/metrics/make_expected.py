#!/usr/bin/env python3
"""Writes expected.json: scores of small random cases, from their definitions in exact rational arithmetic.

usage: python3 tests/data/metrics/make_expected.py > tests/data/metrics/expected.json

Every formula is the textbook's and not the program's: F1 as the harmonic mean of precision and recall, AUC by looking at
every pair, ranks by counting, Matthews as Gorodkin's triple sum. Roots are taken with 60 digits. 0/0 is 0 for precision,
recall and F1, as scikit-learn has it; a correlation with a constant is null.
"""
import json
import random
import struct
from decimal import Decimal, getcontext
from fractions import Fraction

getcontext().prec = 60


def decimal(fraction):
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


def ratio(part, whole):
    return Fraction(part, whole) if whole else Fraction(0)


def scores(tp, fp, fn):
    precision, recall = ratio(tp, tp + fp), ratio(tp, tp + fn)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else Fraction(0)
    return precision, recall, f1


def as_floats(triple):
    return [float(value) for value in triple]


def averaged(counts):
    """counts: (tp, fp, fn) per label."""
    each = [scores(*count) for count in counts]
    support = [tp + fn for tp, _, fn in counts]
    weighted = [sum((w * s[i] for w, s in zip(support, each)), Fraction(0)) / sum(support) if sum(support) else Fraction(0)
                for i in range(3)]
    return {"micro": as_floats(scores(*map(sum, zip(*counts)))),
            "macro": as_floats(sum((s[i] for s in each), Fraction(0)) / len(each) for i in range(3)),
            "weighted": as_floats(weighted)}


def gorodkin(labels, predictions, k):
    c = [[sum(1 for t, p in zip(labels, predictions) if (t, p) == (i, j)) for j in range(k)] for i in range(k)]
    every = range(k)
    top = sum(c[a][a] * c[l][m] - c[a][l] * c[m][a] for a in every for l in every for m in every)
    rows = sum(sum(c[a]) * sum(sum(c[b]) for b in every if b != a) for a in every)
    columns = sum(sum(c[l][a] for l in every) * sum(sum(c[l][b] for l in every) for b in every if b != a) for a in every)
    return float(Decimal(top) / (Decimal(rows).sqrt() * Decimal(columns).sqrt())) if rows and columns else 0.0


def single_label(rng, k, n, skill):
    labels = [rng.randrange(k) for _ in range(n)]
    predictions = [t if rng.random() < skill else rng.randrange(k) for t in labels]
    present = sorted(set(labels) | set(predictions))
    count = lambda a: (sum(t == p == a for t, p in zip(labels, predictions)),
                       sum(p == a != t for t, p in zip(labels, predictions)),
                       sum(t == a != p for t, p in zip(labels, predictions)))
    case = {"num_labels": k, "labels": labels, "predictions": predictions,
            "accuracy": float(Fraction(sum(t == p for t, p in zip(labels, predictions)), n)),
            "matthews": gorodkin(labels, predictions, k), **averaged([count(a) for a in present])}
    case["label_1"] = as_floats(scores(*count(1)))
    return case


def multi_label(rng, k, n):
    labels = [[int(rng.random() < 0.3) for _ in range(k)] for _ in range(n)]
    predictions = [[t if rng.random() < 0.8 else 1 - t for t in row] for row in labels]
    for row in labels + predictions:
        row[k - 1] = 0  # a label that never occurs
    counts = [(sum(t[a] and p[a] for t, p in zip(labels, predictions)),
               sum(p[a] and not t[a] for t, p in zip(labels, predictions)),
               sum(t[a] and not p[a] for t, p in zip(labels, predictions))) for a in range(k)]
    return {"num_labels": k, "labels": labels, "predictions": predictions,
            "subset_accuracy": float(Fraction(sum(t == p for t, p in zip(labels, predictions)), n)), **averaged(counts)}


def float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def correlation(x, y):
    n, x, y = len(x), list(map(Fraction, x)), list(map(Fraction, y))
    mean_x, mean_y = sum(x) / n, sum(y) / n
    xx, yy = sum((a - mean_x) ** 2 for a in x), sum((b - mean_y) ** 2 for b in y)
    xy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y))
    return float(decimal(xy) / (decimal(xx).sqrt() * decimal(yy).sqrt())) if xx and yy else None


def ranks(values):
    return [sum(b < a for b in values) + Fraction(sum(b == a for b in values) + 1, 2) for a in values]


def regression(rng, n, offset, spread, noise, steps):
    """`steps`: values are rounded to multiples of spread/steps, so that there are ties; 0 for none."""
    def value(raw):
        return float32(offset + (round(raw * steps) / steps if steps else raw) * spread)
    raw = [rng.gauss(0, 1) for _ in range(n)]
    targets = [value(a) for a in raw]
    predictions = [value(a + noise * rng.gauss(0, 1)) for a in raw]
    error = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(predictions, targets)) / n
    return {"predictions": predictions, "targets": targets, "mse": float(error),
            "pearson": correlation(predictions, targets), "spearman": correlation(ranks(predictions), ranks(targets))}


def ranking(rng, n, steps):
    labels = [int(rng.random() < 0.3) for _ in range(n)]
    noise = [rng.gauss(0, 1) + label for label in labels]
    values = [float32(round(a * steps) / steps if steps else a) for a in noise]
    wins = [Fraction(1 if a > b else 0) + Fraction(int(a == b), 2) for a, s in zip(values, labels) if s
            for b, t in zip(values, labels) if not t]
    return {"scores": values, "labels": labels, "roc_auc": float(sum(wins) / len(wins))}


def log_loss(rng, k, n):
    logits = [[float32(rng.gauss(0, 3)) for _ in range(k)] for _ in range(n)]
    labels = [rng.randrange(k) for _ in range(n)]
    total = Decimal(0)
    for row, label in zip(logits, labels):
        total += sum(Decimal(a).exp() for a in row).ln() - Decimal(row[label])
    return {"num_labels": k, "logits": logits, "labels": labels, "log_loss": float(total / n)}


def main():
    rng = random.Random(5)
    cases = {
        "single_label": [single_label(rng, 2, 57, 0.6), single_label(rng, 2, 40, 0.0), single_label(rng, 3, 80, 0.5),
                         single_label(rng, 7, 60, 0.4), single_label(rng, 20, 25, 0.3)],
        "multi_label": [multi_label(rng, 4, 50), multi_label(rng, 9, 31)],
        "regression": [regression(rng, 60, 2.5, 1.0, 0.5, 0), regression(rng, 60, 2.5, 1.0, 0.5, 2),
                       regression(rng, 50, 1e6, 0.25, 0.7, 0), regression(rng, 40, -3.0, 1e-6, 2.0, 0),
                       regression(rng, 2, 0.0, 1.0, 0.1, 0), regression(rng, 30, 1.0, 0.0, 1.0, 0)],
        "ranking": [ranking(rng, 70, 0), ranking(rng, 90, 2), ranking(rng, 40, 1)],
        "log_loss": [log_loss(rng, 2, 30), log_loss(rng, 5, 40)],
    }
    print("{")
    kinds = [f'"{kind}": [\n' + ",\n".join(json.dumps(case) for case in of_kind) + "\n]" for kind, of_kind in cases.items()]
    print(",\n".join(kinds))
    print("}")


if __name__ == "__main__":
    main()
