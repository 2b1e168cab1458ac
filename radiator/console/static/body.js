// A message: its headers, and its body as text, JSON or bytes.
import { Empty, Table, Text, bytes, count, download, html, looksBinary, time, useEffect, useRef, useState } from "./ui.js";
import { BODY_BYTES_MAX, decoded, fetchWhole } from "./reading.js";
import { RESERVED } from "./headers.js";

const BROKERS = new Set([...RESERVED, "destination", "content-length"]);
const HEX_BYTES_MAX = 4096;

function hex(body) {
  const lines = [];
  for (let at = 0; at < Math.min(body.length, HEX_BYTES_MAX); at += 16) {
    const row = body.subarray(at, at + 16);
    const numbers = Array.from(row, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${numbers.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

// The beginning of a body whose last character may be cut.
function textOf(message) {
  let { body } = message;
  if (message.size > body.length) for (let cut = 0; cut < 3 && decoded(body) === null; cut += 1) body = body.subarray(0, body.length - 1);
  return decoded(body);
}

export function preview(message) {
  const text = textOf({ ...message, size: Infinity, body: message.body.subarray(0, 160) });
  return text === null || looksBinary(text) ? `${count(message.size)} bytes, not text` : text.replace(/\s+/g, " ");
}

export function Message({ message, where, tools }) {
  const text = textOf(message);
  const whole = message.size <= message.body.length;
  const json = text !== null && whole ? pretty(text) : null;
  const kinds = [text !== null && ["text", "Text"], json !== null && ["json", "JSON"], ["hex", "Hex"]].filter(Boolean);
  const [chosen, set] = useState(null);
  const [error, setError] = useState(null);
  const box = useRef(null);
  useEffect(() => {
    if (matchMedia("(max-width: 1100px)").matches) box.current.scrollIntoView({ block: "start" }); // it is above the list there
  }, []);
  const kind = kinds.some(([key]) => key === chosen) ? chosen : json !== null ? "json" : text !== null && looksBinary(text) ? "hex" : kinds[0][0];
  const save = async () => {
    setError(null);
    try {
      download(`message-${message.partition}-${message.offset}.bin`.replace(/[^\w.-]+/g, "_"), [whole ? message.body : await fetchWhole(where || message.destination, message.id)]);
    } catch (problem) {
      setError(problem);
    }
  };
  const content = kind === "hex" ? hex(message.body) : kind === "json" ? json : text;
  return html`<article class="message" ref=${box} aria-label="The message">
    <div class="message-head"><h3>${count(message.offset)} <small><${Text}>${message.partition}<//>, ${time(message.timeNs)}, ${bytes(message.size)}</small></h3><div class="tools">${tools}</div></div>
    <div class="body-box">
      <div class="body-tools"><div role="group" aria-label="Show the body as">${kinds.map(([key, title]) => html`<button type="button" aria-pressed=${key === kind} onClick=${() => set(key)}>${title}</button>`)}</div>
        <button type="button" onClick=${save}>Download the body</button></div>
      ${message.size === 0 ? html`<${Empty}>The body is empty.<//>` : html`<pre class="body" tabindex="0" aria-label="Body"><${Text} multiline>${content}<//></pre>`}
      ${!whole && html`<p class="note">The first ${bytes(BODY_BYTES_MAX)} of ${bytes(message.size)} are shown.</p>`}
      ${kind === "hex" && message.size > HEX_BYTES_MAX && html`<p class="note">The first ${bytes(HEX_BYTES_MAX)} are shown as hex.</p>`}
      ${error && html`<p class="notice bad" role="alert"><${Text}>${error.message}<//></p>`}
    </div>
    <${Table} label="Headers" pairs rows=${Object.entries(message.headers).sort((a, b) => BROKERS.has(a[0]) - BROKERS.has(b[0]))} rowKey=${(row) => row[0]} empty="It has no headers." columns=${[
      { title: "Header", cell: (row) => html`<code class=${BROKERS.has(row[0]) ? "note" : ""}><${Text}>${row[0]}<//></code>` },
      { title: "Value", broad: true, cell: (row) => html`<${Text}>${row[1]}<//>` },
    ]} />
  </article>`;
}
