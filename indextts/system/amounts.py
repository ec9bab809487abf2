"""Amounts as people know them."""


def shown_gib(num_bytes: float) -> str:
    """Return bytes in GiB of 2^30, as cards are sold: "22.0"."""
    return f"{num_bytes / 2**30:.1f}"
