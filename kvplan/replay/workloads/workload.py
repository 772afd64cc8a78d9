"""A workload file opened for replay: checked once from end to end, then read in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from kvplan.errors import KvplanError, TraceError
from kvplan.replay.requests import Request
from kvplan.replay.workloads.detect import Detected, detect
from kvplan.replay.workloads.formats import FORMATS
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.order import in_order, survey
from kvplan.replay.workloads.rows import Row
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally
from kvplan.replay.workloads.units import unit_warning

NO_INPUT = "input of 0 tokens"
PREFILL_ONLY = "no answer: prefill only"


class Workload:
    """The requests of one file, in order of arrival, as often as it is iterated.

    `detected` says how the file was read, `tally` what became of its rows, `order` what their times
    looked like.
    """

    def __init__(
        self,
        source: Source,
        detected: Detected,
        options: ReadOptions,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Read the file to its end once; TraceError where it cannot be replayed."""
        self.source = source
        self.detected = detected
        self.options = options
        self.tally = Tally(skip_bad_rows=options.skip_bad_rows)
        self._reader = FORMATS[detected.format].reader()
        self.order = survey(self._rows(self.tally), progress)
        if not self.order.num_rows:
            raise TraceError(f"no request is left: {self.tally.describe()}", where=str(source.path))
        if self.inversions:
            self.tally.note(f"rows out of order, sorted by time: {self.inversions:,}")
        settable = "--time-unit" in FORMATS[detected.format].honours
        if warning := unit_warning(self.order, flag=settable):
            self.tally.note(warning)

    @property
    def inversions(self) -> int:
        """Rows that are earlier than the row before them in the file."""
        return self.order.inversions

    @property
    def span_ns(self) -> int:
        """From the first arrival to the last."""
        return self.order.last_ns - self.order.first_ns

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the file as a whole."""
        return tuple(self.tally.notes)

    def __len__(self) -> int:
        return self.tally.kept

    def __iter__(self) -> Iterator[Request]:
        first_ns = self.order.first_ns
        for row in in_order(self._again, self.order):
            yield Request(
                rid=row.rid,
                t_ns=row.t_ns - first_ns,
                input_len=row.input_len,
                output_len=row.output_len,
                max_new=row.max_new,
                session=row.session,
                identity=row.identity,
                delay_ns=row.delay_ns,
            )

    def _rows(self, tally: Tally) -> Iterator[Row]:
        """Rows in file order without those that have nothing to prefill."""
        kept = 0
        try:
            for row in self._reader.read(self.source, tally, self.options):
                if not row.input_len:
                    tally.dropped[NO_INPUT] += 1
                    continue
                if not row.output_len:
                    tally.flagged[PREFILL_ONLY] += 1
                kept += 1
                yield row
        except KvplanError as error:
            if error.where is not None:
                raise
            where = str(self.source.path)
            raise type(error)(error.problem, where=where, hint=error.hint) from None
        finally:
            tally.kept = kept

    def _again(self) -> Iterator[Row]:
        """The rows once more; TraceError where the file changed meanwhile."""
        tally = Tally(skip_bad_rows=self.options.skip_bad_rows)
        yield from self._rows(tally)
        if (tally.read, tally.kept) != (self.tally.read, self.tally.kept):
            raise TraceError(
                f"the file changed while it was read: {tally.read:,} rows, "
                f"{self.tally.read:,} before",
                where=str(self.source.path),
            )


def open_workload(
    path: Path | str,
    *,
    format: str | None = None,
    options: ReadOptions | None = None,
    progress: Callable[[int], None] | None = None,
) -> Workload:
    """Detect, check and open a workload; TraceError or InputError where it cannot be replayed.

    `progress` is called with the number of rows every 65,536 of them.
    """
    path, options = Path(path), options or ReadOptions()
    detected = detect(path, format=format)
    chosen = FORMATS[detected.format]
    refused = [flag for flag in options.given() if flag not in chosen.honours]
    if refused:
        raise TraceError(
            f"{refused[0]} has no meaning for {chosen.title} files",
            where=str(path),
            hint=chosen.instead.get(refused[0])
            or f"leave it out; this format takes: {', '.join(sorted(chosen.honours)) or 'none'}",
        )
    return Workload(Source(path, detected.compression), detected, options, progress)
