// The strip chart: tokens of each pass as bars over time, and below them tokens per second as a line.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 40; // pixels for the numbers beside the strips
const RIGHT = 10;
const STRIP = 62; // height of a strip
const GAP = 26; // above each, for its title
const AXIS = 18; // below both, for the seconds
const SHORTEST = 1; // seconds that are shown at least

export class Chart {
  constructor(dom) {
    this.dom = dom;
    this.meter = undefined;
    this.plainRate = undefined;
    new ResizeObserver(() => this.draw()).observe(dom);
  }

  /** Show a run; call draw whenever it has gone on. */
  show(meter) {
    this.meter = meter;
    this.plainRate = undefined;
    this.draw();
  }

  draw() {
    const width = this.dom.clientWidth;
    const height = 2 * (GAP + STRIP) + AXIS;
    const svg = element("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const passes = this.meter?.passes ?? [];
    const seconds = Math.max(SHORTEST, this.meter?.seconds ?? 0);
    const right = width - RIGHT;
    const x = (at) => LEFT + (at / seconds) * (right - LEFT);

    const most = roundUp(Math.max(4, ...passes.map((pass) => pass.tokens)));
    const bars = strip(svg, { title: "tokens a pass", top: GAP, most, right });
    const barWidth = Math.max(1.5, Math.min(6, ((right - LEFT) / Math.max(1, passes.length)) * 0.6));
    for (const { at, tokens } of passes) {
      const y = bars(tokens);
      const left = Math.max(LEFT, Math.min(x(at) - barWidth / 2, right - barWidth));
      svg.append(element("rect", { class: "bar", x: left, y, width: barWidth, height: GAP + STRIP - y }));
    }

    const top = 2 * GAP + STRIP;
    const fastest = roundUp(Math.max(10, this.plainRate ?? 0, ...passes.map((pass) => pass.rate)));
    const rates = strip(svg, { title: "tokens a second", top, most: fastest, right });
    if (this.plainRate !== undefined) {
      const y = rates(this.plainRate);
      svg.append(element("line", { class: "plain", x1: LEFT, x2: right, y1: y, y2: y }));
      const label = { class: "plain-label", x: right, y: y > top + 16 ? y - 4 : y + 13, "text-anchor": "end" };
      svg.append(element("text", label, `plain decoding ${this.plainRate.toFixed(1)}`));
    }
    const line = passes.map(({ at, rate }) => `${x(at).toFixed(1)},${rates(rate).toFixed(1)}`).join(" ");
    svg.append(element("polyline", { class: "rate", points: line }));
    svg.append(element("text", { class: "tick", x: LEFT, y: height - 4 }, "0 s"));
    const end = { class: "tick", x: right, y: height - 4, "text-anchor": "end" };
    svg.append(element("text", end, `${seconds.toFixed(1)} s`));
    this.dom.replaceChildren(svg);
  }

  /** Say in words what the chart shows. */
  describe() {
    const { perPass, rate, passes } = this.meter;
    if (perPass === undefined) return;
    const most = Math.max(...passes.map((pass) => pass.tokens));
    // An answer may come too quickly to be timed.
    const rates = rate === undefined ? "" : `; ${rate.toFixed(1)} tokens a second`;
    const plain = this.plainRate === undefined ? "" : `, plain decoding ${this.plainRate.toFixed(1)}`;
    this.dom.setAttribute(
      "aria-label",
      `Over ${passes.length} passes: ${perPass.toFixed(1)} tokens a pass, at most ${most}${rates}${plain}`,
    );
  }
}

/** Draw a strip's frame and numbers; return how high a value lies. */
function strip(svg, { title, top, most, right }) {
  svg.append(element("text", { class: "strip-title", x: LEFT, y: top - 9 }, title));
  const y = (value) => top + STRIP - (Math.min(value, most) / most) * STRIP;
  for (const value of [0, most / 2, most]) {
    svg.append(element("line", { class: "grid", x1: LEFT, x2: right, y1: y(value), y2: y(value) }));
    svg.append(element("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, `${value}`));
  }
  return y;
}

/** The next of 2, 4, 10, 20, 40, 100 ... */
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 10].map((step) => step * power).find((step) => step >= value);
}

function element(name, attributes, text = "") {
  const dom = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) dom.setAttribute(key, value);
  dom.textContent = text;
  return dom;
}
