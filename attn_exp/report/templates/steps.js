(() => {
  // Write the tables of a walk when they are first shown: one head of one variant at a time.
  const { data, panels, grid, element, follow } = window.attention;
  const MARKS = new Map([[-32768, "m"], [-32767, "−∞"], [-32766, "nan"], [32767, "inf"]]);
  const sections = data.walks.map((_, place) => document.getElementById(`walk-${place + 1}`));
  const stepOf = (walk, stage) => document.getElementById(`walk-${walk + 1}-${stage}`);
  /** Return the index of a step's walk, and its stage. */
  const placeOf = (step) => { const [, walk, stage] = /^walk-(\d+)-(.*)$/.exec(step.id); return [walk - 1, stage]; };
  /** Return the first row and column of a table in its stage: for long texts, it shows those around the highlighted query. */
  const beginOf = (table) => (table?.parentNode.dataset.from ?? "0 0").split(" ").map(Number);
  const made = []; // callbacks for each table that is written

  /** Format a number with this many decimals; ties round to even, as in the report. */
  function rounded(value, decimals) {
    const text = value.toFixed(decimals), half = Math.abs(value * 10 ** decimals % 1) === 0.5 && /^50*$/.test(value.toFixed(decimals + 60).split(".")[1].slice(decimals));
    const even = half && /[13579]$/.test(text) ? (value - Math.sign(value) * 0.25 * 10 ** -decimals).toFixed(decimals) : text;
    return even.replace(/^-(?=[0.]+$)/, "").replace("-", "−");
  }

  /** The stages that follow from a panel's numbers: those of the run, whatever has been changed. */
  const MADE = {
    scores: ({ scores }, place) => scores[place],
    logits: ({ scores, own }, place) => own * scores[place],
    masked: ({ scores, rest, own }, place) => (rest?.[place] === -Infinity ? -Infinity : own * scores[place] + (rest ? rest[place] : 0)),
    weights: ({ weights }, place) => weights[place],
  };

  const unpacked = new Map();
  /** Return a function that gives the cells of one head of a stage: text, number and whether it is masked; optionally only some rows and columns. */
  function cellsOf(walk, stage) {
    const step = data.walks[walk].steps[stage], [, rows, columns] = step.shape, panel = panels[data.walks[walk].panel];
    if (step.digits && !unpacked.has(step)) {
      const bytes = Uint8Array.from(atob(step.digits), (letter) => letter.charCodeAt(0)).buffer;
      unpacked.set(step, step.wide ? new Float64Array(bytes) : new Int16Array(bytes));
    }
    const numbers = unpacked.get(step), scale = 10 ** step.decimals, made = step.digits ? null : { ...panel, ...panel.first };
    const cell = (head, row, column) => {
      const place = (head * rows + row) * columns + column, digits = made ? MADE[stage](made, place) : numbers[place];
      const mark = made ? stage === "weights" && panel.closed(row * columns + column, head) ? "m" : undefined : step.wide ? undefined : MARKS.get(digits);
      const value = mark === "m" ? 0 : mark !== undefined ? NaN : made ? digits : digits / scale;
      const text = mark && mark !== "m" ? mark : Number.isFinite(value) ? rounded(value, step.decimals) : String(value).replace("-Infinity", "−∞").replace("Infinity", "inf").toLowerCase();
      return { text, value, closed: mark !== undefined || !Number.isFinite(value) };
    };
    return (head, from = [0, 0], count = [rows, columns]) => Array.from({ length: count[0] }, (_, row) => Array.from({ length: count[1] }, (_, column) => cell(head, from[0] + row, from[1] + column)));
  }

  const names = (which, from, count) => (Array.isArray(which) ? which : which === "q" ? data.tokens : data.keys).slice(from, from + count);

  // For long texts, 16 rows of tokens and 16 columns of keys are shown: those around the highlighted query.
  const SIDE = 16, past = data.keys.length - data.tokens.length, among = past >= 0 && data.tokens.every((token, place) => token === data.keys[place + past]);
  const around = { q: 0, k: 0 };
  const begins = (which, count) => ((which === "q" || which === "k") && around[which] < count ? Math.max(0, Math.min(around[which] - SIDE / 2, count - SIDE)) : 0);
  function look(walk, head, query) {
    const panel = panels[data.walks[walk].panel], keys = data.keys.length, start = panel?.weights && (Math.min(head, panel.shape[0] - 1) * panel.shape[1] + query) * keys;
    const line = panel?.weights?.subarray(start, start + keys) ?? []; // elsewhere the key with the largest weight is in the middle
    Object.assign(around, { q: query, k: among ? query + past : Math.max(0, line.indexOf(line.reduce((most, weight) => Math.max(most, weight), 0))) });
  }

  /** Write which rows, columns and heads a step shows. */
  function tell(step, about, many, head) {
    const sizes = step.dataset.shape.split(" ").map(Number), [heads, tall, wide] = step.id.endsWith("-lse") ? [1, ...sizes.reverse()] : [1, 1, 1, ...sizes].slice(-3), [kept, rows, columns] = about.shape;
    const line = (which, all, here, lines) => {
      if (which !== "q" && which !== "k") return here < all ? `${here} of ${all} ${lines}` : "";
      const from = begins(which, here), said = names(which, from, Math.min(SIDE, here));
      if (which === "q" && many && around.q < here) return all > 1 ? `1 of ${all} rows, that of ${data.tokens[around.q]}` : "";
      return said.length < all ? `${lines} ${said[0]} to ${said.at(-1)} of ${all}` : "";
    };
    const shown = [
      kept < heads && !about.owners.length && !about.headRows ? `${kept} of ${heads} heads` : "",
      about.headRows ? `rows ${head * about.headRows + 1} to ${head * about.headRows + rows} of ${tall}` : line(about.rows, tall, rows, "rows"),
      line(about.columns, wide, columns, "columns"),
    ].filter(Boolean);
    let note = step.querySelector(":scope > .note");
    if (!note && shown.length) step.append(note = element("p", { class: "note" }));
    if (note) { note.textContent = `Shown: ${shown.join(", ")}; results.npz has all of them.`; note.hidden = !shown.length; }
  }

  /** Return the table of one head of a stage; write it first if it is missing or shows other keys. */
  function table(walk, stage, head) {
    const step = stepOf(walk, stage), about = data.walks[walk].steps[stage];
    if (!step || !about || head >= about.shape[0]) return null;
    const { rows, columns, owners, largest, power, headRows } = about, byKey = columns === "k", side = (count) => (byKey ? Math.min(SIDE, count) : count);
    const above = headRows * head, from = byKey ? [begins(rows, about.shape[1]), begins("k", about.shape[2])] : [0, 0], [tall, wide] = about.shape.slice(1).map(side);
    const there = step.querySelector(`[data-head="${head}"]`), start = `${above + from[0]} ${from[1]}`;
    if (there && (there.dataset.from ?? "0 0") === start && there.querySelector("tbody").rows.length === tall) return there;
    const [owner, first] = owners[head] || [], caption = about.titled ? `head ${head + 1}` : "", numbered = (count, begin) => Array.from({ length: count }, (_, place) => String(begin + place + 1));
    const cells = cellsOf(walk, stage)(head, from, [tall, wide]);
    const cellAt = (row, column) => {
      const { text, value, closed } = cells[row][column], share = largest && !closed ? Math.min(1, Math.abs(value) / largest) ** power : 0;
      return { text, kind: closed ? "m" : share && value < 0 ? "n" : "", share: Math.round(100 * share) / 100 };
    };
    const region = grid(caption, headRows ? numbered(tall, above) : names(rows, from[0], tall), owner ? numbered(wide, first) : names(columns, from[1], wide), cellAt, {
      label: `${step.querySelector("h3 var").textContent} ${caption}`, row: Array.isArray(rows) ? "" : rows, byKey, from, parts: owner ? [[owner, wide]] : about.parts,
    });
    region.classList.toggle("other", !there || there.classList.contains("other"));
    Object.assign(region.dataset, { head, from: start });
    if (there) there.replaceWith(region); else step.querySelector(".tables").append(region);
    made.forEach((next) => next(region.querySelector("table"), step, head));
    return region;
  }

  /** Write a row of weights as a sum of values: the eight largest terms, and the total weight of the others. */
  function sumOf(name, line) {
    const said = element("span", { class: "sum" }, `${name} =`), two = (number) => number.toFixed(2).replace("-", "−");
    const seen = line.map((weight, key) => [weight, key]).filter(([weight]) => weight !== 0), terms = seen.slice().sort((a, b) => b[0] - a[0]).slice(0, 8).sort((a, b) => a[1] - b[1]);
    if (line.some(Number.isNaN)) said.append(" NaN, like its weights");
    else if (!terms.length) said.append(" 0");
    else terms.forEach(([weight, key], place) => {
      const term = element("span", { class: "term", "data-k": key }, `${two(weight)} v(${data.keys[key]})`);
      term.style.setProperty("--w", Math.min(1, Math.max(0, weight)));
      said.append(place ? " + " : " ", term);
    });
    const total = (pairs) => pairs.reduce((sum, [weight]) => sum + weight, 0);
    if (terms.length && seen.length > terms.length) said.append(` + ${two(total(seen) - total(terms))} of other values`);
    return said;
  }

  /** Write a query's output in a head as a sum of values, with its result. */
  function sum(walk, head, query) {
    const { panel } = data.walks[walk], weights = panels[panel]?.weights, list = sections[walk].querySelector(".sums");
    if (!list) return;
    if (!weights) { list.replaceChildren(element("li", { class: "note" }, "This page has too many weights to write out a sum.")); return; }
    const [heads, rows, keys] = panels[panel].shape, line = Array.from(weights.subarray((head * rows + query) * keys, (head * rows + query + 1) * keys));
    const item = element("li", { "data-q": query, "data-head": head });
    item.append(sumOf(`${sections[walk].dataset.sums}${heads > 1 ? ` ${head + 1}` : ""}(${data.tokens[query]})`, line));
    const context = data.walks[walk].steps.context, width = context && Number(stepOf(walk, "context").dataset.shape.split(" ").at(-1));
    if (width <= 8 && query < context.shape[1] && head < context.shape[0] && !line.some(Number.isNaN)) item.append(" ", element("span", { class: "result" }, `= (${cellsOf(walk, "context")(head)[query].map(({ text }) => text).join(", ")}${context.shape[2] < width ? ", …" : ""})`));
    list.replaceChildren(item);
    made.forEach((next) => next(null, item, head));
  }

  let shown = null;
  follow.marked.push((query) => { if (shown && sections[shown[0]].querySelector(".sums")) sum(shown[0], shown[1], query ?? shown[2]); });

  /** Show one walk with one head and one query, and hide everything else. */
  function show(walk, head, query) {
    shown = [walk, head, query];
    const section = sections[walk], share = Number(section.dataset.share) || 1, many = data.tokens.length > 8 && !document.getElementById("all-rows")?.checked;
    look(walk, head, query);
    sections.forEach((each, place) => each.classList.toggle("chosen", place === walk));
    for (const step of section.querySelectorAll(".step")) {
      const [, stage] = placeOf(step), about = data.walks[walk].steps[stage], count = about.shape[0], wanted = count === 1 ? 0 : /[kv]$/.test(stage) ? Math.floor(head / share) : head;
      table(walk, stage, wanted);
      for (const region of step.querySelectorAll("[data-head]")) {
        region.classList.toggle("other", Number(region.dataset.head) !== wanted);
        region.classList.toggle("fixed", about.rows === "q" && query >= about.shape[1]); // large stages have only their first rows here
      }
      if (about.shape[1] > SIDE && about.columns !== "k" && !Array.isArray(about.rows)) for (const row of step.querySelectorAll("tbody tr")) row.hidden = !(row.rowIndex - 1 >= begins(about.rows, about.shape[1]) && row.rowIndex - 1 < begins(about.rows, about.shape[1]) + SIDE);
      tell(step, about, many, wanted);
    }
    section.querySelector(".steps").classList.toggle("many", many);
    sum(walk, head, query);
    for (const row of section.querySelectorAll(".steps tr[data-q]")) row.classList.toggle("now", Number(row.dataset.q) === query);
    follow.remark();
  }

  window.attention.steps = { sections, stepOf, placeOf, beginOf, cellsOf, table, sumOf, show, made, head: () => shown?.[1] ?? 0 };
})();
