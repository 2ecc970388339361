// Talks to the service: keys, requests, streams of events. Knows nothing of the page.

const KEY = "lookupdec-key";

export class ServiceError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

export const keyIsKept = () => sessionStorage.getItem(KEY) !== null;
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);

/** Whether a header can hold a key; the service has no others. */
export const isKey = (text) => /^[\x20-\x7e]+$/.test(text);

/** Ask the service; without a key where it needs none. Raises ServiceError for all that is no success, and AbortError where the signal says so. */
export async function ask(path, { body, signal, open = false } = {}) {
  const headers = {};
  if (!open && keyIsKept()) headers.authorization = `Bearer ${sessionStorage.getItem(KEY)}`;
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET",
      headers,
      body: body && JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    throw signal?.aborted ? error : new ServiceError("The server cannot be reached. Is it running?");
  }
  if (!response.ok) throw await told(response);
  return response;
}

async function told(response) {
  let message;
  try {
    ({ error: { message } } = await response.json());
  } catch {
    message = `it answered with status ${response.status}`;
  }
  return new ServiceError(`The server refused: ${message}`, response.status);
}

/** Yield the events of a stream. Raises ServiceError where it tells an error or ends too early. */
export async function* events(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data: ")) continue;
        if (line === "data: [DONE]") return;
        const event = JSON.parse(line.slice("data: ".length));
        if (event.error) throw new ServiceError(`The server gave up: ${event.error.message}`);
        yield event;
      }
    }
  } catch (error) {
    if (signal.aborted || error instanceof ServiceError) throw error;
  } finally {
    reader.cancel().catch(() => {}); // the connection may be gone already
  }
  throw new ServiceError("The server went away in the middle of the answer. What came before is below.");
}
