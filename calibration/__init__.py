"""Measures real hardware with torch, and proves that clustersim predicts what it measures.

    python -m calibration all -o measurements/            # measure (GPU if there is one, else CPU)
    clustersim fit profile measurements/*.jsonl -o profiles/mine.yaml
    python -m calibration.verify -o proof/                # train a small GPT, and predict it first

Only measurement files and the profile leave this package; clustersim itself never imports torch.
"""
