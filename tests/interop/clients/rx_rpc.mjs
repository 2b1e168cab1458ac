// RxStompRPC of @stomp/rx-stomp, as it is: questions side by side, answered over a queue nobody subscribed to.
// Takes the address of the broker; prints the answers in the order of the questions.

import { RxStomp, RxStompRPC } from "@stomp/rx-stomp";
import { firstValueFrom } from "rxjs";
import WebSocket from "ws";

Object.assign(globalThis, { WebSocket });

function start() {
  const rx = new RxStomp();
  rx.configure({ brokerURL: process.argv[2], reconnectDelay: 0 });
  rx.stompErrors$.subscribe((frame) => console.error(frame.headers.message, frame.body));
  rx.activate();
  return rx;
}

const server = start();
server.watch("/queue/shouting").subscribe((question) => {
  const { "reply-to": destination, "correlation-id": id } = question.headers;
  server.publish({ destination, body: question.body.toUpperCase(), headers: { "correlation-id": id } });
});
const rpc = new RxStompRPC(start());
const questions = Array.from({ length: 100 }, (_, number) => `question ${number}`);
const answers = questions.map((body) => firstValueFrom(rpc.rpc({ destination: "/queue/shouting", body })));
for (const answer of await Promise.all(answers)) console.log(answer.body);
process.exit();
