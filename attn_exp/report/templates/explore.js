(() => {
  // Small maps of all heads, and a large view of the chosen one, alone or beside another with their difference.
  const { data, panels, variants, weightsAt, meanEntropy, mostEntropy, element, heat, picture, named, follow } = window.attention;
  const steps = window.attention.steps ?? { sections: [], show() {} }; // a page of two runs has none
  const byId = (id) => document.getElementById(id), large = byId("large");
  // Long texts show one row, cut by a mask.
  const one = panels[0]?.weights?.subarray(0, data.keys.length).filter(Boolean).length < 2;
  const start = one || data.tokens.length > 8 ? Math.max(0, data.tokens.slice(0, Math.max(2, 0.8 * data.tokens.length)).findLastIndex((token) => /^[^[<]*[\p{L}\p{N}]/u.test(token))) : 0;
  if (!large) { if (data.walks.length) steps.show(0, 0, start); window.attention.refresh = follow.remark; return; }

  // One choice per head, or per function if its weights were never computed.
  const heads = (walk) => panels[data.walks[walk].panel]?.shape[0] ?? 1;
  const choices = data.walks.flatMap((about, walk) => Array.from({ length: heads(walk) }, (_, head) => ({ walk, head, panel: panels[about.panel], name: heads(walk) > 1 ? `${about.variant}, head ${head + 1}` : about.variant, key: heads(walk) > 1 ? `${about.variant}.${head + 1}` : about.variant })));
  const state = { show: 0, with: data.beside ? choices.findIndex(({ walk }) => walk === data.beside) : -1, token: start, view: "both" };
  const weightsOf = ({ panel, head }, multiplier) => {
    const size = panel.shape[1] * panel.shape[2];
    return (multiplier === undefined ? panel.weights : weightsAt(panel, multiplier)).subarray(head * size, (head + 1) * size);
  };
  let multiplier; // as set by the reader

  const buttons = [];
  const small = ({ panel, head, name }) => {
    if (panel.pictures) return element("img", { src: panel.pictures[head], alt: name });
    const [, rows, keys] = panel.shape;
    return picture(name, weightsOf({ panel, head }), rows, keys, 1, { weights: true, shut: (place) => panel.closed(place, head) });
  };
  function drawOverview() {
    choices.forEach((choice, place) => buttons[place]?.querySelector(".small")?.replaceChildren(small(choice)));
  }
  if (choices.length > 1) {
    data.walks.forEach((about, walk) => {
      const line = element("div", { class: "line" });
      line.append(element("span", { class: "whose" }, about.title));
      choices.forEach((choice, place) => {
        if (choice.walk !== walk) return;
        const button = element("button", { type: "button", "aria-label": choice.name });
        if (choice.panel) button.append(element("span", { class: "small" }));
        button.append(element("span", {}, choice.panel ? (heads(walk) > 1 ? choice.head + 1 : "") : "its weights were never computed"));
        button.addEventListener("click", (event) => choose(event.shiftKey ? { with: place } : { show: place }));
        buttons[place] = button;
        line.append(button);
      });
      byId("overview").append(line);
    });
    drawOverview();
  }

  const labelled = (name, text, options) => {
    const select = element("select", { id: `choice-${name}` });
    options.forEach(([value, label]) => select.append(element("option", { value }, label)));
    select.addEventListener("change", () => (name === "token" ? follow.pin(Number(select.value)) : choose({ [name]: name === "view" ? select.value : Number(select.value) })));
    const label = element("label", {}, `${text} `);
    label.append(select);
    return { label, select };
  };
  const all = choices.map(({ name }, place) => [place, name]);
  const controls = {
    show: labelled("show", "Show", all),
    with: labelled("with", "beside it", [[-1, "nothing"], ...all]),
    token: labelled("token", "query", data.tokens.map((token, place) => [place, token || "(empty)"])),
    view: labelled("view", "as", [["both", "map and lines"], ["map", "map"], ["lines", "lines"]]),
  };
  const choice = byId("choice");
  let rows = null; // steps show one query or all
  choice.append(...Object.values(controls).map(({ label }) => label));
  if (data.tokens.length > 8 && steps.sections.length) {
    const [label, box] = [element("label", {}, " show the rows of all queries"), element("input", { type: "checkbox", id: "all-rows" })];
    box.addEventListener("change", () => choose({}));
    label.prepend(box);
    document.querySelectorAll(".walk > h2").forEach((title) => title.after(element("p", { class: "touch of-rows" })));
    rows = label;
  }
  choice.hidden = false;
  controls.show.label.hidden = controls.with.label.hidden = choices.length < 2;
  controls.token.label.hidden = data.tokens.length < 2 || !byId("follow").hidden;
  controls.view.label.hidden = !panels.some(({ weights }) => weights);

  // Draw lines from queries on the left to keys on the right, with widths proportional to the weights.
  const SVG = new DOMParser().parseFromString("<svg></svg>", "text/html").body.firstChild.namespaceURI;
  const draw = (name, attributes, text) => { const made = document.createElementNS(SVG, name); for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value); if (text) made.textContent = text; return made; };
  const LEVELS = 10, STRONGEST = 16, FAINTEST = data.keys.length > 32 ? 0.1 : 0.05, SIDE = Math.min(110, 12 + 8 * Math.max(...[...data.tokens, ...data.keys].map(({ length }) => length))), WIDE = 150 + 2 * SIDE;
  function lines(weights, title, least = 4) {
    const rows = data.tokens.length, keys = data.keys.length, most = Math.max(rows, keys), pitch = Math.max(Math.min(least, 640 / most), Math.min(30, 460 / most)), high = pitch * most + 8;
    const svg = draw("svg", { class: "lines", viewBox: `0 0 ${WIDE} ${high}`, width: WIDE, height: high, role: "img", "aria-label": title });
    const at = (place, count) => 4 + pitch * (place + 0.5 + (most - count) / 2), share = (row, key) => Math.min(1, Math.max(weights[row * keys + key], 0) / data.top) || 0;
    const thick = (level) => 0.5 + 6 * level / LEVELS;
    const paths = (pairs) => {
      const parts = Array.from({ length: LEVELS + 1 }, () => "");
      for (const [row, key] of pairs) parts[Math.round(LEVELS * share(row, key))] += `M${SIDE} ${at(row, rows).toFixed(1)}L${WIDE - SIDE} ${at(key, keys).toFixed(1)}`;
      return parts.flatMap((d, level) => (d ? [draw("path", { d, "stroke-width": thick(level), "stroke-opacity": 0.2 + 0.7 * level / LEVELS })] : []));
    };
    const all = draw("g", { class: "all" }), one = draw("g", { class: "one" }), texts = draw("g", {}), every_pair = [];
    for (let row = 0; row < rows; row++) for (let key = 0; key < keys; key++) if (share(row, key) >= FAINTEST) every_pair.push([row, key]);
    all.append(...paths(every_pair));
    /** Return the strongest lines from one query or to one key, however faint. */
    const strongest = (row, key) => (row === null ? Array.from({ length: rows }, (_, each) => [each, key]) : Array.from({ length: keys }, (_, each) => [row, each]))
      .filter((pair) => share(...pair) > 0).sort((one, other) => share(...other) - share(...one)).slice(0, STRONGEST);
    const every = Math.ceil(12 / pitch), label = (text, place, count, left) => {
      const short = text.length > 15 ? `${text.slice(0, 14)}…` : text;
      const word = draw("text", { x: left ? SIDE - 6 : WIDE - SIDE + 6, y: at(place, count) + 4, class: `${left ? "left" : ""}${place % every ? " rare" : ""}` }, short || "(empty)");
      word.setAttribute(left ? "data-q" : "data-key", place);
      return word;
    };
    texts.append(...data.tokens.map((token, place) => label(token, place, rows, true)), ...data.keys.map((token, place) => label(token, place, keys, false)));
    const follows = (row, key) => {
      const chosen = row !== null || key !== null;
      svg.classList.toggle("traced", chosen);
      one.replaceChildren(...(chosen ? paths(strongest(row, key)) : []));
      texts.querySelectorAll("text").forEach((word) => word.classList.toggle("on", chosen && (Number(word.dataset.q) === row || Number(word.dataset.key) === key || (row !== null && "key" in word.dataset && share(row, Number(word.dataset.key)) > 0.3))));
    };
    svg.addEventListener("mouseover", (event) => { if (event.target.dataset.key) follows(null, Number(event.target.dataset.key)); });
    svg.addEventListener("mouseout", (event) => { if (event.target.dataset.key) follows(null, null); });
    svg.addEventListener("mousemove", (event) => { // between two names, highlight the nearest query
      if (event.target.closest("text") || event.offsetX > WIDE / 2) return;
      const place = Math.floor((event.offsetY * high / svg.clientHeight - 4) / pitch - (most - rows) / 2);
      if (place >= 0 && place < rows) follow.mark(place);
    });
    svg.addEventListener("mouseleave", () => follow.mark(follow.pinned()));
    svg.append(all, one, texts);
    followers.push((query) => follows(query, null));
    return svg;
  }
  let followers = [];
  follow.marked.push((query) => followers.forEach((next) => next(query)));

  /** Draw one choice: its map, its lines, or both. */
  function figure(each, title, turned) {
    const made = element("figure", { "data-panel": data.walks[each.walk].panel });
    made.append(element("figcaption", {}, title));
    if (!each.panel) { made.append(element("p", { class: "note" }, "its weights were never computed")); return made; }
    if (each.panel.pictures) {
      made.append(named(element("img", { class: "map", src: each.panel.pictures[each.head], alt: title }), data.tokens, data.keys), element("p", { class: "note" }, "There are too many weights to draw lines or to change the scale."));
      return made;
    }
    const weights = weightsOf(each, turned), both = element("div", { class: "both" });
    if (state.view !== "lines") {
      const region = heat("", weights, data.tokens, data.keys, 1, { rows: true, columns: true, digits: 2, weights: true, shut: (place) => each.panel.closed(place, each.head) });
      region.dataset.head = each.head;
      [region, region.querySelector("canvas")].forEach((each) => each?.setAttribute("aria-label", title));
      asks(region, weights);
      both.append(region);
    }
    if (state.view !== "map") {
      both.append(lines(weights, title));
      const least = FAINTEST * data.top, left = weights.some((weight) => weight > 0 && weight < least);
      if (left && data.keys.length > STRONGEST) both.append(element("p", { class: "note" }, `Lines show weights of at least ${least.toPrecision(1)}; a highlighted query shows its ${STRONGEST} strongest keys.`));
    }
    made.append(both);
    return made;
  }

  function asks(region, weights) {
    const canvas = region.querySelector("canvas"), keys = data.keys.length;
    canvas?.addEventListener("mousemove", (event) => {
      const row = Math.min(data.tokens.length - 1, Math.floor((event.offsetY / canvas.clientHeight) * data.tokens.length)), key = Math.min(keys - 1, Math.floor((event.offsetX / canvas.clientWidth) * keys));
      if (row < 0 || key < 0) return;
      follow.mark(row);
      byId("told").textContent = `${data.tokens[row]} → ${data.keys[key]}: ${weights[row * keys + key].toFixed(4)}`;
    });
    canvas?.addEventListener("mouseleave", () => follow.mark(follow.pinned()));
  }

  /** Show how much the weights of two choices and the outputs of their variants differ. */
  function difference(one, other) {
    const made = [], differences = [];
    const compare = (what, mine, yours, rows, columns, marks) => {
      const minus = mine.map((value, place) => (Object.is(value, yours[place]) ? 0 : value - yours[place]));
      const largest = minus.reduce((most, value) => (Number.isNaN(value) ? most : Math.max(most, Math.abs(value))), 0), unlike = minus.some(Number.isNaN);
      const rounding = !unlike && largest <= 1e-12 * Math.max(1, mine.reduce((most, value) => Math.max(most, Math.abs(value)), 0));
      const size = largest ? largest.toPrecision(3) : "none";
      differences.push(`${what}: ${unlike ? `NaN in only one of them, elsewhere ${largest ? size : 0}` : size}${rounding && largest ? ", which is rounding" : ""}`);
      if (rounding) return;
      made.push(element("figure", { class: "minus" }));
      made.at(-1).append(heat(`${one.name} minus ${other.name}: ${what}`, minus, rows, columns, largest, marks));
    };
    if (one.panel?.weights && other.panel?.weights) {
      const shut = (place) => one.panel.closed(place, one.head) && other.panel.closed(place, other.head);
      compare("weights", weightsOf(one, multiplier), weightsOf(other), data.tokens, data.keys, { rows: true, columns: true, digits: 2, shut });
    } else if (one.panel && other.panel) differences.push("weights: too many for a page to subtract");
    const [mine, yours] = [one, other].map(({ walk }) => variants.find(({ name }) => name === data.walks[walk].variant));
    if (one.walk !== other.walk && mine.size && mine.answer.length === yours.answer.length) {
      compare(one.panel?.shape[0] > 1 || other.panel?.shape[0] > 1 ? "output of all heads" : "output", mine.answer, yours.answer, data.tokens, Array.from({ length: mine.size }, (_, place) => String(place + 1)), { rows: true, digits: 4 });
    } else if (one.walk !== other.walk && mine.size && yours.size) differences.push("their outputs have different shapes");
    return { made, said: differences.join("; ") };
  }

  function frame() {
    buttons.forEach((button, place) => {
      button.setAttribute("aria-pressed", String(place === state.show));
      button.classList.toggle("second", place === state.with);
    });
  }

  function draw_large() {
    const one = choices[state.show], other = choices[state.with], movable = one.panel?.scores && mostEntropy(one.panel, one.head) > 0;
    followers = [];
    const parts = [figure(one, one.name, multiplier)];
    let said = "";
    if (other) {
      const { made, said: far } = difference(one, other);
      parts.push(figure(other, other.name), ...made);
      if (far) said = `Largest difference: ${far}.`;
    }
    if (movable) {
      const weights = weightsOf(one, multiplier), [mean, most] = [meanEntropy(weights, one.panel.shape[2]), mostEntropy(one.panel, one.head)].map((value) => value.toFixed(4));
      said = [said, `Mean entropy ${mean} of at most ${most} nats; the largest single weight is ${weights.reduce((a, b) => Math.max(a, b), 0).toFixed(4)}.`].filter(Boolean).join(" ");
    }
    large.replaceChildren(...parts);
    byId("told").textContent = said;
    byId("touch").hidden = !movable;
    if (movable) slide(one.panel);
    follow.remark();
  }

  const slider = byId("touch-scale");
  function slide(panel) {
    const value = multiplier ?? panel.own, ratio = value / panel.standard, named = Math.abs(ratio - 1) < 1e-9 ? " = 1/√d" : ` = ${ratio.toPrecision(3)}/√d`;
    const apart = (each) => each > 0 && Math.abs(each / panel.standard - 1) > 1e-9;
    if (document.activeElement !== slider && value > 0) slider.value = Math.log2(ratio);
    slider.ariaValueText = byId("touch-value").textContent = value.toPrecision(4) + named;
    for (const [name, each] of [["own", panel.own], ["one", 1]]) document.querySelector(`[data-preset=${name}]`).hidden = !apart(each);
  }
  function turn(value) { multiplier = value; draw_large(); }
  slider.addEventListener("input", () => turn(choices[state.show].panel.standard * 2 ** Number(slider.value)));
  document.querySelectorAll("[data-preset]").forEach((button) => button.addEventListener("click", () => {
    const { standard, own } = choices[state.show].panel, to = { standard, own, one: 1 }[button.dataset.preset];
    if (to > 0) turn(to);
  }));

  function remember(at = "", keep = false) {
    const said = new URLSearchParams({ show: choices[state.show].key });
    if (state.with >= 0) said.set("with", choices[state.with].key);
    if (state.token !== start) said.set("query", state.token + 1);
    if (state.view !== "both") said.set("view", state.view);
    if (at) said.set("at", at);
    history[keep ? "pushState" : "replaceState"](null, "", `#${said}`);
  }
  /** Show what the address of the page names, if it exists; return the element to scroll to. */
  function recall() {
    const address = location.hash.slice(1), [, walk] = /^walk-(\d+)/.exec(address) || [], said = new URLSearchParams(address);
    const keyed = (name, otherwise) => { const place = choices.findIndex(({ key }) => key === said.get(name)); return place < 0 ? otherwise : place; };
    if (said.has("show")) {
      const token = Number(said.get("query")) - 1, view = said.get("view");
      choose({ show: keyed("show", 0), with: keyed("with", -1), token: data.tokens[token] === undefined ? start : token, view: ["map", "lines"].includes(view) ? view : "both" }, false);
      return byId(said.get("at")) ?? byId("weights");
    }
    const show = walk ? choices.findIndex((each) => each.walk === walk - 1) : -1;
    if (show >= 0) choose({ show }, false);
    return null;
  }

  /** Change the view; `told` is false if the change comes from the address. */
  function choose(changes, told = true) {
    const before = state.show;
    Object.assign(state, changes, "token" in changes ? { token: changes.token ?? state.token } : {});
    if (state.show !== before) multiplier = undefined;
    for (const [name, { select }] of Object.entries(controls)) select.value = state[name];
    frame();
    const { walk, head } = choices[state.show];
    if (rows) steps.sections[walk].querySelector(".of-rows").append(rows);
    steps.show(walk, head, state.token);
    if (!("token" in changes) || Object.keys(changes).length > 1) draw_large();
    window.attention.chosen?.();
    if (told) remember();
  }
  window.addEventListener("hashchange", () => recall()?.scrollIntoView());
  document.addEventListener("click", (event) => { // a link within the page keeps the choice in the address
    const href = event.target.closest?.("a[href^='#']")?.getAttribute("href").slice(1), chosen = choices[state.show].walk;
    const target = href && (href === "walk-1" ? steps.sections[chosen] : byId(href)); // the steps of the chosen function
    if (!target || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    remember(target.id, true);
    target.closest("details")?.setAttribute("open", "");
    target.scrollIntoView();
    if (target.tabIndex < 0) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
  });
  Object.assign(window.attention, { choose, choices, state, refresh() { drawOverview(); draw_large(); steps.show(choices[state.show].walk, choices[state.show].head, state.token); } });
  choose({}, false);
  const first = recall();
  if (first) addEventListener("load", () => first.scrollIntoView());
})();
