"""Errors that a user can act on. Each message is one sentence that names the value and the way out."""

from __future__ import annotations


class DominoTreeError(Exception):
    """Base of every error that the command line and the page show as it is."""


class PairError(DominoTreeError):
    """A target, a drafter or the default pair cannot be found, loaded or used together."""


class SettingsError(DominoTreeError, ValueError):
    """A setting is out of range or unknown."""


class PairChoiceError(PairError, SettingsError):
    """The wish for a pair is itself wrong: an unknown name, device or dtype, a malformed hub id."""


class PromptError(DominoTreeError, ValueError):
    """The prompt is empty or does not fit the target's context."""


class EngineBusyError(DominoTreeError):
    """A second run was started in a thread whose first run still holds the engine."""


class TreeError(DominoTreeError):
    """A draft tree is not a tree: an unknown parent, a cycle, a repeated sibling."""


class FileError(DominoTreeError):
    """A cost profile or a calibration file that cannot be read or does not belong here."""
