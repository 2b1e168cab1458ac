// Dialogs of the verbs that several pages have.
import { Text, confirmAction, count, html } from "../ui.js";
import { ask } from "../session.js";

export function pauseQueue(name, after) {
  confirmAction({
    title: "Pause the queue",
    text: html`<p><${Text}>${name}<//> delivers no messages until it is resumed, also after a restart of the broker. New messages wait.</p>`,
    button: "Pause",
    run: async () => {
      await ask("queues.pause", { name });
      return "The queue is paused.";
    },
    after,
  });
}

export function resumeQueue(name, after) {
  confirmAction({
    title: "Resume the queue",
    text: html`<p><${Text}>${name}<//> delivers messages again.</p>`,
    button: "Resume",
    run: async () => {
      await ask("queues.resume", { name });
      return "The queue is resumed.";
    },
    after,
  });
}

export function purgeQueue(name, after) {
  confirmAction({
    title: "Purge the queue",
    text: html`<p>All ready messages of <${Text}>${name}<//> are settled: no consumer will get them. Messages in flight stay.</p>`,
    typed: name,
    button: "Purge",
    danger: true,
    run: async () => `${count((await ask("queues.purge", { name })).purged)} messages were purged.`,
    after,
  });
}

export function disconnect(session, after) {
  confirmAction({
    title: "Disconnect the client",
    text: html`<p>Session <${Text}>${session}<//> gets an ERROR and is closed. Its unacknowledged messages are delivered again.</p>`,
    fields: [{ name: "reason", label: "Reason, sent to the client (optional)" }],
    button: "Disconnect",
    danger: true,
    run: async ({ reason }) => {
      await ask("clients.disconnect", reason ? { session, reason } : { session });
      return "The client is disconnected.";
    },
    after,
  });
}
