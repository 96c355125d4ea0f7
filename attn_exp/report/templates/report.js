(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // Numbers travel as the bytes of float64, so that the page computes with exactly the run's own.
  const floats = (text) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float64Array(bytes.buffer);
  };
  const panels = data.panels.map((panel) => ({
    ...panel,
    weights: floats(panel.weights),
    scores: panel.scores && floats(panel.scores),
    rest: panel.rest && floats(panel.rest),
  }));
  const variants = data.variants.map((variant) => ({ ...variant, answer: floats(variant.answer) }));

  /** The weights softmax(multiplier * scores + rest) of a panel, heads, queries and keys in one array. */
  function weightsAt(panel, multiplier) {
    const [heads, rows, keys] = panel.shape;
    const weights = new Float64Array(heads * rows * keys);
    for (let start = 0; start < weights.length; start += keys) {
      let largest = -Infinity;
      for (let key = start; key < start + keys; key++) {
        weights[key] = multiplier * panel.scores[key] + (panel.rest ? panel.rest[key] : 0);
        if (panel.rest && panel.rest[key] === -Infinity) weights[key] = -Infinity;
        largest = Math.max(largest, weights[key]);
      }
      let total = 0;
      for (let key = start; key < start + keys; key++) {
        weights[key] = largest === -Infinity ? 0 : Math.exp(weights[key] - largest);
        total += weights[key];
      }
      for (let key = start; total && key < start + keys; key++) weights[key] /= total;
    }
    return weights;
  }

  /** The mean entropy of rows of weights, in nats. */
  function meanEntropy(weights, keys) {
    let total = 0;
    for (const weight of weights) if (weight > 0) total -= weight * Math.log(weight);
    return total / (weights.length / keys);
  }

  /** The most that it can be: each query shares evenly among the keys that it may see. */
  function mostEntropy(panel) {
    const [heads, rows, keys] = panel.shape;
    if (!panel.rest) return Math.log(keys);
    let total = 0;
    for (let start = 0; start < panel.rest.length; start += keys) {
      const seen = panel.rest.subarray(start, start + keys).filter((rest) => rest > -Infinity).length;
      total += Math.log(Math.max(seen, 1));
    }
    return total / (heads * rows);
  }

  // Tables of numbers, coloured as the static ones are; large ones become pictures.
  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const number = (value, digits) => value.toFixed(digits).replace("-", "−");

  /** How strong a colour is: of weights by one scale in the whole page, else a share of the largest number. */
  const shade = (value, largest, weights) => (weights ? Math.min(1, Math.max(value, 0) / data.top) ** data.power : largest ? Math.abs(value) / largest : 0);
  /** Where every panel is masked, at a place of a head, or of all heads together. */
  const shutIn = (...shown) => (place, head = null) => shown.every((panel) => {
    const size = panel.shape[1] * panel.shape[2], heads = head === null ? [...Array(panel.shape[0]).keys()] : [head];
    return panel.rest && heads.every((each) => panel.rest[each * size + place] === -Infinity);
  });

  function heat(caption, values, rowNames, columnNames, largest, marks) {
    const wide = columnNames.length > 6 ? { tabindex: "0", role: "group", "aria-label": caption } : {};
    const region = element("div", { class: "scroll", ...wide });
    if (rowNames.length > 24 || columnNames.length > 24) {
      region.append(element("p", { class: "note" }, caption), picture(caption, values, rowNames.length, columnNames.length, largest, marks));
      return region;
    }
    const table = element("table", { class: columnNames.length > 9 ? "heat wide" : "heat" });
    if (caption) table.append(element("caption", {}, caption));
    const head = table.createTHead().insertRow();
    head.append(element("td"));
    columnNames.forEach((name, place) => head.append(element("th", marks.columns ? { scope: "col", "data-k": place } : { scope: "col" }, name)));
    const body = table.createTBody();
    rowNames.forEach((name, row) => {
      const line = body.insertRow();
      if (marks.rows) line.dataset.q = row;
      line.append(element("th", { scope: "row" }, name));
      columnNames.forEach((_, column) => {
        const value = values[row * columnNames.length + column];
        const shut = marks.shut?.(row * columnNames.length + column), kind = shut ? "m" : value < 0 ? "n" : "";
        const cell = element("td", kind ? { class: kind } : {}, number(value, marks.digits));
        cell.style.setProperty("--w", shade(value, largest, marks.weights));
        line.append(cell);
      });
    });
    region.append(table);
    return region;
  }

  function picture(caption, values, height, width, largest, marks) {
    const canvas = element("canvas", { class: "map", width, height, role: "img", "aria-label": caption });
    const pixels = new ImageData(width, height);
    values.forEach((value, place) => {
      const shut = marks.shut?.(place);
      pixels.data.set(shut ? [128, 128, 128] : value < 0 ? [180, 92, 20] : [43, 124, 192], 4 * place); // as --minus and --plus
      pixels.data[4 * place + 3] = shut ? 70 : Math.round(255 * 0.85 * shade(value, largest, marks.weights));
    });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas;
  }

  // The slider over the scale.
  const movable = panels.filter((panel) => panel.scores && mostEntropy(panel) > 0); // one key in sight gets all at any scale
  const choose = byId("touch-variant"), slider = byId("touch-scale");
  let multiplier = 1;

  function chosen() { return movable[choose.value]; }

  function showWeights() {
    const panel = chosen(), [heads, rows, keys] = panel.shape, weights = weightsAt(panel, multiplier);
    const ratio = multiplier / panel.standard;
    const named = Math.abs(ratio - 1) < 1e-9 ? " = 1/√d" : ` = ${ratio.toPrecision(3)}/√d`;
    byId("touch-value").textContent = `${multiplier.toPrecision(4)}${named}`;
    slider.setAttribute("aria-valuetext", byId("touch-value").textContent);
    const numbers = [meanEntropy(weights, keys), mostEntropy(panel), weights.reduce((a, b) => Math.max(a, b), 0)];
    const [mean, most, largest] = numbers.map((value) => value.toFixed(4));
    byId("touch-entropy").textContent = fill(words.MEAN_ENTROPY, { mean, most, largest });
    byId("touch-weights").replaceChildren(
      ...Array.from({ length: heads }, (_, head) =>
        heat(heads > 1 ? fill(words.HEAD, { number: head + 1 }) : words.WEIGHTS_ALONE, weights.subarray(head * rows * keys, (head + 1) * rows * keys), data.tokens, data.keys, 1, { rows: true, columns: true, digits: 3, weights: true, shut: (place) => shutIn(panel)(place, head) })));
    if (followed !== null) mark(followed);
  }

  function move(value) {
    multiplier = value;
    slider.value = Math.log2(value / chosen().standard);
    showWeights();
  }

  if (movable.length) {
    if (movable.length === 1) [choose, document.querySelector("label[for=touch-variant]")].forEach((each) => { each.hidden = true; });
    movable.forEach((panel, place) => choose.append(element("option", { value: place }, panel.title)));
    choose.addEventListener("change", () => { remark(); move(chosen().own > 0 ? chosen().own : chosen().standard); });
    slider.addEventListener("input", () => { multiplier = chosen().standard * 2 ** Number(slider.value); showWeights(); });
    document.querySelectorAll("[data-preset]").forEach((button) =>
      button.addEventListener("click", () => {
        const to = { standard: chosen().standard, own: chosen().own, one: 1 }[button.dataset.preset];
        if (to > 0) move(to);
      }));
  }

  function remark() {
    const panel = chosen(), apart = (value) => value > 0 && Math.abs(value / panel.standard - 1) > 1e-9;
    for (const [name, value] of [["own", panel.own], ["one", 1]]) document.querySelector(`[data-preset=${name}]`).hidden = !apart(value);
    const own = panel.own > 0 ? Math.log2(panel.own / panel.standard) : 0;
    byId("touch-marks").replaceChildren(element("option", { value: 0, label: "1/√d" }), element("option", { value: own, label: words.THIS_RUN }));
  }

  // One variant minus another.
  const left = byId("minus-left"), right = byId("minus-right");
  variants.forEach((variant, place) => [left, right].forEach((select) => select.append(element("option", { value: place }, variant.name))));
  right.value = 0;
  left.value = Math.max(1, variants.findIndex((variant) => variant.letter !== variants[0].letter));

  function showMinus() {
    const [one, other] = [variants[left.value], variants[right.value]];
    if (!one || !other) return;
    const shown = [], differences = [];
    const compare = (what, mine, yours, rows, columns, marks) => {
      const minus = mine.map((value, place) => value - yours[place]);
      const largest = minus.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      const rounding = largest <= 1e-12 * Math.max(1, mine.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
      const sentence = !largest ? words.NONE_IN : rounding ? words.ROUNDING_IN : words.AT_MOST_IN;
      differences.push(fill(sentence, { what, largest: largest.toPrecision(3) }));
      if (!rounding) shown.push(heat(fill(words.ONE_MINUS, { one: one.name, other: other.name, what }), minus, rows, columns, largest, marks));
    };
    const [mine, yours] = [panels[one.panel], panels[other.panel]];
    if (mine && yours) {
      compare(words.WEIGHTS_MEAN, overHeads(mine), overHeads(yours), data.tokens, data.keys, { rows: true, columns: true, digits: 4, shut: shutIn(mine, yours) });
    }
    if (one.answer.length === other.answer.length && one.size) {
      const names = Array.from({ length: one.size }, (_, place) => String(place + 1));
      compare(words.OUTPUT, one.answer, other.answer, data.tokens, names, { rows: true, digits: 4 });
    }
    byId("minus-told").textContent = !differences.length ? words.DIFFERENT_SHAPES
      : fill(words.LARGEST_DIFFERENCES, { differences: differences.join(`; ${words.IN_THE} `) });
    byId("minus-tables").replaceChildren(...shown);
    if (followed !== null) mark(followed);
  }

  function overHeads(panel) {
    const [heads, rows, keys] = panel.shape, mean = new Float64Array(rows * keys);
    panel.weights.forEach((weight, place) => { mean[place % mean.length] += weight / heads; });
    return mean;
  }

  // Following one query: its rows, its keys and its terms light up wherever they are.
  const bar = byId("follow");
  let followed = null, pinned = null;

  function mark(query) {
    followed = query;
    document.querySelectorAll(".lit, .key").forEach((each) => each.classList.remove("lit", "key"));
    for (const button of bar.children) button.setAttribute("aria-pressed", String(Number(button.dataset.query) === pinned));
    if (query === null) return;
    document.querySelectorAll(`[data-q="${query}"]`).forEach((each) => each.classList.add("lit"));
    document.querySelectorAll("[data-panel]").forEach((section) => {
      const panel = panels[section.dataset.panel];
      if (!panel) return;
      const [heads, rows, keys] = panel.shape;
      section.querySelectorAll("tr[data-k], th[data-k]").forEach((each) => {
        const head = Math.min(Number(each.closest("[data-head]").dataset.head), heads - 1);
        const start = (head * rows + query) * keys, line = panel.weights.subarray(start, start + keys);
        each.style.setProperty("--share", line[each.dataset.k] / (Math.max(...line) || 1));
        each.classList.add("key");
      });
    });
  }

  data.tokens.forEach((token, place) => {
    const button = element("button", { type: "button", "aria-pressed": "false", "data-query": place }, token || words.EMPTY_TOKEN);
    button.addEventListener("click", () => { pinned = pinned === place ? null : place; mark(pinned); });
    button.addEventListener("focus", () => mark(place));
    button.addEventListener("blur", () => mark(pinned));
    bar.append(button);
  });
  const row = (event) => event.target.closest && event.target.closest("[data-q]");
  document.addEventListener("mouseover", (event) => { const each = row(event); if (each) mark(Number(each.dataset.q)); });
  document.addEventListener("mouseout", (event) => { if (row(event)) mark(pinned); });
  document.addEventListener("click", (event) => { const each = row(event); if (each) { pinned = Number(each.dataset.q); mark(pinned); } });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { pinned = null; mark(null); } });

  // What needs this script appears only now.
  bar.hidden = data.tokens.length > 256;
  byId("touch").hidden = !movable.length;
  byId("minus").hidden = variants.length < 2;
  if (movable.length) { remark(); move(movable[0].own > 0 ? movable[0].own : movable[0].standard); }
  if (variants.length > 1) { left.addEventListener("change", showMinus); right.addEventListener("change", showMinus); showMinus(); }
  /** Shows anew what is made of the panels and the answers, after somebody changed them. */
  function refresh() {
    if (movable.length) showWeights();
    if (variants.length > 1) showMinus();
    if (followed !== null) mark(followed);
  }
  window.attention = { data, floats, panels, variants, weightsAt, shade, refresh };
})();
