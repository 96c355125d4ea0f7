(() => {
  // The changed numbers as a command: the run's own settings, and the arrays that were changed.
  const { data, live } = window.attention;
  if (!live || !data.live.command) return;
  const { now } = live, { line, key, first, inputs, projections, together } = data.live.command;
  const text = (value) => (Object.is(value, -0) ? "-0.0" : String(value));
  const word = (name) => [first[name], `'${key[name]}=[${now[name].map((row) => `[${row.map(text).join(",")}]`).join(",")}]'`].filter(Boolean).join(" ");
  const isMatrix = (name) => /^[Wb]_/.test(name);

  /** Which arrays have to be said, and which settings before them. */
  live.line = () => {
    const names = live.changed(), said = (group, whole, chosen) => (together || chosen.length ? [group.words, ...(whole || chosen).map(word)] : []);
    return [line, ...said(inputs, inputs.whole.length && inputs.whole, names.filter((name) => !isMatrix(name))), ...said(projections, together && projections.whole, names.filter(isMatrix))].filter(Boolean).join(" ");
  };
})();
