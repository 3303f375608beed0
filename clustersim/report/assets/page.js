"use strict";
// The page's own doings: theme, hover texts of drawings that answer at once, all details open in print.
window.clustersimErrors = [];
window.addEventListener("error", (event) => window.clustersimErrors.push(String(event.message)));
(function () {
  const root = document.documentElement, tip = document.getElementById("page-tip");
  document.getElementById("theme").addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    window.dispatchEvent(new Event("clustersim-theme"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => window.dispatchEvent(new Event("clustersim-theme")));
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest ? event.target.closest("svg rect, svg circle, svg path.mark") : null;
    const said = mark && mark.querySelector("title");
    tip.style.display = said ? "block" : "none";
    if (!said) return;
    tip.textContent = said.textContent;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8) + "px";
  });
  const folded = [];
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details:not([open])")) { part.open = true; folded.push(part); }
  });
  window.addEventListener("afterprint", () => { while (folded.length) folded.pop().open = false; });
})();
