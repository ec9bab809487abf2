"""What is raised where memory runs out: classes of their own, or a sentence in another error."""

import torch

# the host's memory; a product's and a convolution's workspace; page-locked memory and what the driver takes
SAID = (
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` is what is raised where memory runs out, on a card or on the host."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAID)
