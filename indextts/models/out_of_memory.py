"""Recognition of out-of-memory errors, which torch raises as several types."""

import torch

# RuntimeErrors for the host's memory, cuBLAS and cuDNN workspaces, and pinned or driver memory
MESSAGES = (
    "can't allocate memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` reports that GPU or host memory ran out."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in MESSAGES)
