// Shows the answer with each token in the colour of where it came from, and the legend with counts.

const KINDS = [
  { kind: "model", name: "the model", sources: ["model"] },
  { kind: "file", name: "the text", sources: ["reference"] },
  { kind: "own", name: "prompt and answer", sources: ["prompt", "output"] },
  { kind: "earlier", name: "earlier requests", sources: ["past output"] },
  { kind: "phrase", name: "phrase book", sources: ["phrase"] },
];
const kindOf = new Map(KINDS.flatMap(({ kind, sources }) => sources.map((source) => [source, kind])));

export class Answer {
  constructor(text, legend) {
    this.dom = text;
    this.counts = new Map();
    legend.replaceChildren(
      ...KINDS.map(({ kind, name }) => {
        const item = document.createElement("li");
        const sample = document.createElement("span");
        sample.className = `sample from-${kind}`;
        sample.textContent = name;
        const count = document.createElement("span");
        count.className = "count";
        item.append(sample, " ", count);
        this.counts.set(kind, count);
        return item;
      }),
    );
    this.clear();
  }

  clear() {
    this.dom.replaceChildren();
    for (const count of this.counts.values()) count.textContent = "0";
  }

  /** Add the spans of one pass. */
  add(spans) {
    const follows = this.dom.scrollHeight - this.dom.scrollTop - this.dom.clientHeight < 40;
    for (const { source, text } of spans) {
      if (!text) continue;
      const kind = kindOf.get(source) ?? "own";
      const last = this.dom.lastElementChild;
      if (last?.dataset.from === kind) {
        last.append(text);
        continue;
      }
      const span = document.createElement("span");
      span.className = `from-${kind}`;
      span.dataset.from = kind;
      span.textContent = text;
      this.dom.append(span);
    }
    if (follows) this.dom.scrollTop = this.dom.scrollHeight;
  }

  /** Show how many tokens came from where. */
  count(sources) {
    const sums = new Map();
    for (const [source, tokens] of sources) {
      const kind = kindOf.get(source) ?? "own";
      sums.set(kind, (sums.get(kind) ?? 0) + tokens);
    }
    for (const [kind, dom] of this.counts) dom.textContent = String(sums.get(kind) ?? 0);
  }
}
