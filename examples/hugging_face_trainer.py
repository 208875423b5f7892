"""OPML-SP in the Hugging Face Trainer, on text: labels are not only images'.

    pip install transformers accelerate
    python examples/hugging_face_trainer.py

Orders of a made-up shop, each tagged with one of the things it asks for. The model is small and untrained, so that
nothing is downloaded; put any other in its place with AutoModelForSequenceClassification.from_pretrained.
"""

import random
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import onepair as op

THINGS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey")
OTHER_WORDS = ("please", "send", "me", "some", "and", "two", "boxes", "of", "soon", "thanks")
VOCABULARY = {word: number for number, word in enumerate(("[pad]", *THINGS, *OTHER_WORDS))}


def make_orders(number: int, *, told: int, seed: int) -> list[dict[str, list[int]]]:
    """Orders of one to four things in a row of words; of each order's things, `told` are labels, the rest unknown."""
    chance, orders = random.Random(seed), []
    for _ in range(number):
        things = chance.sample(THINGS, chance.randint(1, 4))
        words = chance.sample([*things, *chance.sample(OTHER_WORDS, 6)], len(things) + 6)
        labels = [op.POSITIVE if thing in things[:told] else op.UNKNOWN for thing in THINGS]
        tokens = [VOCABULARY[word] for word in words] + [0] * (10 - len(words))
        orders.append({"input_ids": tokens, "attention_mask": [int(token > 0) for token in tokens], "labels": labels})
    return orders


def main() -> float:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(VOCABULARY), num_labels=len(THINGS), hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, initializer_range=0.2,
    )  # fmt: skip
    model = BertForSequenceClassification(config)
    orders = make_orders(1000, told=1, seed=0)
    method = op.create_method("opml-sp", labels=[order["labels"] for order in orders])
    callback = op.hf.MethodCallback(method)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, num_train_epochs=8, per_device_train_batch_size=32, learning_rate=5e-3, report_to="none",
            save_strategy="no", logging_strategy="no", disable_tqdm=True, use_cpu=True,
        )  # fmt: skip
        trainer = Trainer(
            model, arguments, train_dataset=callback.rows(orders), compute_loss_func=callback.loss, callbacks=[callback]
        )
        trainer.train()
        predicted = trainer.predict(make_orders(300, told=4, seed=1))
    return op.mean_average_precision(predicted.predictions, predicted.label_ids.clip(0)).value


if __name__ == "__main__":
    print(f"test mAP {100 * main():.1f}")
