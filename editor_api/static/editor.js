// The text box, and what all text boxes of the page have in common. Colours come from style.css.

import {
  Compartment,
  EditorState,
  EditorView,
  HighlightStyle,
  bracketMatching,
  defaultKeymap,
  drawSelection,
  highlightSpecialChars,
  history,
  historyKeymap,
  keymap,
  languages,
  lineNumbers,
  placeholder,
  search,
  searchKeymap,
  syntaxHighlighting,
  tags,
} from "./vendor/codemirror.js";

const nonce = document.querySelector("meta[name=csp-nonce]").content;
const dark = matchMedia("(prefers-color-scheme: dark)");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const BLINK_MILLISECONDS = 1200;

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string), tags.regexp], color: "var(--code-string)" },
  { tag: [tags.comment, tags.meta], color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.number, tags.bool, tags.null, tags.atom], color: "var(--code-number)" },
  { tag: [tags.typeName, tags.className, tags.propertyName, tags.tagName], color: "var(--code-name)" },
  { tag: tags.heading, fontWeight: "bold" },
  { tag: tags.strong, fontWeight: "bold" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: [tags.link, tags.url], color: "var(--code-name)", textDecoration: "underline" },
]);

export const languageNames = Object.keys(languages);

/** Return the extension that reads a language, nothing for one that is not known. */
export const language = (name) => languages[name]?.() ?? [];

const darkness = new Compartment();

/** Let a view follow the system between light and dark. Returns what ends that. */
export function followSystem(view) {
  const update = () => view.dispatch({ effects: darkness.reconfigure(EditorView.darkTheme.of(dark.matches)) });
  dark.addEventListener("change", update);
  return () => dark.removeEventListener("change", update);
}

/** What every text box has. */
export const common = (label) => [
  EditorView.cspNonce.of(nonce),
  darkness.of(EditorView.darkTheme.of(dark.matches)),
  lineNumbers(),
  highlightSpecialChars(),
  EditorView.lineWrapping,
  syntaxHighlighting(colours),
  EditorView.contentAttributes.of({ "aria-label": label, tabindex: "0" }),
];

/** The box with the text to edit. Tab leaves it, as everywhere on the page. */
export class TextBox {
  constructor(parent, { onChange, onSelection }) {
    this.language = new Compartment();
    this.view = new EditorView({
      parent,
      state: EditorState.create({
        extensions: [
          common("Text to edit"),
          history(),
          drawSelection({ cursorBlinkRate: calm.matches ? 0 : BLINK_MILLISECONDS }),
          bracketMatching(),
          search({ top: true }),
          placeholder("Paste a text or code here, or take an example"),
          keymap.of([...searchKeymap, ...historyKeymap, ...defaultKeymap.filter(({ key }) => key !== "Mod-Enter")]),
          this.language.of([]),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) {
              this.typed = this.typed.compose(update.changes);
              onChange(update.changes);
            }
            if (update.docChanged || update.selectionSet) onSelection(this.selection);
          }),
        ],
      }),
    });
    followSystem(this.view);
    this.remember();
  }

  get text() {
    return this.view.state.doc.toString();
  }

  /** Keep the text as it is now, for edits that are made from it, and what is typed from now on. */
  remember() {
    this.kept = this.view.state;
    this.typed = this.kept.changes();
  }

  /** Return the text as it is now with edits of the kept one in it: nothing that was typed since is lost. */
  withEdits(edits) {
    const { doc } = this.kept;
    const offset = ({ line, character }) => doc.line(line + 1).from + character;
    const changes = edits.map(({ range: { start, end }, newText }) => ({
      from: offset(start),
      to: offset(end),
      insert: newText,
    }));
    return this.kept.changes(changes).map(this.typed).apply(this.view.state.doc);
  }

  set text(text) {
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  /** Replace the range of a change under review. */
  change(changes) {
    this.view.dispatch({ changes, userEvent: "input.accept" });
  }

  setLanguage(name) {
    this.view.dispatch({ effects: this.language.reconfigure(language(name)) });
  }

  /** What is selected, in lines and characters counted from 0; undefined where nothing is. */
  get selection() {
    const { doc, selection } = this.view.state;
    const { from, to, empty } = selection.main;
    if (empty) return undefined;
    const place = (offset) => {
      const line = doc.lineAt(offset);
      return { line: line.number - 1, character: offset - line.from };
    };
    return { start: place(from), end: place(to), characters: to - from };
  }
}
