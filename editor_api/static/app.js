// Puts the page together: reads the form, runs, and shows what comes.

import { Answer } from "./answer.js";
import { ServiceError, ask, events, forgetKey, isKey, keepKey, keyIsKept } from "./api.js";
import { Chart } from "./chart.js";
import { TextBox, languageNames } from "./editor.js";
import { Meter } from "./meter.js";
import { Review } from "./review.js";
import { inWords, showStatistics } from "./statistics.js";

const at = (id) => document.getElementById(id);
const CHANGE_TOOLS = ["previous", "next", "accept", "reject", "accept-all", "reject-all"];
const SLOW_MILLISECONDS = 1000; // between drawings where less motion is wanted
const POLL_MILLISECONDS = 1000;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const textBox = new TextBox(at("editor"), {
  onChange: (changes) => review?.mirror(changes),
  onSelection: showSelection,
});
const answer = new Answer(at("answer"), at("legend"));
const chart = new Chart(at("chart"));
const tools = Object.fromEntries([...CHANGE_TOOLS, "all-lines"].map((name) => [name, at(name)]));
const review = new Review(at("diff"), textBox, tools, showReviewState);
let running; // the AbortController of the run under way

const say = (text) => (at("status").textContent = text);

function complain(text) {
  at("error").textContent = text;
  at("error").hidden = !text;
}

// Service

/** Ask the service, and for a key where it needs one. */
async function asked(path, options) {
  for (;;) {
    try {
      return await ask(path, options);
    } catch (error) {
      if (error.status !== 401) throw error;
      const before = at("status").textContent;
      say("Waiting for a key …");
      try {
        await askForKey();
      } finally {
        say(before);
      }
    }
  }
}

function askForKey() {
  const dialog = at("key-dialog");
  at("key-hint").textContent = keyIsKept()
    ? "The server does not know that key. Try another."
    : "It is kept until this tab is closed.";
  forgetKey();
  at("key").value = "";
  dialog.showModal();
  return new Promise((resolve, reject) => {
    at("key-form").onsubmit = (event) => {
      event.preventDefault();
      const key = at("key").value.trim();
      if (!isKey(key)) {
        if (key) at("key-hint").textContent = "A key has no such characters: is it copied whole, without quotes?";
        return;
      }
      keepKey(key);
      dialog.onclose = null;
      dialog.close();
      resolve();
    };
    at("key-cancel").onclick = () => dialog.close();
    dialog.onclose = () => reject(new ServiceError("The server needs a key. Run again to give one."));
  });
}

async function connect() {
  for (;;) {
    const { model } = await (await ask("health", { open: true })).json();
    if (model === "ready") break;
    say(model === "loading" ? "The model is being loaded …" : `The service is ${model}.`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MILLISECONDS));
  }
  const { data } = await (await asked("v1/models")).json();
  at("model").replaceChildren(...data.map(({ id }) => new Option(id, id)));
  say(`Ready: ${data[0].id}`);
}

// Request

function request() {
  const number = (id) => (at(id).value === "" ? undefined : Number(at(id).value));
  return {
    input: textBox.text,
    instruction: at("instruction").value,
    language: at("language").value || undefined,
    selection: at("selection-only").checked ? selected() : undefined,
    model: at("model").value || undefined,
    max_tokens: number("max-tokens"),
    temperature: number("temperature"),
    seed: number("seed"),
    allow_incomplete: at("incomplete").checked,
    return: ["edits"],
    stream: true,
    stream_options: { include_sources: true },
  };
}

function selected() {
  const { start, end } = textBox.selection ?? {};
  return start && { start, end };
}

function showSelection(selection) {
  at("selection-row").hidden = !selection;
  if (!selection) return;
  const [first, last] = [selection.start.line + 1, selection.end.line + 1];
  const lines = first === last ? `line ${first}` : `lines ${first} to ${last}`;
  const characters = selection.characters === 1 ? "1 character" : `${selection.characters} characters`;
  at("selection-text").textContent = `Change the selection only: ${characters} in ${lines}`;
}

async function showExamples() {
  const examples = await (await ask("static/examples.json", { open: true })).json();
  at("examples").replaceChildren(
    ...examples.map((example) => {
      const button = document.createElement("button");
      button.type = "button";
      const kind = document.createElement("b");
      kind.textContent = example.language || "text";
      button.append(kind, ` ${example.instruction}`);
      button.onclick = () => loadExample(example);
      const item = document.createElement("li");
      item.append(button);
      return item;
    }),
  );
}

function loadExample({ language, instruction, input, source, license }) {
  stop();
  closeReview();
  at("language").value = language;
  textBox.setLanguage(language);
  textBox.text = input;
  at("instruction").value = instruction;
  at("credit").textContent = `${source}, ${license}`;
  at("credit").hidden = false;
  say("Example loaded.");
}

// Run

