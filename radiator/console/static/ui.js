// What all pages share: html, texts of others made visible, numbers and times, tables, dialogs, polling.
import { h } from "./vendor/preact/preact.js";
import { useCallback, useEffect, useId, useRef, useState } from "./vendor/preact/hooks.js";
import htm from "./vendor/htm/htm.js";
import { ask, onChange, session } from "./session.js";

export const html = htm.bind(h);
export { useCallback, useEffect, useId, useRef, useState };

// --- texts of others ---------------------------------------------------------------------------------------------------

// Control characters, and those that change the direction or the look of the text around them.
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

const PIECES_MAX = 500; // of a text; further hidden characters are shown as one that is not

// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000e-\u001a\u001c-\u001f]/g;
export const looksBinary = (text) => text.length > 0 && (text.match(CONTROL) || []).length > text.length / 10;

function pieces(text, multiline) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (multiline && match[0] === "\r" && text[match.index + 1] === "\n") continue;
    if (found.length >= PIECES_MAX) {
      found.push(text.slice(end).replace(HIDDEN, "\ufffd"));
      return found;
    }
    if (match.index > end) found.push(text.slice(end, match.index));
    const code = match[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
    found.push(html`<span class="hidden-char" title="a character that is not visible">U+${code}</span>`);
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push(text.slice(end));
  return found;
}

// A text that a client chose: isolated, so that its direction ends with it, and with its hidden characters shown.
export function Text({ children, multiline = false }) {
  const text = String(children ?? "");
  return html`<bdi class="foreign">${pieces(text, multiline)}</bdi>`;
}

// --- numbers and times -------------------------------------------------------------------------------------------------

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const FRACTION = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
export const NONE = "–";

export const count = (value) => (value === null || value === undefined ? NONE : WHOLE.format(value));
export const rate = (value) =>
  value === null || value === undefined ? NONE : value >= 10 || value === 0 ? WHOLE.format(value) : FRACTION.format(value);

export const perSecond = (value) => (value === null || value === undefined ? NONE : `${rate(value)}/s`);

export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? FRACTION.format(value) : WHOLE.format(value)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${FRACTION.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function time(ns) {
  if (!ns) return NONE;
  return new Date(Number(ns) / 1e6).toISOString().replace("T", " ").slice(0, 19) + "Z";
}

export const since = (ns) => (ns ? duration(Math.max(0, Date.now() / 1000 - Number(ns) / 1e9)) : NONE);

// --- routes ------------------------------------------------------------------------------------------------------------

// #/page?key=value: every state worth a link is in the hash.
export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { page: path || "overview", params: new URLSearchParams(query) };
}

export function link(page, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== undefined && value !== null && value !== "" && value !== false) query.set(key, String(value));
  }
  return `#/${page}${query.size ? `?${query}` : ""}`;
}

export function go(page, params, { replace = false } = {}) {
  const hash = link(page, params);
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = hash;
}

// --- state -------------------------------------------------------------------------------------------------------------

export function useSession() {
  const [, set] = useState(0);
  useEffect(() => onChange(() => set((value) => value + 1)), []);
  return session;
}

// Asks again and again: at once, then `ms` after each answer, while the page is visible and the broker is connected.
export function usePoll(verb, args, ms = 3000) {
  const [state, set] = useState({ data: null, error: null });
  const { generation, phase } = useSession();
  const key = verb && JSON.stringify([verb, args]);
  const refresh = useRef(() => {});
  useEffect(() => {
    if (!verb || phase !== "online") return undefined;
    let stopped = false;
    let timer = 0;
    let running = false;
    const run = async () => {
      clearTimeout(timer);
      if (stopped || running || document.hidden) return;
      running = true;
      try {
        const data = await ask(verb, args);
        if (!stopped) set({ data, error: null, key });
      } catch (error) {
        if (!stopped && error.code !== "closed") set((old) => ({ data: old.key === key ? old.data : null, error, key }));
      }
      running = false;
      if (!stopped && ms) timer = setTimeout(run, ms);
    };
    refresh.current = run;
    const visible = () => document.hidden || run();
    document.addEventListener("visibilitychange", visible);
    run();
    return () => {
      stopped = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", visible);
    };
  }, [key, ms, generation, phase]);
  return { ...state, refresh: () => refresh.current() };
}

