// Dead letters: by reason and origin; looked at, sent back to where they came from, or dropped.
import { Empty, Failure, Panel, Table, Text, bytes, confirmAction, count, go, html, link, time, useEffect, usePoll, useRef, useState } from "../ui.js";
import { Message, preview } from "../body.js";
import { Reader, positionHeaders } from "../reading.js";
import { RESERVED } from "../headers.js";
import { newLink, session } from "../session.js";

const READ_MAX = 5000; // letters that the page reads
const BODY_KEPT = 4096; // bytes of each
const SHOWN_MAX = 200;
const WINDOW_MAX = 60000;
const BATCH = 100;
const BATCH_BYTES_MAX = 4 * 1024 * 1024;
const QUIET_MS = 2000;
const OWN = new Set([
  ...RESERVED, "destination", "content-length", "receipt", "transaction",
  "expires", "deliver-at", "dedup-id", "sequence", "transmit-time", // of the first SEND: it would expire, or be a repeat
]);

// Only the broker writes the time of a move, which is the receive time here.
const isLetter = (headers) => headers["receive-time"] !== undefined && headers["dlq-time"] === headers["receive-time"];

function letter(message) {
  const { headers } = message;
  const body = message.binaryBody;
  const real = isLetter(headers);
  return {
    key: headers["message-id"],
    id: headers["message-id"],
    headers,
    destination: headers.destination,
    offset: Number(headers.offset),
    partition: headers.partition,
    timeNs: headers["receive-time"],
    size: body.length,
    body: body.slice(0, BODY_KEPT),
    reason: real ? headers["dlq-reason"] || "unknown" : "not a dead letter",
    origin: real ? headers["dlq-destination"] || "unknown" : "",
    owner: real ? headers["dlq-subscription"] || "" : "",
  };
}

function restored(headers) {
  const found = {};
  for (const [name, value] of Object.entries(headers)) if (!OWN.has(name) && !name.startsWith("dlq-")) found[name] = value;
  return found;
}

// Consumes the queue, settles the letters with these ids in transactions, and returns the others.
async function settle(queue, ids, target, progress) {
  const wanted = new Set(ids);
  const total = wanted.size;
  let done = 0;
  let batch = [];
  let size = 0;
  let quiet = 0;
  let finish;
  let failed = null;
  const finished = new Promise((resolve) => (finish = resolve));
  const connection = await newLink((error) => {
    failed = error || new Error("the connection was lost");
    finish();
  });
  const commit = async () => {
    const own = batch;
    batch = [];
    size = 0;
    if (!own.length) return;
    await connection.transaction((send, ack) => {
      for (const message of own) {
        if (target) send(target(message.headers), message.binaryBody, restored(message.headers));
        ack(message);
      }
    }, { "audit-log": "true" });
    done += own.length;
    progress(`${count(done)} of ${count(total)} …`);
  };
  let work = Promise.resolve();
  const wait = () => {
    clearTimeout(quiet);
    quiet = setTimeout(finish, QUIET_MS);
  };
  wait();
  connection.subscribe(queue, { ack: "client-individual", "prefetch-count": String(WINDOW_MAX) }, (message) => {
    wait();
    if (!wanted.delete(message.headers["message-id"])) return;
    batch.push(message);
    size += message.binaryBody.length;
    if (batch.length >= BATCH || size >= BATCH_BYTES_MAX || !wanted.size) {
      work = work.then(commit);
      work.catch((error) => {
        failed = failed || error;
        finish();
      });
    }
    if (!wanted.size) work.then(finish, finish);
  });
  await finished;
  clearTimeout(quiet);
  try {
    await work;
    if (!failed) await commit();
  } catch (error) {
    failed = failed || error;
  }
  connection.close();
  if (failed) throw failed;
  return { done, left: wanted.size };
}

const leftText = (left) => (left ? ` ${count(left)} are unacknowledged at other consumers, and stay.` : "");

