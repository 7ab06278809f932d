"""SGLang's platform for a plain CPU, in PyTorch's own operators.

Only SGLang imports this module, in a server process, after
:func:`sweeper.engines.sglang.cpu_platform.activate` gave it the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sglang.srt.platforms.cpu import CpuDeviceMixin
from sglang.srt.platforms.interface import PlatformCapabilities, PlatformEnum, SRTPlatform

if TYPE_CHECKING:
    import torch


class CpuPlatform(CpuDeviceMixin, SRTPlatform):
    """A CPU that runs every layer through SGLang's ``forward_native``.

    It calls itself out-of-tree, not CPU, because SGLang's CPU branches import
    ``sgl_kernel``, whose packaged build needs the CUDA driver library.
    """

    _enum = PlatformEnum.OOT
    # Neither Triton kernels nor graphs: everything runs eagerly.
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        """Return the one attention backend that is written in PyTorch alone."""
        return "torch_native"

    def is_pin_memory_available(self, device: torch.device | None = None) -> bool:  # noqa: ARG002
        """Return False: pinned memory is for copies to a GPU."""
        return False

    def get_dispatch_key_name(self) -> str:
        """Return the key under which layers offer their PyTorch implementation."""
        return "native"

    def init_backend(self) -> None:
        """Switch ``torch.compile`` off in this worker; SGLang calls it once, early.

        Tensor parallelism makes SGLang compile a masking function of the
        embedding at the first request. On a CPU that is a run of the C++
        compiler in every trial, for a function that costs next to nothing.
        """
        import torch

        torch.compiler.set_stance("force_eager")
