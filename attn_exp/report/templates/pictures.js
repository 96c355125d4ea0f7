(() => {
  // Large pictures of weights are drawn anew beside the run's own, in the same colours.
  const { live, shade, variants } = window.attention;
  if (!live?.show) return;
  const SIDE = 256, even = (value) => { const low = Math.floor(value), half = value - low; return half === 0.5 ? low + (low % 2) : Math.round(value); };

  /** The means over equal runs of rows and columns, at most 256 of each. */
  function coarse(matrix) {
    const edges = (length) => Array.from({ length: Math.min(length, SIDE) + 1 }, (_, place) => even((place * length) / Math.min(length, SIDE)));
    const [down, right] = [edges(matrix.length), edges(matrix[0].length)], mean = (lines, from, to) => {
      let sum = 0;
      for (const line of lines) for (let column = from; column < to; column++) sum += line[column];
      return sum / lines.length / (to - from);
    };
    return down.slice(1).map((end, row) => right.slice(1).map((stop, column) => mean(matrix.slice(down[row], end), right[column], stop)));
  }

  function drawn(weights, shut) {
    const numbers = coarse(weights), closed = shut && coarse(shut), [height, width] = [numbers.length, numbers[0].length];
    const canvas = live.made("canvas", { width, height }), pixels = new ImageData(width, height);
    numbers.flat().forEach((value, place) => {
      const grey = closed?.[Math.floor(place / width)][place % width] === 1, opacity = Math.round(255 * 0.85 * shade(value, 0, true)) || 0;
      pixels.data.set(grey ? [128, 128, 128, 70] : [43, 124, 192, shut ? Math.max(1, opacity) : opacity], 4 * place);
    });
    canvas.getContext("2d").putImageData(pixels, 0, 0);
    return canvas.toDataURL();
  }

  const heads = {}, shown = [];
  for (const figure of document.querySelectorAll("#weights figure")) {
    const { panel } = figure.dataset, head = (heads[panel] = (heads[panel] ?? -1) + 1), image = figure.querySelector("img");
    const leader = variants.find((variant) => String(variant.panel) === panel), plan = live.rows.find(({ variant }) => variant === leader?.name)?.plan;
    if (image && plan) shown.push({ figure, image, head, plan });
  }
  live.after.push(() => shown.forEach(({ figure, image, head, plan }) => {
    const [old, weights] = [live.before(plan), live.stages(plan)].map((stages) => stages.weights[head]);
    const anew = weights.some((line, row) => line.some((weight, key) => !live.same(weight, old[row][key])));
    let other = figure.querySelector(".anew"), note = figure.querySelector(".of-both");
    if (!anew) { other?.remove(); note?.remove(); return; }
    if (!other) {
      other = live.made("img", { className: "map anew", alt: fill(words.AFTER_THE_CHANGE, { weights: image.alt }), width: image.width, height: image.height });
      image.after(other);
      figure.querySelector("figcaption").append(live.made("span", { className: "of-both" }, `, ${words.RUN_THEN_CHANGED}`));
    }
    const seen = plan.allowed, size = weights.length * weights[0].length, from = seen && seen.length > size ? head * size : 0;
    other.src = drawn(weights, seen && weights.map((line, row) => line.map((weight, key) => Number(seen[from + row * line.length + key] === "0" && weight === 0))));
  }));
})();