function sendBack(queue, letters, after) {
  const owned = letters.filter((each) => each.owner).length;
  const foreign = letters.filter((each) => !each.origin).length;
  const fields = [{ name: "to", label: "Send to (empty: where each message came from)" }];
  if (owned) fields.push({ name: "topic", label: `${count(owned)} of them are of durable subscriptions. Send these to all readers of their topic`, type: "checkbox" });
  confirmAction({
    title: "Send dead letters back",
    text: html`<p>${count(letters.length)} ${letters.length === 1 ? "message" : "messages"} of <${Text}>${queue}<//> are sent as new messages, and leave the queue in the same transaction.</p>
      ${foreign > 0 && html`<p class="notice">${count(foreign)} of them are no dead letters. Without a destination above they stay.</p>`}`,
    fields,
    button: "Send back",
    run: async ({ to, topic }, progress) => {
      if (owned && !to && !topic) throw new Error("Some are of durable subscriptions: name a destination, or choose all readers of the topic.");
      const able = letters.filter((each) => to || each.origin);
      if (!able.length) throw new Error("None of them has an origin.");
      const { done, left } = await settle(queue, able.map((each) => each.id), (headers) => to || headers["dlq-destination"], progress);
      return `${count(done)} ${done === 1 ? "message was" : "messages were"} sent back.${leftText(left)}`;
    },
    after,
  });
}

function drop(queue, letters, after) {
  confirmAction({
    title: "Drop dead letters",
    text: html`<p>${count(letters.length)} ${letters.length === 1 ? "message" : "messages"} of <${Text}>${queue}<//> are acknowledged. Nobody will get them.</p>`,
    button: "Drop",
    danger: true,
    run: async (_, progress) => {
      const { done, left } = await settle(queue, letters.map((each) => each.id), null, progress);
      return `${count(done)} ${done === 1 ? "message was" : "messages were"} dropped.${leftText(left)}`;
    },
    after,
  });
}

