"""Lists every metric: python -m attn_exp.experiment.metrics."""

from __future__ import annotations

from attn_exp.experiment.metrics import known


def list_metrics() -> str:
    metrics = known().values()
    wide = max(len(metric.name) for metric in metrics)
    return "\n".join(
        f"{metric.name:{wide}}  {metric.meaning}"
        f"{f' [{metric.unit}]' if metric.unit else ''}{f' ({metric.source})' if metric.source else ''}"
        for metric in metrics
    )


if __name__ == "__main__":
    print(list_metrics())
