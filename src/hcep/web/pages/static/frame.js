// Light and dark: follows the system until the visitor chooses. Loaded in the head, before anything is drawn.
(() => {
  const key = "hcep-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (localStorage.getItem(key) ?? (system.matches ? "dark" : "light")) === "dark";
  const show = () => {
    document.documentElement.dataset.theme = isDark() ? "dark" : "light";
    document.querySelector(".toggle")?.setAttribute("aria-pressed", String(isDark()));
    window.setDark?.(isDark());
  };
  show();
  system.addEventListener("change", show);
  addEventListener("storage", show);
  addEventListener("load", show);
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".toggle")) return;
    localStorage.setItem(key, isDark() ? "light" : "dark");
    show();
  });
})();

// Tabs: a click shows the panel, arrow keys go from one to the next.
document.addEventListener("click", (event) => {
  const tab = event.target.closest("[role=tab]");
  for (const one of tab?.parentElement.querySelectorAll("[role=tab]") ?? []) {
    one.setAttribute("aria-selected", String(one === tab));
    one.tabIndex = one === tab ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = one !== tab;
  }
});
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !by) return;
  const all = [...tab.parentElement.querySelectorAll("[role=tab]")];
  const next = all.at((all.indexOf(tab) + by) % all.length);
  next.focus();
  next.click();
});
