"""A profile's surfaces and curves at work: seconds of ops and messages, and which of them lie outside what was measured."""

from __future__ import annotations

from clustersim.workload.fitted import MeasuredCurve, Surface
from clustersim.workload.profile import Profile


class Measured:
    """Answers with measured seconds where the profile has them, else with None; compared by identity.

    ``outside``: sentences on what was asked beyond the measured ranges, in the order asked, each once.
    """

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.outside: dict[str, None] = {}
        self._surfaces: dict[tuple[str, str], Surface] = {(item.op, item.precision): item for item in profile.surfaces}
        self._curves: dict[tuple[str, int, str], MeasuredCurve] = {}
        for item in profile.curves:
            if not item.beside:
                self._curves.setdefault((item.op, item.group, item.place), item)

    def _surface(self, surface: Surface | None, **sizes: float) -> float | None:
        if surface is None:
            return None
        self.outside.update(dict.fromkeys(surface.outside(**sizes)))
        return surface.seconds(**sizes)

    def gemm(self, precision: str, m: int, n: int, k: int, batch: int) -> float | None:
        """Seconds of ``batch`` products C[m,n] = A[m,k]·B[k,n]."""
        found = self._surfaces.get(("gemm", precision))
        return self._surface(found, m=float(m), n=float(n), k=float(k), batch=float(batch))

    def attention(self, precision: str, forward: bool, windowed: bool = False, **sizes: float) -> float | None:
        """Seconds of core attention; sizes: sequences, heads, length, head_dim, pairs (of one sequence).

        ``windowed``: a token sees its last ones only. Where that was not measured, the kernel is taken to skip what lies
        outside the window.
        """
        op = "attention-forward" if forward else "attention-backward"
        found = self._surfaces.get((op, precision))
        if windowed:
            own = self._surfaces.get((f"{op}-windowed", precision))
            if own is None and found is not None:
                self.outside[f"{op} {precision}: no window was measured; pairs outside it are taken to cost nothing"] = None
            found = own or found
        return self._surface(found, **sizes)

    def _curve(self, curve: MeasuredCurve | None, size: float) -> float | None:
        if curve is None:
            return None
        self.outside.update(dict.fromkeys(curve.outside(size)))
        return curve.seconds(size)

    def memory(self, size: float) -> float | None:
        """Seconds of a memory-bound op that moves ``size`` bytes."""
        return self._curve(self._curves.get(("memory-stream", 1, "device")), size)

    def message(self, op: str, size: float, ranks: int, inside: bool) -> float | None:
        """Seconds of a collective of ``size`` bytes over ``ranks``, inside a node or across nodes."""
        return self._curve(self._curves.get((op, ranks, "inside" if inside else "across")), size)

    def notes(self) -> tuple[str, ...]:
        """At most five of the sentences, and how many more there are."""
        found = list(self.outside)
        shown = [f"calibration {self.profile.name}: {sentence}" for sentence in found[:5]]
        more = [f"calibration {self.profile.name}: {len(found) - 5} more outside the measured ranges"] if len(found) > 5 else []
        return (*shown, *more)
