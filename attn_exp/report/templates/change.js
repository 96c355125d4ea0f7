(() => {
  // Recompute everything after a changed input, and show it next to the run's own numbers.
  const { data, panels, variants, live, shade, element, steps: tables } = window.attention;
  if (!live) return;
  const { own, now, plans, before } = live, { placeOf, beginOf } = tables, steps = (selector) => Array.from(document.querySelectorAll(selector));
  const same = (one, other) => Object.is(one, other) || Math.abs(one - other) <= 1e-12 * Math.max(1, Math.abs(other));
  const written = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : Number.isNaN(value) ? "nan" : value < 0 ? "−∞" : "inf");
  const shownIn = (cell) => (cell.querySelector("del") || cell).textContent;
  const digitsIn = (text) => (text.split(".")[1] || "").length;
  const tablesOf = (step) => Array.from(step.querySelectorAll("[data-head]"), (region) => [Number(region.dataset.head), region.querySelector("table")]);
  const cellsOf = (table) => Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells).slice(1));
  const sections = plans.map((_, place) => document.getElementById(`walk-${place + 1}`));
  /** The first column of each table of a step, if there is one table for the columns of each head. */
  const startsOf = (step) => data.walks[placeOf(step)[0]].steps[stageOf(step)].owners.map(([, start]) => start);
  const stageOf = (step) => placeOf(step)[1];

  /** Whether the script computes the same numbers as the run; otherwise a walk cannot be changed. */
  const agrees = (walk, stages) => Object.entries(data.walks[walk].steps).every(([stage, { shape }]) => {
    if (!stages[stage] || own[stage]) return true;
    const cells = tables.cellsOf(walk, stage);
    return Array.from({ length: shape[0] }, (_, head) => head).every((head) => cells(head).every((row, place) => row.every(({ text }, column) => {
      const value = stages[stage][head]?.[place]?.[column], shown = text === "nan" ? NaN : Number(text.replace("−", "-").replace("∞", "Infinity").replace("inf", "Infinity"));
      return Object.is(shown, value) || shown === value || Math.abs(shown - value) <= 0.5000001 * 10 ** -digitsIn(text) + 1e-12 * Math.abs(shown);
    })));
  });
  const moving = plans.map((plan, place) => (plan && agrees(place, before(plan)) ? plan : null));
  plans.forEach((plan, place) => {
    if (plan && !moving[place]) sections[place].querySelector("h2").after(element("p", { class: "note" }, "Numbers cannot be changed here: this page's results would differ from the run's."));
  });
  for (const row of live.rows) {
    const answer = variants.find(({ name }) => name === row.variant)?.answer, output = row.plan && before(row.plan).output?.flat(2);
    const parts = output && answer?.length && !output.every((value, place) => Object.is(value, answer[place]) || Math.abs(value - answer[place]) <= 1e-9 * Math.max(1, Math.abs(value)));
    if (parts || plans.some((plan, place) => plan === row.plan && !moving[place])) row.plan = null;
  }
  if (!moving.some(Boolean)) return;

  // Find the cells of the input numbers.
  const places = new Map();
  const late = !own.x;
  /** Whether a walk shows queries, keys or values as given: not rotated, and not shared by heads. */
  const asGiven = (plan, name) => plan && !(plan.turns.length && "qk".includes(name)) && (!"kv".includes(name) || (plan.heads[1] === plan.heads[2] && !plan.tiled));
  for (const name of Object.keys(own)) {
    if (name.endsWith("_o") && !moving.some((plan) => plan?.mixed)) continue;
    data.walks.forEach(({ steps: all }, walk) => all[name]?.shape[0] && Array.from({ length: all[name].shape[0] }, (_, head) => tables.table(walk, name, head)));
    for (const step of steps(`.walk article [id$="-${name}"]`)) {
      if (late && !asGiven(moving[placeOf(step)[0]], name)) continue;
      for (const [head, table] of tablesOf(step)) open(step, name, head, table);
    }
  }
  /** Make the cells of a table editable. */
  function open(step, name, head, table) {
    const width = Number(step.dataset.shape.split(" ").at(-1)), [top, left] = beginOf(table), from = startsOf(step)[head] ?? (late && name !== "weights" ? head * width : left);
    for (const [cell, place] of places) if (!cell.isConnected && place.step === step) places.delete(cell);
    cellsOf(table).forEach((row, place) => row.forEach((cell, column) => places.set(cell, { name, row: top + place, column: column + from, table, step })));
    table.classList.add("changing");
    table.setAttribute("role", "grid");
    table.setAttribute("aria-label", `${step.querySelector("h3 var").textContent}${table.caption ? `, ${table.caption.textContent}` : ""}: type to change a number, Escape undoes it`);
    cellsOf(table)[0][0].tabIndex = 0;
  }
  const valueOf = ({ name, row, column }, arrays = now) => arrays[name][row][column];
  const called = (cell) => `${places.get(cell).step.querySelector("h3 var").textContent}[${[cell.parentNode.cells[0].textContent, places.get(cell).table.tHead.rows[0].cells[cell.cellIndex].textContent].filter(Boolean).join(", ")}]`;

  // Show the run's number and the new one in a cell.
  function beside(cell, text) {
    if (!cell.querySelector("ins")) {
      const old = element("del");
      old.append(...Array.from(cell.childNodes).filter((node) => node.tagName !== "INPUT"));
      cell.prepend(old, " ", element("ins"));
      cell.dataset.classes = cell.className;
    }
    cell.querySelector("ins").textContent = text;
    cell.classList.add("moved");
  }

  function write(cell, text, value, share) {
    if (text === shownIn(cell)) return restore(cell);
    beside(cell, text);
    cell.querySelector("ins").toggleAttribute("data-whole", Number(text.replaceAll("−", "-")) === value);
    cell.classList.remove("m", "n");
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

  /** Return the number of decimals of a stage in the run, or more if its new numbers need more. */
  function digits(heads, least) {
    const all = heads.flat(2).filter(Number.isFinite), largest = all.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (least > 1) return least; // the table keeps its digits
    const most = largest ? Math.min(8, Math.max(0, 3 - Math.floor(Math.log10(largest)))) : 0;
    let exact = 0;
    while (exact < most && all.some((value) => Math.abs(Number(value.toFixed(exact)) - value) > 1e-12)) exact += 1;
    return Math.max(least, exact);
  }

  /** Format a typed number with at least as many decimals as its table; 1/3 and the like get four. */
  const typed = (value, least) => {
    const text = String(value), long = digitsIn(text) > 8 && Math.abs(value) >= 1e-4;
    return /e/.test(text) ? text.replaceAll("-", "−") : written(value, long ? Math.max(least, 4) : Math.max(least, digitsIn(text)));
  };

  function paint(table, old, heads, head, least, exact, weights) {
    const largest = old.flat(2).filter(Number.isFinite).reduce((most, value) => Math.max(most, Math.abs(value)), 0), places = digits(heads, least), [top, left] = beginOf(table);
    cellsOf(table).forEach((row, place) => row.forEach((cell, column) => {
      const value = (heads[head] ?? heads[0])[top + place][left + column];
      if (same(value, (old[head] ?? old[0])[top + place][left + column])) restore(cell); else write(cell, exact ? typed(value, least) : written(value, places), value, shade(value, largest, weights));
    }));
  }

  function paintTable(step, head, table, old, heads, exact = false) {
    const first = cellsOf(table)[0];
    paint(table, old, heads, head, digitsIn(shownIn(first.find((cell) => shownIn(cell).includes(".")) || first[0])), exact, stageOf(step) === "weights");
  }
  function paintStep(step, old, heads, exact = false) {
    if (heads) for (const [head, table] of tablesOf(step)) paintTable(step, head, table, old, heads, exact);
  }

  // Update each token's output as a sum of values.
  const sums = new Map();
  function tell(item, plan, stages, old) {
    const [row, head] = [Number(item.dataset.q), Number(item.dataset.head)], weights = stages.weights[head][row];
    if (!sums.has(item)) sums.set(item, Array.from(item.childNodes));
    if (weights.every((weight, key) => same(weight, old.weights[head][row][key])) && stages.context[head][row].every((value, place) => same(value, old.context[head][row][place]))) return item.replaceChildren(...sums.get(item));
    const [kept, result] = ["sum", "result"].map((name) => sums.get(item).find((node) => node.className === name)), values = stages.context[head][row].map((value) => written(value, 4)).join(", ");
    item.replaceChildren(tables.sumOf(kept.textContent.split(" =")[0], weights), ...(result ? [" ", element("del", { class: "result" }, result.textContent), " ", element("ins", { class: "result" }, `= (${values})`)] : []));
  }

  function follow(plan, place) {
    const section = sections[place], stages = live.stages(plan), old = before(plan);
    for (const step of section.querySelectorAll(".step")) {
      const stage = stageOf(step);
      if (late || !own[stage]) paintStep(step, old[stage], stages[stage], Boolean(own[stage]) && asGiven(plan, stage));
    }
    section.querySelectorAll(".sums li").forEach((item) => tell(item, plan, stages, old));
  }

  /** Update the weights of a panel, which are those of its first variant. */
  function followPanel(panel, place) {
    const shown = variants.find((variant) => variant.panel === place), plan = live.rows.find(({ variant }) => variant === shown?.name)?.plan;
    const stages = plan && live.stages(plan);
    if (!stages?.weights) return;
    panel.first ??= { weights: panel.weights.slice(), scores: panel.scores?.slice() };
    panel.weights.set(stages.weights.flat(2));
    if (stages.scores) panel.scores?.set(stages.scores.flat(2));
  }

  // Tables that are written later are updated when they are written.
  tables.made.push((table, element, head) => {
    const was = table && Array.from(places.values()).find(({ step }) => step === element);
    if (was) live.opened?.(open(element, was.name, head, table) ?? table);
    const walk = Number(/walk-(\d+)/.exec(element.id || element.closest(".walk").id)[1]) - 1, plan = moving[walk];
    if (!plan || !live.changed().length) return;
    const [stages, old, stage] = [live.stages(plan), before(plan), table && stageOf(element)];
    if (table && own[stage] && !late) paintTable(element, head, table, parted(element, own[stage]), parted(element, now[stage]), true);
    if (!table) tell(element, plan, stages, old);
    else if (stages[stage] && (late || !own[stage])) paintTable(element, head, table, old[stage], stages[stage], Boolean(own[stage]) && asGiven(plan, stage));
  });

  const parted = (step, rows) => (startsOf(step).length ? startsOf(step).map((start) => rows.map((row) => row.slice(start))) : [rows]);

  function show() {
    live.forget();
    for (const [name, rows] of Object.entries(own)) if (!late) for (const step of steps(`.walk article [id$="-${name}"]`)) paintStep(step, parted(step, rows), parted(step, now[name]), true);
    moving.forEach((plan, place) => { if (plan) follow(plan, place); });
    panels.forEach(followPanel);
    for (const { variant, plan } of live.rows) {
      const output = plan && live.stages(plan).output, shown = variants.find(({ name }) => name === variant);
      if (output) shown?.answer.set(output.flat(2).slice(0, shown.answer.length));
    }
    live.after.forEach((next) => next());
    window.attention.refresh();
    window.attention.explain?.();
  }

  Object.assign(live, { late, moving, sections, places, valueOf, called, same, shownIn, digitsIn, typed, beside, restore, show });
})();
