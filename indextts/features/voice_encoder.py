"""Encoder of voices, CAM++ of the published files. Torch is imported only when it is loaded.

Axes: S samples, V width of a vector.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]


def load_campplus_encoder(path: Path) -> Callable[[Samples], Samples | None]:
    """Return CAM++ with the weights in a campplus_cn_common.bin, on the CPU.

    It encodes mono speech (S,) at 16 kHz as a vector (V,) of length 1; None for too little speech.

    Raises:
        UserError: the file cannot be read or has other tensors.
    """
    import torch  # takes seconds, and most imports do without it

    from indextts.features.campplus import CAMPPlusConfig, load_campplus, style_vector

    torch.set_num_threads(1)  # clips run in parallel, which is faster than parallel operations
    network = load_campplus(path, CAMPPlusConfig().embedding_size, torch.device("cpu"))

    def encode(samples: Samples) -> Samples | None:
        vector = style_vector(network, samples)
        return None if vector is None else (vector / vector.norm()).numpy()

    return encode