// --- parts of pages ----------------------------------------------------------------------------------------------------

export function Failure({ error }) {
  if (!error) return null;
  const denied = error.code === "denied";
  return html`<div class="notice ${denied ? "" : "bad"}" role="alert">
    <strong>${denied ? "Not permitted" : "Failed"}</strong>
    <span><${Text}>${error.message}<//>${error.detail && html`. <${Text}>${error.detail}<//>`}</span>
  </div>`;
}

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export function Panel({ title, tools, children, id }) {
  const own = useId();
  return html`<section class="panel" aria-labelledby=${id || own}>
    <header><h2 id=${id || own}>${title}</h2>${tools && html`<div class="tools">${tools}</div>`}</header>
    ${children}
  </section>`;
}

// columns: {title, cell(row), number, sort, wide, broad}. On a narrow screen a row is a card, unless the table has pairs.
export function Table({ label, columns, rows, rowKey, sort, descending, onSort, empty, selected, pairs }) {
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  return html`<div class="table-box ${pairs ? "pairs" : "cards"}"><table role="table" aria-label=${label}>
    <thead role="rowgroup"><tr role="row">${columns.map((column) => {
      const active = sort && sort === column.sort;
      const order = active ? (descending ? "descending" : "ascending") : undefined;
      return html`<th role="columnheader" scope="col" class=${column.number ? "number" : ""} aria-sort=${order}>
        ${column.sort && onSort
          ? html`<button type="button" class="sort" onClick=${() => onSort(column.sort, active ? !descending : Boolean(column.number))}>
              ${column.title}<span aria-hidden="true">${active ? (descending ? " ▾" : " ▴") : ""}</span></button>`
          : column.title}
      </th>`;
    })}</tr></thead>
    <tbody role="rowgroup">${rows.map((row) => html`<tr role="row" key=${rowKey(row)} class=${selected && selected(row) ? "selected" : ""}>
      ${columns.map((column, at) => html`<td role=${at ? "cell" : "rowheader"} data-label=${typeof column.title === "string" ? column.title : ""}
        class="${column.number ? "number" : ""} ${column.wide ? "wide" : ""} ${column.broad ? "broad" : ""}">${column.cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

export const Tile = ({ label, value, note, bad }) =>
  html`<div class="tile ${bad ? "bad" : ""}"><dt>${label}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`;

export const Tiles = ({ children, label }) => html`<dl class="tiles" aria-label=${label}>${children}</dl>`;

export function Tabs({ label, items, current }) {
  return html`<nav class="tabs" aria-label=${label}>${items.map(
    ({ key, title, href }) => html`<a href=${href} aria-current=${key === current ? "page" : undefined}>${title}</a>`,
  )}</nav>`;
}

// A text that is handed on when the user has stopped typing, or presses Enter.
export function Search({ label, value, onSearch, placeholder, list }) {
  const id = useId();
  const [text, set] = useState(value);
  const timer = useRef(0);
  useEffect(() => set(value), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const next = event.currentTarget.value;
    set(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onSearch(next), 400);
  };
  const enter = (event) => {
    if (event.key !== "Enter") return;
    clearTimeout(timer.current);
    onSearch(event.currentTarget.value);
  };
  return html`<label class="search" for=${id}><span>${label}</span>
    <input id=${id} type="search" value=${text} placeholder=${placeholder} list=${list} onInput=${type} onKeyDown=${enter} autocomplete="off" spellcheck=${false} /></label>`;
}

export function Field({ label, children, note, wide }) {
  return html`<label class="field ${wide ? "wide" : ""}"><span>${label}</span>${children}${note && html`<small>${note}</small>`}</label>`;
}

// --- dialogs -----------------------------------------------------------------------------------------------------------

let showDialog = null;

// Asks the user before something changes. `run` gets the values of the fields, and the dialog shows how it ended.
// typed: a text that must be typed. fields: [{name, label, value, note, type}].
export function confirmAction(options) {
  if (showDialog) showDialog(options);
}

export function Dialogs() {
  const [options, set] = useState(null);
  const [state, setState] = useState({});
  const [values, setValues] = useState({});
  const element = useRef(null);
  const opener = useRef(null);
  useEffect(() => {
    showDialog = (next) => {
      opener.current = document.activeElement;
      setState({});
      setValues(Object.fromEntries((next.fields || []).map((field) => [field.name, field.value ?? ""])));
      set(next);
    };
    return () => (showDialog = null);
  }, []);
  useEffect(() => {
    if (options && !element.current.open) element.current.showModal();
  }, [options]);
  const close = () => {
    if (state.busy) return;
    if (element.current.open) element.current.close();
    set(null);
    if (opener.current && opener.current.isConnected) opener.current.focus();
  };
  const submit = async (event) => {
    event.preventDefault();
    if (state.busy || (options.typed && values.typed !== options.typed)) return;
    if (state.done) return close();
    setState({ busy: true });
    try {
      const done = await options.run(values, (text) => setState({ busy: true, progress: text }));
      if (options.after) options.after();
      setState({ done: done || "Done." });
    } catch (error) {
      setState({ error });
    }
  };
  if (!options) return html`<dialog ref=${element}></dialog>`;
  const field = (entry) => {
    const changed = (event) =>
      setValues({ ...values, [entry.name]: entry.type === "checkbox" ? event.currentTarget.checked : event.currentTarget.value });
    if (entry.type === "checkbox") {
      return html`<label class="check"><input type="checkbox" checked=${Boolean(values[entry.name])} onChange=${changed} disabled=${state.busy || state.done} /> ${entry.label}</label>`;
    }
    return html`<${Field} label=${entry.label} note=${entry.note} wide><input type=${entry.type || "text"} value=${values[entry.name]} onInput=${changed}
      disabled=${state.busy || state.done} autocomplete="off" spellcheck=${false} /><//>`;
  };
  return html`<dialog ref=${element} aria-labelledby="dialog-title" onCancel=${(event) => { event.preventDefault(); close(); }}>
    <form onSubmit=${submit}>
      <h2 id="dialog-title">${options.title}</h2>
      <div class="dialog-text">${options.text}</div>
      ${(options.fields || []).map(field)}
      ${options.typed && html`<${Field} label=${html`Type <${Text}>${options.typed}<//> to confirm`} wide>
        <input value=${values.typed || ""} onInput=${(event) => setValues({ ...values, typed: event.currentTarget.value })}
          disabled=${state.busy || state.done} autocomplete="off" spellcheck=${false} /><//>`}
      <div aria-live="polite">
        <${Failure} error=${state.error} />
        ${state.busy && html`<p class="working">${state.progress || "Working …"}</p>`}
        ${state.done && html`<p class="notice good">${state.done}</p>`}
      </div>
      <div class="buttons">
        ${!state.done && html`<button type="button" onClick=${close} disabled=${state.busy}>Cancel</button>`}
        <button type="submit" class=${state.done ? "" : options.danger ? "danger" : "primary"}
          disabled=${state.busy || (options.typed && !state.done && values.typed !== options.typed)}>${state.done ? "Close" : options.button}</button>
      </div>
    </form>
  </dialog>`;
}

// A button that changes something: hidden if the user may change nothing.
export function Act({ children, danger, ...more }) {
  if (!session.acts) return null;
  return html`<button type="button" class=${danger ? "danger-quiet" : ""} ...${more}>${children}</button>`;
}

// Gives the user a file.
export function download(name, parts, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
