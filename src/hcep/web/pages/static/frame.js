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
  event.stopImmediatePropagation(); // in a dialog, arrow keys also go from photo to photo
});

// The browser remembers the visitor's name.
document.addEventListener("change", (event) => {
  if (event.target.dataset?.remember === "who") localStorage.setItem("hcep-who", event.target.value);
});
new MutationObserver(() => {
  for (const field of document.querySelectorAll("input[data-remember=who]:not([data-filled])")) {
    field.dataset.filled = "1";
    const kept = localStorage.getItem("hcep-who");
    if (!kept || field.value) continue;
    field.value = kept;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }
}).observe(document.documentElement, { childList: true, subtree: true });

// In the work dialog, C goes to the field for the right answer and W to the reason at once, so that what is typed next
// arrives there. Escape leaves a field, Enter the name and the reason, too; after Enter the right answer is left in the
// moment in which the next photo is shown, so that no later key arrives in the field.
let entered = false;
document.addEventListener("keydown", (event) => {
  const field = document.querySelector({ c: ".work > .search input", w: ".work > .fields input[name=why]" }[event.key] ?? ".none");
  if (event.ctrlKey || event.metaKey || event.altKey || !field) return;
  if (event.target.closest?.("input, textarea, select")) return;
  field.focus();
  field.select();
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  const isName = event.target.matches?.(".work > .search input");
  if (!isName && !event.target.matches?.(".work > .fields input")) return;
  if (event.key === "Escape" || (event.key === "Enter" && !isName)) document.querySelector(".work").focus();
  if (event.key === "Escape") event.stopPropagation(); // it would also close the dialog
  if (event.key === "Enter" && isName) entered = true;
});
new MutationObserver((changes) => {
  if (!entered || !changes.some((change) => change.target.matches?.(".work > .photo-card"))) return;
  entered = false;
  document.querySelector(".work > .search input").value = "";
  document.querySelector(".work").focus();
}).observe(document.documentElement, { childList: true, subtree: true });
document.addEventListener("click", (event) => {
  const field = event.target.closest?.(".work button") && document.querySelector(".work > .search input");
  if (!field?.value) return;
  field.value = "";
  setTimeout(() => field.dispatchEvent(new Event("input"))); // after the click itself
});

// Matches of a name that are drawn again under the keyboard keep it.
let match;
document.addEventListener("focusin", (event) => {
  const list = event.target.closest?.(".matches");
  match = list && { list, button: event.target };
});
new MutationObserver(() => {
  if (match && !match.button.isConnected && document.activeElement === document.body) match.list.querySelector("button")?.focus();
}).observe(document.documentElement, { childList: true, subtree: true });
