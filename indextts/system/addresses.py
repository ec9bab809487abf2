"""Addresses of hosts, as flags and URLs have them."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`; False for an unknown name."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
