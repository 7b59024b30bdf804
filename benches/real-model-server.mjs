// A real small language model behind an OpenAI-compatible server, for end-to-end checks.
//   node real-model-server.mjs MODEL.gguf PORT SLOTS      (run where node-llama-cpp is installed)
// It is the second way of real-model.sh: its engine picks code that fits the processor at run time.
// With `tool_choice: "required"` a grammar holds the model to one call of an offered tool; otherwise
// what it writes is taken as it comes, a call only when it is one bare JSON object.
import { createServer } from "node:http";
import { getLlama, LlamaCompletion } from "node-llama-cpp";

const [modelPath, port, slots] = [process.argv[2], Number(process.argv[3]), Number(process.argv[4] ?? 5)];
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({ sequences: slots, contextSize: 8192, threads: 2 });
const free = Array.from({ length: slots }, () => ({ sequence: context.getSequence(), seen: "" }));
const waiting = [];
const grammars = new Map();

// A slot remembers what it has read; the one that shares most with a prompt has least to read anew.
function shared(left, right) {
  let length = 0;
  while (length < left.length && left[length] === right[length]) length += 1;
  return length;
}

function takeSlot(text) {
  if (!free.length) return new Promise((go) => waiting.push(go));
  free.sort((one, other) => shared(one.seen, text) - shared(other.seen, text));
  return Promise.resolve(free.pop());
}

const giveSlot = (slot) => (waiting.length ? waiting.shift()(slot) : free.push(slot));

// The conversation in the model's own markup; a call is one bare JSON object, which is what this
// model writes most reliably.
function prompt({ messages, tools }) {
  const system = messages[0]?.role === "system" ? messages[0].content : "You are a helpful assistant.";
  let text = `<|im_start|>system\n${system}`;
  if (tools?.length) {
    text += "\n\nFunctions you can call:";
    for (const tool of tools) text += `\n${JSON.stringify(tool)}`;
    text += '\n\nTo call a function, reply with exactly one JSON object and nothing else:\n{"name": <function-name>, "arguments": <args-json-object>}';
  }
  text += "<|im_end|>\n";
  for (const [index, message] of messages.entries()) {
    if (index === 0 && message.role === "system") continue;
    if (message.role === "tool") {
      text += `<|im_start|>user\n<tool_response>\n${message.content}\n</tool_response><|im_end|>\n`;
    } else {
      text += `<|im_start|>${message.role}\n${message.content ?? ""}`;
      for (const call of message.tool_calls ?? []) {
        text += `\n{"name": "${call.function.name}", "arguments": ${call.function.arguments}}`;
      }
      text += "<|im_end|>\n";
    }
  }
  return `${text}<|im_start|>assistant\n`;
}

// Only what a tool requires is asked for; the engine's grammars want every property they name.
function plain(schema) {
  if (schema?.type === "object") {
    const required = schema.required ?? [];
    return { type: "object", properties: Object.fromEntries(required.map((key) => [key, plain(schema.properties[key])])) };
  }
  if (schema?.type === "array") return { type: "array", items: plain(schema.items), minItems: 1, maxItems: 3 };
  return { type: schema?.type ?? "string" };
}

async function grammarFor(tools) {
  const key = JSON.stringify(tools);
  if (!grammars.has(key)) {
    const oneOf = tools.map(({ function: tool }) => ({
      type: "object",
      properties: { name: { const: tool.name }, arguments: plain(tool.parameters) },
    }));
    grammars.set(key, await llama.createGrammarForJsonSchema({ oneOf }));
  }
  return grammars.get(key);
}

function asCall(text, tools) {
  try {
    const value = JSON.parse(text.trim());
    if (!tools?.some((tool) => tool.function.name === value.name)) return null;
    return { id: `call_${Math.random().toString(36).slice(2, 12)}`, type: "function", function: { name: value.name, arguments: JSON.stringify(value.arguments ?? {}) } };
  } catch {
    return null;
  }
}

async function answer(body, signal) {
  const text = prompt(body);
  const slot = await takeSlot(text);
  try {
    slot.seen = text;
    const completion = new LlamaCompletion({ contextSequence: slot.sequence });
    const tokens = model.tokenize(text, true);
    const grammar = body.tools?.length && body.tool_choice === "required" ? await grammarFor(body.tools) : undefined;
    const { response, metadata } = await completion.generateCompletionWithMeta(tokens, {
      maxTokens: body.max_tokens ?? 600, temperature: body.temperature ?? 0.7, seed: body.seed, grammar, signal,
      customStopTriggers: ["<|im_end|>"],
    });
    completion.dispose({ disposeSequence: false });
    const call = asCall(response, body.tools);
    const spent = model.tokenize(response, false).length;
    const usage = { prompt_tokens: tokens.length, completion_tokens: spent, total_tokens: tokens.length + spent };
    const finish = call ? "tool_calls" : metadata.stopReason === "maxTokens" ? "length" : "stop";
    return { call, text: call ? null : response, finish, usage };
  } finally {
    giveSlot(slot);
  }
}

const server = createServer((request, response) => {
  if (request.url === "/health") return response.end("ok");
  if (request.method !== "POST" || !request.url.endsWith("/chat/completions")) {
    response.statusCode = 404;
    return response.end('{"error":{"message":"not here"}}');
  }
  let text = "";
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  request.setEncoding("utf8").on("data", (piece) => (text += piece)).on("end", async () => {
    try {
      const body = JSON.parse(text);
      const { call, text: content, finish, usage } = await answer(body, gone.signal);
      const base = { id: "chatcmpl-0", created: Math.floor(Date.now() / 1000), model: "real-small" };
      const tool_calls = call ? [call] : undefined;
      if (!body.stream) {
        response.setHeader("content-type", "application/json");
        const message = { role: "assistant", content, tool_calls };
        return response.end(JSON.stringify({ ...base, object: "chat.completion", choices: [{ index: 0, message, finish_reason: finish }], usage }));
      }
      response.setHeader("content-type", "text/event-stream");
      const send = (choices, more = {}) => response.write(`data: ${JSON.stringify({ ...base, object: "chat.completion.chunk", choices, ...more })}\n\n`);
      const delta = call ? { role: "assistant", content: null, tool_calls: [{ index: 0, ...call }] } : { role: "assistant", content };
      send([{ index: 0, delta, finish_reason: null }]);
      send([{ index: 0, delta: {}, finish_reason: finish }]);
      send([], { usage });
      response.end("data: [DONE]\n\n");
    } catch (error) {
      if (!response.headersSent) response.statusCode = 500;
      response.end(JSON.stringify({ error: { message: String(error) } }));
    }
  });
});
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/v1`));
