"""One level of a config.json: checked values, class defaults, and the place of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.spec.hf.classes import TextClass

MAX_COUNT = 1 << 40
MAX_LAYERS = 4096  # no model comes near it; longer lists would only be typing errors
MISSING_HINT = "the engine takes it from the checkpoint's own code: add the key to the config.json"


class Config:
    """Keys of one mapping of a config.json; a key that is absent has its class's default."""

    __slots__ = ("_class", "_document", "path", "values")

    def __init__(
        self,
        document: Document,
        values: Mapping[str, Any],
        path: FieldPath = (),
        text_class: TextClass | None = None,
    ) -> None:
        self.values = values
        self.path = path
        self._document = document
        self._class = text_class or TextClass()

    def get(self, key: str) -> Any:
        """The value as written, else the class default, else None."""
        alias = self._class.aliases.get(key, key)
        for name in (key, alias):
            if name in self.values:
                return self.values[name]
        return self._class.defaults.get(alias, self._class.defaults.get(key))

    def has(self, *keys: str) -> bool:
        """Whether any of the keys has a value other than null."""
        return any(self.get(key) is not None for key in keys)

    def count(self, key: str) -> int:
        """A whole number above zero that must be there."""
        value = self.whole(key)
        if value is None:
            raise InputError(f"'{key}' is missing", where=self.where(), hint=MISSING_HINT)
        if value == 0:
            raise self.refuse(key, "must be above zero, got 0")
        return value

    def whole(self, key: str) -> int | None:
        """A whole number, zero included, or None."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refuse(key, f"must be an integer, got {shown(value)}")
        if not 0 <= value <= MAX_COUNT:
            raise self.refuse(key, f"must be between 0 and {MAX_COUNT}, got {value}")
        return value

    def layers(self, key: str = "num_hidden_layers") -> int:
        """A layer count."""
        value = self.count(key)
        if value > MAX_LAYERS:
            raise self.refuse(key, f"must be at most {MAX_LAYERS}, got {value}")
        return value

    def flag(self, key: str) -> bool:
        """A switch; absent and null are off."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool | int):
            raise self.refuse(key, f"must be true or false, got {shown(value)}")
        return bool(value)

    def text(self, key: str) -> str | None:
        """A text or None."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(key, f"must be text, got {shown(value)}")
        return value

    def number(self, key: str) -> float | None:
        """A number or None."""
        value = self.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self.refuse(key, f"must be a number, got {shown(value)}")
        if value is not None and not abs(value) <= MAX_COUNT:
            raise self.refuse(key, f"must be at most {MAX_COUNT}, got {shown(value)}")
        return value

    def names(self, key: str) -> tuple[str, ...] | None:
        """A list of texts or None."""
        items = self.items(key)
        if items is not None and not all(isinstance(item, str) for item in items):
            raise self.refuse(key, "must be a list of texts")
        return items

    def numbers(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers or None."""
        items = self.items(key)
        if items is not None and not all(isinstance(item, int) for item in items):
            raise self.refuse(key, "must be a list of integers")
        return items

    def items(self, key: str) -> tuple[Any, ...] | None:
        """A list of anything or None."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.refuse(key, f"must be a list, got {shown(value)}")
        if len(value) > MAX_LAYERS:
            raise self.refuse(key, f"must have at most {MAX_LAYERS} entries, has {len(value)}")
        return tuple(value)

    def inner(self, key: str, text_class: TextClass | None = None) -> Config | None:
        """A nested mapping or None."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refuse(key, f"must be a mapping, got {shown(value)}")
        return Config(self._document, value, (*self.path, key), text_class)

    def as_class(self, text_class: TextClass) -> Config:
        """The same mapping read through a class."""
        return Config(self._document, self.values, self.path, text_class)

    @classmethod
    def merged(cls, outer: Config, inner: Config, text_class: TextClass) -> Config:
        """Keys of both levels in one, the inner ones first."""
        values = {**outer.values, **inner.values, "model_type": outer.get("model_type")}
        return cls(outer._document, values, outer.path, text_class)

    def refuse(self, key: str, problem: str) -> InputError:
        """The refusal of one key's value."""
        return InputError(f"'{key}' {problem}", where=self.where(key))

    def where(self, key: str | None = None) -> str:
        """Place of a key, or of the whole mapping."""
        return self._document.where(self.path if key is None else (*self.path, key))


def shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
