"""Which model a sweep runs: an embedded one, a directory, or a hub id."""

from sweeper.models.resolver import EMBEDDED, EmbeddedModel, ResolvedModel, resolve

__all__ = ["EMBEDDED", "EmbeddedModel", "ResolvedModel", "resolve"]
