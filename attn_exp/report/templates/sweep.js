(() => {
  const home = document.getElementById("explore");
  if (!home) return;
  const data = JSON.parse(document.getElementById("data").textContent);
  const VARIANT = data.axes.length - 1;
  const SVG = "http://www.w3.org/2000/svg";
  const WIDTH = 360, HEIGHT = 230, LEFT = 58, RIGHT = 12, TOP = 12, BOTTOM = 44, COLOURS = 7;

  const make = (name, attributes = {}, text = "", space = null) => {
    const made = space ? document.createElementNS(space, name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return made;
  };
  const shape = (name, attributes, text) => make(name, attributes, text, SVG);
  const short = (value) => {
    const size = Math.abs(value);
    if (value === 0) return "0";
    return (size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)))).replace("-", "−");
  };

  // Use as few digits as possible: rounding changes a number by at most a fiftieth of the range.
  const ticked = (values) => {
    const span = Math.max(...values) - Math.min(...values) || Infinity;
    const written = (digits) => values.map((value) => (digits === 3 ? short(value) : String(Number(value.toPrecision(digits))).replace("-", "−")));
    const off = (said, place) => Math.abs(Number(said.replace("−", "-")) - values[place]) > span / 50;
    let digits = 3;
    while (digits < 12 && written(digits).some(off)) digits += 1;
    return written(digits);
  };

  /** Return three to six round numbers that cover the range from `low` to `high`. */
  const ROUND = [1, 2, 2.5, 5, 10];
  function roundTicks(low, high) {
    const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = ROUND.map((each) => each * power).find((each) => each >= rough * 0.999);
    const first = Math.floor(low / step + 1e-6), last = Math.ceil(high / step - 1e-6);
    return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
  }

  // The choices: a metric, and the settings for x, for colours, and for panels.
  const chosen = { metric: 0, ...data.start };
  const controls = home.querySelector(".controls"), charts = home.querySelector(".charts"), note = home.querySelector(".note");
  const names = data.axes.map((axis) => axis.name);
  const select = (title, options, key) => {
    const label = make("label", {}, title), list = make("select");
    options.forEach(([value, text]) => list.append(make("option", { value }, text)));
    list.value = String(chosen[key]);
    list.addEventListener("change", () => { chosen[key] = Number(list.value); draw(); });
    label.append(list);
    controls.append(label);
    return list;
  };
  const places = names.map((name, place) => [String(place), name]);
  const metrics = select("metric", data.metrics.map((metric, place) => [String(place), metric]), "metric");
  select("along x", places, "x");
  select("colour", [["-1", "none"], ...places], "colour");
  select("panels", [["-1", "none"], ...places], "panel");

  /** Average the cells that have the same values of the shown settings; a single cell keeps its interval. */
  function grouped(shown) {
    const groups = new Map();
    for (const cell of data.cells) {
      const numbers = cell.numbers[chosen.metric];
      if (!numbers) continue;
      const key = shown.map((place) => cell.at[place]).join();
      if (!groups.has(key)) groups.set(key, { at: cell.at, total: 0, count: 0, cells: 0, half: 0, least: Infinity, most: -Infinity });
      const group = groups.get(key);
      const [mean, half, count, least, most] = numbers;
      group.total += mean * count;
      group.count += count;
      group.cells += 1;
      group.half = half;
      group.least = Math.min(group.least, least);
      group.most = Math.max(group.most, most);
    }
    return [...groups.values()].map((group) => ({
      at: group.at, mean: group.total / group.count, count: group.count, few: group.count < 5, least: group.least, most: group.most,
      half: group.cells === 1 ? group.half : 0,
    }));
  }

  /** Return the positions of the values of x, from 0 to 1: on a linear or a logarithmic scale, or evenly spaced. */
  function scaleOf(axis) {
    const values = axis.values;
    const even = axis.labels.map((_, place) => (axis.labels.length > 1 ? place / (axis.labels.length - 1) : 0.5));
    if (!values || axis.labels.length < 2) return { at: even, numeric: false };
    const use = axis.log ? values.map(Math.log) : values;
    const least = Math.min(...use), span = Math.max(...use) - least || 1;
    return { at: use.map((value) => (value - least) / span), numeric: true };
  }

  function draw() {
    const shown = [...new Set([chosen.x, chosen.colour, chosen.panel].filter((place) => place >= 0))];
    const groups = grouped(shown), hidden = names.filter((_, place) => !shown.includes(place) && data.axes[place].labels.length > 1);
    note.textContent = hidden.length ? `Means over the seeds and over ${hidden.join(", ")}, without intervals; bars show the range of fewer than five numbers.` : "Means over the seeds; bars are 95% intervals, or the range of fewer than five numbers.";
    charts.replaceChildren();
    let low = Math.min(...groups.map((group) => group.mean - group.half)), high = Math.max(...groups.map((group) => group.mean + group.half));
    if (!groups.length) return;
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high), 1e-300)) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const ticks = roundTicks(low, high);
    [low, high] = [ticks[0], ticks.at(-1)];
    const panels = chosen.panel >= 0 ? data.axes[chosen.panel].labels.map((label, place) => [label, place]) : [["", -1]];
    for (const [label, place] of panels) {
      const inside = groups.filter((group) => place < 0 || group.at[chosen.panel] === place);
      if (inside.length) charts.append(chart(label, inside, ticks));
    }
    legend();
  }

  function chart(label, groups, ticks) {
    const low = ticks[0], high = ticks.at(-1);
    const axis = data.axes[chosen.x], scale = scaleOf(axis), along = (group) => scale.at[group.at[chosen.x]];
    const title = [data.metrics[chosen.metric], `against ${axis.name}`, label && `${names[chosen.panel]}=${label}`].filter(Boolean).join(", ");
    const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
    const inset = scale.numeric ? 0 : Math.min(28, (WIDTH - LEFT - RIGHT) / (2 * axis.labels.length));
    const x = (share) => LEFT + inset + share * (WIDTH - LEFT - RIGHT - 2 * inset);
    const y = (value) => TOP + (1 - (value - low) / (high - low)) * (HEIGHT - TOP - BOTTOM);
    svg.append(shape("path", { class: "axis", d: `M${LEFT} ${TOP}V${HEIGHT - BOTTOM}H${WIDTH - RIGHT}` }));
    const said = ticked(ticks);
    ticks.forEach((value, place) => svg.append(shape("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, said[place])));
    const step = Math.ceil(axis.labels.length / 6), numbers = axis.values && ticked(axis.labels.map(Number));
    axis.labels.forEach((name, place) => {
      if (place % step) return;
      const cut = name.length > 12 ? `${name.slice(0, 11)}…` : name;
      svg.append(shape("text", { x: x(scale.at[place]), y: HEIGHT - BOTTOM + 17, "text-anchor": "middle" }, numbers ? numbers[place] : cut));
    });
    svg.append(shape("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 8, "text-anchor": "middle" }, axis.log ? `${axis.name} (log scale)` : axis.name));
    const colours = chosen.colour >= 0 ? data.axes[chosen.colour].labels.map((_, place) => place) : [-1];
    colours.forEach((colour, order) => {
      const line = groups.filter((group) => colour < 0 || group.at[chosen.colour] === colour).sort((a, b) => along(a) - along(b));
      const series = shape("g", { class: `c${order % COLOURS}` }), shift = scale.numeric ? 0 : (order - (colours.length - 1) / 2) * Math.min(7, (1.6 * inset) / colours.length);
      const at = (group) => x(along(group)) + shift;
      if (scale.numeric && line.length > 1) series.append(shape("path", { class: "line", d: `M${line.map((group) => `${at(group)} ${y(group.mean)}`).join("L")}` }));
      for (const group of line) {
        const [bottom, top] = group.few ? [group.least, group.most] : [group.mean - group.half, group.mean + group.half];
        const inRange = [Math.max(low, bottom), Math.min(high, top)];
        if (top > bottom) series.append(shape("path", { class: "span", d: `M${at(group)} ${y(inRange[0])}V${y(inRange[1])}` }));
        const dot = shape("circle", { cx: at(group), cy: y(group.mean), r: 3.2 });
        const settings = names.map((name, place) => ([chosen.x, chosen.colour, chosen.panel].includes(place) ? `${name}=${data.axes[place].labels[group.at[place]]}` : "")).filter(Boolean);
        dot.append(shape("title", {}, `${settings.join(" ")}: ${short(group.mean)} (${group.count} numbers)`));
        series.append(dot);
      }
      svg.append(series);
    });
    const figure = make("figure");
    if (label) figure.append(make("figcaption", {}, `${names[chosen.panel]}=${label}`));
    figure.append(svg);
    return figure;
  }

  function legend() {
    const box = home.querySelector(".legend");
    box.replaceChildren();
    if (chosen.colour < 0) return;
    data.axes[chosen.colour].labels.forEach((label, order) => {
      const entry = make("span", { class: `c${order % COLOURS}` });
      entry.append(make("i"), document.createTextNode(chosen.colour === VARIANT ? label : `${names[chosen.colour]}=${label}`));
      box.append(entry);
    });
  }

  /** Disable the choices that the reading view leaves out. */
  function atDepth() {
    const reading = document.documentElement.dataset.depth === "reading";
    data.deep.forEach((deep, place) => {
      metrics.options[place].hidden = metrics.options[place].disabled = deep && reading;
    });
    if (reading && data.deep[chosen.metric] && data.deep.includes(false)) metrics.value = chosen.metric = data.deep.indexOf(false);
    draw();
  }

  home.hidden = false;
  document.addEventListener("depth", atDepth);
  atDepth();
})();
