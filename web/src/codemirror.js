// The one bundle of CodeMirror: whatever the page's own modules import comes from here.
import { HighlightStyle, StreamLanguage } from "@codemirror/language";
import { go } from "@codemirror/lang-go";
import { java } from "@codemirror/lang-java";
import { javascript } from "@codemirror/lang-javascript";
import { json } from "@codemirror/lang-json";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { rust } from "@codemirror/lang-rust";
import { yaml } from "@codemirror/lang-yaml";
import { toml } from "@codemirror/legacy-modes/mode/toml";

export { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
export { bracketMatching, syntaxHighlighting } from "@codemirror/language";
export { MergeView, getChunks, originalDocChangeEffect, unifiedMergeView } from "@codemirror/merge";
export { search, searchKeymap } from "@codemirror/search";
export { Compartment, EditorSelection, EditorState, Text } from "@codemirror/state";
export {
  EditorView,
  drawSelection,
  highlightActiveLine,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
export { tags } from "@lezer/highlight";
export { HighlightStyle };

/** How each language the page knows is read, by its name. */
export const languages = {
  go,
  java,
  javascript: () => javascript({ jsx: true }),
  json,
  markdown: () => markdown(),
  python,
  rust,
  toml: () => StreamLanguage.define(toml),
  typescript: () => javascript({ typescript: true }),
  yaml,
};
