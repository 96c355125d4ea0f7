(() => {
  // The tables of a walk, written when somebody looks at them: one head of one variant at a time.
  const { data, panels, shade, element, follow } = window.attention;
  const MARKS = new Map([[-32768, "m"], [-32767, "−∞"], [-32766, "nan"], [32767, "inf"]]);
  const sections = data.walks.map((_, place) => document.getElementById(`walk-${place + 1}`));
  const stepOf = (walk, stage) => document.getElementById(`walk-${walk + 1}-${stage}`);
  const made = []; // what follows when a table is written

  const unpacked = new Map();
  /** The cells of all heads of a stage as their texts, `[head][row][column]`, and whether a mask closes them. */
  function cellsOf(walk, stage) {
    const step = data.walks[walk].steps[stage], [heads, rows, columns] = step.shape;
    if (!unpacked.has(step)) {
      const bytes = Uint8Array.from(atob(step.digits), (letter) => letter.charCodeAt(0)).buffer;
      unpacked.set(step, step.wide ? new Float64Array(bytes) : new Int16Array(bytes));
    }
    const numbers = unpacked.get(step), scale = 10 ** step.decimals;
    const cell = (digits) => {
      const mark = step.wide ? undefined : MARKS.get(digits), value = mark === "m" ? 0 : mark === undefined ? digits / scale : NaN;
      const text = mark && mark !== "m" ? mark : Number.isFinite(value) ? value.toFixed(step.decimals).replace("-", "−") : String(value).replace("-Infinity", "−∞").replace("Infinity", "inf").toLowerCase();
      return { text, value, closed: mark !== undefined || !Number.isFinite(value) };
    };
    return (head) => Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => cell(numbers[(head * rows + row) * columns + column])));
  }

  const names = (which, count) => (Array.isArray(which) ? which : (which === "q" ? data.tokens : data.keys).slice(0, count));

  /** The table of one head of a stage in its step; written if it is not there yet. */
  function table(walk, stage, head) {
    const step = stepOf(walk, stage), about = data.walks[walk].steps[stage];
    if (!step || !about || head >= about.shape[0]) return null;
    const there = step.querySelector(`[data-head="${head}"]`);
    if (there) return there;
    const { rows, columns, shape, titled, largest, power, owners } = about, [owner, start] = owners[head] || [], parts = owner ? [[owner, shape[2]]] : about.parts, caption = titled ? fill(words.HEAD, { number: head + 1 }) : "";
    const wide = shape[2] > 6 ? { tabindex: "0", role: "group", "aria-label": `${step.querySelector("h3 var").textContent} ${caption}` } : {};
    const region = element("div", { class: "scroll other", "data-head": head, ...wide }), grid = element("table", { class: shape[2] > 9 ? "heat wide" : "heat" });
    if (caption) grid.append(element("caption", {}, caption));
    const top = grid.createTHead().insertRow(), tokens = !Array.isArray(rows);
    top.append(element("td"));
    names(owner ? Array.from({ length: shape[2] }, (_, place) => String(start + place + 1)) : columns, shape[2]).forEach((name, place) => top.append(element("th", columns === "k" ? { scope: "col", "data-k": place } : { scope: "col" }, name)));
    const body = grid.createTBody(), heading = names(rows, shape[1]);
    cellsOf(walk, stage)(head).forEach((line, row) => {
      const each = body.insertRow();
      if (tokens) each.dataset[rows] = row;
      each.append(element("th", { scope: "row" }, heading[row]));
      line.forEach(({ text, value, closed }, column) => {
        const share = largest && !closed ? Math.min(1, Math.abs(value) / largest) ** power : 0, kind = closed ? "m" : share && value < 0 ? "n" : "";
        const cell = element("td", { ...(kind && { class: kind }), ...(columns === "k" && { "data-k": column }) }, text);
        if (share) cell.style.setProperty("--w", Math.round(100 * share) / 100);
        each.append(cell);
      });
    });
    if (parts.length) {
      const foot = grid.createTFoot().insertRow();
      foot.append(element("td"));
      parts.forEach(([whom, count]) => foot.append(element("th", { colspan: count }, whom)));
    }
    region.append(grid);
    step.querySelector(".tables").append(region);
    made.forEach((next) => next(grid, step, head));
    return region;
  }

  /** A query's answer in a head as a sum of values: the largest eight terms, and what they come to. */
  function sum(walk, head, query) {
    const { panel, title } = data.walks[walk], about = sections[walk].dataset, weights = panels[panel]?.weights, list = sections[walk].querySelector(".sums");
    if (!list || !weights) return;
    const [heads, rows, keys] = panels[panel].shape, line = Array.from(weights.subarray((head * rows + query) * keys, (head * rows + query + 1) * keys));
    const item = element("li", { "data-q": query, "data-head": head }), said = element("span", { class: "sum" }, `${about.sums}${heads > 1 ? ` ${head + 1}` : ""}(${data.tokens[query]}) =`);
    const seen = line.map((weight, key) => [weight, key]).filter(([weight]) => weight !== 0), terms = seen.slice().sort((a, b) => b[0] - a[0]).slice(0, 8).sort((a, b) => a[1] - b[1]);
    if (line.some(Number.isNaN)) said.append(` ${words.NAN_AS_WEIGHTS}`);
    else {
      terms.forEach(([weight, key], place) => {
        const term = element("span", { class: "term", "data-k": key }, `${weight.toFixed(2)} v(${data.keys[key]})`.replace(/^-/, "−"));
        term.style.setProperty("--w", Math.min(1, Math.max(0, weight)));
        said.append(place ? " + " : " ", term);
      });
      const rest = seen.reduce((total, [weight]) => total + weight, 0) - terms.reduce((total, [weight]) => total + weight, 0);
      if (!terms.length) said.append(" 0");
      else if (seen.length > terms.length) said.append(` ${fill(words.OTHER_VALUES, { rest: rest.toFixed(2) })}`);
    }
    item.append(said);
    const context = data.walks[walk].steps.context, whole = context && stepOf(walk, "context").dataset.shape.split(" ").at(-1) <= 8;
    if (whole && query < context.shape[1] && head < context.shape[0] && !line.some(Number.isNaN)) item.append(" ", element("span", { class: "result" }, `= (${cellsOf(walk, "context")(head)[query].map(({ text }) => text).join(", ")})`));
    list.replaceChildren(item);
    made.forEach((next) => next(null, item, head));
  }

  // Steps of the input stand in the first walk that has them, and are read in whichever is shown.
  const stagesOf = (article) => Array.from(article.querySelectorAll(".step"), (step) => step.id.replace(/^walk-\d+-/, ""));
  const inputs = sections.map((section) => Array.from(section.querySelectorAll(".steps > article")).filter((article) => stagesOf(article).some((stage) => /^(x|memory|[Wb]_[^o])$/.test(stage))));
  const lists = sections.map((section) => section.querySelector(".steps"));

  let shown = null;
  follow.marked.push((query) => { if (shown && sections[shown[0]].querySelector(".sums")) sum(shown[0], shown[1], query ?? shown[2]); });

  /** Shows one walk, one head and one query of it, and hides all else. */
  function show(walk, head, query) {
    shown = [walk, head, query];
    const section = sections[walk], share = Number(section.dataset.share) || 1;
    let owner = walk;
    while (owner > 0 && !inputs[owner].length) owner -= 1;
    inputs.forEach((articles, place) => { // an article that stands where it belongs keeps the focus
      const home = lists[place === owner ? walk : place];
      if (articles.length && articles[0].parentNode !== home) home.prepend(...articles);
    });
    sections.forEach((each, place) => each.classList.toggle("chosen", place === walk));
    for (const step of section.querySelectorAll(".step")) {
      const [, number, stage] = /^walk-(\d+)-(.*)$/.exec(step.id), about = data.walks[number - 1].steps[stage], count = about.shape[0];
      const wanted = count === 1 ? 0 : /[kv]$/.test(stage) ? Math.floor(head / share) : head;
      table(number - 1, stage, wanted);
      for (const region of step.querySelectorAll("[data-head]")) region.classList.toggle("other", Number(region.dataset.head) !== wanted);
    }
    lists[walk].classList.toggle("many", data.tokens.length > 8 && !document.getElementById("all-rows")?.checked);
    sum(walk, head, query);
    for (const row of section.querySelectorAll(".steps tr[data-q]")) row.classList.toggle("now", Number(row.dataset.q) === query);
    follow.remark();
  }

  window.attention.steps = { sections, stepOf, cellsOf, table, show, made };
})();
