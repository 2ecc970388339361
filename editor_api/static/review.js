// The changes under review: side by side, or one below the other where the screen is narrow. The text box is the one
// place where accepted text lives; the left side here mirrors it, so that undoing there brings a change back.

import {
  EditorState,
  EditorView,
  MergeView,
  getChunks,
  originalDocChangeEffect,
  unifiedMergeView,
} from "./vendor/codemirror.js";
import { common, followSystem, language } from "./editor.js";

const COLLAPSE = { margin: 3, minSize: 6 };
const narrow = matchMedia("(max-width: 720px)");

export class Review {
  /** onChange is called whenever the number of open changes may be another one; tools are the buttons by name. */
  constructor(dom, textBox, tools, onChange) {
    this.dom = dom;
    this.textBox = textBox;
    this.onChange = onChange;
    this.merge = undefined;
    this.confirm = undefined; // where set, asked before all changes are accepted at once
    this.showsAll = false; // unchanged lines far from changes, too
    tools.previous.onclick = () => this.#go(-1);
    tools.next.onclick = () => this.#go(1);
    tools.accept.onclick = () => this.#accept(this.#current);
    tools.reject.onclick = () => this.#reject(this.#current);
    tools["accept-all"].onclick = () => this.#acceptAll();
    tools["reject-all"].onclick = () => this.#rejectAll();
    tools["all-lines"].onclick = () => {
      this.showsAll = !this.showsAll;
      tools["all-lines"].setAttribute("aria-pressed", this.showsAll);
      this.#showAgain();
    };
    // Side by side, or one below the other.
    narrow.addEventListener("change", () => this.#showAgain());
  }

  /** The changes that are neither accepted nor rejected. */
  get chunks() {
    return this.answer ? (getChunks(this.answer.state)?.chunks ?? []) : [];
  }

  /** Which line the change that the buttons act on begins at, and its number, both from 1. */
  get place() {
    const chunk = this.chunks[this.#index];
    if (!chunk) return undefined;
    return { number: this.#index + 1, line: this.answer.state.doc.lineAt(this.#start(chunk)).number };
  }

  close() {
    this.stopFollowing?.();
    (this.merge ?? this.answer)?.destroy();
    this.dom.replaceChildren();
    this.merge = this.answer = undefined;
  }

  /** Compare the text box with an answer. */
  show(answer, languageName) {
    this.close();
    this.languageName = languageName;
    this.at = 0;
    const text = this.textBox.view.state.doc;
    const extensions = (label) => [common(label), language(languageName), EditorState.readOnly.of(true)];
    const collapseUnchanged = this.showsAll ? undefined : COLLAPSE;
    const told = EditorView.updateListener.of(({ docChanged, transactions }) => {
      if (docChanged || transactions.some((one) => one.effects.length)) this.onChange();
    });
    if (narrow.matches) {
      const controls = (kind) => this.#button(kind, (button) => this.#chunkAt(this.answer.posAtDOM(button)));
      const unified = unifiedMergeView({ original: text, collapseUnchanged, mergeControls: controls });
      this.answer = new EditorView({
        parent: this.dom,
        state: EditorState.create({ doc: answer, extensions: [extensions("Changes, one below the other"), unified, told] }),
      });
      this.stopFollowing = followSystem(this.answer);
    } else {
      this.merge = new MergeView({
        parent: this.dom,
        a: { doc: text, extensions: extensions("Your text") },
        b: { doc: answer, extensions: [extensions("The answer"), told] },
        revertControls: "a-to-b",
        renderRevertControl: () => this.#controls(),
        collapseUnchanged,
      });
      this.answer = this.merge.b;
      const stops = [followSystem(this.merge.a), followSystem(this.merge.b)];
      this.stopFollowing = () => stops.forEach((stop) => stop());
    }
    this.onChange();
  }

  /** Follow a change in the text box. */
  mirror(changes) {
    if (this.merge) this.merge.a.dispatch({ changes });
    else if (this.answer) this.answer.dispatch({ effects: originalDocChangeEffect(this.answer.state, changes) });
  }

  /** Build the view anew, at the same change. */
  #showAgain() {
    if (!this.answer) return;
    const { at } = this;
    this.show(this.answer.state.doc, this.languageName);
    this.at = at;
    this.onChange();
  }

  get #index() {
    // Where the one at hand is decided, the next; after the last, the first.
    return Math.max(0, this.chunks.findIndex((chunk) => chunk.fromB >= this.at));
  }

  get #current() {
    return this.chunks[this.#index];
  }

  #go(steps) {
    const { chunks } = this;
    const chunk = chunks[(this.#index + steps + chunks.length) % chunks.length];
    if (!chunk) return;
    this.at = chunk.fromB;
    const anchor = this.#start(chunk);
    this.answer.dispatch({ selection: { anchor }, effects: EditorView.scrollIntoView(anchor, { y: "center" }) });
    this.onChange();
  }

  #start(chunk) {
    return Math.min(chunk.fromB, this.answer.state.doc.length);
  }

  #accept(chunk) {
    if (!chunk) return;
    this.at = chunk.fromB;
    const source = this.answer.state.doc;
    this.textBox.change(replacement(source, chunk.fromB, chunk.toB, this.textBox.view.state.doc, chunk.fromA, chunk.toA));
  }

  #reject(chunk) {
    if (!chunk) return;
    this.at = chunk.fromB;
    const source = this.textBox.view.state.doc;
    const doc = this.answer.state.doc;
    this.answer.dispatch({ changes: replacement(source, chunk.fromA, chunk.toA, doc, chunk.fromB, chunk.toB) });
  }

  async #acceptAll() {
    if (!this.chunks.length) return;
    if (this.confirm && !(await this.confirm())) return;
    this.textBox.change({ from: 0, to: this.textBox.view.state.doc.length, insert: this.answer.state.doc });
  }

  #rejectAll() {
    if (!this.chunks.length) return;
    const changes = { from: 0, to: this.answer.state.doc.length, insert: this.textBox.view.state.doc };
    this.answer.dispatch({ changes });
  }

  #chunkAt(position) {
    return this.chunks.find((chunk) => chunk.fromB <= position && position <= chunk.endB);
  }

  /** The two buttons between the sides. */
  #controls() {
    const dom = document.createElement("div");
    dom.className = "hunk";
    const find = () => this.chunks[Number(dom.dataset.chunk)];
    dom.append(this.#button("accept", find), this.#button("reject", find));
    // The view's own handler undoes the change at whatever is pressed in here.
    dom.addEventListener("mousedown", (event) => event.stopPropagation());
    return dom;
  }

  #button(kind, find) {
    const button = document.createElement("button");
    button.type = "button";
    button.name = kind;
    button.className = kind;
    button.textContent = kind === "accept" ? "✓" : "✕";
    button.title = kind === "accept" ? "Accept this change" : "Reject this change";
    button.setAttribute("aria-label", button.title);
    button.onclick = () => (kind === "accept" ? this.#accept(find(button)) : this.#reject(find(button)));
    return button;
  }
}

/** What makes one document say of a change what another says. Changes are of whole lines. */
function replacement(source, from, to, target, targetFrom, targetTo) {
  let insert = source.sliceString(from, Math.max(from, to - 1));
  if (from !== to && targetTo <= target.length) insert += "\n";
  return { from: Math.min(targetFrom, target.length), to: Math.min(targetTo, target.length), insert };
}
