"""Writes a kubeconfig for clients of the server.

It exists because clients find their server through such a file. It must not know the server. Invariant: the file
names one context, which is the current one.
"""

from pathlib import Path
from typing import Any

import yaml


def write_kubeconfig(path: Path, url: str, token: str | None = None) -> Path:
    """Write a file that leads to `url`, with a bearer token if one is given."""
    user: dict[str, Any] = {} if token is None else {"token": token}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
