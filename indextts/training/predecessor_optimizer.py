"""Names for an optimizer state that has none: the predecessor's, and the published trainer's.

Both made `AdamW(model.parameters())`: one group of all parameters, numbered in the order of the model. The
state dict of the trained model in the same file has that order too, between buffers and second names of the
same weight; so the n-th parameter's name is the n-th name in it that is a parameter's.

    optimizer["param_groups"][..]["params"]   0 1 2 3 4 ...      all parameters
    optimizer["state"]                        {0: .., 3: ..}     those that ever had a gradient
    model                                     name -> tensor     parameters and more, in the same order

Of the text tables the moments of the frozen base rows are cut off: nothing steps there any more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Moments:
    """Where the moments of a trained parameter are.

    Args:
        index: in `optimizer["state"]`.
        first_row: rows of the moments before this one are the frozen base's.
    """

    index: int
    first_row: int


def map_moments(
    *,
    order: Sequence[int],
    moments: Mapping[int, Shape],
    weights: Mapping[str, Shape],
    parameter_names: frozenset[str],
    trained: Mapping[str, Shape],
    base_size: int,
) -> dict[str, Moments]:
    """Return for each trained parameter where its moments are.

    Args:
        order: the groups' `params`, one after another.
        moments: shape of `exp_avg` by index.
        weights: shape of every tensor of the file's model under its published name, in the file's order.
        parameter_names: of the whole model as it is built here; the other names in `weights` are buffers.
        trained: shape of what the run trains, by name; of a text table the rows from `base_size` on.

    Raises:
        ValueError: the state is not that of this model's parameters; the message says what does not fit.
    """
    names = [name for name in weights if name in parameter_names]
    if len(names) != len(order):
        raise ValueError(f"it has {len(order)} parameters, the model in the file has {len(names)}")
    index_of = dict(zip(names, order, strict=True))
    for name, index in index_of.items():  # all of them: one in a wrong place means that the order is another
        if index in moments and moments[index] != weights[name]:
            raise ValueError(f"the moments of {name} are {moments[index]}, the weight is {weights[name]}")
    found = {}
    for name, shape in trained.items():
        index = index_of.get(name, -1)
        if index not in moments:
            raise ValueError(f"it has no moments of {name}, which this run trains")
        found[name] = Moments(index, _first_row(name, moments[index], shape, base_size))
    return found


def _first_row(name: str, whole: Shape, trained: Shape, base_size: int) -> int:
    if whole == trained:
        return 0
    if whole == (base_size + trained[0], *trained[1:]):
        return base_size
    raise ValueError(f"the moments of {name} are {whole}, this run trains {trained} of it")
