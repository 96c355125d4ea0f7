// Functions for reports and worksheets: products, shared key/value heads, and the weights of a row of logits, with extra logits that have no key.
const product = (a, b) => a.map((row) => b[0].map((_, column) => row.reduce((sum, value, inner) => sum + value * b[inner][column], 0)));
const sharing = (heads, groups) => (head) => Math.floor((head * groups) / heads);
const NORMALIZERS = {
  softmax(row, extra = []) {
    const largest = Math.max(...row, ...extra), anchor = largest === -Infinity ? 0 : largest;
    const powers = row.map((logit) => Math.exp(logit - anchor));
    const total = [...powers, ...extra.map((logit) => Math.exp(logit - anchor))].reduce((a, b) => a + b, 0);
    return powers.map((power) => power / (total || 1));
  },
  sigmoid: (row) => row.map((logit) => (logit < 0 ? Math.exp(logit) / (1 + Math.exp(logit)) : 1 / (1 + Math.exp(-logit)))),
  sum(row, extra) {
    const scores = row.map((logit) => (logit === -Infinity ? 0 : logit)), total = [...scores, ...extra].reduce((a, b) => a + b, 0);
    return scores.map((score) => (total ? score / total : 0));
  },
  sparsemax(row, extra) {
    const sorted = [...row, ...extra].filter((logit) => logit > -Infinity).sort((a, b) => b - a), largest = sorted[0] ?? 0;
    let total = 0, tau = 0;
    sorted.forEach((logit, place) => {
      total += logit - largest;
      if (1 + (place + 1) * (logit - largest) > total) tau = (total - 1) / (place + 1);
    });
    return row.map((logit) => (logit === -Infinity ? 0 : Math.max(logit - largest - tau, 0)));
  },
};
