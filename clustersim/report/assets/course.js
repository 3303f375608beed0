"use strict";
// The course of a run on a canvas: from all of it down to single steps. Rows: job, saves, failures, nodes down.
(function () {
  const holder = document.getElementById("course-data");
  if (!holder) return;
  const data = JSON.parse(holder.textContent), TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u2: Uint16Array, u1: Uint8Array };
  const a = {};
  for (const name of Object.keys(data.arrays)) {
    const text = atob(data.arrays[name][1]), bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    a[name] = new TYPES[data.arrays[name][0]](bytes.buffer);
  }
  const canvas = document.getElementById("course-canvas"), pen = canvas.getContext("2d", { alpha: false });
  const tip = document.getElementById("page-tip"), status = document.getElementById("course-range");
  const LEFT = 84, RIGHT = 12, ROWS = { job: [8, 34], saves: [50, 16], failures: [74, 20], nodes: [102, 62] }, AXIS = 178, HEIGHT = 204;
  const END = data.wall || 1;
  let width = 0, from = 0, to = END, queued = false, ink = {};
  const mostDown = Math.max(data.spares, a.down_nodes.reduce((most, n) => Math.max(most, n), 0), 1);
  const x = (t) => LEFT + (t - from) / (to - from) * (width - LEFT - RIGHT);
  const timeAt = (px) => from + (px - LEFT) / (width - LEFT - RIGHT) * (to - from);

  function theme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["bg", "panel", "ink", "soft", "line", "bad", "c-train", "c-rework", "c-save", "c-slow", "c-detect", "c-recover", "c-load", "c-wait", "c-other", "c-down"])
      ink[name] = style.getPropertyValue("--" + name).trim();
    draw();
  }
  function resize() {
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    width = canvas.parentElement.clientWidth;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(HEIGHT * scale);
    canvas.style.height = HEIGHT + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    theme();
  }
  function redraw() { if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); } }

  // index of the first entry of a sorted array that is not below a value
  function lower(array, value) {
    let low = 0, high = array.length;
    while (low < high) { const middle = (low + high) >> 1; if (array[middle] < value) low = middle + 1; else high = middle; }
    return low;
  }
  // marks of a sorted list that meet the window: at least half a pixel wide, one a pixel
  function boxes(start, end, y, height, paint) {
    let painted = -1;
    for (let i = Math.max(0, lower(start, from) - 1); i < start.length && start[i] < to; i++) {
      const stop = end(i);
      if (stop < from) continue;
      const left = Math.max(LEFT, x(start[i])), right = Math.min(width - RIGHT, x(stop));
      const pixel = Math.floor(left * 2);
      if (right - left < 0.5 && pixel === painted) continue;
      painted = pixel;
      pen.fillStyle = paint(i);
      pen.fillRect(left, y, Math.max(0.5, right - left), height);
    }
  }
  // spans of a sorted list in their true share of each pixel, so that thousands of short ones look as long as they are
  function shares(start, end, y, height, paint) {
    const cover = new Map();
    let pixel = -1;
    const flush = () => {
      for (const [colour, share] of cover) { pen.fillStyle = colour; pen.globalAlpha = Math.min(1, share); pen.fillRect(pixel, y, 1, height); }
      pen.globalAlpha = 1;
      cover.clear();
    };
    for (let i = Math.max(0, lower(start, from) - 1); i < start.length && start[i] < to; i++) {
      if (end[i] < from) continue;
      const left = Math.max(LEFT, x(start[i])), right = Math.min(width - RIGHT, x(end[i])), colour = paint(i);
      if (right - left < 1) {
        const at = Math.floor(left);
        if (at !== pixel) { flush(); pixel = at; }
        cover.set(colour, (cover.get(colour) || 0) + right - left);
        continue;
      }
      pen.fillStyle = colour;
      pen.fillRect(left, y, right - left, height);
    }
    flush();
  }

  function draw() {
    if (!ink.bg) return;
    pen.fillStyle = ink.bg;
    pen.fillRect(0, 0, width, HEIGHT);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const [name, place] of Object.entries({ job: "job", saves: "saves", failures: "failures", nodes: "nodes down" })) {
      const [y, height] = ROWS[name];
      pen.fillStyle = ink.panel;
      pen.fillRect(LEFT, y, width - LEFT - RIGHT, height);
      pen.fillStyle = ink.ink;
      pen.textAlign = "right";
      pen.fillText(place, LEFT - 8, y + height / 2);
    }
    drawJob();
    drawSaves();
    drawFailures();
    drawNodes();
    drawAxis();
    status.textContent = said(from) + " to " + said(to);
  }
  function drawJob() {
    const [y, height] = ROWS.job;
    shares(a.seg_start, a.seg_end, y, height, () => ink["c-train"]);
    const pixel = (width - LEFT - RIGHT) / (to - from);
    if (data.step * pixel > 5) drawSteps(y, height, pixel);
    shares(a.span_start, a.span_end, y, height, (i) => ink["c-" + data.kinds[a.span_kind[i]][1]]);
  }
  function drawSteps(y, height, pixel) {
    pen.strokeStyle = ink.bg;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.textAlign = "center";
    for (let i = Math.max(0, lower(a.seg_start, from) - 1); i < a.seg_start.length && a.seg_start[i] < to; i++) {
      const first = Math.max(0, Math.floor((from - a.seg_start[i]) / data.step));
      const last = Math.min(Math.ceil((a.seg_end[i] - a.seg_start[i]) / data.step), Math.ceil((to - a.seg_start[i]) / data.step));
      for (let k = first; k < last; k++) {
        const left = x(a.seg_start[i] + k * data.step);
        pen.moveTo(left, y);
        pen.lineTo(left, y + height);
        if (data.step * pixel < 64) continue;
        pen.fillStyle = ink.bg;
        const middle = Math.min(Math.max(left + data.step * pixel / 2, LEFT + 30), width - RIGHT - 30);
        if (middle > left && middle < left + data.step * pixel) pen.fillText("step " + (a.seg_step[i] + k + 1).toLocaleString("en"), middle, y + height / 2);
      }
    }
    pen.stroke();
  }
  function drawSaves() {
    const [y, height] = ROWS.saves;
    boxes(a.save_start, (i) => a.save_start[i] + Math.max(a.save_lag[i], 0), y, height, (i) => a.save_lag[i] < 0 ? ink["c-rework"] : ink["c-save"]);
  }
  function drawFailures() {
    const [y, height] = ROWS.failures;
    boxes(a.hit_time, (i) => a.hit_time[i] + 1.6 / (width - LEFT - RIGHT) * (to - from), y, height, () => ink["c-rework"]);
  }
  function drawNodes() {
    const [y, height] = ROWS.nodes, base = y + height, up = (n) => base - n / mostDown * (height - 6);
    let i = Math.max(0, lower(a.down_time, from) - 1), level = i > 0 || (a.down_time.length && a.down_time[0] < from) ? a.down_nodes[i] : 0;
    pen.fillStyle = ink["c-down"];
    pen.beginPath();
    pen.moveTo(LEFT, base);
    pen.lineTo(LEFT, up(level));
    let high = level, pixel = -1;
    for (; i < a.down_time.length && a.down_time[i] < to; i++) {
      if (a.down_time[i] < from) continue;
      const at = x(a.down_time[i]);
      if (Math.floor(at) !== pixel) { pen.lineTo(at, up(high)); high = level; pixel = Math.floor(at); }
      level = a.down_nodes[i];
      high = Math.max(high, level);
      pen.lineTo(at, up(level));
    }
    pen.lineTo(Math.min(width - RIGHT, x(END)), up(level));
    pen.lineTo(Math.min(width - RIGHT, x(END)), base);
    pen.fill();
    pen.strokeStyle = ink.bad;
    pen.setLineDash([5, 4]);
    pen.beginPath();
    pen.moveTo(LEFT, up(data.spares));
    pen.lineTo(width - RIGHT, up(data.spares));
    pen.stroke();
    pen.setLineDash([]);
    pen.fillStyle = ink.ink;
    pen.textAlign = "left";
    pen.fillText(data.spares + (data.spares === 1 ? " spare" : " spares"), LEFT + 6, Math.max(up(data.spares) + 9, y + 8));
  }
  const UNITS = [[1, "s"], [60, "min"], [3600, "h"], [86400, "d"]];
  function drawAxis() {
    const span = to - from, [unit, name] = UNITS.filter((u) => span >= 4 * u[0]).pop() || [span < 1 ? 1e-3 : 1, span < 1 ? "ms" : "s"];
    const factors = unit === 60 || unit === 1 ? [1, 2, 5, 10, 15, 30, 60, 120, 240] : unit === 3600 ? [1, 2, 3, 6, 12, 24, 48, 96] : [0.1, 0.2, 0.5, 1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365, 730];
    const step = (factors.find((f) => span / (unit * f) <= 10) || span / unit / 8) * unit;
    pen.strokeStyle = ink.soft;
    pen.fillStyle = ink.ink;
    pen.textAlign = "center";
    pen.beginPath();
    pen.moveTo(LEFT, AXIS - 8.5);
    pen.lineTo(width - RIGHT, AXIS - 8.5);
    const origin = span < 43200 ? Math.floor(from / 86400) * 86400 : 0;
    for (let t = Math.ceil((from - origin) / step) * step; t + origin <= to; t += step) {
      const at = x(t + origin);
      pen.moveTo(at, AXIS - 8.5);
      pen.lineTo(at, AXIS - 4);
      pen.fillText(origin || span < 43200 ? clock(t, step) : +(t / unit).toPrecision(6) + " " + name, at, AXIS + 4);
    }
    pen.stroke();
    if (span < 43200) { pen.textAlign = "left"; pen.fillText("day " + (Math.floor(from / 86400) + 1), LEFT, AXIS + 19); }
  }
  function clock(t, step) {
    const two = (n) => String(n).padStart(2, "0"), h = Math.floor(t / 3600 + 1e-9), m = Math.floor(t / 60 + 1e-9) % 60, s = t - Math.floor(t / 60 + 1e-9) * 60;
    const digits = step < 1 ? Math.min(6, Math.ceil(-Math.log10(step))) : 0;
    return two(h % 24) + ":" + two(m) + (step < 60 ? ":" + (s < 9.5 ? "0" : "") + Math.abs(s).toFixed(digits) : "");
  }
  function said(t) {
    return "day " + (Math.floor(t / 86400) + 1) + ", " + clock(t % 86400, to - from < 600 ? 1 : 60);
  }
  function length(s) {
    const [unit, name] = UNITS.filter((u) => s >= u[0]).pop() || [1e-3, "ms"];
    return +(s / unit).toPrecision(3) + " " + name;
  }

  // --- asking ------------------------------------------------------------------------------------------------------
  function within(start, end, t) {
    for (let i = lower(start, t) - 1, tries = 0; i >= 0 && tries < 8; i--, tries++) if (start[i] <= t && t <= end(i)) return i;
    return -1;
  }
  function pick(px, py) {
    if (px < LEFT || px > width - RIGHT) return "";
    const t = timeAt(px), slack = 3 / (width - LEFT - RIGHT) * (to - from), row = Object.keys(ROWS).find((name) => py >= ROWS[name][0] && py <= ROWS[name][0] + ROWS[name][1]);
    if (row === "job") {
      const k = within(a.span_start, (i) => Math.max(a.span_end[i], a.span_start[i] + slack), t);
      if (k >= 0) return data.kinds[a.span_kind[k]][0].replaceAll("_", " ") + "\n" + length(a.span_end[k] - a.span_start[k]) + ", from " + said(a.span_start[k]);
      const i = within(a.seg_start, (n) => a.seg_end[n], t);
      if (i < 0) return "";
      return "training, step " + (a.seg_step[i] + 1 + Math.floor((t - a.seg_start[i]) / data.step + 1e-9)).toLocaleString("en") + "\n" + said(t);
    }
    if (row === "saves") {
      const i = within(a.save_start, (n) => a.save_start[n] + Math.max(a.save_lag[n], slack), t);
      return i < 0 ? "" : "save from " + said(a.save_start[i]) + (a.save_lag[i] < 0 ? "\ncut off: it never counts" : "\ndurable after " + length(a.save_lag[i]));
    }
    if (row === "failures") {
      const i = lower(a.hit_time, t - slack);
      return i < a.hit_time.length && a.hit_time[i] < t + slack ? data.causes[a.hit_cause[i]] + (a.hit_place[i] < 0 ? "" : ", place " + a.hit_place[i]) + "\n" + said(a.hit_time[i]) : "";
    }
    if (row === "nodes") { const i = lower(a.down_time, t) - 1; return (i < 0 ? 0 : a.down_nodes[i]) + " nodes down, " + data.spares + " spares\n" + said(t); }
    return "";
  }
  function range(first, last) {
    const span = Math.min(END, Math.max(Math.min(END, data.step / 4 || 1), last - first));
    from = Math.max(0, Math.min(first, END - span));
    to = from + span;
    redraw();
  }
  function zoom(factor, at) { range(at - (at - from) * factor, at + (to - at) * factor); }
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.0015), timeAt(event.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { px: event.clientX, from: from, to: to }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      const moved = (event.clientX - drag.px) / (width - LEFT - RIGHT) * (drag.to - drag.from);
      range(drag.from - moved, drag.to - moved);
      return;
    }
    const area = canvas.getBoundingClientRect(), text = pick(event.clientX - area.left, event.clientY - area.top);
    event.stopPropagation();
    tip.textContent = text;
    tip.style.display = text ? "block" : "none";
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  });
  canvas.addEventListener("pointerup", () => { drag = null; });
  canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; });
  canvas.addEventListener("dblclick", () => range(0, END));
  canvas.addEventListener("keydown", (event) => {
    const span = to - from, middle = (from + to) / 2;
    const acts = { ArrowLeft: () => range(from - span / 5, to - span / 5), ArrowRight: () => range(from + span / 5, to + span / 5), "+": () => zoom(0.5, middle), "=": () => zoom(0.5, middle), "-": () => zoom(2, middle), "0": () => range(0, END), Home: () => range(0, END) };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
  const press = (id, act) => document.getElementById(id).addEventListener("click", act);
  press("course-in", () => zoom(0.25, (from + to) / 2));
  press("course-out", () => zoom(4, (from + to) / 2));
  press("course-all", () => range(0, END));
  press("course-next", () => {
    const i = lower(a.hit_time, (from + to) / 2 + 1e-6 * (to - from) + 1), t = a.hit_time[i < a.hit_time.length ? i : 0];
    if (t !== undefined) range(t - 450, t + 450);
  });
  press("course-step", () => { const t = (from + to) / 2; range(t - 2 * data.step, t + 2 * data.step); });
  window.addEventListener("resize", resize);
  window.addEventListener("clustersim-theme", theme);
  window.addEventListener("beforeprint", resize);
  resize();
  const root = document.documentElement;
  root.dataset.events = a.seg_start.length + a.span_start.length + a.hit_time.length + a.save_start.length + a.down_time.length;
  root.dataset.courseMs = Math.round(performance.now());
  window.clustersimCourse = { range: range, draw: draw, pick: pick, x: x, wall: END, step: data.step };
})();
