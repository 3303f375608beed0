"""Schedules as scenario parts: one decorated function is one schedule.

::

    @schedule("gpipe", defined="m >= 1", in_flight=..., formula="m", source="arXiv 1811.06965")
    def gpipe(pipe: Pipeline, rank: int) -> Iterator[Action]:
        ...

The function yields one rank's actions in order; a schedule that is found by search takes ``pipe`` alone and returns the
lists of all ranks. Its keyword-only arguments become YAML keys (``{kind: interleaved-1f1b, group: 8}``), validated
against their annotations. The decorator says when it is defined, which stages sit where, what it holds and what it
sends.

Notation as in the literature: p ranks, m microbatches, v chunks a rank, k slices, r rank; A = the activations of one
microbatch through 1/p of the model.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from types import new_class
from typing import Any, ClassVar, Literal, get_type_hints

from pydantic import Field

from clustersim.errors import InputError, Problem, nearest
from clustersim.part import Part
from clustersim.pipeline.ops import Action, Program
from clustersim.pipeline.placement import Placement, hops, rank_of_stage
from clustersim.pipeline.traits import MESSAGES, Description, Pipeline, Rules, Traits

__all__ = ["Description", "Pipeline", "Schedule", "Traits", "get_schedule", "schedule", "schedule_names"]

Vocabulary = Literal["none", "algorithm-1", "algorithm-2"]
_BARRIERS: dict[str, int] = {"none": 0, "algorithm-1": 2, "algorithm-2": 1}


class Schedule(Part, family="schedule"):
    """The order of work on each pipeline rank. Keys below are common to all schedules."""

    vocabulary_parallel: Vocabulary = Field(
        "none",
        description="split the output layer over all ranks: S and T ops with two barriers (algorithm-1) or one "
        "(algorithm-2) before the loss's backward",
    )
    recompute_in_bubbles: bool = Field(
        False, description="recompute as ops of their own that run while a rank waits for its gradient"
    )
    fsdp: bool = Field(False, description="gather each stage's parameters ahead of use, drop them, reduce gradients")
    gathered_stages: int = Field(3, ge=1, description="stages whose parameters FSDP keeps gathered at once")

    traits: ClassVar[Traits]

    @classmethod
    def default_chunks(cls) -> int:
        """Chunks a rank to take when the user names none."""
        return cls.traits.default_chunks

    def slices_for(self, ranks: int) -> int:
        """Slices of each sequence in a job on ``ranks`` pipeline ranks: the user's, else as many as ranks."""
        own: int | None = getattr(self, "slices", None)
        return own or (ranks if self.traits.sliced else 1)

    @property
    def own_options(self) -> dict[str, Any]:
        """The keyword arguments of the schedule's function."""
        chosen = {name: getattr(self, name) for name in self.traits.options}
        if "extra_warm_up" in chosen:
            chosen["extra_warm_up"] += _BARRIERS[self.vocabulary_parallel]
        return chosen

    @property
    def chains(self) -> int:
        """Independent pipelines that share the ranks."""
        chains = self.traits.chains
        return chains if isinstance(chains, int) else int(_call(chains, **self.own_options))

    @property
    def weight_copies(self) -> float:
        """Parameters held a rank ÷ (model ÷ ranks): one copy a chain."""
        return float(self.chains)

    @property
    def splits_backward(self) -> bool:
        """Whether the backward is split into input and weight gradients."""
        return self.traits.splits_backward

    def resolve(self, pipe: Pipeline) -> Pipeline:
        """``pipe`` with the chunks and slices that this schedule runs with.

        Raises:
            InputError: naming the rule that the size breaks and the nearest valid values.
        """
        sized = self._sized(pipe)
        broken = list(self._broken(sized))
        if broken:
            near = self._nearest(pipe)
            raise InputError([Problem("schedule", f"{self.kind} {rule}{near}") for rule in broken])
        return sized

    def refusals(self, pipe: Pipeline) -> list[str]:
        """The rules that ``pipe`` breaks, as sentences; empty when the schedule is defined there."""
        return list(self._broken(self._sized(pipe)))

    def notes(self, pipe: Pipeline) -> list[str]:
        """Advice on a size that runs but that another tool refuses, or that wastes time."""
        notes = self.traits.notes
        return [] if notes is None else list(_call(notes, self.resolve(pipe), **self.own_options))

    def program(self, pipe: Pipeline) -> Program:
        """The op lists of one step.

        Raises:
            InputError: when the schedule is not defined for ``pipe``; names the rule and the nearest valid values.
        """
        pipe = self.resolve(pipe)
        traits, options = self.traits, self.own_options
        if traits.whole:
            orders: Iterable[Iterable[Action]] = traits.order(pipe, **options)
        else:
            orders = (traits.order(pipe, rank, **options) for rank in range(pipe.ranks))
        ranks = tuple(tuple(order) for order in orders)
        return self._extended(self._program(ranks, pipe))

    def _program(self, ranks: tuple[tuple[Action, ...], ...], pipe: Pipeline) -> Program:
        options = self.model_dump()
        return Program(ranks, pipe.microbatches, pipe.slices, self.chains, self.weight_copies, self.kind, options)

    def _extended(self, program: Program) -> Program:
        from clustersim.pipeline import comms, recompute, vocabulary

        if self.vocabulary_parallel != "none":
            algorithm = 1 if self.vocabulary_parallel == "algorithm-1" else 2
            program = vocabulary.with_vocabulary(program, algorithm)
        if self.recompute_in_bubbles:
            program = recompute.with_recompute(program)
        if self.fsdp:
            if not self.traits.synchronous:
                raise InputError([Problem("schedule.fsdp", f"needs a step with an end, and {self.kind} never flushes")])
            program = comms.with_fsdp(program, self.gathered_stages)
        return program

    def steady(self, pipe: Pipeline) -> tuple[Program, Program] | None:
        """Two programs whose makespans differ by one step in the steady state, for a schedule without flush; else
        None."""
        return None

    def stage_rank(self, pipe: Pipeline) -> list[int]:
        """The rank of every stage name, chain after chain."""
        pipe = self._sized(pipe)
        return rank_of_stage(self.traits.placement, pipe.ranks, pipe.chunks, self.chains)

    def in_flight(self, pipe: Pipeline, rank: int) -> float:
        """Upper bound of the activations held on ``rank``, in A; see the module's text.

        Counted from the forward to the op that frees them: B, or W where the backward is split.
        """
        pipe = self.resolve(pipe)
        bound = float(_call(self.traits.in_flight, pipe, rank, **self.own_options))
        return min(bound, float(pipe.microbatches))

    def messages(self, pipe: Pipeline) -> int:
        """Tensors sent between ranks in one step, both directions."""
        pipe = self.resolve(pipe)
        return 2 * pipe.units * hops(self.stage_rank(pipe), self.chains) // self.chains

    def describe(self, pipe: Pipeline | None = None) -> Description:
        """What the schedule is, when it is defined, what it holds and sends; numbers where ``pipe`` is given and
        valid."""
        traits = self.traits
        described = Description(
            kind=self.kind, aliases=self.aliases, summary=traits.summary, defined=traits.defined,
            options=self.model_dump(), placement=traits.placement.value, chunks="any" if traits.chunks is None else
            str(traits.chunks), weight_copies=self.weight_copies, splits_backward=traits.splits_backward,
            synchronous=traits.synchronous, in_flight_formula=traits.formula,
            messages_formula=MESSAGES[traits.placement, traits.sliced], source=traits.source, verified=traits.verified,
        )  # fmt: skip
        if pipe is None or self.refusals(pipe):
            return described
        held = tuple(self.in_flight(pipe, rank) for rank in range(pipe.ranks))
        return replace(described, in_flight=held, messages=self.messages(pipe), notes=tuple(self.notes(pipe)))

    def _sized(self, pipe: Pipeline) -> Pipeline:
        traits = self.traits
        if traits.chunks is not None and pipe.chunks == 1:
            pipe = pipe._replace(chunks=traits.chunks)
        own = getattr(self, "slices", None)
        if own is not None and pipe.slices in (1, own):
            pipe = pipe._replace(slices=own)
        return pipe

    def _broken(self, pipe: Pipeline) -> Iterator[str]:
        traits = self.traits
        for name, number in zip(("pp", "microbatches", "chunks", "slices"), pipe, strict=True):
            if number < 1:
                yield f"needs {name} >= 1, got {number}"
                return
        if traits.chunks is not None and pipe.chunks != traits.chunks:
            yield _chunk_sentence(pipe.chunks, traits.chunks)
        if not traits.sliced and pipe.slices > 1:
            sliced = "seq1f1b, seq1f1b-i, seq1f1b-zb, terapipe or slimpipe"
            yield f"does not split the sequence (slices = {pipe.slices}): use {sliced}"
        own = getattr(self, "slices", None)
        if own is not None and own != pipe.slices:
            yield f"is given two slice counts, {own} by the schedule and {pipe.slices} by the pipeline: drop one"
        if traits.rules is not None:
            yield from _call(traits.rules, pipe, **self.own_options)

    def _nearest(self, pipe: Pipeline) -> str:
        """``"; nearest valid: microbatches 8 or 12, or pp 3"``: single changes that make the size valid."""
        found = []
        for field, most in (("microbatches", pipe.microbatches + 4 * pipe.ranks), ("ranks", 2 * pipe.ranks)):
            now = getattr(pipe, field)
            sides = (range(now - 1, 0, -1), range(max(now, 0) + 1, most + 1))
            valid = [next((n for n in side if not self.refusals(pipe._replace(**{field: n}))), None) for side in sides]
            if any(valid):
                name = "pp" if field == "ranks" else field
                found.append(f"{name} {' or '.join(str(n) for n in valid if n)}")
        return f"; nearest valid: {', or '.join(found)}" if found else ""


