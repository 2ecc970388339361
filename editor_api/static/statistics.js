// The table of what a finished run cost, beside plain decoding where that was run too.

const SOURCES = {
  reference: "from the text",
  prompt: "from the prompt",
  output: "from the answer",
  "past output": "from earlier requests",
  phrase: "from the phrase book",
};

/** Fill the table with the timings of one or two results. */
export function showStatistics(dom, result, plain) {
  const { timings } = result;
  const head = ["", "lookup", ...(plain ? ["plain", ""] : [])];
  const rows = [
    row("Tokens", timings, plain, (one) => one.predicted_n),
    row("Passes after the first token", timings, plain, (one) => one.passes, { better: "fewer" }),
    row("Tokens a pass", timings, plain, tokensPerPass, { better: "more", digits: 1 }),
    row("Tokens a second", timings, plain, (one) => one.predicted_per_second, { better: "more", digits: 1 }),
    row("Seconds for the answer", timings, plain, (one) => one.predicted_ms / 1000, { better: "fewer", digits: 2 }),
    row("Seconds to read the prompt", timings, plain, (one) => one.prompt_ms / 1000, { digits: 2 }),
    row("Tokens of the prompt", timings, plain, (one) => one.cache_n + one.prompt_n),
    row("… read by an earlier run", timings, plain, (one) => one.cache_n),
    row("Milliseconds of drafting", timings, plain, (one) => one.drafting_ms, { digits: 1 }),
    row("Drafted tokens accepted", timings, plain, accepted),
  ];
  for (const [source, { draft_n, draft_n_accepted }] of Object.entries(timings.draft_sources)) {
    rows.push([`… ${SOURCES[source] ?? source}`, `${draft_n_accepted} of ${draft_n}`, ...(plain ? ["", ""] : [])]);
  }
  const table = document.createElement("table");
  if (plain) table.append(caption(isSame(result, plain)));
  table.append(section("thead", [head]), section("tbody", rows));
  dom.replaceChildren(table);
}

/** One sentence with the numbers that matter. */
export function inWords({ timings }) {
  const rate = timings.predicted_per_second;
  return (
    `${timings.predicted_n} tokens in ${timings.passes} passes, ${tokensPerPass(timings).toFixed(1)} a pass` +
    (rate ? `, ${rate.toFixed(1)} tokens a second` : "")
  );
}

/** Behind its end an answer has as many words more as its last pass brought: these are no part of it. */
function isSame(one, other) {
  return one.complete && other.complete ? one.text === other.text : one.answer === other.answer;
}

const tokensPerPass = ({ predicted_n, passes }) => (passes ? (predicted_n - 1) / passes : 1);
const accepted = ({ draft_n, draft_n_accepted }) => (draft_n ? `${draft_n_accepted} of ${draft_n}` : "none drafted");

function row(name, timings, plain, read, { better, digits = 0 } = {}) {
  const cells = [timings, ...(plain ? [plain.timings] : [])].map(read);
  const texts = cells.map((value) => (typeof value === "number" ? value.toFixed(digits) : (value ?? "–")));
  if (!plain) return [name, ...texts];
  const [own, other] = cells;
  const ratio = better && own && other ? (better === "more" ? own / other : other / own) : undefined;
  return [name, ...texts, ratio ? `${ratio.toFixed(1)}×` : ""];
}

function caption(same) {
  const dom = document.createElement("caption");
  dom.textContent = `Plain decoding gave ${same ? "the same" : "another"} answer.`;
  return dom;
}

function section(name, rows) {
  const dom = document.createElement(name);
  for (const cells of rows) {
    const line = dom.insertRow();
    cells.forEach((text, index) => {
      const isHead = text !== "" && (name === "thead" || index === 0);
      const cell = document.createElement(isHead ? "th" : "td");
      if (isHead) cell.scope = name === "thead" ? "col" : "row";
      cell.textContent = text;
      line.append(cell);
    });
  }
  return dom;
}
