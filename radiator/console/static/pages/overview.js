// What is wrong, then the rates of now and of the last hour.
import { Chart } from "../chart.js";
import { Empty, Failure, Panel, Text, Tile, Tiles, bytes, count, duration, html, link, perSecond, usePoll, useState } from "../ui.js";

const FEW = 6;
const KINDS = {
  backlog_without_consumer: "Backlog without a consumer",
  lag_grows: "Growing lag",
  disk: "Disk",
  not_ready: "Not ready",
  damage: "Damage",
  stalled_consumer: "Stalled consumer",
  dead_letters: "Dead letters",
  memory_full: "Memory",
  deliveries_full: "Recorded deliveries",
  clock_ahead: "Clock",
};

function target(problem) {
  if (problem.kind === "dead_letters" && problem.destination) return link("letters", { queue: problem.destination });
  if (problem.kind === "dead_letters") return link("letters");
  if (problem.kind === "lag_grows") return link("clients", { view: "durable" });
  if (problem.destination) return link("destinations", { name: problem.destination });
  return null;
}

function Problems({ problems, more }) {
  const [all, setAll] = useState(false);
  if (!problems.length) return html`<p class="notice good">No problems.</p>`;
  const shown = all ? problems : problems.slice(0, FEW);
  return html`<ul class="problems">${shown.map((problem) => {
    const href = target(problem);
    return html`<li class=${problem.severity}>
      <strong><span class="mark" aria-hidden="true">${problem.severity === "error" ? "●" : "▲"}</span><span class="off-screen">${problem.severity === "error" ? "Error: " : "Warning: "}</span> ${KINDS[problem.kind] || problem.kind}</strong>
      <span><${Text}>${problem.text}<//></span>
      ${href && html`<a href=${href} aria-label=${`Show ${problem.destination || KINDS[problem.kind]}`}>Show</a>`}
    </li>`;
  })}</ul>${problems.length > FEW || more ? html`<div class="pager"><span>${count(shown.length)} of ${count(problems.length + (more || 0))}</span>
    ${problems.length > FEW && html`<button type="button" aria-expanded=${all} onClick=${() => setAll(!all)}>${all ? "Show fewer" : `Show ${count(problems.length)}`}</button>`}</div>` : null}`;
}

function Hour({ rates }) {
  const { series, step_seconds: step } = rates;
  const end = Number(rates.end_ns) / 1e9;
  const line = (name, label, colour) => ({ label, colour, values: series[name] || [] });
  return html`<div class="charts">
    <${Chart} title="Messages per second" step=${step} end=${end} lines=${[
      line("published", "published", "--series-1"), line("delivered", "delivered", "--series-2"), line("acknowledged", "acknowledged", "--series-3"),
    ]} />
    <${Chart} title="Ready in queues" step=${step} end=${end} lines=${[line("ready", "messages", "--series-1")]} />
    <${Chart} title="Published bytes per second" unit="bytes" step=${step} end=${end} lines=${[line("published_bytes", "bytes", "--series-2")]} />
    <${Chart} title="Connections" step=${step} end=${end} lines=${[line("connections", "open", "--series-3")]} />
  </div>`;
}

export function Overview() {
  const { data, error } = usePoll("overview", {}, 3000);
  const hour = usePoll("rates", {}, 10000);
  if (error && !data) return html`<${Failure} error=${error} />`;
  if (!data) return html`<${Empty}>Loading …<//>`;
  const { now, counters, rates, disk } = data;
  const left = disk && disk.size ? disk.free / disk.size : null;
  return html`
    <${Failure} error=${error} />
    <${Panel} title="Problems">
      <div aria-live="polite"><${Problems} problems=${data.problems} more=${data.more_problems} /></div>
    <//>
    <${Panel} title="Now" tools=${html`<span class="note"><${Text}>${data.version}<//>, up for ${duration(data.uptime_seconds)}</span>`}>
      <${Tiles} label="Figures of now">
        <${Tile} label="State" value=${data.draining ? "draining" : data.ready ? "ready" : "not ready"} bad=${data.draining || !data.ready} note=${data.reasons.join("; ")} />
        <${Tile} label="Published" value=${perSecond(rates.published)} note=${`${count(counters.messages_in)} in total`} />
        <${Tile} label="Delivered" value=${perSecond(rates.delivered)} note=${`${count(counters.delivered)} in total`} />
        <${Tile} label="Acknowledged" value=${perSecond(rates.acknowledged)} note=${`${count(counters.acks)} in total`} />
        <${Tile} label="Received" value="${bytes(rates.published_bytes)}/s" />
        <${Tile} label="Connections" value=${count(now.sessions)} note=${`${count(now.durable_subscriptions)} durable names`} />
        <${Tile} label="Destinations" value=${count(now.destinations)} note="with temporary queues" />
        <${Tile} label="Disk free" value=${disk ? bytes(disk.free) : "–"} note=${left === null ? "" : `${Math.round(left * 100)} % of ${bytes(disk.size)}`} bad=${left !== null && left < 0.05} />
      <//>
    <//>
    <${Panel} title="The last hour" tools=${html`<span class="note">times in UTC</span>`}>
      <${Failure} error=${hour.error} />
      ${hour.data ? html`<${Hour} rates=${hour.data} />` : hour.error ? null : html`<${Empty}>Loading …<//>`}
    <//>`;
}
