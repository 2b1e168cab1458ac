// Connections, and the durable subscriptions and consumer groups.
import { Act, Empty, Failure, NONE, Panel, Search, Table, Tabs, Text, Tile, Tiles, bytes, confirmAction, count, duration, go, html, link, since, time, usePoll } from "../ui.js";
import { ask, ownSession } from "../session.js";
import { disconnect, pauseQueue, resumeQueue } from "./verbs.js";

const LIMIT = 50;

const views = (current) => html`<${Tabs} label="Views" current=${current} items=${[
  { key: "connections", title: "Connections", href: link("clients") },
  { key: "durable", title: "Durable names and groups", href: link("clients", { view: "durable" }) },
]} />`;

function Pager({ data, params, make, what }) {
  const page = Number(params.get("page") || 1);
  if (page === 1 && data.next === null && data.matched === undefined) return null;
  return html`<div class="pager"><span role="status">${data.matched === undefined ? "" : `${count(data.matched)} ${what}, `}page ${page}</span>
    ${page > 1 && html`<button type="button" onClick=${() => history.back()}>Previous</button>`}
    ${data.next !== null && html`<a class="button" href=${make({ after: data.next, page: page + 1 })}>Next</a>`}</div>`;
}

function Connections({ params }) {
  const search = params.get("search") || "";
  const args = { limit: LIMIT };
  if (search) args.match = `*${search}*`;
  if (params.get("after")) args.after = params.get("after");
  const { data, error, refresh } = usePoll("clients.ls", args, 3000);
  const columns = [
    { title: "Session", cell: (row) => html`<a href=${link("clients", { session: row.session })}><${Text}>${row.session}<//></a>${row.session === ownSession() ? html` <span class="badge quiet">this page</span>` : ""}` },
    { title: "User", cell: (row) => (row.user ? html`<${Text}>${row.user}<//>` : NONE) },
    { title: "Address", cell: (row) => html`<${Text}>${row.address}<//>` },
    { title: "Since", number: true, cell: (row) => html`<span title=${time(row.since_ns)}>${since(row.since_ns)}</span>` },
    { title: "Subscriptions", number: true, cell: (row) => count(row.subscription_count) },
    { title: "Unacknowledged", number: true, cell: (row) => count(row.in_flight) },
    { title: "Unsent", number: true, cell: (row) => bytes(row.unsent_bytes) },
    { title: "", cell: (row) => html`<${Act} danger aria-label=${`Disconnect ${row.session}`} onClick=${() => disconnect(row.session, refresh)}>Disconnect<//>` },
  ];
  return html`<${Panel} title="Connections" tools=${html`<${Search} label="Search" value=${search} placeholder="session, user or address" onSearch=${(text) => go("clients", { search: text })} />`}>
    <${Failure} error=${error} />
    ${data ? html`<${Table} label="Connections" rows=${data.clients} rowKey=${(row) => row.session} columns=${columns}
        empty=${search ? "No connection matches." : "There are no connections."} />
      <${Pager} data=${data} params=${params} what="connections" make=${(more) => link("clients", { search, ...more })} />` : error ? null : html`<${Empty}>Loading …<//>`}
  <//>`;
}

function Client({ name }) {
  const shown = usePoll("clients.show", { session: name }, 3000);
  const { data, error } = shown;
  const title = html`Session <${Text}>${name}<//>`;
  const back = html`<a href="#/clients">All connections</a>`;
  if (!data) return html`<${Panel} title=${title} tools=${back}>${error ? html`<${Failure} error=${error} />` : html`<${Empty}>Loading …<//>`}<//>`;
  return html`<${Panel} title=${title} tools=${html`<${Act} danger onClick=${() => disconnect(name, shown.refresh)}>Disconnect<//>${back}`}>
      <${Failure} error=${error} />
      <${Tiles} label="Figures">
        <${Tile} label="User" value=${data.user ? html`<${Text}>${data.user}<//>` : "anonymous"} />
        <${Tile} label="Address" value=${html`<${Text}>${data.address}<//>`} />
        <${Tile} label="Connected for" value=${since(data.since_ns)} note=${time(data.since_ns)} />
        <${Tile} label="STOMP" value=${data.version || NONE} />
        <${Tile} label="Unacknowledged" value=${count(data.in_flight)} note=${data.window ? `window ${count(data.window)}` : ""} />
        <${Tile} label="Unsent" value=${bytes(data.unsent_bytes)} />
        <${Tile} label="Transactions" value=${count(data.transactions)} />
      <//>
    <//>
    <${Panel} title="Subscriptions">
      <${Table} label="Subscriptions" rows=${data.subscriptions || []} rowKey=${(row) => row.id ?? row.subscription} empty="It has no subscriptions." columns=${[
        { title: "Id", cell: (row) => html`<${Text}>${row.id ?? row.subscription}<//>` },
        { title: "Destination", wide: true, cell: (row) => html`<${Text}>${row.destination ?? row.patterns}<//>` },
        { title: "Ack", cell: (row) => row.ack ?? NONE },
        { title: "Name", cell: (row) => (row.name || row.group ? html`<${Text}>${row.name || row.group}<//>` : NONE) },
        { title: "Window", number: true, cell: (row) => count(row.window) },
        { title: "In flight", number: true, cell: (row) => (Array.isArray(row.in_flight) ? count(row.in_flight_count ?? row.in_flight.length) : count(row.in_flight)) },
        { title: "Messages in flight", wide: true, cell: (row) => {
          const held = Array.isArray(row.in_flight) ? row.in_flight : Array.isArray(row.messages) ? row.messages : [];
          return held.length ? html`<ul class="plain-list">${held.slice(0, 20).map((each) => html`<li><code><${Text}>${each.id ?? each.message_id ?? each["message-id"] ?? each}<//></code> ${duration(each.seconds)}</li>`)}</ul>` : NONE;
        } },
      ]} />
    <//>`;
}

