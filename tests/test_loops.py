"""Methods in the loops of others: every row and every epoch reaches them, in one process and in two."""

import json
import os

import pytest
import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import onepair
from onepair import MeanAveragePrecision, create_method, mean_average_precision
from onepair.errors import UserError
from onepair.loops import loss_of_all, training_scores
from onepair.methods import Method
from tests.training.processes import together

ROWS, WIDTH, CLASSES = 7, 3, 4


def problem():
    random = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, WIDTH, generator=random)
    labels = torch.randint(-1, 2, (ROWS, CLASSES), generator=random, dtype=torch.int8)
    model = nn.Linear(WIDTH, CLASSES)
    with torch.no_grad():
        model.weight.copy_(torch.randn(CLASSES, WIDTH, generator=random))
        model.bias.zero_()
    return features, labels, model


class Recorded(Method):
    """A loss whose gradient is the same for all rows, and a record of what the method is told."""

    needs_scores = True

    def __init__(self):
        super().__init__()
        self.seen, self.epochs = [], []
        self.register_buffer("batches", torch.zeros(()))

    def forward(self, logits, rows):
        if torch.is_grad_enabled():
            self.seen += rows.tolist()
            self.batches += 1
        return logits.mean()

    def end_epoch(self, epoch, scores):
        self.epochs.append((epoch, sorted(self.seen), scores))
        self.seen = []


def begun():
    method = Recorded()
    method.begin(problem()[1])
    return method


def expected_scores(model):
    with torch.no_grad():
        return model(problem()[0])


def in_two_processes(folder):
    rank = int(os.environ["LOCAL_RANK"])
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    features, labels, model = problem()
    own = torch.arange(rank, 6, 2)
    loss = loss_of_all(create_method("opml-hr", labels=labels), model(features[own]), own)
    loss.backward()
    for parameter in model.parameters():  # as DDP does
        distributed.all_reduce(parameter.grad)
        parameter.grad /= 2
    loader = DataLoader(TensorDataset(features), batch_size=2)
    scores = training_scores(model, loader, lambda batch: model(batch[0]), device=torch.device("cpu"))
    metric = MeanAveragePrecision()
    part = slice(0, 5) if rank == 0 else slice(5, None)
    metric.update(scores[part], labels[part])
    found = {
        "loss": loss.item(),
        "gradient": model.weight.grad.tolist(),
        "scores": scores.tolist(),
        "map": metric.compute().item(),
    }
    (folder / f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def test_two_processes_do_what_one_does(tmp_path):
    assert together(in_two_processes, tmp_path, logs=[tmp_path / "a.log", tmp_path / "b.log"]) == [0, 0]
    features, labels, model = problem()
    rows = torch.tensor([0, 2, 4, 1, 3, 5])
    loss = create_method("opml-hr", labels=labels)(model(features[rows]), rows)
    loss.backward()
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert found["loss"] == pytest.approx(loss.item(), rel=1e-5)
        torch.testing.assert_close(torch.tensor(found["gradient"]), model.weight.grad)
        torch.testing.assert_close(torch.tensor(found["scores"]), expected_scores(model))
        assert found["map"] == mean_average_precision(torch.tensor(found["scores"]), labels).value


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning(tmp_path):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self, callback):
            super().__init__()
            self.model, self.callback = problem()[2], callback

        def training_step(self, batch, index):
            return self.callback.loss(self.model(batch[0]), batch[1])

        def predict_step(self, batch, index):
            assert not self.training
            return self.model(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(epochs, checkpoint=None):
        callback = onepair.lightning.MethodCallback(begun())
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False,
            enable_model_summary=False, callbacks=[callback], default_root_dir=tmp_path, enable_checkpointing=False,
        )  # fmt: skip
        module = Module(callback)
        loader = DataLoader(callback.rows(TensorDataset(problem()[0])), batch_size=2, shuffle=True)
        trainer.fit(module, loader, ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / "last.ckpt")
        return module, callback.method

    module, method = fit(2)
    assert [(epoch, seen) for epoch, seen, _ in method.epochs] == [(1, [*range(ROWS)]), (2, [*range(ROWS)])]
    torch.testing.assert_close(method.epochs[-1][2], expected_scores(module.model))
    assert method.batches == 8
    module, resumed = fit(3, checkpoint=tmp_path / "last.ckpt")
    assert [epoch for epoch, _, _ in resumed.epochs] == [3]
    assert resumed.batches == 12


STATEFUL = ("opml-sp", "opml-plus", "role", "entmax", "ll-cp")  # with scores, priors, parameters, and corrections
TOGETHER = 6  # rows, so that each of two processes has as many


def start_of(name):
    """A method with the labels of the first rows, and the model that it is to train."""
    features, labels, model = problem()
    given = torch.where(labels[:TOGETHER] == 0, -1, labels[:TOGETHER])
    options = {"label_num": 1.5, "correction_start": 1} if name == "opml-sp" else {}
    return features[:TOGETHER], create_method(name, labels=given, **options), model


