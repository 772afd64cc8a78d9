"""What must hold inside a recorded state before anyone's slots are looked at: sizes, rows, ranges."""

from __future__ import annotations

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.id_runs import num_ids
from kvplan.state.recorded import HeldRow, PagedPool, RecordedState, Run

NOBODY = 0


class Checker:
    """A state with the places of its values in the file."""

    def __init__(self, state: RecordedState, document: Document) -> None:
        self.state = state
        self.document = document

    def refuse(self, path: FieldPath, problem: str, hint: str | None = None) -> InputError:
        """The refusal of the value at path."""
        return InputError(problem, where=self.document.where(path), hint=hint)

    def owner(self, path: FieldPath) -> str:
        """Whose the value at path is, to follow what it is called."""
        match path:
            case "requests", int(index), *_:
                return f" of {self.state.requests[index].name}"
            case [*_, "cached", _]:
                return " of the cache"
        return ""


def check_sizes(checker: Checker) -> None:
    """Pools are whole pages, and slots of a second pool are mapped only where there is one."""
    state = checker.state
    for name, pool in (("kv", state.kv), ("sliding", state.sliding)):
        if pool is not None and pool.tokens % state.page_size:
            problem = f"{pool.tokens} tokens are not whole pages of {state.page_size}"
            raise checker.refuse((name, "tokens"), problem)
    if state.full_to_swa and state.sliding is None:
        raise checker.refuse(("full_to_swa",), "slots are mapped and there is no sliding pool")


def check_rows(checker: Checker) -> None:
    """One row and one name a request, and no more slots than a row has room for."""
    state = checker.state
    rows: dict[int, HeldRow] = {}
    names: set[str] = set()
    for index, request in enumerate(state.requests):
        path: FieldPath = ("requests", index)
        if request.rid in names:
            raise checker.refuse((*path, "rid"), f"request {request.name} comes twice")
        if request.row >= state.rows:
            problem = f"row {request.row} of {request.name} is out of range"
            hint = f"rows are 1 to {state.rows - 1}"
            raise checker.refuse((*path, "row"), problem, hint)
        if request.row in rows:
            other = rows[request.row].name
            problem = f"row {request.row} belongs to {other} and to {request.name}"
            raise checker.refuse((*path, "row"), problem)
        check_lengths(checker, path, request)
        names.add(request.rid)
        rows[request.row] = request


def check_lengths(checker: Checker, path: FieldPath, request: HeldRow) -> None:
    """Cached prefix, tokens and slots of one request fit into each other."""
    allocated, width = num_ids(request.slots), checker.state.row_width
    if allocated > width:
        problem = f"{request.name} has {allocated} slots in a row of {width}"
        raise checker.refuse((*path, "slots"), problem)
    if request.seq_len > allocated:
        problem = f"{request.name} has {request.seq_len} tokens and {allocated} slots"
        raise checker.refuse((*path, "seq_len"), problem)
    if request.cached_len > request.seq_len:
        problem = (
            f"{request.name} has {request.seq_len} tokens, {request.cached_len} of them cached"
        )
        raise checker.refuse((*path, "cached_len"), problem)


def check_slots(checker: Checker, path: FieldPath, run: Run, num_slots: int) -> None:
    """Slots of a run lie in pages that can be handed out."""
    (first, count), page_size = run, checker.state.page_size
    if first >= page_size and first + count <= num_slots:
        return
    what = "takes padding" if first < page_size else "is out of range"
    slot = first_outside(run, page_size, num_slots - 1)
    hint = f"slots are {page_size} to {num_slots - 1}"
    raise checker.refuse(path, f"slot {slot}{checker.owner(path)} {what}", hint)


def check_state_slots(checker: Checker, path: FieldPath, run: Run, seen: bytearray) -> None:
    """State slots exist and are listed once; marks them as seen."""
    first, count = run
    if first < 1 or first + count > len(seen):
        hint = f"state slots are 1 to {len(seen) - 1}; slot 0 takes padding"
        slot = first_outside(run, 1, len(seen) - 1)
        problem = f"state slot {slot}{checker.owner(path)} is out of range"
        raise checker.refuse(path, problem, hint)
    twice = seen.find(1, first, first + count)
    if twice >= 0:
        names = state_slot_owners(checker.state, twice)
        problem = f"state slot {twice}{names} is held twice, or held and free"
        raise checker.refuse(path, problem)
    seen[first : first + count] = b"\1" * count


def state_slot_owners(state: RecordedState, slot: int) -> str:
    """The requests that have a state slot, to follow its number."""
    names = [
        each.name for each in state.requests if slot in (each.state_slot, *each.tracking_slots)
    ]
    return f" of {' and '.join(names)}" if names else ""


def check_free(checker: Checker, name: str, pool: PagedPool, marks: bytearray) -> None:
    """Free pages exist, are free once, and no slot of theirs is held."""
    num_pages = pool.tokens // checker.state.page_size
    seen = bytearray(num_pages + 1)
    for field in ("free_pages", "staged_pages"):
        for index, run in enumerate(getattr(pool, field)):
            check_free_run(checker, (name, field, index), run, seen, marks)


def check_free_run(
    checker: Checker, path: FieldPath, run: Run, seen: bytearray, marks: bytearray
) -> None:
    """One run of free pages; marks them as seen."""
    (first, count), page_size = run, checker.state.page_size
    if first < 1 or first + count > len(seen):
        page = first_outside(run, 1, len(seen) - 1)
        hint = f"pages are 1 to {len(seen) - 1}; page 0 takes padding"
        raise checker.refuse(path, f"page {page} is out of range", hint)
    twice = seen.find(1, first, first + count)
    if twice >= 0:
        raise checker.refuse(path, f"page {twice} stands twice in the free list")
    slot = first_held(marks, (first * page_size, count * page_size))
    if slot is not None:
        problem = f"page {slot // page_size} is free and slot {slot} of it is held"
        raise checker.refuse(path, problem)
    seen[first : first + count] = b"\1" * count


def first_held(marks: bytearray, run: Run) -> int | None:
    """The first slot of a run that somebody holds."""
    first, count = run
    if marks.count(NOBODY, first, first + count) == count:
        return None
    return next(each for each in range(first, first + count) if marks[each] != NOBODY)


def first_outside(run: Run, least: int, most: int) -> int:
    """The first id of a run that is below the least or above the most."""
    first, _ = run
    return first if first < least or first > most else most + 1
