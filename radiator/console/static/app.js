// The frame of the page: login, navigation, the banner about the connection, and the page that the hash names.
import { render } from "./vendor/preact/preact.js";
import { Dialogs, Text, go, html, route, useEffect, useRef, useSession, useState } from "./ui.js";
import { logIn, logOut, start, withoutLogin } from "./session.js";
import { Overview } from "./pages/overview.js";
import { Destinations } from "./pages/destinations.js";
import { Messages } from "./pages/messages.js";
import { DeadLetters } from "./pages/letters.js";
import { Clients } from "./pages/clients.js";
import { Actions } from "./pages/actions.js";

const PAGES = {
  overview: ["Overview", Overview],
  destinations: ["Destinations", Destinations],
  messages: ["Messages", Messages],
  letters: ["Dead letters", DeadLetters],
  clients: ["Consumers and connections", Clients],
  actions: ["Actions", Actions],
};
const THEMES = ["auto", "light", "dark"];

function theme(next) {
  if (next) {
    try {
      localStorage.setItem("radiator-theme", next);
    } catch {
      // the choice lasts as long as the page
    }
  }
  let chosen = next;
  try {
    chosen = chosen || localStorage.getItem("radiator-theme");
  } catch {
    chosen = chosen || "auto";
  }
  chosen = THEMES.includes(chosen) ? chosen : "auto";
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  dispatchEvent(new Event("radiator-theme"));
  return chosen;
}

function Theme() {
  const [chosen, set] = useState(() => theme());
  return html`<label class="theme"><span>Colours</span><select value=${chosen} onChange=${(event) => set(theme(event.currentTarget.value))}>
    ${THEMES.map((name) => html`<option value=${name} selected=${name === chosen}>${{ auto: "Auto", light: "Light", dark: "Dark" }[name]}</option>`)}
  </select></label>`;
}

function Login({ session }) {
  const form = useRef(null);
  const submit = (event) => {
    event.preventDefault();
    const data = new FormData(form.current);
    logIn(String(data.get("login")), String(data.get("passcode")));
  };
  return html`<main class="login" id="main"><form ref=${form} onSubmit=${submit}>
    <h1>radiator</h1>
    <p>Log in with a user of this broker.</p>
    <label class="field wide"><span>Login</span><input name="login" autocomplete="username" autocapitalize="none" spellcheck=${false} required autofocus /></label>
    <label class="field wide"><span>Passcode</span><input name="passcode" type="password" autocomplete="current-password" required /></label>
    ${session.error && html`<p class="notice bad" role="alert"><${Text}>${session.error.message}<//></p>`}
    <button type="submit" class="primary">Log in</button>
    ${session.anonymous && html`<button type="button" onClick=${withoutLogin}>Continue without a login</button>`}
  </form></main>`;
}

function Banner({ session }) {
  const text = { offline: "The connection to the broker is lost. What is shown may be old. Connecting again …", connecting: "" }[session.phase];
  return html`<div aria-live="assertive">${text && html`<p class="banner">${text}</p>`}</div>`;
}

function App() {
  const session = useSession();
  const [at, set] = useState(route);
  const [shown, setShown] = useState(false);
  const main = useRef(null);
  const heading = useRef("");
  useEffect(() => {
    const changed = () => set(route());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    if (session.phase === "online") setShown(true);
    if (session.phase === "login") setShown(false);
  }, [session.phase]);
  const page = PAGES[at.page] ? at.page : "overview";
  const [title, Page] = PAGES[page];
  useEffect(() => {
    document.title = `${title} – radiator`;
    if (heading.current && heading.current !== page && main.current) main.current.focus();
    heading.current = page;
  }, [page]);
  useEffect(() => {
    const current = document.querySelector(".side [aria-current]");
    if (!current) return;
    // scrollIntoView would also move the place from which Tab continues, past "Skip to the content"
    const bar = current.closest("nav");
    bar.scrollLeft += current.getBoundingClientRect().left - bar.getBoundingClientRect().left - (bar.clientWidth - current.offsetWidth) / 2;
  }, [page, shown]);
  if (session.phase === "login") return html`<${Login} session=${session} />`;
  if (!shown) {
    return html`<main class="login" id="main"><p role="status">${session.phase === "offline" ? "The broker does not answer. Trying again …" : "Connecting …"}</p></main>`;
  }
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <div class="frame">
      <header class="side">
        <a class="brand" href="#/overview"><img src="icon.svg" alt="" width="22" height="22" /> radiator</a>
        <nav aria-label="Pages"><ul>${Object.entries(PAGES).map(
          ([key, [name]]) => html`<li><a href="#/${key}" aria-current=${key === page ? "page" : undefined}>${name}</a></li>`,
        )}</ul></nav>
        <div class="user">
          <span class="who">${session.user ? html`<${Text}>${session.user}<//>` : "no login"}</span>
          <button type="button" onClick=${() => { logOut(); go("overview", {}, { replace: true }); }}>${session.user ? "Log out" : "Log in"}</button>
          <${Theme} />
        </div>
      </header>
      <div class="content">
        <${Banner} session=${session} />
        <main id="main" ref=${main} tabindex="-1"><h1>${title}</h1><${Page} params=${at.params} session=${session} /></main>
      </div>
    </div>
    <${Dialogs} />`;
}

const root = document.getElementById("app");
root.replaceChildren();
theme();
start();
render(html`<${App} />`, root);