def fit_by_lightning(name, *, processes, folder):
    """Two epochs by batches of two rows, in one process or in two: the weights, and the state of the method."""
    import lightning

    features, method, model = start_of(name)
    callback = onepair.lightning.MethodCallback(method)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model

        def training_step(self, batch, index):
            return callback.loss(self.model(batch[0]), batch[1])

        def predict_step(self, batch, index):
            return self.model(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD([*self.model.parameters(), *method.parameters()], lr=0.5)

    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=processes, strategy="ddp" if processes > 1 else "auto", logger=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[callback], default_root_dir=folder,
        enable_checkpointing=False, use_distributed_sampler=False,
    )  # fmt: skip
    rows = callback.rows(TensorDataset(features))
    rank = int(os.environ["LOCAL_RANK"]) if processes > 1 else 0
    own = DistributedSampler(rows, processes, rank, shuffle=False)  # so that both see the same batches
    trainer.fit(Module(), DataLoader(rows, batch_size=2 // processes, sampler=own))
    return {"weight": model.weight.detach().clone(), **method.state_dict()}


def fit_by_hugging_face(name, *, processes, folder):
    from transformers import Trainer, TrainingArguments

    features, method, model = start_of(name)
    callback = onepair.hf.MethodCallback(method)
    network = Network()
    network.linear = model
    arguments = TrainingArguments(
        str(folder), num_train_epochs=2, per_device_train_batch_size=2 // processes, report_to="none", use_cpu=True,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, max_grad_norm=0.0,
        train_sampling_strategy="sequential", ddp_backend="gloo" if processes > 1 else None,
    )  # fmt: skip
    optimiser = torch.optim.SGD([*model.parameters(), *method.parameters()], lr=0.5)
    constant = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1.0)
    rows = callback.rows([{"features": each} for each in features])
    Trainer(
        network, arguments, train_dataset=rows, compute_loss_func=callback.loss, callbacks=[callback],
        optimizers=(optimiser, constant),
    ).train()  # fmt: skip
    return {"weight": model.weight.detach().clone(), **method.state_dict()}


def fit_together(folder):
    rank = int(os.environ["LOCAL_RANK"])
    os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1")
    found = {
        f"{fit.__name__} {name}": fit(name, processes=2, folder=folder)
        for fit in (fit_by_lightning, fit_by_hugging_face)
        for name in STATEFUL
    }
    torch.save(found, folder / f"{rank}.pt")


@pytest.mark.filterwarnings("ignore")  # those of Lightning and transformers
def test_a_method_learns_the_same_in_two_processes_by_ddp(tmp_path):
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    assert together(fit_together, tmp_path, logs=logs) == [0, 0], logs[0].read_text() + logs[1].read_text()
    one, other = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert len(one) == 2 * len(STATEFUL)
    for words, found in one.items():
        fit, _, name = words.partition(" ")
        alone = globals()[fit](name, processes=1, folder=tmp_path)
        assert not torch.equal(alone["weight"], problem()[2].weight)
        for each in (found, other[words]):
            assert each.keys() == alone.keys()
            for part, value in alone.items():
                torch.testing.assert_close(each[part], value, rtol=1e-4, atol=1e-5, msg=f"{words}: {part}")


class Network(nn.Module):
    """As the Trainer of Hugging Face wants it."""

    def __init__(self):
        super().__init__()
        self.linear = problem()[2]

    def forward(self, features):
        return {"logits": self.linear(features)}


@pytest.mark.filterwarnings("ignore")  # those of transformers
@pytest.mark.parametrize("accumulated", [1, 2])
def test_hugging_face(tmp_path, accumulated):
    from transformers import Trainer, TrainingArguments

    features, labels, _ = problem()

    def train(epochs, *, resume=False):
        callback = onepair.hf.MethodCallback(begun())
        arguments = TrainingArguments(
            str(tmp_path), num_train_epochs=epochs, per_device_train_batch_size=2, report_to="none", use_cpu=True,
            save_strategy="epoch", logging_strategy="no", disable_tqdm=True, learning_rate=0.1, optim="sgd",
            lr_scheduler_type="constant", max_grad_norm=0.0, gradient_accumulation_steps=accumulated,
            label_names=["labels"] if accumulated == 1 else None,  # by which it keeps those of an evaluation set
        )  # fmt: skip
        dataset = [{"features": each, "label": 5} for each in features]
        evaluated = [{"features": each, "labels": row} for each, row in zip(features, labels, strict=True)]
        network = Network()
        trainer = Trainer(
            network, arguments, train_dataset=callback.rows(dataset), eval_dataset=evaluated,
            compute_loss_func=callback.loss, callbacks=[callback],
        )  # fmt: skip
        trainer.train(resume_from_checkpoint=resume)
        return trainer, network, callback.method

    trainer, network, method = train(2)
    assert [(epoch, seen) for epoch, seen, _ in method.epochs] == [(1, [*range(ROWS)]), (2, [*range(ROWS)])]
    torch.testing.assert_close(method.epochs[-1][2], expected_scores(network.linear))
    # The loss is the mean over rows, so the bias falls by lr / classes at every step, however batches are accumulated.
    steps = 2 * -(-4 // accumulated)
    torch.testing.assert_close(network.linear.bias.detach(), torch.full((CLASSES,), -0.1 / CLASSES * steps))
    if accumulated == 1:
        assert trainer.evaluate()["eval_loss"] > 0
    with pytest.raises(UserError, match="the batch has no labels"):
        onepair.hf.MethodCallback(begun()).loss({}, None)
    _, _, resumed = train(3, resume=True)
    assert [epoch for epoch, _, _ in resumed.epochs] == [3]
    assert resumed.batches == 12


def test_mistakes_are_sentences():
    with pytest.raises(UserError, match="has not seen its labels"):
        onepair.lightning.MethodCallback(create_method("opml"))
    callback = onepair.hf.MethodCallback(begun())
    with pytest.raises(UserError, match="has 3 samples, and the method began with the labels of 7"):
        callback.rows([{}] * 3)
    with pytest.raises(UserError, match="parameters of its own, which no optimiser has"):
        onepair.loops.require_optimised(create_method("role", labels=problem()[1]), [])
