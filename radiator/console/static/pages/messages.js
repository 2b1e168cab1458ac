// Reads the messages of a destination from any position without consuming them, follows new ones, publishes one.
import { Empty, Failure, Field, Panel, Text, bytes, confirmAction, count, download, go, html, time, useEffect, useId, usePoll, useRef, useState } from "../ui.js";
import { Message, preview } from "../body.js";
import { PAGE, RANGE_COUNT_MAX, Reader, positionHeaders, readRange } from "../reading.js";
import { newLink, session } from "../session.js";

const SHOWN_MAX = 500; // messages in the page
const TAIL_WINDOW = 200;
const TAIL_ACK_MS = 250;
const POSITIONS = {
  last: ["the last", "50"],
  first: ["the first", ""],
  waiting: ["what waits in the queue", ""],
  ago: ["since", "1h"],
  time: ["from the time", "2026-01-31T12:00:00Z"],
  offset: ["from the offset", "0"],
};

function Rows({ items, selected, onSelect }) {
  return html`<div class="rows" role="region" aria-label="Messages"><ul>${items.map((item) => html`<li key=${item.key}>
    <button type="button" class="row" aria-pressed=${item.key === selected} onClick=${() => onSelect(item.key)}>
      <span class="row-head"><b>${count(item.offset)}</b><span>${time(item.timeNs).slice(0, 19)}</span><span>${bytes(item.size)}</span></span>
      <span class="row-text"><${Text}>${preview(item)}<//></span>
    </button></li>`)}</ul></div>`;
}

// Messages that were read, with a list and the chosen one. Newest first while following.
function Results({ request, live }) {
  const [items, set] = useState([]);
  const [dropped, setDropped] = useState(0);
  const [chosen, choose] = useState(null);
  const [state, setState] = useState({ reading: true });
  const [paused, setPaused] = useState(false);
  const [fresh, setFresh] = useState(0);
  const reader = useRef(null);
  const held = useRef([]);
  const pausedNow = useRef(false);
  const key = JSON.stringify([request, live, session.generation]);

  const add = (found) => set((old) => {
    const next = live ? [...found.slice().reverse(), ...old] : [...old, ...found];
    if (next.length <= SHOWN_MAX) return next;
    setDropped((number) => number + next.length - SHOWN_MAX);
    return live ? next.slice(0, SHOWN_MAX) : next.slice(-SHOWN_MAX);
  });

  useEffect(() => {
    set([]);
    setDropped(0);
    choose(null);
    setState({ reading: true });
    held.current = [];
    setFresh(0);
    const own = new Reader({
      destination: request.destination,
      headers: positionHeaders(request, live),
      window: live ? TAIL_WINDOW : PAGE,
      onMessages: (found) => {
        if (pausedNow.current) {
          held.current.push(...found);
          setFresh(held.current.length);
        } else add(found);
        if (!live) setState({ reading: own.unacked < PAGE, more: own.unacked >= PAGE });
      },
      onEnd: (error) => setState({ reading: false, error, ended: true }),
    });
    reader.current = own;
    const timer = live ? setInterval(() => pausedNow.current || document.hidden || own.more(), TAIL_ACK_MS) : 0;
    return () => {
      clearInterval(timer);
      own.close();
    };
  }, [key]);

  const pause = (value) => {
    pausedNow.current = value;
    setPaused(value);
    if (!value) {
      add(held.current);
      held.current = [];
      setFresh(0);
    }
  };
  const more = () => {
    setState({ reading: true });
    reader.current.more();
  };
  const message = items.find((item) => item.key === chosen);
  const status = live
    ? paused ? (fresh >= TAIL_WINDOW ? `paused, at least ${count(fresh)} new` : `paused, ${count(fresh)} new`) : state.ended ? "ended" : "following"
    : `${count(items.length + dropped)} ${items.length + dropped === 1 ? "message" : "messages"}${state.ended ? "" : state.more ? ", and more" : ""}`;
  return html`<${Panel} title=${live ? "New messages" : "Messages"} tools=${html`<span role="status" class="note">${status}</span>
      ${live && html`<button type="button" onClick=${() => pause(!paused)}>${paused ? (fresh ? `Show ${count(fresh)} new` : "Continue") : "Pause"}</button>`}`}>
    <${Failure} error=${state.error} />
    ${dropped > 0 && html`<p class="note">Of ${count(items.length + dropped)} messages the page keeps ${count(SHOWN_MAX)}.</p>`}
    ${items.length ? html`<div class="split ${message ? "with-detail" : ""}">
        <${Rows} items=${items} selected=${chosen} onSelect=${choose} />
        ${message ? html`<${Message} key=${message.key} message=${message} where=${request.destination} tools=${html`<button type="button" onClick=${() => choose(null)}>Close</button>`} />` : html`<${Empty}>Choose a message.<//>`}
      </div>` : state.error ? null : html`<${Empty}>${state.ended ? "No messages." : live ? "Waiting for new messages." : "Reading …"}<//>`}
    ${state.more && html`<div class="pager"><button type="button" onClick=${more}>${count(PAGE)} more</button></div>`}
  <//>`;
}

function range(request) {
  confirmAction({
    title: "Download messages",
    text: html`<p>Messages of <${Text}>${request.destination}<//> from the chosen position on, as lines of JSON.</p>`,
    fields: [{ name: "most", label: "At most", value: "1000", type: "number", note: `up to ${count(RANGE_COUNT_MAX)} messages, or 64 MiB` }],
    button: "Download",
    run: async ({ most }, progress) => {
      const number = Math.min(Math.max(Number(most) || 1, 1), RANGE_COUNT_MAX);
      const { lines, complete } = await readRange(request.destination, positionHeaders(request), number, (read) => progress(`${count(read)} messages …`));
      if (!lines.length) return "There are no messages.";
      download(`${request.destination.replace(/[^\w.-]+/g, "_")}.jsonl`, lines, "application/jsonl");
      return `${count(lines.length)} messages${complete ? "" : "; there are more"}.`;
    },
  });
}

