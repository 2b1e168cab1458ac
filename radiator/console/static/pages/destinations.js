// Destinations by pages of the broker, and one destination.
import { Act, Empty, Failure, NONE, Panel, Search, Table, Text, Tile, Tiles, bytes, count, duration, go, html, link, perSecond, time, useEffect, usePoll, useState } from "../ui.js";
import { pauseQueue, purgeQueue, resumeQueue } from "./verbs.js";

const LIMIT = 50;
const MANY = 2000; // destinations that match: the broker sorts them for each first page
const FEW_MS = 5000;
const MANY_MS = 60000;

function List({ params }) {
  const sort = params.get("sort") || "name";
  const descending = params.get("descending") === "true";
  const search = params.get("search") || "";
  const after = params.get("after");
  const page = Number(params.get("page") || 1);
  const args = { limit: LIMIT, sort, descending, search };
  if (after) args.after = after;
  const [many, setMany] = useState(false);
  const { data, error } = usePoll("destinations.ls", args, many ? MANY_MS : FEW_MS);
  useEffect(() => {
    if (data) setMany((data.matched || 0) > MANY);
  }, [data]);
  const to = (more) => go("destinations", { sort, descending, search, ...more });
  const columns = [
    { title: "Name", sort: "name", wide: true, cell: (row) => html`<a href=${link("destinations", { name: row.name })}><${Text}>${row.name}<//></a>` },
    { title: "Kind", cell: (row) => html`${row.kind}${row.paused ? html` <span class="badge">paused</span>` : ""}${row.store === "memory" ? html` <span class="badge quiet">memory</span>` : ""}` },
    { title: "Ready", sort: "ready", number: true, cell: (row) => count(row.ready) },
    { title: "In flight", sort: "in_flight", number: true, cell: (row) => count(row.in_flight) },
    { title: "Consumers", sort: "consumers", number: true, cell: (row) => count(row.consumers ?? row.subscribers) },
    { title: "Published", sort: "published", number: true, cell: (row) => count(row.published) },
    { title: "Bytes", sort: "bytes", number: true, cell: (row) => bytes(row.bytes) },
  ];
  if (data && !data.destinations.some((row) => "published" in row)) columns.splice(5, 1);
  return html`<${Panel} title="All destinations" tools=${html`<${Search} label="Search" value=${search} placeholder="a part of the name" onSearch=${(text) => to({ search: text })} />`}>
    <${Failure} error=${error} />
    ${error && after && html`<div class="pager"><a class="button" href=${link("destinations", { sort, descending, search })}>First page</a></div>`}
    ${data ? html`
      <${Table} label="Destinations" columns=${columns} rows=${data.destinations} rowKey=${(row) => row.name}
        sort=${sort} descending=${descending} onSort=${(by, down) => to({ sort: by, descending: down })}
        empty=${search ? "No destination has this in its name." : "There are no destinations yet."} />
      <div class="pager">
        <span role="status">${data.matched !== undefined ? `${count(data.matched)} ${data.matched === 1 ? "destination" : "destinations"}, ` : ""}page ${page}${data.matched ? ` of ${count(Math.max(1, Math.ceil(data.matched / LIMIT)))}` : ""}</span>
        ${page > 1 && html`<a class="button" href=${link("destinations", { sort, descending, search })}>First page</a>`}
        ${page > 1 && html`<button type="button" onClick=${() => history.back()}>Previous</button>`}
        ${data.next !== null && data.next !== undefined && html`<a class="button" href=${link("destinations", { sort, descending, search, after: data.next, page: page + 1 })}>Next</a>`}
      </div>` : error ? null : html`<${Empty}>Loading …<//>`}
  <//>`;
}

