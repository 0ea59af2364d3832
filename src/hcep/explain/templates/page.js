"use strict";
(() => {
  const form = document.querySelector("form"), list = document.querySelector("main");
  const cards = [...list.querySelectorAll(".card")], none = document.querySelector(".none");
  const number = (card, key) => Number(card.dataset[key]);
  const orders = {
    given: (a, b) => number(a, "n") - number(b, "n"),
    doubt: (a, b) => number(b, "doubt") - number(a, "doubt") || number(a, "p") - number(b, "p"),
    class: (a, b) => a.dataset.class.localeCompare(b.dataset.class) || number(a, "n") - number(b, "n"),
  };
  const shown = {
    all: () => true,
    doubtful: (card) => card.dataset.doubt !== "0",
    right: (card) => card.dataset.ok === "1",
    wrong: (card) => card.dataset.ok === "0",
  };

  function arrange() {
    const { sort, show, group, text } = form.elements, words = text.value.toLowerCase();
    let n = 0;
    for (const card of cards) {
      const fits = shown[show.value](card) && (!group.value || card.dataset.class === group.value);
      const hidden = !(fits && (!words || card.dataset.file.toLowerCase().includes(words)));
      card.parentElement.hidden = hidden;  // with its caption
      n += hidden ? 0 : 1;
    }
    list.append(...[...cards].sort(orders[sort.value]).map((card) => card.parentElement));
    form.querySelector("output").textContent = `${n} of ${cards.length} shown`;
    none.hidden = n > 0;
  }

  const small = JSON.parse(document.getElementById("small").textContent);
  for (const image of list.querySelectorAll("img[data-t]")) image.src = small[image.dataset.t];

  // Typical photos of a concept stand where the nearest ones do, which are kept beside them.
  function showTypical(card, button) {
    const place = card.querySelector(".like");
    if (!place) return;
    place.nearest ??= { title: place.firstChild.textContent, photos: [...place.lastChild.children] };
    const numbers = button?.dataset.typical?.split(" ") ?? [];
    const photos = numbers.map((number) => {
      const figure = document.createElement("figure"), image = document.createElement("img");
      image.src = small[number];
      image.alt = `training photo: ${button.dataset.name}`;
      figure.append(image);
      return figure;
    });
    place.firstChild.textContent = numbers.length ? `Typical training photos: ${button.dataset.name}` : place.nearest.title;
    place.lastChild.replaceChildren(...(numbers.length ? photos : place.nearest.photos));
    place.hidden = !place.lastChild.children.length;
  }

  // The photo has a map from the start: of the concept with most evidence, or of what was asked.
  function show(card, source, name) {
    const frame = card.querySelector(".frame"), map = card.querySelector(".map");
    if (!map) return;
    map.own ??= { source: map.src, name: card.querySelector(".legend b").textContent };
    map.hidden = source === "";
    frame.classList.toggle("mapped", source !== "");
    map.src = source || map.own.source;
    card.querySelector(".legend b").textContent = source ? name : map.own.name;
  }

  function draw(button) {
    const card = button.closest(".card"), map = button.querySelector("img");
    if (map) show(card, map.src, button.dataset.name);
    else if ("plain" in button.dataset) show(card, "");
    showTypical(card, button);
  }

  function restore(card) {
    const pinned = card.querySelector("[aria-pressed=true]"), map = card.querySelector(".map");
    if (pinned) return draw(pinned);
    if (map?.own) show(card, map.own.source, map.own.name);
    showTypical(card);
  }

  const button = (event) => event.target.closest("[aria-pressed]");
  for (const kind of ["pointerover", "focusin"])
    list.addEventListener(kind, (event) => button(event) && draw(button(event)));
  for (const kind of ["pointerout", "focusout"])
    list.addEventListener(kind, (event) => button(event) && restore(button(event).closest(".card")));
  list.addEventListener("click", (event) => {
    const chosen = button(event);
    if (!chosen) return;
    const on = chosen.getAttribute("aria-pressed") !== "true";
    for (const other of chosen.closest(".card").querySelectorAll("[aria-pressed]"))
      other.setAttribute("aria-pressed", String(other === chosen && on));
    if (on) draw(chosen);
    else restore(chosen.closest(".card"));
  });
  form.addEventListener("input", arrange);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = "story" in list.dataset;  // a story has an order of its own
  arrange();
})();
