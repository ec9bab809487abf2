"""Tests of indextts/training/step.py: the gradients of a step, whole or in the parts that memory allows."""

import json
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from indextts.commands import Train, parse
from indextts.errors import OUT_OF_MEMORY, UserError
from indextts.gpt.model import GPTBatch, GPTOutput, UnifiedVoice
from indextts.training.batches import MicroBatch, Unreadable, load_batches
from indextts.training.start import Run, load_inputs, start_from_base
from indextts.training.step import accumulate, is_out_of_memory
from tests.tiny_run import TinyRun, make_tiny_run


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """Return a run without dropout, so that gradients are a function of the samples alone."""
    return make_tiny_run(tmp_path_factory.mktemp("step") / "tiny", dropout=0.0)


@pytest.fixture
def this(project: TinyRun) -> Run:
    return start_from_base(load_inputs(parse(Train, project.flags())))


def group_of(this: Run, *sizes: int) -> list[MicroBatch]:
    """Return micro-batches of `sizes`, of one sample after another."""
    samples = this.inputs.train_set.subset(range(sum(sizes)))
    singles = iter(range(sum(sizes)))
    return [
        next(iter(load_batches(samples, [next(singles) for _ in range(size)], size, num_workers=0)))
        for size in sizes
    ]


def on_a_card() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nof 80")


def on_the_host() -> None:
    torch.empty(2**60)  # really more than there is


def give_memory_for(this: Run, num_rows: int, run_out: Callable[[], None] = on_a_card) -> list[int]:
    """Let the forward pass of more than `num_rows` samples run out of memory; return the sizes of all."""
    forward: Callable[[GPTBatch], GPTOutput] = this.model.forward
    sizes = []

    def forward_in_little_memory(batch: GPTBatch) -> GPTOutput:
        sizes.append(len(batch.codes))
        if len(batch.codes) > num_rows:
            run_out()
        return forward(batch)

    this.model.forward = forward_in_little_memory  # type: ignore[method-assign]
    return sizes


def gradients(this: Run) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in this.model.named_parameters()
        if parameter.grad is not None
    }


def done_whole(project: TinyRun, sizes: Sequence[int]) -> tuple[Run, float, dict[str, Tensor]]:
    this = start_from_base(load_inputs(parse(Train, project.flags())))
    _, loss = accumulate(this, group_of(this, *sizes))
    assert loss is not None
    return this, float(loss), gradients(this)


@pytest.mark.parametrize("run_out", [on_a_card, on_the_host])
@pytest.mark.parametrize(
    ("sizes", "num_rows", "limit"),
    [((3,), 2, 1), ((2, 8), 3, 2), ((5, 1), 2, 2), ((8,), 4, 4)],
    ids=["one", "first fits", "last fits", "half fits"],
)
def test_a_step_that_was_split_has_the_gradients_of_the_whole(
    project: TinyRun,
    this: Run,
    sizes: tuple[int, ...],
    num_rows: int,
    limit: int,
    run_out: Callable[[], None],
):
    _, whole_loss, whole = done_whole(project, sizes)
    give_memory_for(this, num_rows, run_out)
    sums, loss = accumulate(this, group_of(this, *sizes))
    assert sums is not None
    assert loss is not None
    split = gradients(this)
    assert split.keys() == whole.keys()
    for name, gradient in whole.items():
        torch.testing.assert_close(split[name], gradient, rtol=1e-3, atol=1e-6, msg=name)
    assert float(loss) == pytest.approx(whole_loss, rel=1e-5)
    assert this.state.micro_batch_limit == limit


def test_the_sums_of_a_split_step_count_every_token_once(project: TinyRun, this: Run):
    give_memory_for(this, 1)
    group = group_of(this, 3, 2)
    sums, _ = accumulate(this, group)
    num_text, num_mel = (
        sum(part.batch.num_targets[head] for part in group if part.batch is not None) for head in (0, 1)
    )
    assert sums is not None
    assert (int(sums.text_tokens), int(sums.mel_tokens)) == (num_text, num_mel)
    assert not sums.text_nats.requires_grad


def test_the_size_that_fits_is_kept_for_the_steps_behind(this: Run, caplog: pytest.LogCaptureFixture):
    sizes = give_memory_for(this, 2)
    accumulate(this, group_of(this, 6))
    assert sizes == [6, 3, 1, 1, 1, 1, 1, 1]
    sizes.clear()
    this.trained.clear_gradients()
    accumulate(this, group_of(this, 6))
    assert sizes == [1] * 6
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == 2
    assert said[0].startswith("Out of memory (CUDA out of memory. Tried to allocate 2.00 GiB): the step is")
    assert said[0].endswith("micro-batches of at most 3")
    assert said[1].endswith("micro-batches of at most 1")


