"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const TYPES = { f8: Float64Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };

  function decode(packed) {
    const text = atob(packed[1]);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new TYPES[packed[0]](bytes.buffer);
  }

  // --- layout ------------------------------------------------------------------------------------------------------
  const LEFT = 62, RIGHT = 92, HEAD = 26, AXIS = 24;
  const most = Math.max(...data.views.map((view) => view.ranks));
  const ROW = most <= 16 ? 26 : most <= 64 ? 17 : most <= 256 ? 9 : 5;
  const all = data.views.some((view) => view.base.some((bytes) => bytes > 0)); // all memory of a GPU, not activations alone
  const STRIP = data.memory ? Math.round(ROW * (all ? 0.95 : 0.55)) : 0;
  const PITCH = ROW + STRIP + (ROW > 8 ? 5 : 1);

  let top = 0;
  for (const view of data.views) {
    for (const name of Object.keys(view.arrays)) view[name] = decode(view.arrays[name]);
    view.top = top + HEAD;
    top = view.top + view.ranks * PITCH + 8;
  }
  const HEIGHT = top + AXIS;
  const END = Math.max(...data.views.map((view) => view.makespan)) || 1;

  const canvas = document.getElementById("canvas");
  const pen = canvas.getContext("2d", { alpha: false });
  const tip = document.getElementById("tip");
  const found = document.getElementById("found");
  const box = (id) => document.getElementById(id);
  let ink = {};
  function theme() { // colours of the page that holds the timeline; what stands on a coloured box stays as it is
    const style = getComputedStyle(document.documentElement), of = (name, other) => style.getPropertyValue(name).trim() || other;
    ink = { bg: of("--bg", "#ffffff"), ink: of("--ink", "#1d2530"), soft: of("--soft", "#5a6573"), bad: of("--bad", "#c00000") };
    const parts = /^#(..)(..)(..)$/.exec(ink.bg);
    ink.dark = parts !== null && parseInt(parts[1], 16) < 128;
  }
  let width = 0, from = 0, to = END, hover = null, marked = null, queued = false;

  const x = (time) => LEFT + (time - from) / (to - from) * (width - LEFT - RIGHT);
  const timeAt = (px) => from + (px - LEFT) / (width - LEFT - RIGHT) * (to - from);

  function resize() {
    const scale = Math.min(window.devicePixelRatio || 1, 32000 / HEIGHT);
    width = canvas.parentElement.clientWidth;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(HEIGHT * scale);
    canvas.style.height = HEIGHT + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    box("hint").textContent = fits() ? "wheel: zoom · drag: move · hover: details" : "ctrl + wheel: zoom · drag: move · hover: details";
    draw();
  }
  const fits = () => HEIGHT < window.innerHeight;

  function redraw() {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; draw(); });
  }

  // --- drawing -----------------------------------------------------------------------------------------------------
  const hatches = {};
  function hatch(number) {
    if (!hatches[number]) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 8;
      const ink = tile.getContext("2d");
      ink.strokeStyle = "rgba(0,0,0,0.28)";
      ink.beginPath();
      if (number % 3 !== 2) { ink.moveTo(-2, 10); ink.lineTo(10, -2); ink.moveTo(-2, 2); ink.lineTo(2, -2); ink.moveTo(6, 10); ink.lineTo(10, 6); }
      if (number % 3 !== 1) { ink.moveTo(-2, -2); ink.lineTo(10, 10); }
      ink.stroke();
      hatches[number] = pen.createPattern(tile, "repeat");
    }
    return hatches[number];
  }

  // first box of a rank (boxes are sorted by rank, then start) that may end after a time; longest[rank] bounds how far back to look
  function firstVisible(view, rank) {
    let low = view.first[rank], high = view.first[rank + 1];
    const earliest = from - view.longest[rank];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (view.start[middle] < earliest) low = middle + 1; else high = middle;
    }
    return low;
  }

  function draw() {
    pen.fillStyle = ink.bg;
    pen.fillRect(0, 0, width, HEIGHT);
    for (const view of data.views) drawView(view);
    drawAxis();
  }

  function drawView(view) {
    pen.font = "600 13px system-ui, sans-serif";
    pen.fillStyle = ink.ink;
    pen.textAlign = "left";
    pen.textBaseline = "middle";
    pen.fillText(view.title, LEFT, view.top - 12);
    const after = LEFT + pen.measureText(view.title).width + 12;
    pen.font = "12px system-ui, sans-serif";
    pen.fillStyle = ink.soft;
    pen.fillText(view.said, after, view.top - 12);
    const every = Math.max(1, Math.round(13 / PITCH));
    for (let rank = 0; rank < view.ranks; rank++) {
      const y = view.top + rank * PITCH;
      if (rank % every === 0) {
        pen.fillStyle = ink.ink;
        pen.font = "11px system-ui, sans-serif";
        pen.textAlign = "right";
        pen.fillText("rank " + rank, LEFT - 8, y + ROW / 2);
        pen.textAlign = "left";
        if (data.memory) { pen.fillStyle = ink.soft; pen.fillText(view.peaks[rank], width - RIGHT + 6, y + ROW + STRIP / 2); }
      }
    }
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, view.top - 2, width - LEFT - RIGHT, view.ranks * PITCH + 4);
    pen.clip();
    if (box("causes").checked) drawGaps(view);
    for (let rank = 0; rank < view.ranks; rank++) drawRank(view, rank);
    if (data.memory) for (let rank = 0; rank < view.ranks; rank++) drawMemory(view, rank);
    if (box("critical").checked) for (const i of view.critical) outline(view, i, ink.bad, 2);
    if (marked && marked.view === view) outline(view, marked.i, ink.ink, 3);
    if (hover && hover.view === view) { outline(view, hover.i, ink.ink, 2); arrow(view, hover.i); }
    pen.restore();
  }

  function drawGaps(view) {
    pen.globalAlpha = ink.dark ? 0.3 : 1; // the tints are made for paper
    for (let g = 0; g < view.gap_start.length; g++) {
      const left = Math.max(LEFT, x(view.gap_start[g])), right = Math.min(width - RIGHT, x(view.gap_end[g]));
      if (right - left < 0.5) continue;
      pen.fillStyle = data.causes[view.gap_cause[g]][1];
      pen.fillRect(left, view.top + view.gap_rank[g] * PITCH, right - left, ROW);
    }
    pen.globalAlpha = 1;
  }

  function drawRank(view, rank) {
    const y = view.top + rank * PITCH, stop = view.first[rank + 1];
    let painted = -1, halfPainted = -1;
    for (let i = firstVisible(view, rank); i < stop && view.start[i] < to; i++) {
      if (!view.compute[i] || view.end[i] < from) continue;
      const left = x(view.start[i]), right = x(view.end[i]);
      if (right - left < 0.6) { // many boxes a pixel: one of each half is enough
        const pixel = Math.round(left * 1.5);
        if (view.half[i] === 2 ? pixel === halfPainted : pixel === painted) continue;
        if (view.half[i] === 2) halfPainted = pixel; else painted = pixel;
      }
      drawBox(view, i, left, right, y);
    }
  }

  function drawBox(view, i, left, right, y) {
    const half = view.half[i], height = half ? ROW / 2 : ROW, at = half === 2 ? y + ROW / 2 : y;
    const wide = right - left, gap = wide > 4 ? 0.8 : 0;
    const colour = view.colours[view.kind[i]][view.chunk[i]];
    pen.fillStyle = colour[0];
    pen.fillRect(left, at, Math.max(0.6, wide - gap), height);
    if (view.slice[i] > 0 && wide > 5) { pen.fillStyle = hatch(view.slice[i]); pen.fillRect(left, at, wide - gap, height); }
    if (half && wide > 5) { pen.strokeStyle = "#222"; pen.lineWidth = 1; pen.strokeRect(left + 0.5, y + 0.5, wide - 1 - gap, ROW - 1); }
    if (view.microbatch[i] < 0 || height < 8) return;
    const text = String(view.microbatch[i]), size = Math.min(half ? 10 : 12, height - 2);
    if (wide < text.length * size * 0.62 + 2) return;
    pen.font = size + "px system-ui, sans-serif";
    pen.fillStyle = colour[1];
    pen.textAlign = "center";
    pen.fillText(text, left + wide / 2, at + height / 2 + 0.5);
  }

  function drawMemory(view, rank) {
    const base = view.top + rank * PITCH + ROW + STRIP, scale = (STRIP - 2) / view.memory_top;
    const first = view.memory_first[rank], stop = view.memory_first[rank + 1];
    pen.fillStyle = "#9aa7b5";
    pen.beginPath();
    pen.moveTo(x(0), base);
    const always = view.base[rank] * scale;
    let level = always, last = -1;
    for (let i = first; i < stop; i++) {
      const px = x(view.memory_time[i]), next = view.memory_value[i] * scale;
      if (px < LEFT - 2) { level = next; continue; }
      if (last < 0) pen.lineTo(Math.max(px, LEFT - 2) - (px > LEFT ? px - LEFT + 2 : 0), base - level);
      pen.lineTo(px, base - level);
      pen.lineTo(px, base - next);
      level = next;
      last = px;
      if (px > width - RIGHT) break;
    }
    if (last < 0) pen.lineTo(LEFT - 2, base - level);
    pen.lineTo(Math.min(width, x(view.makespan)), base - level);
    pen.lineTo(Math.min(width, x(view.makespan)), base);
    pen.closePath();
    pen.fill();
    if (always) { pen.fillStyle = "#5f6d7c"; pen.fillRect(Math.max(LEFT - 2, x(0)), base - always, Math.min(width, x(view.makespan)) - Math.max(LEFT - 2, x(0)), always); }
    const limit = view.limits[rank];
    if (limit !== null) {
      pen.strokeStyle = view.over[rank] ? ink.bad : ink.ink;
      pen.lineWidth = 1;
      pen.setLineDash([5, 3]);
      pen.beginPath();
      pen.moveTo(LEFT, base - limit * scale);
      pen.lineTo(width - RIGHT, base - limit * scale);
      pen.stroke();
      pen.setLineDash([]);
    }
  }

  function outline(view, i, colour, weight) {
    const left = x(view.start[i]), right = x(view.end[i]);
    pen.strokeStyle = colour;
    pen.lineWidth = weight;
    pen.strokeRect(left, view.top + view.rank[i] * PITCH, Math.max(2, right - left), ROW);
  }

  // a line from what decided an op's start to the op
  function arrow(view, i) {
    const j = view.waited[i];
    if (j < 0) return;
    const x0 = x(view.end[j]), y0 = view.top + view.rank[j] * PITCH + ROW / 2;
    const x1 = x(view.start[i]), y1 = view.top + view.rank[i] * PITCH + ROW / 2;
    outline(view, j, ink.soft, 1.5);
    pen.strokeStyle = pen.fillStyle = ink.ink;
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.lineTo(x1, y1);
    pen.stroke();
    pen.beginPath();
    pen.arc(x1, y1, 3, 0, 7);
    pen.fill();
  }

  function drawAxis() {
    const y = HEIGHT - AXIS + 2, span = to - from;
    let step = Math.pow(10, Math.floor(Math.log10(span / 6)));
    for (const factor of [1, 2, 5, 10]) if (span / (step * factor) <= 10) { step *= factor; break; }
    pen.strokeStyle = ink.soft;
    pen.fillStyle = ink.ink;
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(LEFT, y);
    pen.lineTo(width - RIGHT, y);
    for (let n = Math.ceil(from / step); n * step <= to; n++) {
      pen.moveTo(x(n * step), y);
      pen.lineTo(x(n * step), y + 4);
      pen.fillText(String(+(n * step).toPrecision(9)), x(n * step), y + 13);
    }
    pen.stroke();
    pen.textAlign = "left";
    pen.fillText(data.unit, width - RIGHT + 8, y + 1);
  }

  // --- asking ------------------------------------------------------------------------------------------------------
  function name(view, i) {
    const unit = view.unit[i];
    return view.stage[i] + data.kinds[view.kind[i]][0] + (unit < 0 ? "" : unit);
  }
  const said = (time) => +time.toPrecision(7) + " " + data.unit;

  function describe(view, i) {
    const lines = [name(view, i) + "  " + data.kinds[view.kind[i]][1] + (view.half[i] ? ", in a fused pair" : "")];
    lines.push("rank " + view.rank[i] + ", stage " + view.stage[i] + (view.microbatch[i] < 0 ? "" : ", microbatch " + view.microbatch[i])
      + (view.slices > 1 && view.slice[i] >= 0 ? ", slice " + view.slice[i] : ""));
    lines.push(said(view.start[i]) + " to " + said(view.end[i]) + "  (" + said(view.end[i] - view.start[i]) + ")");
    if (view.waited[i] >= 0) lines.push("started after " + name(view, view.waited[i]) + " on rank " + view.rank[view.waited[i]]);
    return lines.join("\n");
  }

  const amount = (value, view) => view.bytes ? (value / 1073741824).toFixed(1) + " GiB" : +value.toPrecision(4) + " microbatches";

  // what a rank holds at a time: the last change before it
  function holds(view, rank, time) {
    let low = view.memory_first[rank], high = view.memory_first[rank + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (view.memory_time[middle] <= time) low = middle + 1; else high = middle;
    }
    const base = view.base[rank], value = low > view.memory_first[rank] ? view.memory_value[low - 1] : base, limit = view.limits[rank];
    const lines = ["rank " + rank + " holds " + amount(value, view) + (limit === null ? "" : " of " + amount(limit, view))];
    if (base) lines.push(amount(base, view) + " all the time, " + amount(value - base, view) + " of activations");
    lines.push("at " + said(time));
    return lines.join("\n");
  }

  function pick(event) {
    const area = canvas.getBoundingClientRect(), px = event.clientX - area.left, py = event.clientY - area.top;
    if (px < LEFT || px > width - RIGHT) return null;
    for (const view of data.views) {
      const rank = Math.floor((py - view.top) / PITCH), inside = py - view.top - rank * PITCH;
      if (rank < 0 || rank >= view.ranks) continue;
      const time = timeAt(px);
      if (inside > ROW) return data.memory && inside <= ROW + STRIP && time <= view.makespan ? { gap: true, text: holds(view, rank, time) } : null;
      for (let i = firstVisible(view, rank); i < view.first[rank + 1] && view.start[i] <= time; i++) {
        if (!view.compute[i] || time > view.end[i]) continue;
        if (view.half[i] && (view.half[i] === 2) !== (inside > ROW / 2)) continue;
        return { view: view, i: i, text: describe(view, i) };
      }
      for (let g = 0; g < view.gap_start.length; g++)
        if (view.gap_rank[g] === rank && view.gap_start[g] <= time && time <= view.gap_end[g])
          return { gap: true, text: "idle: " + data.causes[view.gap_cause[g]][0] + "\n" + said(view.gap_end[g] - view.gap_start[g]) };
    }
    return null;
  }

  function show(event) {
    const hit = pick(event);
    tip.style.display = hit ? "block" : "none";
    if (hit) {
      tip.textContent = hit.text;
      tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px";
    }
    const next = hit && !hit.gap ? hit : null;
    if ((next && next.i) !== (hover && hover.i) || (next && next.view) !== (hover && hover.view)) { hover = next; redraw(); }
  }

  function range(a, b) {
    const least = END * 1e-7, span = Math.min(END, Math.max(least, b - a));
    from = Math.max(0, Math.min(a, END - span));
    to = from + span;
    redraw();
  }

  let matches = [], at = -1, asked = "";
  function search(text) {
    const wanted = text.trim().toUpperCase();
    if (wanted !== asked) {
      asked = wanted;
      matches = [];
      at = -1;
      if (wanted) for (const view of data.views) for (let i = 0; i < view.start.length; i++)
        if (view.compute[i] && name(view, i).toUpperCase() === wanted) matches.push({ view: view, i: i });
    }
    if (!matches.length) { marked = null; found.textContent = wanted ? "no such op" : ""; redraw(); return; }
    at = (at + 1) % matches.length;
    marked = matches[at];
    found.textContent = (at + 1) + " of " + matches.length + ", rank " + marked.view.rank[marked.i];
    const middle = (marked.view.start[marked.i] + marked.view.end[marked.i]) / 2;
    const span = Math.min(to - from, Math.max(END / 50, 30 * (marked.view.end[marked.i] - marked.view.start[marked.i])));
    range(middle - span / 2, middle + span / 2);
    const y = canvas.getBoundingClientRect().top + marked.view.top + marked.view.rank[marked.i] * PITCH;
    if (y < 60 || y > window.innerHeight - 60) window.scrollBy(0, y - window.innerHeight / 2);
  }

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && !fits()) return;
    event.preventDefault();
    const time = timeAt(event.clientX - canvas.getBoundingClientRect().left), factor = Math.exp(event.deltaY * 0.0015);
    range(time - (time - from) * factor, time + (to - time) * factor);
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { px: event.clientX, from: from, to: to }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return show(event);
    const moved = (event.clientX - drag.px) / (width - LEFT - RIGHT) * (drag.to - drag.from);
    range(drag.from - moved, drag.to - moved);
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; if (hover) { hover = null; redraw(); } });
  canvas.addEventListener("dblclick", () => range(0, END));
  canvas.addEventListener("keydown", (event) => {
    const span = to - from, keys = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], "+": [0.15, -0.15], "-": [-0.2, 0.2] };
    if (event.key === "0") range(0, END);
    if (!keys[event.key]) return;
    event.preventDefault();
    range(from + keys[event.key][0] * span, to + keys[event.key][1] * span);
  });
  box("search").addEventListener("input", (event) => search(event.target.value));
  box("search").addEventListener("keydown", (event) => { if (event.key === "Enter") search(event.target.value); });
  box("reset").addEventListener("click", () => range(0, END));
  box("critical").addEventListener("change", redraw);
  box("causes").addEventListener("change", redraw);
  window.addEventListener("resize", resize);

  // --- legend ------------------------------------------------------------------------------------------------------
  function entry(colour, text) {
    const span = document.createElement("span"), mark = document.createElement("i");
    mark.style.background = colour;
    span.append(mark, document.createTextNode(text));
    box("legend").append(span);
  }
  for (const item of data.legend) entry(item[0], item[1]);

  window.addEventListener("clustersim-theme", () => { theme(); draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { theme(); draw(); });
  theme();
  resize();
  window.addEventListener("beforeprint", () => { theme(); resize(); });
  window.clustersimTimeline = { search: search, range: range, data: data, describe: describe };
  document.documentElement.dataset.boxes = data.views.reduce((sum, view) => sum + view.start.length, 0);
  document.documentElement.dataset.readyMs = Math.round(performance.now());
  const ask = new URLSearchParams(location.hash.slice(1));
  if (ask.get("find")) { box("search").value = ask.get("find"); search(ask.get("find")); }
  if (ask.get("critical")) { box("critical").checked = true; redraw(); }
})();