const POSITION = "first, next, last:N, offset:N, ago:1h30m or time:2026-01-31T12:00:00Z";

function move(name, refresh) {
  confirmAction({
    title: "Move the cursor",
    text: html`<p><${Text}>${name}<//> continues at the new position. Messages between the old and the new one are skipped, or delivered again.</p>`,
    fields: [{ name: "position", label: "Position", value: "ago:1h", note: POSITION }, { name: "destination", label: "Only over this destination (optional)" }],
    button: "Move",
    danger: true,
    run: async ({ position, destination }) => {
      await ask("cursors.set", destination ? { name, position, destination } : { name, position });
      return "The cursor is moved.";
    },
    after: refresh,
  });
}

function reset(name, refresh) {
  confirmAction({
    title: "Reset the cursor to the end",
    text: html`<p>Everything that <${Text}>${name}<//> has not acknowledged is skipped.</p>`,
    button: "Reset",
    danger: true,
    run: async () => {
      await ask("cursors.set", { name, position: "next" });
      return "The cursor is at the end.";
    },
    after: refresh,
  });
}

function remove(name, refresh) {
  confirmAction({
    title: "Delete the cursor",
    text: html`<p><${Text}>${name}<//> is deleted. A client that uses it gets an ERROR.</p>`,
    typed: name,
    button: "Delete",
    danger: true,
    run: async () => {
      await ask("cursors.rm", { name });
      return "The cursor is deleted.";
    },
    after: refresh,
  });
}

function Durable({ params }) {
  const search = params.get("search") || "";
  const all = params.get("queues") === "true";
  const args = { limit: 200 };
  if (search) args.match = `*${search}*`;
  if (params.get("after")) args.after = params.get("after");
  const { data, error, refresh } = usePoll("cursors.ls", args, 4000);
  const rows = data ? data.cursors.filter((row) => all || !row.cursor.startsWith("queue:")) : [];
  const firsts = new Set(rows.filter((row, at) => !at || rows[at - 1].cursor !== row.cursor)); // the actions are for all logs of a name
  const to = (more) => ({ view: "durable", search, queues: all, ...more });
  const tools = html`
    <label class="check"><input type="checkbox" checked=${all} onChange=${(event) => go("clients", to({ queues: event.currentTarget.checked }))} /> with queues</label>
    <${Search} label="Search" value=${search} placeholder="a part of the name" onSearch=${(text) => go("clients", to({ search: text }))} />`;
  return html`<${Panel} title="Durable names and groups" tools=${tools}>
    <${Failure} error=${error} />
    ${data ? html`<${Table} label="Durable names and groups" rows=${rows} rowKey=${(row) => `${row.cursor} ${row.partition}`} empty="There are none on this page." columns=${[
        { title: "Name", wide: true, cell: (row) => html`<${Text}>${row.cursor}<//>${row.orphaned ? html` <span class="badge">orphaned</span>` : ""}${row.paused ? html` <span class="badge">paused</span>` : ""}` },
        { title: "Destination", cell: (row) => html`<${Text}>${row.destination}<//>` },
        { title: "Partition", cell: (row) => row.partition ? html`<${Text}>${row.partition}<//>` : NONE },
        { title: "Lag", number: true, cell: (row) => html`${count(row.lag)}${row.shared ? html`<span title="other destinations are in this log, and count"> *</span>` : ""}` },
        { title: "In flight", number: true, cell: (row) => count(row.in_flight) },
        { title: "Members", number: true, cell: (row) => count(row.members) },
        { title: "Last used", number: true, cell: (row) => (row.members ? "now" : row.used_ns ? html`<span title=${time(row.used_ns)}>${since(row.used_ns)} ago</span>` : NONE) },
        { title: "", cell: (row) => firsts.has(row) && html`<div class="row-buttons">
            ${row.paused
              ? html`<${Act} aria-label=${`Resume ${row.cursor}`} onClick=${() => resumeQueue(row.cursor, refresh)}>Resume<//>`
              : html`<${Act} aria-label=${`Pause ${row.cursor}`} onClick=${() => pauseQueue(row.cursor, refresh)}>Pause<//>`}
            <${Act} aria-label=${`Move ${row.cursor}`} onClick=${() => move(row.cursor, refresh)}>Move<//>
            <${Act} aria-label=${`Reset ${row.cursor}`} onClick=${() => reset(row.cursor, refresh)}>Reset<//>
            ${row.cursor.startsWith("queue:") ? null : html`<${Act} danger aria-label=${`Delete ${row.cursor}`} onClick=${() => remove(row.cursor, refresh)}>Delete<//>`}
          </div>` },
      ]} />
      <${Pager} data=${data} params=${params} make=${(more) => link("clients", to(more))} />` : error ? null : html`<${Empty}>Loading …<//>`}
  <//>`;
}

export function Clients({ params }) {
  const name = params.get("session");
  if (name) return html`${views("")}<${Client} key=${name} name=${name} />`;
  const view = params.get("view") === "durable" ? "durable" : "connections";
  return html`${views(view)}${view === "durable" ? html`<${Durable} params=${params} />` : html`<${Connections} params=${params} />`}`;
}
