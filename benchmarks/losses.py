"""OPML, forward and backward, against torch's fused binary cross entropy. Run with `make bench`.

On small shapes the time is that of some thirty calls of torch: the bare equation, without checks or protection from
overflow, takes three times as long as the one fused call.
"""

import torch
from timing import interleaved_seconds
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from onepair import opml_loss

SHAPES = {(16, 20): 3.0, (128, 81): 3.0, (1024, 1000): 1.5, (256, 20000): 1.5}  # batch × labels: the aim


def compare(rows: int, classes: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(rows, classes, generator=generator).requires_grad_()
    labels = (torch.rand(rows, classes, generator=generator) < 0.05).to(torch.int8)
    targets = labels.float()  # each loss gets its labels in the dtype it likes best

    def step(loss: Tensor) -> None:
        logits.grad = None
        loss.backward()  # type: ignore[no-untyped-call]

    def equation() -> Tensor:
        """Eq. 7 as one would type it: no check, no protection from overflow."""
        positives = (targets * torch.exp(-logits)).sum(1)
        negatives = ((1 - targets) * torch.exp(logits)).sum(1)
        return (torch.log(1.5 + positives) + torch.log(0.67 + negatives)).mean()

    return interleaved_seconds(
        {
            "bce": lambda: step(binary_cross_entropy_with_logits(logits, targets)),
            "opml": lambda: step(opml_loss(logits, labels)),
            "equation": lambda: step(equation()),
        }
    )


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32, forward + backward")
    print("| batch × labels | BCE | OPML | OPML / BCE | aim | bare equation / BCE |")
    print("|---|---|---|---|---|---|")
    for (rows, classes), aim in SHAPES.items():
        seconds = compare(rows, classes)
        opml, equation = (seconds[name] / seconds["bce"] for name in ("opml", "equation"))
        times = " | ".join(f"{1e6 * seconds[name]:,.0f} µs" for name in ("bce", "opml"))
        print(f"| {rows} × {classes} | {times} | {opml:.2f} | ≤ {aim} | {equation:.2f} |")


if __name__ == "__main__":
    main()
