// OpenAI's Node SDK against a running service, whose address is the argument. Prints what it got as JSON.
import { createRequire } from "node:module";

const { OpenAI } = createRequire(import.meta.url)("openai"); // finds it in NODE_PATH, too

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "hi" }];
const told = {};

const whole = await client.chat.completions.create({ model: "any", messages });
told.whole = whole.choices[0].message.content;

let text = "";
let usage = null;
const options = { model: "any", messages, stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create(options)) {
  text += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
told.streamed = text;
told.total_tokens = usage.total_tokens;

for await (const chunk of await client.completions.create({ model: "any", prompt: "hi", stream: true })) {
  told.first_piece = chunk.choices[0].text;
  break; // closes the connection
}

try {
  await client.chat.completions.create({ model: "any", messages, temperature: -1 });
} catch (error) {
  told.error = { status: error.status, code: error.code, has_id: Boolean(error.requestID) };
}
told.models = (await client.models.list()).data.map((model) => model.id);
console.log(JSON.stringify(told));
