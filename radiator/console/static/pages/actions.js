// What changes the broker: queues, the configuration, draining. The broker writes every action to its audit log.
import { Act, Failure, Field, Panel, Table, Text, confirmAction, count, duration, html, useState, usePoll } from "../ui.js";
import { ask, session } from "../session.js";
import { pauseQueue, purgeQueue, resumeQueue } from "./verbs.js";

function Queues() {
  const [name, set] = useState("");
  const found = usePoll(name ? "destinations.ls" : null, { search: name, limit: 10 }, 0);
  const known = (found.data ? found.data.destinations : []).filter((each) => each.kind === "queue");
  return html`<${Panel} title="Queues">
    <div class="form-row">
      <${Field} label="Queue"><input list="queues" value=${name} onInput=${(event) => set(event.currentTarget.value)} autocomplete="off" spellcheck=${false} /><//>
      <datalist id="queues">${known.map((each) => html`<option value=${each.name}></option>`)}</datalist>
      <${Act} disabled=${!name} onClick=${() => pauseQueue(name)}>Pause<//>
      <${Act} disabled=${!name} onClick=${() => resumeQueue(name)}>Resume<//>
      <${Act} danger disabled=${!name} onClick=${() => purgeQueue(name)}>Purge<//>
    </div>
    <p class="note">A paused queue accepts messages and delivers none. Purging settles all ready messages.</p>
  <//>`;
}

const shown = (value) => (value === null || value === undefined ? "none" : typeof value === "string" ? value : JSON.stringify(value));

function Changes({ changes }) {
  return html`<${Table} label="Changes of the configuration" rows=${changes} rowKey=${(row) => row.path} empty="Nothing has changed." columns=${[
    { title: "Key", cell: (row) => html`<code><${Text}>${row.path}<//></code>` },
    { title: "Before", cell: (row) => html`<${Text}>${shown(row.before)}<//>` },
    { title: "After", cell: (row) => html`<${Text}>${shown(row.after)}<//>` },
    { title: "Effect", cell: (row) => html`${row.effect}${row.reason ? html`: <${Text}>${row.reason}<//>` : ""}` },
  ]} />`;
}

function Reload() {
  const [state, set] = useState({});
  const check = async () => {
    set({ busy: true });
    try {
      set({ diff: await ask("config.reload", { check: true }) });
    } catch (error) {
      set({ error });
    }
  };
  const apply = () =>
    confirmAction({
      title: "Reload the configuration",
      text: html`<${Changes} changes=${state.diff.changes} />`,
      button: "Reload",
      run: async () => {
        const done = await ask("config.reload", {});
        if (!done.applied && done.changed) throw new Error("The broker did not apply the changes.");
        return done.changed ? "The configuration is reloaded." : "Nothing has changed.";
      },
      after: () => set({}),
    });
  const refused = state.diff && state.diff.changes.some((each) => each.effect === "refused");
  return html`<${Panel} title="Configuration">
    <p class="note">The broker reads its YAML file again, and applies all changes or none.</p>
    <${Failure} error=${state.error} />
    ${state.diff && html`<div role="status"><${Changes} changes=${state.diff.changes} />
      ${refused && html`<p class="notice">A change is refused, so none would be applied. Restart the broker, or take it back.</p>`}</div>`}
    <div class="buttons left">
      <button type="button" onClick=${check} disabled=${state.busy}>Compare with the file</button>
      ${state.diff && state.diff.changed && !refused && html`<button type="button" class="primary" onClick=${apply}>Reload …</button>`}
    </div>
  <//>`;
}

function Drain() {
  const { data, refresh } = usePoll("overview", {}, 5000);
  const draining = data && data.draining;
  const begin = () =>
    confirmAction({
      title: "Drain the broker",
      text: html`<p>New connections are refused, and the clients are disconnected over the given time. This page stays connected.</p>`,
      fields: [{ name: "seconds", label: "Seconds (empty: 30)", type: "number" }],
      button: "Drain",
      danger: true,
      run: async ({ seconds }) => {
        const answer = await ask("broker.drain", seconds ? { seconds: Number(seconds) } : {});
        return `The broker is draining${answer.ends_in_seconds ? `; it ends in ${duration(answer.ends_in_seconds)}` : ""}, with ${count(answer.connections)} connections.`;
      },
      after: refresh,
    });
  const cancel = () =>
    confirmAction({
      title: "Cancel the drain",
      text: html`<p>The broker accepts connections again.</p>`,
      button: "Cancel the drain",
      run: async () => {
        await ask("broker.drain", { cancel: true });
        return "The broker accepts connections.";
      },
      after: refresh,
    });
  return html`<${Panel} title="Drain">
    <p class="note">Before the broker is stopped: <code>/ready</code> turns 503, and clients go elsewhere.</p>
    <div class="buttons left">${draining
      ? html`<button type="button" onClick=${cancel}>Cancel the drain</button>`
      : html`<button type="button" class="danger-quiet" onClick=${begin}>Drain</button>`}</div>
  <//>`;
}

function Clock() {
  const { data, error, refresh } = usePoll("clock", {}, 5000);
  if (!data || error || !data.ahead_ns) return null;
  const accept = () =>
    confirmAction({
      title: "Confirm the wall clock",
      text: html`<p>The wall clock has stepped forward by ${duration(data.ahead_ns / 1e9)}. Messages may expire, and retention may remove files, by the new time.</p>`,
      button: "Confirm",
      danger: true,
      run: async () => `The clock is accepted, with a step of ${duration((await ask("clock.accept")).accepted_ns / 1e9)}.`,
      after: refresh,
    });
  return html`<${Panel} title="Clock"><p class="notice">The wall clock is ${duration(data.ahead_ns / 1e9)} ahead of the trusted time.</p>
    <div class="buttons left"><button type="button" onClick=${accept}>Confirm the wall clock</button></div><//>`;
}

export function Actions() {
  if (!session.acts) return html`<${Failure} error=${{ code: "denied", message: "this user may change nothing", detail: "Actions need the right admin." }} />`;
  return html`<p class="note">Every action is confirmed first, and the broker writes it to its audit log.</p>
    <${Queues} /><${Reload} /><${Drain} /><${Clock} />`;
}