function Publish({ destination }) {
  const [state, set] = useState({});
  const form = useRef(null);
  const send = async (event) => {
    event.preventDefault();
    const data = new FormData(form.current);
    const headers = {};
    for (const line of String(data.get("headers")).split("\n")) {
      if (!line.trim()) continue;
      const colon = line.indexOf(":");
      if (colon < 1) return set({ error: { message: `expected name: value, got ${line}` } });
      headers[line.slice(0, colon).trim()] = line.slice(colon + 1).trim();
    }
    if (data.get("type")) headers["content-type"] = String(data.get("type"));
    set({ busy: true });
    let link;
    try {
      link = await newLink();
      const receipt = await link.send(String(data.get("destination")), new TextEncoder().encode(String(data.get("body"))), { ...headers, "audit-log": "true" });
      set({ done: receipt.dropped === "true" ? "The broker dropped the message." : `Stored${receipt.offset ? ` at the offset ${count(Number(receipt.offset))}` : ""}; ${count(Number(receipt["delivered-to"] || 0))} subscriptions match.` });
    } catch (error) {
      set({ error });
    } finally {
      if (link) link.close();
    }
    return undefined;
  };
  return html`<details class="panel publish"><summary><h2>Publish a message</h2></summary><form ref=${form} onSubmit=${send}>
    <div class="form-row">
      <${Field} label="Destination" wide><input name="destination" key=${destination} defaultValue=${destination} required autocomplete="off" spellcheck=${false} /><//>
      <${Field} label="Content type"><input name="type" defaultValue="text/plain" autocomplete="off" /><//>
    </div>
    <${Field} label="Headers, a line each" wide><textarea name="headers" rows="2" spellcheck=${false} placeholder="name: value"></textarea><//>
    <${Field} label="Body" wide><textarea name="body" rows="5" spellcheck=${false}></textarea><//>
    <div aria-live="polite"><${Failure} error=${state.error} />${state.done && html`<p class="notice good">${state.done}</p>`}</div>
    <div class="buttons left"><button type="submit" class="primary" disabled=${state.busy}>Publish</button></div>
  </form></details>`;
}

export function Messages({ params }) {
  const shownFor = params.get("d") || "";
  const [destination, set] = useState(shownFor);
  const [from, setFrom] = useState(params.get("from") || "last");
  const [value, setValue] = useState(params.get("value") || "");
  const [selector, setSelector] = useState(params.get("selector") || "");
  const list = useId();
  const query = params.toString();
  useEffect(() => {
    set(shownFor);
    setFrom(params.get("from") || "last");
    setValue(params.get("value") || "");
    setSelector(params.get("selector") || "");
  }, [query]);
  const [typed, setTyped] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => setTyped(destination), 300);
    return () => clearTimeout(timer);
  }, [destination]);
  const names = usePoll(session.admin ? "destinations.ls" : null, { search: typed, limit: 20 }, 0);
  const live = params.get("live") === "true";
  const request = { destination: shownFor, from: params.get("from") || "last", value: params.get("value") || "", selector: params.get("selector") || "" };
  const wanted = (more) => ({ d: destination, from, value: POSITIONS[from][1] ? value : "", selector, ...more });
  const show = (event) => {
    event.preventDefault();
    go("messages", wanted({ again: Number(params.get("again") || 0) + 1 }));
  };
  return html`
    <form class="panel form-row" onSubmit=${show} aria-label="What to read">
      <${Field} label="Destination" wide><input list=${list} required value=${destination} onInput=${(event) => set(event.currentTarget.value)} placeholder="/queue/orders" autocomplete="off" spellcheck=${false} /><//>
      <datalist id=${list}>${(names.data ? names.data.destinations : []).map((each) => html`<option value=${each.name}></option>`)}</datalist>
      <${Field} label="Position"><select value=${from} onChange=${(event) => { setFrom(event.currentTarget.value); setValue(""); }}>
        ${Object.entries(POSITIONS).map(([key, [title]]) => html`<option value=${key} selected=${key === from}>${title}</option>`)}
      </select><//>
      ${POSITIONS[from][1] && html`<${Field} label=${{ last: "How many", ago: "How long ago", time: "Time (RFC 3339)", offset: "Offset" }[from]}>
        <input value=${value} onInput=${(event) => setValue(event.currentTarget.value)} placeholder=${POSITIONS[from][1]} size=${from === "time" ? 22 : 8} autocomplete="off" /><//>`}
      <${Field} label="Selector" wide><input value=${selector} onInput=${(event) => setSelector(event.currentTarget.value)} placeholder="priority > 5 AND origin = 'JFK'" autocomplete="off" spellcheck=${false} /><//>
      <div class="buttons left">
        <button type="submit" class="primary">Show</button>
        <button type="button" disabled=${!destination} onClick=${() => go("messages", wanted({ live: true }))}>Follow</button>
        <button type="button" disabled=${!destination} onClick=${() => range({ destination, from, value, selector })}>Download …</button>
      </div>
    </form>
    ${shownFor ? html`<${Results} key=${query} request=${request} live=${live} />` : html`<${Empty}>Name a destination to read its messages. Reading does not consume them.<//>`}
    <${Publish} destination=${shownFor} />`;
}
