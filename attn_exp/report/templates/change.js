(() => {
  // A number that the run starts from can be changed: what follows is computed anew, beside the run's own numbers.
  const { data, panels, variants, live } = window.attention;
  if (!live) return;
  const { own, now, plans, compute } = live, steps = (selector) => Array.from(document.querySelectorAll(selector));
  const made = (name, attributes = {}, text = "") => { const element = Object.assign(document.createElement(name), attributes); if (text) element.textContent = text; return element; };
  const same = (one, other) => Object.is(one, other) || Math.abs(one - other) <= 1e-12 * Math.max(1, Math.abs(other));
  const written = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : Number.isNaN(value) ? "nan" : value < 0 ? "−∞" : "inf");
  const shownIn = (cell) => (cell.querySelector("del") || cell).textContent;
  const digitsIn = (text) => (text.split(".")[1] || "").length;
  const tablesOf = (step) => Array.from(step.querySelectorAll("[data-head]"), (region) => [Number(region.dataset.head), region.querySelector("table")]);
  const cellsOf = (table) => Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells).slice(1));
  const sections = plans.map((_, place) => document.getElementById(`walk-${place + 1}`));
  const stageOf = (step) => /^walk-\d+-(.*)$/.exec(step.id)[1];

  /** A script that parts from the run would teach something wrong: such a walk stays as it is. */
  const agrees = (section, stages) => Array.from(section.querySelectorAll(".step")).every((step) => {
    const heads = stages[stageOf(step)];
    return !heads || own[stageOf(step)] || tablesOf(step).every(([head, table]) => cellsOf(table).every((row, place) => row.every((cell, column) => {
      const text = cell.textContent, value = heads[head]?.[place]?.[column];
      const shown = text === "nan" ? NaN : Number(text.replace("−", "-").replace("∞", "Infinity"));
      return Object.is(shown, value) || shown === value || Math.abs(shown - value) <= 0.5000001 * 10 ** -digitsIn(text) + 1e-12 * Math.abs(shown);
    })));
  });
  const before = plans.map((plan) => plan && compute(plan, own));
  const moving = plans.map((plan, place) => (plan && agrees(sections[place], before[place]) ? plan : null));
  plans.forEach((plan, place) => {
    if (plan && !moving[place]) sections[place].querySelector("h2").after(made("p", { className: "note" }, "Numbers cannot be changed here: this page would compute others than the run."));
  });
  if (!moving.some(Boolean)) return;

  // Which cells hold which numbers of the start.
  const places = new Map();
  const late = !own.x, apart = (plan) => plan && plan.heads[1] === plan.heads[2] && !plan.tiled && !plan.turns.length;
  for (const name of Object.keys(own)) {
    if (name.endsWith("_o") && !moving.some((plan) => plan?.mixed)) continue;
    for (const step of steps(`.walk article [id$="-${name}"]`)) {
      if (late && !apart(moving[Number(/\d+/.exec(step.id)[0]) - 1])) continue;
      for (const [head, table] of tablesOf(step)) {
        const width = Number(step.dataset.shape.split(" ").at(-1)), from = late && name !== "weights" ? head * width : 0;
        cellsOf(table).forEach((row, place) => row.forEach((cell, column) => places.set(cell, { name, row: place, column: column + from, table, step })));
        table.classList.add("changing");
        table.setAttribute("role", "grid");
        table.setAttribute("aria-label", `${step.querySelector("h3 var").textContent}${table.caption ? `, ${table.caption.textContent}` : ""}: type to change a number, Escape takes it back`);
        cellsOf(table)[0][0].tabIndex = 0;
      }
    }
  }
  const valueOf = ({ name, row, column }, arrays = now) => arrays[name][row][column];
  const called = (cell) => `${places.get(cell).step.querySelector("h3 var").textContent}[${[cell.parentNode.cells[0].textContent, places.get(cell).table.tHead.rows[0].cells[cell.cellIndex].textContent].filter(Boolean).join(", ")}]`;

  // A cell with the run's own number and the new one.
  function write(cell, text, value, share) {
    if (text === shownIn(cell)) return restore(cell);
    if (!cell.querySelector("ins")) {
      const old = made("del");
      old.append(cell.firstChild);
      cell.prepend(old, " ", made("ins"));
      cell.dataset.classes = cell.className;
    }
    cell.querySelector("ins").textContent = text;
    cell.classList.remove("m", "n");
    cell.classList.add("moved");
    cell.classList.toggle(Number.isFinite(value) ? "n" : "m", !(value >= 0));
    cell.style.setProperty("--w", Math.min(1, share));
  }

  function restore(cell) {
    const old = cell.querySelector("del");
    if (!old) return;
    old.nextSibling.remove();
    cell.querySelector("ins").remove();
    old.replaceWith(...old.childNodes);
    cell.className = cell.dataset.classes;
    cell.style.removeProperty("--w");
  }

  /** As many decimals as a stage has in the run, and more where its new numbers need them. */
  function digits(heads, least) {
    const all = heads.flat(2).filter(Number.isFinite), largest = all.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const most = largest ? Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest)))) : 0;
    let exact = 0;
    while (exact < most && all.some((value) => Math.abs(Number(value.toFixed(exact)) - value) > 1e-12)) exact += 1;
    return Math.max(least, exact);
  }

  /** A number as somebody typed it, with no fewer decimals than its table has. */
  const typed = (value, least) => (/e/.test(String(value)) ? String(value).replaceAll("-", "−") : written(value, Math.max(least, digitsIn(String(value)))));

  function paint(region, table, old, heads, head, least, exact = false, weights = region) {
    const largest = old.flat(2).filter(Number.isFinite).reduce((most, value) => Math.max(most, Math.abs(value)), 0), places = digits(heads, least);
    cellsOf(table).forEach((row, place) => row.forEach((cell, column) => {
      const value = heads[head][place][column];
      if (same(value, old[head][place][column])) restore(cell); else write(cell, exact ? typed(value, least) : written(value, region ? least : places), value, weights ? Math.sqrt(Math.max(value, 0) / data.top) : largest ? Math.abs(value) / largest : 0);
    }));
  }

  function paintStep(step, old, heads, exact = false) {
    if (heads) for (const [head, table] of tablesOf(step)) paint(false, table, old, heads, head, digitsIn(shownIn(cellsOf(table)[0].find((cell) => shownIn(cell).includes(".")) || cellsOf(table)[0][0])), exact, stageOf(step) === "weights");
  }

  // Each token's answer as a sum of values, told anew.
  const sums = new Map();
  function tell(item, plan, stages, old) {
    const [row, head] = [Number(item.dataset.q), Number(item.dataset.head)], weights = stages.weights[head][row];
    if (!sums.has(item)) sums.set(item, Array.from(item.childNodes));
    if (weights.every((weight, key) => same(weight, old.weights[head][row][key])) && stages.context[head][row].every((value, place) => same(value, old.context[head][row][place]))) return item.replaceChildren(...sums.get(item));
    const kept = sums.get(item).find((node) => node.className === "sum"), line = made("span", { className: "sum" }, `${kept.textContent.split(" =")[0]} =`);
    const terms = weights.map((weight, key) => [weight, key]).filter(([weight]) => weight !== 0).sort((a, b) => b[0] - a[0]).slice(0, 8).sort((a, b) => a[1] - b[1]);
    terms.forEach(([weight, key], place) => {
      const term = made("span", { className: "term" }, `${written(weight, 2)} v(${data.keys[key]})`);
      term.dataset.k = key;
      term.style.setProperty("--w", Math.min(1, Math.max(0, weight)));
      line.append(place ? " + " : " ", term);
    });
    const rest = weights.reduce((sum, weight) => sum + weight, 0) - terms.reduce((sum, [weight]) => sum + weight, 0);
    if (!terms.length) line.append(weights.some(Number.isNaN) ? " NaN, as its weights are" : " 0");
    else if (weights.filter((weight) => weight !== 0).length > terms.length) line.append(` + ${written(rest, 2)} of other values`);
    const result = sums.get(item).find((node) => node.className === "result"), values = stages.context[head][row].map((value) => written(value, 4)).join(", ");
    item.replaceChildren(line, ...(result ? [" ", made("del", { className: "result" }, result.textContent), " ", made("ins", { className: "result" }, `= (${values})`)] : []));
  }

  function show() {
    for (const [name, rows] of Object.entries(own)) if (!late) for (const step of steps(`.walk article [id$="-${name}"]`)) paintStep(step, [rows], [now[name]], true);
    moving.forEach((plan, place) => {
      if (!plan) return;
      const stages = compute(plan, now), section = sections[place], panel = panels[section.dataset.panel];
      for (const step of section.querySelectorAll(".step")) if (late || !own[stageOf(step)]) paintStep(step, before[place][stageOf(step)], stages[stageOf(step)], Boolean(own[stageOf(step)]));
      section.querySelectorAll(".sums li").forEach((item) => tell(item, plan, stages, before[place]));
      variants.forEach((variant) => { if (variant.letter === plan.letter && stages.output) variant.answer.set(stages.output.flat(2).slice(0, variant.answer.length)); });
      if (!panel || !stages.weights) return;
      panel.weights.set(stages.weights.flat(2));
      panel.scores?.set(stages.scores.flat(2));
      steps(`#weights [data-panel="${section.dataset.panel}"] [data-head]`).forEach((region) => paint(true, region.querySelector("table"), before[place].weights, stages.weights, Number(region.dataset.head), 2));
    });
    window.attention.refresh();
    window.attention.explain?.();
    report();
  }

  // What was changed, the way back, and the command.
  const bar = made("aside", { className: "changed", hidden: true }), said = made("p"), command = made("textarea", { readOnly: true, rows: 4, hidden: true, spellcheck: false });
  const [back, how, copy] = ["Back to the run's numbers", "Command", "Copy"].map((text) => made("button", { type: "button" }, text));
  bar.setAttribute("aria-label", "Changed numbers");
  said.setAttribute("role", "status");
  command.setAttribute("aria-label", "The command that computes these numbers");
  how.setAttribute("aria-expanded", "false");
  copy.hidden = true;
  bar.append(said, back, ...(data.live.command ? [how, copy] : []), command);
  document.getElementById("dock").prepend(bar);
  const changed = () => Array.from(new Map(Array.from(places).reverse().map(([cell, { name, row, column }]) => [`${name} ${row} ${column}`, cell])).values())
    .reverse().filter((cell) => !Object.is(valueOf(places.get(cell)), valueOf(places.get(cell), own))); // X may stand in several walks

  function report() {
    const cells = changed(), numbers = (cell) => `${called(cell)} ${shownIn(cell)} → ${typed(valueOf(places.get(cell)), digitsIn(shownIn(cell)))}`;
    bar.hidden = !cells.length;
    const still = moving.map((plan, place) => (plan ? "" : sections[place].querySelector("h2").textContent.split(", step")[0])).filter(Boolean);
    said.textContent = `Changed: ${cells.slice(0, 3).map(numbers).join("; ")}${cells.length > 3 ? ` and ${cells.length - 3} more` : ""}. Old numbers are struck out; the comparison and the figures stay those of the run${still.length ? `, and so does ${still.join(", ")}` : ""}.`;
    if (!command.hidden) command.value = live.line();
  }

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
  how.addEventListener("click", () => {
    command.hidden = copy.hidden = !command.hidden;
    how.setAttribute("aria-expanded", String(!command.hidden));
    report();
    if (!command.hidden) { command.focus(); command.select(); }
  });
  copy.addEventListener("click", () => { command.select(); document.execCommand("copy"); copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); });

  // Typing, arrows and dragging.
  const number = (text) => { const plain = text.trim().replace("−", "-").replace(",", "."); return /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,2})?$/i.test(plain) ? Number(plain) : NaN; };
  const stepOf = ({ name }) => { const largest = own[name].flat().reduce((most, value) => Math.max(most, Math.abs(value)), 0); return 10 ** (Math.floor(Math.log10(largest || 1)) - 1); };
  const nudged = (place, start, count) => Number((start + count * stepOf(place)).toPrecision(12));
  function enter(cell) {
    places.get(cell).table.querySelectorAll("td[tabindex='0']").forEach((other) => { other.tabIndex = -1; });
    cell.tabIndex = 0;
    cell.focus();
  }

  function edit(cell, text) {
    enter(cell);
    const place = places.get(cell), start = valueOf(place), input = made("input", { className: "edit", value: text ?? String(start), inputMode: "decimal", autocomplete: "off" });
    input.setAttribute("aria-label", `${called(cell)}, in the run ${valueOf(place, own)}`);
    const take = () => { const value = number(input.value); input.setAttribute("aria-invalid", String(Number.isNaN(value))); if (!Number.isNaN(value)) change(cell, value); };
    const close = (value, stay) => { input.onblur = null; if (valueOf(place) !== value) change(cell, value); input.remove(); if (stay) enter(cell); };
    input.oninput = take;
    input.onblur = () => close(valueOf(place), false);
    input.onkeydown = (event) => {
      event.stopPropagation();
      const count = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (count) { input.value = String(nudged(place, valueOf(place), count)); take(); }
      if (event.key === "Enter" && input.getAttribute("aria-invalid") !== "true") close(valueOf(place), true);
      if (event.key === "Escape") close(start, true);
      if (count || ["Enter", "Escape"].includes(event.key)) event.preventDefault();
    };
    cell.append(input);
    input.focus();
    if (text === undefined) input.select(); else take();
  }

  const cellAt = (event) => { const cell = event.target.closest?.("td"); return places.has(cell) ? cell : null; };
  let dragged = null;
  for (const table of new Set(Array.from(places.values(), (place) => place.table))) {
    table.addEventListener("keydown", (event) => {
      const cell = cellAt(event), rows = table.tBodies[0].rows;
      const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] || [0, 0];
      if (!cell || event.ctrlKey || event.metaKey || event.altKey) return;
      if (down || right) { const next = rows[cell.parentNode.sectionRowIndex + down]?.cells[cell.cellIndex + right]; if (places.has(next)) enter(next); }
      else if (["Enter", "F2"].includes(event.key)) edit(cell);
      else if (["Backspace", "Delete"].includes(event.key)) change(cell, valueOf(places.get(cell), own));
      else if (/^[-−+.,\d]$/.test(event.key)) edit(cell, event.key);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    table.addEventListener("pointerdown", (event) => {
      const cell = cellAt(event);
      if (cell && event.button === 0 && event.target.tagName !== "INPUT") dragged = { cell, y: event.clientY, start: valueOf(places.get(cell)), moved: false, still: event.pointerType === "touch" };
    });
    table.addEventListener("click", (event) => {
      const cell = cellAt(event), moved = dragged?.moved;
      dragged = null;
      event.stopPropagation();
      if (cell && !moved && event.target.tagName !== "INPUT") edit(cell);
    });
  }
  document.addEventListener("pointermove", (event) => {
    const far = dragged && dragged.y - event.clientY;
    if (!dragged || dragged.still || (!dragged.moved && Math.abs(far) < 4)) return;
    if (!dragged.moved) dragged.cell.setPointerCapture(event.pointerId);
    dragged.moved = true;
    change(dragged.cell, nudged(places.get(dragged.cell), dragged.start, Math.round(far / 4)));
  });
  document.addEventListener("pointerup", () => { if (dragged?.moved) { enter(dragged.cell); } else if (dragged?.still) dragged = null; });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && dragged?.moved) { change(dragged.cell, dragged.start); dragged = null; } });

  sections.forEach((section, place) => {
    const caption = moving[place] && section.querySelector(".flow figcaption");
    caption?.append(made("span", { className: "touch" }, ` Type over a number of ${late ? "the first tables" : "X or W"}, or drag it up or down, and all that follows is computed anew.`));
  });
})();
