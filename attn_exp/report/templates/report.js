(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // Arrays are stored as float64, so that the page computes with the run's exact numbers; large ones as float32.
  const floats = (text, count) => {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
    return new (bytes.byteLength === 4 * count ? Float32Array : Float64Array)(bytes);
  };
  const shutIn = ({ shut, shape }) => (place, head) => Boolean(shut) && shut[shut.length > shape[1] * shape[2] ? head * shape[1] * shape[2] + place : place] === "1";
  const panels = data.panels.map((panel) => {
    const [heads, rows, keys] = panel.shape, size = rows * keys, all = heads * size, closed = shutIn(panel);
    if (!panel.scores) return { ...panel, closed, weights: panel.weights && floats(panel.weights, all), scores: null, rest: null };
    const rest = panel.rest ? floats(panel.rest, all) : panel.shut ? new Float64Array(all) : null;
    if (panel.shut) rest.forEach((_, place) => { if (closed(place % size, Math.floor(place / size))) rest[place] = -Infinity; });
    const made = { ...panel, closed, rest, scores: floats(panel.scores, all) };
    return { ...made, weights: weightsAt(made, panel.own) };
  });
  const variants = data.variants.map((variant) => ({ ...variant, answer: floats(variant.answer) }));

  /** Return the weights softmax(multiplier * scores + rest) of a panel, for all heads, queries and keys in one array. */
  function weightsAt({ shape, scores, rest }, multiplier) {
    const [heads, rows, keys] = shape, weights = new Float64Array(heads * rows * keys);
    const logit = (place) => (rest?.[place] === -Infinity ? -Infinity : multiplier * scores[place] + (rest ? rest[place] : 0));
    for (let start = 0; start < weights.length; start += keys) weights.set(NORMALIZERS.softmax(Array.from({ length: keys }, (_, key) => logit(start + key))), start);
    return weights;
  }

  /** Return the mean entropy of the rows of weights that are not all 0, in nats. */
  function meanEntropy(weights, keys) {
    let total = 0, seen = 0;
    for (const weight of weights) if (weight > 0) total -= weight * Math.log(weight);
    for (let start = 0; start < weights.length; start += keys) seen += weights.subarray(start, start + keys).some(Boolean);
    return total / Math.max(seen, 1);
  }

  /** Return the maximum of this mean for a head, if every query gives equal weights to its visible keys. */
  function mostEntropy(panel, head) {
    const [, rows, keys] = panel.shape;
    if (!panel.rest) return Math.log(keys);
    let total = 0, seeing = 0;
    for (let start = head * rows * keys; start < (head + 1) * rows * keys; start += keys) {
      const seen = panel.rest.subarray(start, start + keys).filter((rest) => rest > -Infinity).length;
      total += Math.log(Math.max(seen, 1));
      seeing += seen > 0;
    }
    return total / Math.max(seeing, 1);
  }

  // Tables of numbers, coloured like the static ones; large ones become pictures.
  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const number = (value, digits) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "").replace("-", "−");

  /** Return the strength of a colour: for weights on one scale for the whole page, else relative to the largest number. */
  const shade = (value, largest, weights) => (weights ? Math.min(1, Math.max(value, 0) / data.top) ** data.power : largest ? Math.abs(value) / largest : 0);

  /** Return a table; `cellAt(row, column)` gives the text, kind and share of a cell; rows and columns may be tokens, starting at `from`. */
  function grid(caption, rowNames, columnNames, cellAt, { label = caption, row = "", byKey = false, from = [0, 0], parts = [] }) {
    const region = element("div", { class: "scroll", ...(columnNames.length > 6 && { tabindex: "0", role: "group", "aria-label": label }) }), table = element("table", { class: columnNames.length > 9 ? "heat wide" : "heat" });
    if (caption) table.append(element("caption", {}, caption));
    const head = table.createTHead().insertRow(), body = table.createTBody(), key = (place) => byKey && { "data-k": from[1] + place };
    head.append(element("td"), ...columnNames.map((name, place) => element("th", { scope: "col", ...key(place) }, name)));
    rowNames.forEach((name, place) => {
      const line = body.insertRow();
      if (row) line.dataset[row] = from[0] + place;
      line.append(element("th", { scope: "row" }, name), ...columnNames.map((_, column) => {
        const { text, kind, share } = cellAt(place, column), cell = element("td", { ...(kind && { class: kind }), ...key(column) }, text);
        if (share) cell.style.setProperty("--w", share);
        return cell;
      }));
    });
    if (parts.length) table.createTFoot().insertRow().append(element("td"), ...parts.map(([whom, count]) => element("th", { colspan: count }, whom)));
    region.append(table);
    return region;
  }

  function heat(caption, values, rowNames, columnNames, largest, marks) {
    if (rowNames.length > 16 || columnNames.length > 16) {
      const region = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption });
      if (caption) region.append(element("p", { class: "note" }, caption));
      region.append(named(picture(caption, values, rowNames.length, columnNames.length, largest, marks), rowNames, columnNames));
      return region;
    }
    return grid(caption, rowNames, columnNames, (row, column) => {
      const place = row * columnNames.length + column, value = values[place];
      return { text: number(value, marks.digits), kind: marks.shut?.(place) ? "m" : value < 0 ? "n" : "", share: shade(value, largest, marks.weights) };
    }, { row: marks.rows ? "q" : "", byKey: marks.columns });
  }

  /** Return a picture with the names of its rows and columns, or of as many as fit. */
  function named(drawn, rowNames, columnNames) {
    const made = element("div", { class: "named" }), short = (name) => (name.length > 12 ? `${name.slice(0, 11)}…` : name || "(empty)");
    for (const [kind, names, side] of [["down", rowNames, "top"], ["across", columnNames, "left"]]) {
      const line = element("div", { class: kind, "aria-hidden": "true" }), every = Math.ceil(names.length * 14 / 416);
      line.style[kind === "down" ? "width" : "height"] = `${Math.max(...names.map((name) => short(name).length)) * 0.62 + 0.5}em`;
      names.forEach((name, place) => {
        if (place % every) return;
        const word = element("span", {}, short(name));
        word.style[side] = `${(100 * (place + 0.5)) / names.length}%`;
        line.append(word);
      });
      made.append(line);
    }
    made.append(drawn);
    return made;
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

  /** Return the neighbouring cell to which an arrow key leads. */
  function beside(cell, key) {
    const [down, right] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key] || [0, 0];
    const next = cell.closest("tbody").rows[cell.parentNode.sectionRowIndex + down]?.cells[cell.cellIndex + right];
    return (down || right) && next?.tagName === "TD" ? next : null;
  }
  /** Move the focus of a table to one of its cells. */
  function enter(cell) {
    if (!cell) return;
    cell.closest("table").querySelectorAll("td[tabindex='0']").forEach((each) => { each.tabIndex = -1; });
    cell.tabIndex = 0;
    cell.focus();
  }

  // Highlight the rows, the keys and the terms of one query everywhere on the page.
  const bar = byId("follow");
  let followed = null, pinned = null;
  const follow = { mark, remark: () => { if (followed !== null) mark(followed); }, pinned: () => pinned, pin: (query) => pin(query), marked: [] };

  function mark(query) {
    followed = query;
    document.querySelectorAll(".lit, .key").forEach((each) => each.classList.remove("lit", "key"));
    for (const button of bar.children) button.setAttribute("aria-pressed", String(Number(button.dataset.query) === pinned));
    follow.marked.forEach((next) => next(query));
    if (query === null) return;
    document.querySelectorAll(`[data-q="${query}"]`).forEach((each) => each.classList.add("lit"));
    document.querySelectorAll("[data-panel]").forEach((section) => {
      const panel = panels[section.dataset.panel];
      if (!panel?.weights) return;
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
    const button = element("button", { type: "button", "aria-pressed": "false", "data-query": place }, token || "(empty)");
    button.addEventListener("click", () => pin(pinned === place ? null : place));
    button.addEventListener("focus", () => mark(place));
    button.addEventListener("blur", () => mark(pinned));
    bar.append(button);
  });
  const row = (event) => event.target.closest && event.target.closest("[data-q]");
  const pin = (query) => { pinned = query; mark(pinned); window.attention.choose?.({ token: pinned }); };
  document.addEventListener("mouseover", (event) => { const each = row(event); if (each) mark(Number(each.dataset.q)); });
  document.addEventListener("mouseout", (event) => { if (row(event)) mark(pinned); });
  document.addEventListener("click", (event) => { const each = row(event); if (each) pin(Number(each.dataset.q)); });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") pin(null); });

  bar.hidden = data.tokens.length > 256; // show what needs this script
  window.attention = { data, floats, panels, variants, weightsAt, meanEntropy, mostEntropy, shade, element, number, grid, heat, picture, named, beside, enter, follow };
})();