function Queue({ name, params }) {
  const [state, set] = useState({ letters: [], reading: true });
  const [round, again] = useState(0);
  const [picked, setPicked] = useState(() => new Set());
  const [shown, show] = useState(null);
  const reason = params.get("reason");
  const origin = params.get("origin");
  const found = useRef([]);
  useEffect(() => {
    found.current = [];
    set({ letters: [], reading: true });
    setPicked(new Set());
    show(null);
    const reader = new Reader({
      destination: name,
      headers: positionHeaders({ from: "waiting" }),
      window: 500,
      take: letter,
      onMessages: (messages) => {
        found.current.push(...messages);
        const full = found.current.length >= READ_MAX;
        set({ letters: found.current.slice(0, READ_MAX), reading: !full, full });
        if (full) reader.close();
        else if (reader.unacked >= 250) reader.more();
      },
      onEnd: (error) => set({ letters: found.current.slice(), reading: false, error }),
    });
    return () => reader.close();
  }, [name, round, session.generation]);
  const refresh = () => again((value) => value + 1);
  const groups = new Map();
  for (const each of state.letters) {
    const key = JSON.stringify([each.reason, each.origin, each.owner]);
    const group = groups.get(key) || { reason: each.reason, origin: each.origin, owner: each.owner, count: 0, oldest: each.timeNs };
    group.count += 1;
    groups.set(key, group);
  }
  const wanted = state.letters.filter((each) => (!reason || each.reason === reason) && (!origin || each.origin === origin));
  const listed = wanted.slice(0, SHOWN_MAX);
  const chosen = wanted.filter((each) => picked.has(each.id));
  const subject = chosen.length ? chosen : wanted;
  const what = chosen.length ? `the selected ${count(chosen.length)}` : `all ${count(wanted.length)}`;
  const pick = (id, on) => {
    const next = new Set(picked);
    if (on) next.add(id);
    else next.delete(id);
    setPicked(next);
  };
  const message = state.letters.find((each) => each.id === shown);
  return html`
    <${Panel} title=${html`<${Text}>${name}<//>`} tools=${html`<button type="button" onClick=${refresh}>Read again</button><a href="#/letters">All queues</a>`}>
      <${Failure} error=${state.error} />
      <p class="note" role="status">${state.reading ? "Reading … " : ""}${count(state.letters.length)} ${state.letters.length === 1 ? "message" : "messages"}${state.full ? `; the page reads the first ${count(READ_MAX)}` : ""}</p>
      <${Table} label="By reason and origin" rows=${[...groups.values()].sort((a, b) => b.count - a.count)} rowKey=${(row) => JSON.stringify(row)}
        selected=${(row) => row.reason === reason && (!origin || row.origin === origin)} empty=${state.reading ? "Reading …" : "The queue is empty."} columns=${[
          { title: "Reason", cell: (row) => html`<a href=${link("letters", { queue: name, reason: row.reason, origin: row.origin })}><${Text}>${row.reason}<//></a>` },
          { title: "Origin", wide: true, cell: (row) => html`<${Text}>${row.origin || "–"}<//>` },
          { title: "Subscription", cell: (row) => html`<${Text}>${row.owner || "–"}<//>` },
          { title: "Oldest", number: true, cell: (row) => time(row.oldest) },
          { title: "Messages", number: true, cell: (row) => count(row.count) },
        ]} />
    <//>
    ${state.letters.length > 0 && html`<${Panel} title=${reason || origin ? html`<${Text}>${[reason, origin && `from ${origin}`].filter(Boolean).join(" ")}<//>` : "Messages"} tools=${html`
        ${(reason || origin) && html`<a class="button" href=${link("letters", { queue: name })}>Show all reasons</a>`}
        <button type="button" disabled=${state.reading || !subject.length} onClick=${() => sendBack(name, subject, refresh)}>Send back ${what} …</button>
        <button type="button" class="danger-quiet" disabled=${state.reading || !subject.length} onClick=${() => drop(name, subject, refresh)}>Drop ${what} …</button>`}>
      <${Table} label="Dead letters" rows=${listed} rowKey=${(row) => row.id} selected=${(row) => row.id === shown} empty="None." columns=${[
        { title: html`<input type="checkbox" aria-label="Select all that are listed" checked=${listed.length > 0 && listed.every((each) => picked.has(each.id))}
            onChange=${(event) => setPicked(new Set(event.currentTarget.checked ? listed.map((each) => each.id) : []))} />`,
          cell: (row) => html`<input type="checkbox" aria-label=${`Select the message ${row.offset}`} checked=${picked.has(row.id)} onChange=${(event) => pick(row.id, event.currentTarget.checked)} />` },
        { title: "Message", number: true, cell: (row) => html`<button type="button" class="text-button" aria-label=${`Show the message ${row.offset}`} onClick=${() => show(row.id)}>${count(row.offset)}</button>` },
        { title: "Moved", cell: (row) => html`<span class="nowrap">${time(row.timeNs)}</span>` },
        { title: "Reason", cell: (row) => html`<${Text}>${row.reason}<//>` },
        { title: "Origin", cell: (row) => html`<${Text}>${row.origin || "–"}<//>` },
        { title: "Deliveries", number: true, cell: (row) => row.headers["dlq-deliveries"] || "–" },
        { title: "Size", number: true, cell: (row) => bytes(row.size) },
        { title: "Body", wide: true, cell: (row) => html`<span class="row-text"><${Text}>${preview(row)}<//></span>` },
      ]} />
      ${wanted.length > listed.length && html`<p class="note">The first ${count(listed.length)} of ${count(wanted.length)} are listed. Without a selection, an action is for all of them.</p>`}
    <//>`}
    ${message && html`<${Panel} title="Message" tools=${html`<button type="button" onClick=${() => sendBack(name, [message], refresh)}>Send back …</button>
        <button type="button" class="danger-quiet" onClick=${() => drop(name, [message], refresh)}>Drop …</button><button type="button" onClick=${() => show(null)}>Close</button>`}>
      <${Message} key=${message.id} message=${message} where=${name} />
    <//>`}`;
}

export function DeadLetters({ params }) {
  const name = params.get("queue");
  const [typed, set] = useState("");
  const { data, error } = usePoll(name ? null : "destinations.ls", { dead_letters: true, limit: 500 }, 5000);
  if (name) return html`<${Queue} key=${name} name=${name} params=${params} />`;
  const open = (event) => {
    event.preventDefault();
    go("letters", { queue: typed });
  };
  return html`<${Panel} title="Dead-letter queues" tools=${html`<form class="form-row tight" onSubmit=${open}><label class="search"><span>Queue</span><input required value=${typed} onInput=${(event) => set(event.currentTarget.value)} autocomplete="off" spellcheck=${false} /></label><button type="submit">Open</button></form>`}>
    <${Failure} error=${error} />
    ${data ? html`<${Table} label="Dead-letter queues" rows=${data.destinations} rowKey=${(row) => row.name} empty="No rule names a dead-letter queue that exists." columns=${[
      { title: "Queue", wide: true, cell: (row) => html`<a href=${link("letters", { queue: row.name })}><${Text}>${row.name}<//></a>` },
      { title: "Ready", number: true, cell: (row) => count(row.ready) },
      { title: "In flight", number: true, cell: (row) => count(row.in_flight) },
      { title: "Consumers", number: true, cell: (row) => count(row.consumers) },
      { title: "Bytes", number: true, cell: (row) => bytes(row.bytes) },
    ]} />` : error ? null : html`<${Empty}>Loading …<//>`}
  <//>`;
}