def test_a_single_sample_that_does_not_fit_ends_the_run_with_what_to_change(this: Run):
    give_memory_for(this, 0)
    group = group_of(this, 2)
    assert group[0].batch is not None
    longest = int(group[0].batch.code_lengths.max())
    with pytest.raises(UserError, match=f"the longest of this step has {longest} codes .*--amp") as caught:
        accumulate(this, group)
    assert caught.value.exit_status == OUT_OF_MEMORY
    assert gradients(this) == {}


def test_other_errors_of_torch_are_not_taken_for_a_lack_of_memory(this: Run):
    def break_off() -> None:
        torch.zeros(2) @ torch.zeros(3)

    sizes = give_memory_for(this, 0, break_off)
    with pytest.raises(RuntimeError, match="size"):
        accumulate(this, group_of(this, 2))
    assert sizes == [2]


def test_what_torch_raises_where_the_hosts_memory_ends_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        on_the_host()
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_step_of_which_nothing_can_be_read_leaves_no_gradient(this: Run):
    unreadable = MicroBatch(None, ("a", "b"), (Unreadable("a", "gone"), Unreadable("b", "gone")))
    assert accumulate(this, [unreadable, unreadable]) == (None, None)
    assert gradients(this) == {}


def test_what_can_be_read_of_a_step_counts_as_if_it_was_asked_for_alone(project: TinyRun, this: Run):
    _, whole_loss, whole = done_whole(project, (3,))
    unreadable = MicroBatch(None, ("a",), (Unreadable("a", "gone"),))
    _, loss = accumulate(this, [unreadable, *group_of(this, 3)])
    assert loss is not None
    assert float(loss) == whole_loss
    assert all(torch.equal(gradient, whole[name]) for name, gradient in gradients(this).items())


def test_a_part_of_a_batch_has_the_losses_of_its_rows(this: Run):
    """Also of codes behind a text that is padded: they see the padding."""
    batch = group_of(this, 4)[0].batch
    assert batch is not None
    shortest_last = torch.argsort(batch.text_lengths, descending=True)
    batch = GPTBatch(*(getattr(batch, name)[shortest_last] for name in vars(batch)))
    assert int(batch.text_lengths[-1]) < int(batch.text_lengths[0])
    whole = this.model.eval()(batch)
    for row, part in enumerate(batch.split(1)):
        alone = this.model(part)
        length = int(part.code_lengths[0]) + 1
        torch.testing.assert_close(
            alone.mel_logits[0, :length], whole.mel_logits[row, :length], rtol=1e-4, atol=1e-5
        )


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what lets a training pass of more than so many samples run out of memory."""
    forward = UnifiedVoice.forward

    def limit(num_rows: int) -> None:
        def forward_in_little_memory(self: UnifiedVoice, batch: GPTBatch) -> GPTOutput:
            if self.training and len(batch.codes) > num_rows:
                on_a_card()
            return forward(self, batch)

        monkeypatch.setattr(UnifiedVoice, "forward", forward_in_little_memory)

    return limit


def test_a_run_short_of_memory_takes_all_its_steps_and_the_resumed_one_knows_the_size(
    project: TinyRun, little_memory: Callable[[int], None]
):
    output = project.folder / "short_of_memory"
    little_memory(2)
    assert project.train(output_dir=output, max_steps=5) == 0
    content = torch.load(output / "latest.pth", weights_only=True)
    assert content["step"] == 5
    assert (content["epoch"], content["sampler"]["samples_done"]) == (1, 6)
    assert content["state"]["micro_batch_limit"] == 1
    assert project.train(output_dir=output, resume="auto", max_steps=6) == 0
    log = (output / "train.log").read_text(encoding="utf-8")
    assert log.count("Out of memory") == 1


def test_a_run_that_one_sample_is_too_much_for_ends_with_status_7(
    project: TinyRun, little_memory: Callable[[int], None]
):
    output = project.folder / "no_memory"
    little_memory(0)
    assert project.train(output_dir=output) == OUT_OF_MEMORY
    assert json.loads((output / "exit.json").read_text())["status"] == OUT_OF_MEMORY
    assert not list(output.glob("*.pth"))


def test_memory_that_ends_outside_of_a_step_is_status_7_too(
    project: TinyRun, monkeypatch: pytest.MonkeyPatch
):
    forward = UnifiedVoice.forward

    def forward_in_training_only(self: UnifiedVoice, batch: GPTBatch) -> GPTOutput:
        if not self.training:
            on_a_card()
        return forward(self, batch)

    monkeypatch.setattr(UnifiedVoice, "forward", forward_in_training_only)
    output = project.folder / "no_memory_to_validate"
    assert project.train(output_dir=output) == OUT_OF_MEMORY
    assert "smaller --val-batch-size" in (output / "train.log").read_text(encoding="utf-8")
