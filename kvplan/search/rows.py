"""One combination of a sweep into one row: what all rows share is settled once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from kvplan.errors import CombinationError, KvplanError
from kvplan.guard.figures import figures
from kvplan.planner import Launch, plan
from kvplan.search.columns import Result, Sized, column_of, find_result
from kvplan.search.kinds import Cell, Kind
from kvplan.search.sweep_plan import INVALID, LEFT_OUT, NO_MEMORY, REFUSED, STARTS, SweepPlan
from kvplan.search.variants import varied
from kvplan.search.where import Condition, read_condition
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import NoStart, Plan
from kvplan.spec.server import ServerArgs

Row = list[Cell]
Values = Mapping[str, Any]
MAX_VARIANTS = 4096


class Planner:
    """A sweep made ready to plan any of its combinations."""

    def __init__(self, sweep: SweepPlan) -> None:
        self.sweep = sweep
        axes = sweep.grid.axes
        self.server = [axis.name for axis in axes if axis.section == "server"]
        self.memory = [axis.name for axis in axes if axis.section == "memory"]
        self.changed = {
            section: [place for place, axis in enumerate(axes) if axis.section == f"set {section}"]
            for section in ("model", "draft", "gpu")
        }
        self.inputs = [(place, axis.cells) for place, axis in enumerate(axes) if axis.varies]
        self.shown = [(column.name, self.result(column.name)) for column in sweep.shown]
        self.conditions = [read_condition(text, self.kind_of) for text in sweep.where]
        judged = {name for each in self.conditions for name in each.names} - sweep.scope.keys()
        self.judged = [(name, self.result(name)) for name in sorted(judged)]
        self.before = [each for each in self.conditions if not each.names & judged]
        self.after = [each for each in self.conditions if each.names & judged]
        self.needs_figures = any(
            result.needs_figures for _, result in (*self.shown, *self.judged) if result is not None
        )
        self.variant = lru_cache(MAX_VARIANTS)(self.changed_spec)

    def kind_of(self, name: str) -> Kind:
        return column_of(name, self.sweep.scope).kind

    def result(self, name: str) -> Result | None:
        """How to get a column from a plan; None for an input."""
        return None if name in self.sweep.scope else find_result(name)

    def rows(self, start: int, stop: int) -> Iterator[Row]:
        """The rows of some combinations in order, without those that conditions on inputs rule out."""
        for digits in self.sweep.grid.combinations(start, stop):
            values = self.sweep.grid.values(digits)
            server, draft = self.arguments(values)
            scope = {**values, **server, "draft": draft}
            if all(condition.holds(scope) for condition in self.before):
                inputs = [cells[digits[place]] for place, cells in self.inputs]
                yield inputs + self.planned(digits, scope, server)

    def arguments(self, values: Values) -> tuple[dict[str, Any], str | None]:
        """Server arguments, the file's over the launch's over the presets', and the draft."""
        presets = self.sweep.presets
        server: dict[str, Any] = {}
        if values["parallel"] is not None:
            server |= presets.parallel[values["parallel"]]
        if values["speculative"] is not None:
            server |= presets.speculative[values["speculative"]]
        own_draft = server.pop("draft", None)
        server |= self.sweep.base
        for name in self.server:
            if values[name] is not None:
                server[name] = values[name]
        return server, values["draft"] or own_draft

    def planned(self, digits: tuple[int, ...], scope: Values, server: Values) -> Row:
        """Status, columns and reason of one combination."""
        try:
            launch = self.launch(digits, scope, server)
            outcome = plan(launch).outcome
        except CombinationError as error:
            return self.unsized(REFUSED, error.problem, scope)
        except KvplanError as error:
            return self.unsized(INVALID, error.problem, scope)
        if isinstance(outcome, NoStart):
            return self.unsized(NO_MEMORY, outcome.shortage.problem, scope)
        return self.sized(Sized(launch.args, outcome, self.figures(outcome)), scope)

    def figures(self, outcome: Plan) -> dict[str, int | float]:
        return figures(outcome) if self.needs_figures else {}

    def unsized(self, status: str, reason: str, scope: Values) -> Row:
        """The row of a combination without a plan: its inputs stay, its results are empty."""
        cells = [scope.get(name) if result is None else None for name, result in self.shown]
        return [status, *cells, reason]

    def sized(self, sized: Sized, scope: Values) -> Row:
        """The row of a plan, held against the conditions on results."""
        cells = [
            scope.get(name) if result is None else result.value(sized)
            for name, result in self.shown
        ]
        broken = self.broken(sized, scope) if self.after else None
        if broken is not None:
            return [LEFT_OUT, *cells, f"not {broken.text}"]
        return [STARTS, *cells, None]

    def broken(self, sized: Sized, scope: Values) -> Condition | None:
        """The first condition on results that the plan does not hold."""
        judged = {name: result.value(sized) for name, result in self.judged if result is not None}
        whole = {**scope, **judged}
        return next((each for each in self.after if not each.holds(whole)), None)

    def launch(self, digits: tuple[int, ...], scope: Values, server: Values) -> Launch:
        """The launch of one combination; InputError where a model cannot have what `set` says."""
        draft = scope["draft"]
        return Launch(
            model=self.spec("model", scope["model"], digits),
            draft=None if draft is None else self.spec("draft", draft, digits),
            gpu=self.spec("gpu", scope["gpu"], digits),
            args=ServerArgs(**server),
            memory=MemoryInputs(**{name: scope[name] for name in self.memory}),
        )

    def spec(self, section: str, name: str, digits: tuple[int, ...]) -> Any:
        """A model or card with what `set` changes of it."""
        return self.variant(section, name, tuple(digits[place] for place in self.changed[section]))

    def changed_spec(self, section: str, name: str, digits: tuple[int, ...]) -> Any:
        presets = self.sweep.presets
        spec = presets.gpus[name] if section == "gpu" else presets.models[name]
        if not digits:
            return spec
        axes = [self.sweep.grid.axes[place] for place in self.changed[section]]
        return varied(
            spec,
            tuple(
                (axis.name.partition(".")[2], axis.values[digit])
                for axis, digit in zip(axes, digits, strict=True)
            ),
        )
