// Counts one run as it comes. Knows no page.

const WINDOW = 1; // seconds over which the present rate is taken
const SHORTEST = 0.05; // seconds it is taken over at least: passes may arrive together

/** Tokens, passes and seconds of one run, from its first token on: the prompt's reading is no decoding. */
export class Meter {
  constructor(clock = () => performance.now() / 1000) {
    this.clock = clock;
    this.tokens = 0;
    this.text = "";
    /** One for each pass: seconds since the first token, its tokens, and the rate about then. */
    this.passes = [];
    this.sources = new Map();
  }

  /** Take in one event of the stream. */
  add(delta) {
    const now = this.clock();
    this.text += delta.text;
    let tokens = 0;
    for (const span of delta.spans) {
      tokens += span.tokens;
      this.sources.set(span.source, (this.sources.get(span.source) ?? 0) + span.tokens);
    }
    this.tokens += tokens;
    if (this.began === undefined) {
      this.began = now;
      this.before = tokens;
      return;
    }
    const at = now - this.began;
    this.passes.push({ at, tokens, rate: this.#rateAt(at, tokens) });
  }

  get seconds() {
    return this.passes.at(-1)?.at ?? 0;
  }

  /** Tokens a pass, without the token that reading the prompt gave. */
  get perPass() {
    return this.passes.length ? (this.tokens - this.before) / this.passes.length : undefined;
  }

  /** Take in what the service itself measured: events that arrive together tell nothing of time. */
  finish(timings) {
    this.measured = timings.predicted_per_second ?? undefined;
  }

  get rate() {
    if (this.measured !== undefined) return this.measured;
    return this.seconds > 0 ? (this.tokens - this.before) / this.seconds : undefined;
  }

  #rateAt(at, tokens) {
    let first = this.passes.length;
    let sum = tokens;
    while (first > 0 && this.passes[first - 1].at > at - WINDOW) sum += this.passes[--first].tokens;
    const from = first > 0 ? Math.max(this.passes[first - 1].at, at - WINDOW) : 0;
    return sum / Math.max(SHORTEST, at - from);
  }
}
