(() => {
  // Attention in JavaScript: compute every stage of a walk from numbers that the reader may change.
  const { data, floats } = window.attention;
  if (!data.live || !Object.keys(data.live.arrays).length) return;
  const rowsOf = (numbers, columns) => Array.from({ length: numbers.length / columns }, (_, row) => Array.from(numbers.subarray(row * columns, (row + 1) * columns)));
  const matrix = ({ shape, data: text }) => rowsOf(floats(text), shape.at(-1)); // a bias is one row
  const own = Object.fromEntries(Object.entries(data.live.arrays).map(([name, array]) => [name, matrix(array)]));
  const each = (matrices, change) => matrices.map((rows, head) => rows.map((row, place) => row.map((value, column) => change(value, head, place, column))));
  const mixed = (a, b) => a.map((row) => b[0].map((_, column) => row.reduce((sum, weight, key) => (weight === 0 ? sum : sum + weight * b[key][column]), 0))); // 0 times NaN is 0 here
  const added = (rows, other) => (other ? rows.map((row, place) => row.map((value, column) => value + (other[place] || other[0])[column])) : rows);
  const projected = (rows, arrays, letter) => added(product(rows, arrays[`W_${letter}`]), arrays[`b_${letter}`]);
  const apart = (rows, count) => Array.from({ length: count }, (_, head) => rows.map((row) => row.slice((head * row.length) / count, ((head + 1) * row.length) / count)));

  /** Return the first heads, or the mean of each group of heads. */
  function pooled(heads, shared, pool) {
    const size = heads.length / shared;
    return pool === "first" ? heads.slice(0, shared) : Array.from({ length: shared }, (_, group) => heads[0].map((row, place) => row.map((_, column) =>
      heads.slice(group * size, (group + 1) * size).reduce((sum, head) => sum + head[place][column], 0) / size)));
  }

  /** Rotate pairs of features by the angle of their position. */
  function turned(heads, { pairs, interleaved }, [cosines, sines]) {
    return heads.map((rows) => rows.map((row, place) => {
      const result = row.slice();
      for (let pair = 0; pair < pairs; pair++) {
        const [one, other] = interleaved ? [2 * pair, 2 * pair + 1] : [pair, pair + pairs];
        const [cosine, sine] = [cosines[place * pairs + pair], sines[place * pairs + pair]];
        result[one] = row[one] * cosine - row[other] * sine;
        result[other] = row[one] * sine + row[other] * cosine;
      }
      return result;
    }));
  }

  const above = (x) => (x > 0 ? x + 1 : Math.exp(x));
  function kernel(q, k, seen, share) {
    return q.map((rows, head) => rows.map((query, row) => {
      const shares = k[share(head)].map((key, column) => (seen(head, row, column) ? query.reduce((sum, value, inner) => sum + above(value) * above(key[inner]), 0) : 0));
      const total = shares.reduce((a, b) => a + b, 0);
      return shares.map((value) => value / (total || 1));
    }));
  }

  /** Return a function that looks up the number of a rule for a weight; numbers of one head apply to all heads. */
  const placed = (numbers, rows, keys) => (head, row, key) => numbers[numbers.length > rows * keys ? (head * rows + row) * keys + key : row * keys + key];

  function weighed(plan, stages, share) {
    const { q, k } = stages, rows = q[0].length, keys = k[0].length, bare = { ...plan, allowed: null, empty: "zeros", less: plan.taken };
    const open = plan.allowed && placed(plan.allowed, rows, keys), seen = (...place) => !open || open(...place) === "1";
    if (plan.kernel) return void (stages.shares = kernel(q, k, seen, share));
    const bias = plan.bias && placed(plan.bias, rows, keys);
    const meet = (query, key, vector) => query.reduce((sum, value, inner) => sum + (vector ? vector[inner] * Math.tanh(value + key[inner]) : value * key[inner]), 0);
    stages.scores = q.map((queries, head) => queries.map((query) => k[share(head)].map((key) => meet(query, key, plan.pair?.[head]))));
    stages.logits = each(stages.scores, (score) => score * plan.c);
    stages.capped = plan.caps.reduce((logits, cap) => each(logits, (logit) => Math.tanh(logit / cap) * cap), stages.logits);
    stages.masked = each(stages.capped, (logit, ...place) => (seen(...place) ? logit + (bias ? bias(...place) : 0) - (plan.less || 0) : -Infinity));
    stages.lse = q[0].map((_, row) => stages.masked.map((matrix) => logSum(matrix[row])));
    stages.weights = stages.masked.map((matrix, head) => matrix.map((row) => NORMALIZERS[plan.normalizer](row, plan.extra?.[head % plan.extra.length] || [])));
    if (!open || plan.empty === "zeros") return;
    const less = plan.taken === null ? null : { ...stages };
    if (less) weighed(bare, less, share);
    stages.weights = stages.weights.map((matrix, head) => matrix.map((row, place) => {
      if (row.some((_, key) => seen(head, place, key))) return row;
      return row.map((_, key) => (less ? less.weights[head][place][key] : plan.empty === "mean" ? 1 / keys : NaN));
    }));
  }

  function logSum(row) {
    const largest = Math.max(...row);
    return largest === -Infinity ? largest : largest + Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
  }

  /** Compute every stage of a walk, as lists of heads, rows and numbers. */
  function compute(plan, arrays) {
    const stages = {}, [heads, given, shared] = plan.heads;
    const marked = (name) => (plan.marks[name] ? added(arrays[name], plan.marks[name]) : arrays[name]);
    if (arrays.x) {
      const x = marked("x"), source = arrays.memory ? marked("memory") : x;
      Object.assign(stages, { q: projected(x.slice(plan.past), arrays, "q"), k: projected(source, arrays, "k"), v: projected(source, arrays, "v") });
    } else for (const name of ["q", "k", "v"]) if (arrays[name]) stages[name] = arrays[name];
    if (stages.q) stages.q = apart(stages.q, heads);
    for (const name of ["k", "v"]) if (stages[name]) stages[name] = pooled(apart(stages[name], given), shared, plan.pool);
    for (const turn of plan.turns) for (const name of ["q", "k"]) stages[name] = turned(stages[name], turn, turn[name]);
    if (plan.tiled) for (const name of ["k", "v"]) if (stages[name]) stages[name] = stages.q.map((_, head) => stages[name][head % shared]);
    const share = sharing(heads, (stages.k || stages.v).length);
    if (arrays.weights) stages.weights = Array.from({ length: heads }, () => arrays.weights);
    else weighed(plan, stages, share);
    if (!stages.v) return stages;
    stages.context = (stages.shares || stages.weights).map((weights, head) => mixed(weights, stages.v[share(head)]));
    const joined = stages.context[0].map((_, row) => stages.context.flatMap((matrix) => matrix[row]));
    stages.output = [plan.mixed ? projected(joined, arrays, "o") : joined];
    if (stages.lse) stages.lse = [stages.lse];
    return stages;
  }

  // Arrays are decoded once; variants that compute the same share a plan.
  const unpacked = data.live.plans.map((plan) => {
    if (typeof plan !== "object" || !plan) return null;
    const widthOf = (name) => data.live.arrays[name].shape[1], { marks } = plan;
    const added = Object.fromEntries(Object.keys(marks).map((name) => [name, rowsOf(floats(marks[name]), widthOf(name))]));
    const turns = plan.turns.map((turn) => ({ ...turn, q: turn.q.map((text) => floats(text)), k: turn.k.map((text) => floats(text)) }));
    return { ...plan, marks: added, turns, bias: plan.bias && floats(plan.bias) };
  });
  const plans = data.live.walks.map((place) => unpacked[place]);
  const rows = data.live.rows.map((row) => ({ ...row, plan: unpacked[row.plan] }));
  const now = structuredClone(own), first = new Map(), known = new Map();
  const kept = (stages, plan, arrays) => stages.get(plan) || stages.set(plan, compute(plan, arrays)).get(plan);

  window.attention.live = {
    own, now, plans, rows, compute, against: data.live.against,
    after: [], // what to update after a change, in this order
    before: (plan) => kept(first, plan, own),
    stages: (plan) => kept(known, plan, now),
    forget: () => known.clear(),
    changed: () => Object.keys(own).filter((name) => own[name].some((row, place) => row.some((value, column) => !Object.is(value, now[name][place][column])))),
  };
})();
