"""Tests of indextts/training/gradients.py and the loop's `accumulate`: a full step, and a step in parts."""

import json
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import Tensor

from indextts.commands.terminal import parse
from indextts.commands.train import Train
from indextts.errors import OUT_OF_MEMORY
from indextts.models.gpt.attention import AttentionBackend
from indextts.models.gpt.model import GPTBatch, UnifiedVoice
from indextts.training import gradients as gradients_module
from indextts.training import loop, validate
from indextts.training.batches import Batch, MicroBatch, Unreadable
from indextts.training.loading import load_batches
from indextts.training.losses import LossSums, batch_sums
from indextts.training.run import Run, load_inputs
from indextts.training.start import start_from_base
from tests.tiny_run import SENTENCES, TinyRun, accumulate_group, make_tiny_run

# relative; a card multiplies in TensorFloat-32
ROUNDING = 1e-4 if torch.cuda.is_available() else 1e-6


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run without dropout and with samples of one length.

    So gradients are a function of the samples alone, and positions a multiple of the samples.
    """
    return make_tiny_run(
        tmp_path_factory.mktemp("step") / "tiny", num_codes=20, text=SENTENCES[0], dropout=0.0
    )


@pytest.fixture(params=["none", pytest.param("reference", marks=pytest.mark.long)])
def padding(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def run(project: TinyRun, padding: str) -> Run:
    return new_run(project, padding)


def new_run(project: TinyRun, padding: str) -> Run:
    return start_from_base(load_inputs(parse(Train, project.flags(padding=padding))))


def group_of(run: Run, *sizes: int) -> list[MicroBatch]:
    """Return micro-batches of `sizes`, of one sample after another."""
    samples = run.inputs.train_set.subset(range(sum(sizes)))
    collate = run.inputs.collate
    singles = iter(range(sum(sizes)))
    return [next(iter(load_batches(samples, [list(islice(singles, size))], 0, collate))) for size in sizes]


def on_a_gpu() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nof 80")


GiveMemory = Callable[..., list[int]]


@pytest.fixture
def give_memory_for(monkeypatch: pytest.MonkeyPatch) -> GiveMemory:
    """Return what lets a pass of more than so many samples run out of memory; it returns the sizes of all.

    Memory ends before the forward pass or, with `in_backward`, when most gradients are there.
    """

    def give(
        num_samples: int, memory_error: Callable[[], None] = on_a_gpu, *, in_backward: bool = False
    ) -> list[int]:
        sizes: list[int] = []

        def run_out_at_gradient(weight: Tensor) -> None:
            def act(_gradient: Tensor) -> None:
                hook.remove()
                memory_error()

            hook = weight.register_hook(act)

        def sums_in_little_memory(
            model: UnifiedVoice, batch: Batch, backend: AttentionBackend, first_new_token: int
        ) -> LossSums:
            sizes.append(batch.num_samples)
            is_too_large = batch.num_samples > num_samples
            if is_too_large and not in_backward:
                memory_error()
            if is_too_large:
                run_out_at_gradient(model.gpt.h[0].ln_1.weight)
            return batch_sums(model, batch, backend, first_new_token)

        monkeypatch.setattr(loop, "batch_sums", sums_in_little_memory)
        return sizes

    return give


def samples_in(run: Run, num_positions: int) -> int:
    """Return how many samples have so many positions."""
    return num_positions // int(run.inputs.train_set.lengths[0])


def gradients(run: Run) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in run.model.named_parameters()
        if parameter.grad is not None
    }


def full_step(project: TinyRun, padding: str, sizes: Sequence[int]) -> tuple[LossSums, dict[str, Tensor]]:
    run = new_run(project, padding)
    sums, _ = accumulate_group(run, group_of(run, *sizes))
    assert sums is not None
    return sums, gradients(run)


@pytest.mark.parametrize(
    ("memory_error", "in_backward"),
    [(on_a_gpu, True), (lambda: torch.empty(2**60), False)],  # really more than there is
    ids=["gpu backward", "host"],
)
@pytest.mark.parametrize(
    ("sizes", "num_samples", "limit"), [((2, 8), 3, 2), ((5, 1), 2, 2)], ids=["first fits", "last fits"]
)
@pytest.mark.failure(49)
def test_a_split_step_has_the_gradients_of_the_full_step(
    project: TinyRun,
    run: Run,
    padding: str,
    give_memory_for: GiveMemory,
    sizes: tuple[int, ...],
    num_samples: int,
    limit: int,
    memory_error: Callable[[], None],
    in_backward: bool,
):
    full_sums, full = full_step(project, padding, sizes)
    asked = give_memory_for(num_samples, memory_error, in_backward=in_backward)
    sums, loss = accumulate_group(run, group_of(run, *sizes))
    assert loss is not None
    split = gradients(run)
    assert split.keys() == full.keys()
    for name, gradient in full.items():
        difference = (split[name].double() - gradient.double()).norm()
        assert float(difference / gradient.double().norm()) < ROUNDING, name
    assert sums.numbers() == pytest.approx(full_sums.numbers(), rel=ROUNDING)
    assert samples_in(run, run.state.position_limit) == limit
    assert max(asked) > num_samples >= asked[-1]  # it did run out, and went on with parts that fit


def test_the_size_that_fits_is_kept_for_the_next_steps(run: Run, give_memory_for: GiveMemory, caplog):
    sizes = give_memory_for(2)
    accumulate_group(run, group_of(run, 6))
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    sizes.clear()
    run.trained.clear_gradients()
    accumulate_group(run, group_of(run, 6))
    assert sizes == [1] * 6
    logged = [record.getMessage() for record in caplog.records if record.name == gradients_module.__name__]
    assert len(logged) == 2
    assert "(CUDA out of memory. Tried to allocate 2.00 GiB)" in logged[0]
    limits = [int(text.split()[-2]) for text in logged]
    assert [samples_in(run, limit) for limit in limits] == [3, 1]


def test_other_errors_of_torch_are_not_taken_for_a_lack_of_memory(run: Run, give_memory_for: GiveMemory):
    def break_off() -> None:
        torch.zeros(2) @ torch.zeros(3)

    sizes = give_memory_for(0, break_off)
    with pytest.raises(RuntimeError, match="size"):
        accumulate_group(run, group_of(run, 2))
    assert sizes == [2]


def test_a_step_without_readable_samples_leaves_no_gradient(run: Run):
    unreadable = MicroBatch(None, ("a", "b"), (Unreadable("a", "gone"), Unreadable("b", "gone")))
    assert accumulate_group(run, [unreadable, unreadable]) == (None, None)
    assert gradients(run) == {}


def test_the_readable_samples_of_a_step_count_as_if_alone(project: TinyRun, run: Run, padding: str):
    full_sums, full = full_step(project, padding, (3,))
    unreadable = MicroBatch(None, ("a",), (Unreadable("a", "gone"),))
    sums, _ = accumulate_group(run, [unreadable, *group_of(run, 3)])
    assert sums.numbers() == full_sums.numbers()
    assert all(torch.equal(gradient, full[name]) for name, gradient in gradients(run).items())


def test_whole_micro_batches_are_tried_again_after_many_steps(
    run: Run, give_memory_for: GiveMemory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gradients_module, "LIMITED_STEPS", 3)
    for step in range(5):
        run.state.step = step
        sizes = give_memory_for(2 if step < 2 else 6)
        accumulate_group(run, group_of(run, 6))
        run.trained.clear_gradients()
        assert sizes == {0: [6, 3, 1, 1, 1, 1, 1, 1], 3: [6], 4: [6]}.get(step, [1] * 6)
    assert run.state.position_limit == 0


def test_a_part_of_a_padded_batch_has_the_losses_of_its_rows(tmp_path: Path):
    """Also of codes behind a text that is padded: they see the padding."""
    run = new_run(make_tiny_run(tmp_path / "tiny", dropout=0.0), "reference")
    batch = group_of(run, 4)[0].batch
    shortest_last = torch.argsort(batch.text_lengths, descending=True)
    batch = GPTBatch(*(tensor[shortest_last] for tensor in vars(batch).values() if tensor is not None))
    assert int(batch.text_lengths[-1]) < int(batch.text_lengths[0])
    device = run.inputs.device
    full = run.model.eval()(batch.to(device))
    for row, part in enumerate(batch.split(1)):
        alone = run.model(part.to(device))
        length = int(part.code_lengths[0]) + 1
        torch.testing.assert_close(
            alone.mel_logits[0, :length], full.mel_logits[row, :length], rtol=1e-4, atol=1e-5
        )


@pytest.mark.failure(49)
def test_a_run_short_of_memory_takes_all_steps_and_its_resume_keeps_the_size(
    project: TinyRun, padding: str, give_memory_for: GiveMemory
):
    output = project.folder / f"short_of_memory_{padding}"
    give_memory_for(2)
    assert project.train(output_dir=output, padding=padding, max_steps=5) == 0
    content = torch.load(output / "latest.pth", weights_only=True)
    assert content["step"] == 5
    assert (content["epoch"], content["sampler"]["samples_done"]) == (1, 6)
    [[limit, limited_at]] = content["state"]["position_limits"]
    assert (limit > 0, limited_at) == (True, 0)
    assert project.train(output_dir=output, padding=padding, resume="auto", max_steps=6) == 0
    log = (output / "train.log").read_text(encoding="utf-8")
    assert log.count("Out of memory") == 1
    assert re.search(rf"Memory ran out at step 1\b.* {limit} positions", log)
    changed = {"output_dir": output, "padding": padding, "resume": "auto"}
    assert project.train(**changed, grad_checkpointing="", max_steps=7) == 0
    log = (output / "train.log").read_text(encoding="utf-8")
    assert "trying whole micro-batches" in log
    assert log.count("Out of memory") == 2


@pytest.mark.failure(49)
def test_a_run_whose_memory_is_too_small_for_one_sample_ends_with_status_7(
    project: TinyRun, padding: str, give_memory_for: GiveMemory
):
    output = project.folder / f"no_memory_{padding}"
    give_memory_for(0)
    assert project.train(output_dir=output, padding=padding) == OUT_OF_MEMORY
    assert json.loads((output / "exit.json").read_text())["status"] == OUT_OF_MEMORY
    assert not list(output.glob("*.pth"))
    assert re.search("the longest of this step has .* codes.*--amp", (output / "train.log").read_text())


def test_running_out_of_memory_outside_a_step_is_also_status_7(project: TinyRun, monkeypatch):
    def sums_without_memory(*_: object) -> LossSums:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(validate, "batch_sums", sums_without_memory)
    output = project.folder / "no_memory_to_validate"
    assert project.train(output_dir=output) == OUT_OF_MEMORY
    assert "smaller --val-batch-size" in (output / "train.log").read_text(encoding="utf-8")