const settingText = (value) => (value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

function One({ name }) {
  const shown = usePoll("destinations.show", { name }, 3000);
  const { data, error } = shown;
  const back = html`<a href="#/destinations">All destinations</a>`;
  const title = html`<${Text}>${name}<//>`;
  if (!data) return html`<${Panel} title=${title} tools=${back}>${error ? html`<${Failure} error=${error} />` : html`<${Empty}>Loading …<//>`}<//>`;
  const { destination, rule, rates, oldest, consumers = [], storage = [] } = data;
  const queue = destination.kind === "queue";
  const tools = html`
    <a class="button" href=${link("messages", { d: name })}>Messages</a>
    ${queue && !data.paused && html`<${Act} onClick=${() => pauseQueue(name, shown.refresh)}>Pause<//>`}
    ${queue && data.paused && html`<${Act} onClick=${() => resumeQueue(name, shown.refresh)}>Resume<//>`}
    ${queue && html`<${Act} danger onClick=${() => purgeQueue(name, shown.refresh)}>Purge<//>`}
    ${back}`;
  return html`
    <${Panel} title=${title} tools=${tools}>
      <${Failure} error=${error} />
      ${data.paused && html`<p class="notice">Paused: messages are accepted, none is delivered.</p>`}
      <${Tiles} label="Figures">
        <${Tile} label="Kind" value=${destination.kind} note=${destination.store === "memory" ? "in memory" : "in files"} />
        <${Tile} label="Published" value=${perSecond(rates && rates.published)} />
        <${Tile} label="Delivered" value=${perSecond(rates && rates.delivered)} />
        <${Tile} label="Acknowledged" value=${perSecond(rates && rates.acknowledged)} />
        ${queue && html`<${Tile} label="Ready" value=${count(destination.ready)} note=${destination.delayed ? `${count(destination.delayed)} delayed` : ""} />`}
        ${queue && html`<${Tile} label="In flight" value=${count(destination.in_flight)} />`}
        <${Tile} label="Oldest message" value=${oldest ? duration(oldest.age_seconds) : NONE} note=${oldest ? time(oldest.receive_time_ns) : ""} />
        <${Tile} label="Stored" value=${bytes(destination.bytes)} />
      <//>
      ${destination.fan_out && html`<p class="note">Bound queues: ${destination.fan_out.map((each, at) => html`${at ? ", " : ""}<a href=${link("destinations", { name: each })}><${Text}>${each}<//></a>`)}</p>`}
    <//>
    <${Panel} title="Consumers">
      <${Table} label="Consumers" rows=${consumers} rowKey=${(row) => `${row.session} ${row.subscription}`} empty="Nobody is subscribed." columns=${[
        { title: "Session", cell: (row) => html`<a href=${link("clients", { session: row.session })}><${Text}>${row.session}<//></a>` },
        { title: "User", cell: (row) => (row.user ? html`<${Text}>${row.user}<//>` : NONE) },
        { title: "Address", cell: (row) => html`<${Text}>${row.address}<//>` },
        { title: "Subscription", cell: (row) => html`<${Text}>${row.subscription}<//>` },
        { title: "Window", number: true, cell: (row) => count(row.window) },
        { title: "In flight", number: true, cell: (row) => count(row.in_flight) },
        { title: "Oldest in flight", number: true, cell: (row) => duration(row.oldest_in_flight_seconds) },
      ]} />
    <//>
    <div class="two">
      <${Panel} title="Storage">
        <${Table} label="Partitions" rows=${storage} rowKey=${(row) => row.name} empty="Nothing is stored." columns=${[
          { title: "Partition", cell: (row) => html`<${Text}>${row.name}<//>` },
          { title: "First", number: true, cell: (row) => count(row.first_offset) },
          { title: "Next", number: true, cell: (row) => count(row.next_offset) },
          { title: "Bytes", number: true, cell: (row) => bytes(row.bytes) },
          { title: "Segments", number: true, cell: (row) => count(row.segments) },
          { title: "fsync", cell: (row) => html`<${Text}>${settingText(row.fsync)}<//>` },
        ]} />
      <//>
      <${Panel} title="Rule">
        ${rule ? html`<p class="note">${rule.pattern ? html`<code><${Text}>${rule.pattern}<//></code> in <${Text}>${rule.source}<//>` : "No rule matches. These are the defaults."}</p>
          <${Table} label="Settings" pairs rows=${Object.entries(rule.settings || {})} rowKey=${(row) => row[0]} empty="All settings are the defaults." columns=${[
            { title: "Setting", cell: (row) => html`<code><${Text}>${row[0]}<//></code>` },
            { title: "Value", cell: (row) => html`<${Text}>${settingText(row[1])}<//>` },
          ]} />` : html`<${Empty}>Not known.<//>`}
      <//>
    </div>`;
}

export function Destinations({ params }) {
  const name = params.get("name");
  return name ? html`<${One} key=${name} name=${name} />` : html`<${List} params=${params} />`;
}
