"""What tokens cost at list prices, by the price library of the extra ``prices``. Nothing is fetched."""

from __future__ import annotations

from datetime import datetime
from importlib import metadata
from typing import Any

from ._sum import add_up
from .result import Estimate, sums

__all__ = ["Prices", "estimated"]

_MISSING = "estimates need a price library: pip install 'headrace[prices]'"


class Prices:
    """The prices of the library, as it was installed; what its own updater has fetched counts, if somebody runs that.

    Raises:
        ImportError: the library is not installed.
    """

    def __init__(self) -> None:
        try:
            import genai_prices
            from genai_prices.data_snapshot import get_snapshot
        except ImportError as error:
            raise ImportError(_MISSING, name="genai_prices") from error
        self._library = genai_prices
        snapshot = get_snapshot()
        renewed = f", renewed {snapshot.timestamp:%Y-%m-%d}" if snapshot.from_auto_update else ""
        self.version = f"genai-prices {metadata.version('genai-prices')}{renewed}"

    def put(self, entry: dict[str, Any]) -> None:
        """Writes ``estimated_usd`` and ``priced_as`` into an entry; both are None if no price is known."""
        entry["estimated_usd"] = entry["priced_as"] = None
        model = entry["model"]
        if model is None or not has_tokens(entry):
            return
        read, written, completion = (
            max(entry[name] or 0, 0) for name in ("cached_tokens", "cache_write_tokens", "completion_tokens")
        )
        usage = self._library.Usage(
            input_tokens=max(entry["prompt_tokens"] or 0, read + written),
            cache_read_tokens=read,
            cache_write_tokens=written,
            output_tokens=completion,
        )
        for provider, name in _names(model):
            try:
                price = self._library.calc_price(
                    usage, name, provider_id=provider, genai_request_timestamp=_time(entry["timestamp"])
                )
            except LookupError:
                continue
            entry["estimated_usd"] = float(price.total_price)
            entry["priced_as"] = f"{price.provider.id}/{price.model.id}"
            return


def estimated(entries: list[dict[str, Any]]) -> Estimate:
    """The estimate over entries, into which the prices are written."""
    prices = Prices()
    by_model: dict[str, float] = {}
    unpriced: dict[str | None, list[dict[str, Any]]] = {}
    for entry in entries:
        prices.put(entry)
        model = entry["model"]
        if entry["estimated_usd"] is not None:
            by_model[model] = by_model.get(model, 0.0) + entry["estimated_usd"]
        elif has_tokens(entry):
            unpriced.setdefault(model, []).append(entry)
    return Estimate(
        usd=add_up(by_model.values()) if by_model else None,
        by_model=by_model,
        unpriced={
            model: {"calls": sum(entry["kind"] == "call" for entry in rows), **sums(rows)}
            for model, rows in unpriced.items()
        },
        prices=prices.version,
    )


def has_tokens(entry: dict[str, Any]) -> bool:
    return bool(entry["prompt_tokens"] or entry["completion_tokens"])


def _names(model: str) -> list[tuple[str | None, str]]:
    """A model as the library may know it: without `[1m]`, and without the provider before a slash."""
    name = model.partition("[")[0]
    provider, slash, rest = name.partition("/")
    return [(None, name), (provider, rest), (None, rest)] if slash else [(None, name)]


def _time(stamp: str | None) -> datetime | None:
    """When the call was made; None, which is now, if that is not known."""
    try:
        time = datetime.fromisoformat((stamp or "").replace("Z", "+00:00"))
    except ValueError:
        return None
    return time if time.tzinfo is not None else None
