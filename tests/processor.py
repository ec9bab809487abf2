"""Abilities of PyTorch on the processor that runs the tests."""

import pytest
import torch


def has_bfloat16_attention() -> bool:
    """Return whether bfloat16 attention works; ATEN_CPU_CAPABILITY breaks it on a processor with AVX-512.

    PyTorch 2.13 chooses the kernel by the processor and then refuses it by the capability (`pack_vnni2`).
    """
    uses_avx512 = torch.backends.cpu.get_cpu_capability().startswith("AVX512")
    return uses_avx512 or not torch.cpu._is_avx512_supported()


needs_bfloat16_attention = pytest.mark.skipif(
    not has_bfloat16_attention(), reason="PyTorch refuses bfloat16 attention with this ATEN_CPU_CAPABILITY"
)
