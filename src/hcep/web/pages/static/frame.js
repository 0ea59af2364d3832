// Light and dark: as the system has it until the reader chooses, then as chosen. Loaded in the head, before anything is drawn.
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

// Arrow keys between tabs.
document.addEventListener("keydown", (event) => {
  const tab = event.target.closest?.("[role=tab]");
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!tab || !by) return;
  const all = [...tab.parentElement.querySelectorAll("[role=tab]")];
  const next = all.at((all.indexOf(tab) + by) % all.length);
  next.focus();
  next.click();
});