async function run() {
  if (running) return;
  complain("");
  const body = request();
  if (!body.input.trim()) return complain("There is no text yet: paste one, or take an example.");
  if (!body.instruction.trim()) {
    complain("Write an instruction: what should be changed?");
    return at("instruction").focus();
  }
  textBox.remember();
  running = new AbortController();
  const { signal } = running;
  setRunning(true);
  closeReview();
  answer.clear();
  at("statistics-section").hidden = true;
  try {
    await runBoth(body, signal);
  } catch (error) {
    if (signal.aborted) say("Stopped.");
    else {
      say("");
      complain(error instanceof ServiceError ? error.message : `The page failed: ${error.message}`);
    }
  } finally {
    running = undefined;
    setRunning(false);
  }
}

async function runBoth(body, signal) {
  say("Running …");
  const meter = new Meter();
  chart.show(meter);
  showNumbers(meter);
  const own = await stream(body, signal, meter, (spans) => {
    answer.add(spans);
    answer.count(meter.sources);
    showNumbers(meter);
    chart.draw();
  });
  chart.describe();
  showStatistics(at("statistics"), own);
  at("statistics-section").hidden = false;
  showChanges(own);
  const done = `${own.complete ? "Done" : "Done, but the answer is not complete"}: ${inWords(own)}`;
  say(`${done}. ${own.changed ? inTotal() : "Nothing was changed"}.`);
  if (!at("compare").checked) return;
  say(`${done}. Now decoding plainly …`);
  const plainMeter = new Meter();
  const plain = await stream({ ...body, drafting: false }, signal, plainMeter, () => {
    chart.plainRate = plainMeter.rate;
    showNumbers(meter, plainMeter);
    chart.draw();
  });
  chart.describe();
  showStatistics(at("statistics"), own, plain);
  say(`${done}. Plain decoding: ${inWords(plain)}.`);
}

/** Run once; show is called with the newest spans, at most once a frame, and at the end. Returns the result. */
async function stream(body, signal, meter, show) {
  const response = await asked("v1/edits", { body, signal });
  const spans = [];
  let due = false;
  const draw = () => {
    due = false;
    show(spans.splice(0));
  };
  const drawIfDue = () => due && draw();
  let result;
  try {
    for await (const event of events(response, signal)) {
      if (event.object !== "edit.chunk") {
        result = event;
        meter.finish(event.timings);
        continue;
      }
      meter.add(event.delta);
      spans.push(...event.delta.spans);
      if (due) continue;
      due = true;
      if (calm.matches) setTimeout(drawIfDue, SLOW_MILLISECONDS);
      else requestAnimationFrame(drawIfDue);
    }
  } finally {
    draw(); // also what came before a stream broke off
  }
  return { ...result, answer: meter.text };
}

function stop() {
  running?.abort();
}

// A button that is disabled loses the focus, which would then be nowhere.
function setRunning(on) {
  at("run").setAttribute("aria-disabled", on);
  at("stop").setAttribute("aria-disabled", !on);
  document.body.toggleAttribute("data-running", on);
}

function showNumbers(meter, plain) {
  const text = (value, digits = 1) => (value === undefined ? "–" : value.toFixed(digits));
  at("now-pass").textContent = text(meter.perPass);
  at("now-rate").textContent = text(meter.rate);
  at("now-plain").textContent = text(plain?.rate);
  at("now-tokens").textContent = String(meter.tokens);
}

// Review

function showChanges(result) {
  at("warnings").replaceChildren(
    ...result.warnings.map((warning) => {
      const item = document.createElement("li");
      item.textContent = warning;
      return item;
    }),
  );
  at("warnings").hidden = !result.warnings.length;
  at("review").hidden = false;
  review.confirm = result.complete ? undefined : confirmIncomplete;
  review.show(textBox.withEdits(result.edits), at("language").value);
}

/** Ask whether all of an answer that is not complete is to be accepted. */
function confirmIncomplete() {
  const dialog = at("incomplete-dialog");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => (dialog.onclose = () => resolve(dialog.returnValue === "accept")));
}

function closeReview() {
  review.close();
  at("review").hidden = true;
}

const inTotal = () => (review.chunks.length === 1 ? "1 change to review" : `${review.chunks.length} changes to review`);

function showReviewState() {
  const { place, chunks } = review;
  at("review-state").textContent = place
    ? `Change ${place.number} of ${chunks.length}, at line ${place.line}`
    : "No open changes: your text and the answer are the same.";
  for (const name of CHANGE_TOOLS) tools[name].setAttribute("aria-disabled", !place);
}

// Wiring

at("language").append(new Option("plain text", ""), ...languageNames.map((name) => new Option(name, name)));
at("language").onchange = () => textBox.setLanguage(at("language").value);
at("form").onsubmit = (event) => {
  event.preventDefault();
  run();
};
at("stop").onclick = stop;
addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return; // it has the keyboard; a run would ask for a key once more
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    run();
  } else if (event.key === "Escape" && !event.defaultPrevented) stop();
});
for (const start of [showExamples, connect]) start().catch((error) => complain(error.message));