def _chunk_sentence(got: int, needs: int) -> str:
    if needs == 1:
        return f"runs one chunk a rank, got {got}: use interleaved-1f1b or another interleaved schedule"
    return f"needs exactly {needs} chunks a rank, got {got}"


def _call(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """``function`` with those of the options that it takes."""
    names = inspect.signature(function).parameters
    return function(*args, **{name: value for name, value in options.items() if name in names})


def _all_of_a_step(pipe: Pipeline, rank: int) -> float:
    """What no schedule holds more than."""
    return pipe.microbatches


def schedule(
    kind: str | Callable[..., Any],
    *,
    defined: str = "any size",
    in_flight: Callable[..., float] = _all_of_a_step,
    formula: str = "at most m",
    source: str = "",
    aliases: tuple[str, ...] = (),
    rules: Rules | None = None,
    notes: Rules | None = None,
    placement: Placement = Placement.LOOP,
    chunks: int | None = 1,
    default_chunks: int | None = None,
    chains: int | Callable[..., int] = 1,
    splits_backward: bool = False,
    sliced: bool = False,
    synchronous: bool = True,
    verified: bool = True,
    base: type[Schedule] | None = None,
) -> Callable[..., Any]:
    """Register a function as the schedule ``kind``; bare (``@schedule``) under the function's own name, with hyphens.

    Args:
        kind: its name in YAML.
        defined: when it is defined, in words.
        in_flight: (pipe, rank, options by name) → bound of the activations held, in A.
        formula: that bound in words.
        source: paper or code that defines it; nothing is verified without one.
        aliases: other names.
        rules: (pipe, options by name) → a sentence for each rule broken; none when the size is fine.
        notes: (pipe, options by name) → advice on a size that runs.
        placement: which rank holds which stage.
        chunks: chunks a rank, None where any number runs.
        default_chunks: chunks to take when the user names none.
        chains: independent pipelines on the same ranks; each holds a copy of the weights.
        splits_backward: whether it lists I and W.
        sliced: whether it splits the sequence; adds the key ``slices``.
        synchronous: whether all gradients of a step are applied before the next begins.
        verified: whether an independent code's lists were compared op for op.
        base: a subclass of ``Schedule`` to build on, for a schedule with behaviour of its own.
    """

    if callable(kind):
        bare: Callable[..., Any] = schedule(kind.__name__.replace("_", "-"))(kind)
        return bare

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = inspect.signature(function).parameters.values()
        own = [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
        traits = Traits(
            order=function,
            whole="rank" not in {p.name for p in parameters},
            options=tuple(p.name for p in own),
            summary=_summary(function),
            defined=defined,
            in_flight=in_flight,
            formula=formula,
            source=source,
            rules=rules,
            notes=notes,
            placement=placement,
            chunks=chunks,
            default_chunks=default_chunks or chunks or 2,
            chains=chains,
            splits_backward=splits_backward,
            sliced=sliced,
            synchronous=synchronous,
            verified=verified and bool(source),
        )
        hints = get_type_hints(function, include_extras=True)
        fields = {p.name: (hints[p.name], p.default) for p in own}
        if sliced:
            fields["slices"] = (int | None, Field(None, ge=1, description="slices that each sequence is cut into"))
        _define(kind, aliases, function, fields, traits, base or Schedule)
        return function

    return register


def _summary(function: Callable[..., Any]) -> str:
    """The first paragraph of the docstring on one line."""
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())


def _define(kind: str, aliases: tuple[str, ...], function: Callable[..., Any], fields: dict[str, tuple[Any, Any]],
            traits: Traits, base: type[Schedule]) -> None:  # fmt: skip
    """Make the ``Schedule`` class whose YAML keys are the function's keyword-only arguments."""

    def body(namespace: dict[str, Any]) -> None:
        namespace["__module__"], namespace["__doc__"] = function.__module__, inspect.getdoc(function)
        hints = {name: hint for name, (hint, _) in fields.items()}
        namespace["__annotations__"] = {"traits": ClassVar[Traits], **hints}
        namespace["traits"] = traits
        namespace.update({name: value for name, (_, value) in fields.items() if value is not inspect.Parameter.empty})

    name = "".join(word.capitalize() for word in kind.replace("_", "-").split("-")) + "Schedule"
    new_class(name, (base,), {"kind": kind, "aliases": aliases}, body)


def schedule_names() -> list[str]:
    """The kinds of all schedules, sorted."""
    return sorted({part.kind for part in Schedule.kinds.values()})


MOST_UNITS = 1_000_000
"""Microbatches × stages × slices of one step: each is an op that the replay of a step visits, some 10 µs apiece."""


def known_schedule(name: str) -> None:
    """Refuse a name that no schedule has.

    Raises:
        InputError: naming the nearest.
    """
    if name not in Schedule.kinds:
        raise InputError(Problem("schedule", f"there is no schedule '{name}'{nearest(name, Schedule.kinds)}; "
                                 f"known: {', '.join(schedule_names())}"))  # fmt: skip


def get_schedule(name: str | Schedule, **options: Any) -> Schedule:
    """The schedule called ``name`` with these options.

    Raises:
        InputError: when there is no schedule of that name; names the nearest.
        pydantic.ValidationError: when an option is unknown or wrong.
    """
    if isinstance(name, Schedule):
        return name
    known_schedule(name)
    return Schedule.build({"kind": name, **options})


def _load() -> None:
    """Import every module of ``clustersim.pipeline.schedules``, which registers its schedule."""
    from clustersim.pipeline import schedules

    for module in sorted(info.name for info in pkgutil.iter_modules(schedules.__path__)):
        importlib.import_module(f"{schedules.__name__}.{module}")


_load()
