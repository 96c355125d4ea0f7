(() => {
  // Editing by hand: the bar that lists changes, typing, arrow keys, and buttons next to the editor.
  const { live, element, beside, enter } = window.attention;
  if (!live?.show) return;
  const { own, now, late, moving, sections, places, valueOf, called, shownIn, digitsIn, typed, show } = live;
  const button = (text, label) => element("button", { type: "button", ...(label && { "aria-label": label }) }, text);

  // The bar with the changed numbers, and the button that restores them.
  const bar = element("aside", { class: "changed", hidden: "", "aria-label": "Changed numbers" }), said = element("p", { role: "status" });
  const back = button("Back to the run's numbers");
  bar.append(said, back);
  document.getElementById("dock").prepend(bar);
  const isChanged = (cell) => !Object.is(valueOf(places.get(cell)), valueOf(places.get(cell), own));
  const nameOf = ([cell, { name, row, column }]) => [`${name} ${row} ${column}`, cell];
  const changed = () => Array.from(new Map(Array.from(places).reverse().map(nameOf)).values()).reverse().filter(isChanged); // X may be in several walks

  function report() {
    const cells = changed(), numbers = (cell) => `${called(cell)} ${shownIn(cell)} → ${typed(valueOf(places.get(cell)), digitsIn(shownIn(cell)))}`;
    const first = cells.slice(0, 3).map(numbers).join("; "), walks = sections.filter((_, place) => !moving[place]).map((section) => section.querySelector("h2").textContent);
    bar.hidden = !cells.length;
    const more = cells.length > 3 ? ` and ${cells.length - 3} more` : "", stays = [...live.still, ...walks].join(", ");
    said.textContent = `Changed: ${first}${more}. Old numbers are struck out. Grey parts still show the run's numbers from before the change: ${stays}.`;
  }
  live.after.push(report);

  function change(cell, value) {
    const { name, row, column } = places.get(cell);
    now[name][row][column] = value;
    show();
  }
  back.addEventListener("click", () => {
    const [first] = changed();
    for (const name of Object.keys(own)) now[name] = own[name].map((row) => row.slice());
    show();
    enter(first);
  });

  function number(text) {
    const [above, below = "1", more] = text.replaceAll("−", "-").replaceAll(",", ".").split("/").map((part) => part.trim());
    const plain = (part) => /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?$/i.test(part), value = Number(above) / Number(below);
    return more === undefined && plain(above) && plain(below) && Number.isFinite(value) ? value : NaN; // 1/3 too
  }
  const stepOf = ({ name }) => 10 ** (Math.floor(Math.log10(own[name].flat().reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1)) - 1);
  /** Return a number that is `count` steps away, with enough digits for its table and for a step. */
  const nudged = (place, start, count, cell) => {
    const step = stepOf(place), before = (cell.querySelector("ins") || cell.querySelector("del") || cell).textContent;
    const finest = Math.max(digitsIn(before), -Math.floor(Math.log10(step)), 0);
    return finest > 20 ? start + count * step : Number((start + count * step).toFixed(finest));
  };
  function place(box, cell, step) {
    const [at, from] = [cell.getBoundingClientRect(), step.getBoundingClientRect()];
    box.style.top = `${at.bottom - from.top + 3}px`;
    box.style.left = `${Math.max(0, Math.min(at.left - from.left, document.documentElement.clientWidth - from.left - box.offsetWidth - 8))}px`;
  }

  /** Return the buttons below a cell, for touch screens and keyboards without a minus; the editor keeps the focus. */
  function buttonsFor(cell, hands) {
    const box = element("span", { class: "nudge touch" }), { step } = places.get(cell);
    box.append(...hands.map(([text, label, act]) => { const one = button(text, label); one.tabIndex = -1; one.onclick = act; return one; }));
    box.onpointerdown = box.onmousedown = box.onclick = (event) => { event.preventDefault(); event.stopPropagation(); };
    step.append(box);
    place(box, cell, step);
    return box;
  }

  function edit(cell, text) {
    enter(cell);
    const spot = places.get(cell), start = valueOf(spot), input = element("input", { class: "edit", value: text ?? String(start), inputmode: "decimal", autocomplete: "off" });
    input.setAttribute("aria-label", `${called(cell)}, originally ${valueOf(spot, own)}`);
    const take = () => {
      const value = number(input.value);
      input.setAttribute("aria-invalid", String(Number.isNaN(value)));
      if (Number.isNaN(value)) return;
      change(cell, value);
      place(hands, cell, spot.step); // the table may be wider now
    };
    const nudge = (count) => { input.value = String(nudged(spot, valueOf(spot), count, cell)); take(); };
    const turn = () => { input.value = /^[-−]/.test(input.value) ? input.value.slice(1) : `-${input.value}`; take(); };
    const close = (value, stay) => { input.onblur = null; if (!Object.is(valueOf(spot), value)) change(cell, value); input.remove(); hands.remove(); if (stay) enter(cell); };
    input.oninput = take;
    input.onblur = () => close(valueOf(spot), false);
    input.onkeydown = (event) => {
      event.stopPropagation();
      const count = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (count) nudge(count);
      if (event.key === "Enter" && input.getAttribute("aria-invalid") !== "true") close(valueOf(spot), true);
      if (event.key === "Escape") close(start, true);
      if (count || ["Enter", "Escape"].includes(event.key)) event.preventDefault();
    };
    cell.append(input);
    const hands = buttonsFor(cell, [["−", "less", () => nudge(-1)], ["+", "more", () => nudge(1)], ["±", "other sign", turn]]);
    input.focus();
    if (text === undefined) input.select(); else take();
  }

  // Arrow keys move; a click or a tap opens the editor.
  const cellAt = (event) => { const cell = event.target.closest?.("td"); return places.has(cell) ? cell : null; };
  function onKey(event) {
    const cell = cellAt(event);
    if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.startsWith("Arrow")) enter(beside(cell, event.key));
    else if (["Enter", "F2"].includes(event.key)) edit(cell);
    else if (["Backspace", "Delete"].includes(event.key)) change(cell, valueOf(places.get(cell), own));
    else if (/^[-−+.,\d]$/.test(event.key)) edit(cell, event.key);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  live.opened = (table) => {
    table.addEventListener("keydown", onKey);
    table.addEventListener("click", (event) => {
      const cell = cellAt(event);
      event.stopPropagation();
      if (cell && event.target.tagName !== "INPUT") edit(cell);
    });
  };
  new Set(Array.from(places.values(), (place) => place.table)).forEach(live.opened);

  sections.forEach((section, place) => {
    const caption = moving[place] && section.querySelector(".flow figcaption");
    const given = Array.from(section.querySelectorAll(".step:has(.changing) h3 var"), (symbol) => symbol.textContent).join(", ");
    if (late && !given) { if (moving[place]) section.querySelector("h2").after(element("p", { class: "note" }, "Numbers cannot be changed here: the tables show the queries, keys and values as processed, not as given.")); return; }
    caption?.append(element("span", { class: "touch" }, ` Change any number in ${late ? given : "X or W"}, and everything after it is recomputed.`));
  });
})();
