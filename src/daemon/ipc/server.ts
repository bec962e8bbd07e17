// The server of the daemon's socket: admits many clients, some of them slow, broken or hostile. Actions and their rights
// belong to actions.ts.

import type { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { Libc } from "../../platform/libc.ts";
import type { Handler } from "./answer-line.ts";
import {
  administrator,
  admit,
  clientRefused,
  lineRefused,
  makeRefusalLog,
  type Refusal,
} from "./admission.ts";
import {
  answerLines,
  connect,
  encode,
  flush,
  isRead,
  receive,
  type Connection,
  type Socket,
} from "./connection.ts";
import { listenLocal, type Access, type LocalAddress } from "./transport.ts";

export type ServerOptions = {
  address: LocalAddress;
  access: Access;
  libc: Pick<Libc, "peerOf">;
  handle: Handler;
  system: Pick<System, "sleep">;
  log: Log;
  /** How long half a line, or an unread answer, may stay. */
  patienceSeconds?: number;
};

type IpcServer = {
  /** Disconnects every client after the requests in progress are answered. */
  stop(): Promise<void>;
  clients(): number;
};

/** How many waiting clients continue in each round of the event loop. */
const turnsAtOnce = 32;
/** A refused client has this long to read the reason. Above the maximum, clients are disconnected without one. */
const refusalSeconds = 5;
const maxRefusalsAtOnce = 50;
/** How long `stop` waits for answers in progress. */
const lastAnswersMs = 1000;

export async function serveIpc(options: ServerOptions): Promise<IpcServer> {
  const connections = new Set<Connection>();
  const refused = new Set<Socket>();
  const ended = new AbortController();
  const logRefusal = makeRefusalLog(options, ended.signal);
  const turn = makeTurns();
  const work = (socket: Socket, connection: Connection) => {
    const { peer } = connection.client;
    const onMalformed = (refusal: AppError) => logRefusal(lineRefused, refusal, peer);
    void answerLines(socket, connection, { ...options, onMalformed, turn });
  };
  const listener = await listenLocal<Connection | undefined>(options.address, options.access, {
    open(socket) {
      const { address, libc } = options;
      const credentials = address.kind === "pipe" ? administrator : libc.peerOf(descriptor(socket));
      const peer = admit(credentials, connections, options.access);
      if ("code" in peer) {
        logRefusal(clientRefused, { code: peer.code }, credentials ?? {});
        return refuse(socket, refused, peer);
      }
      const connection = connect(socket, peer);
      socket.data = connection;
      connections.add(connection);
    },
    data(socket, bytes) {
      const connection = socket.data;
      if (connection === undefined) return;
      receive(connection, bytes);
      // Further bytes stay in the kernel's buffer until these are answered and the answers are read: `answerLines` resumes.
      if (connection.working || !isRead(connection)) socket.pause();
      work(socket, connection);
    },
    end(socket) {
      const connection = socket.data;
      if (connection === undefined) return;
      connection.inputEnded = true;
      // The last line may lack its line break.
      receive(connection, Buffer.from("\n"));
      work(socket, connection);
    },
    drain(socket) {
      const connection = socket.data;
      if (connection === undefined) return;
      flush(socket, connection);
      work(socket, connection);
    },
    timeout: (socket) => socket.terminate(),
    close(socket) {
      refused.delete(socket);
      if (socket.data === undefined) return;
      connections.delete(socket.data);
      socket.data.gone.abort(new Error("The client has disconnected"));
    },
    error: (_, error) => options.log.debug("A client's socket failed", { error: error.message }),
  });
  return {
    async stop() {
      for (let waited = 0; waited < lastAnswersMs; waited += 10) {
        if (![...connections].some(({ working }) => working)) break;
        await options.system.sleep(10);
      }
      ended.abort(new Error("The daemon ends"));
      listener.stop();
    },
    clients: () => connections.size,
  };
}

function refuse(socket: Socket, refused: Set<Socket>, { code, message }: Refusal): void {
  if (refused.size >= maxRefusalsAtOnce) return socket.terminate();
  refused.add(socket);
  socket.timeout(refusalSeconds);
  socket.end(encode({ ok: false, code, message }));
}

/** Bun's sockets have a descriptor that its types do not declare. */
function descriptor(socket: object): number {
  return "fd" in socket && typeof socket.fd === "number" ? socket.fd : -1;
}

/** Waiting clients continue in order, `turnsAtOnce` in each round of the event loop. */
function makeTurns(): () => Promise<void> {
  const waiting: (() => void)[] = [];
  let isRunning = false;
  const run = () => {
    for (const resolve of waiting.splice(0, turnsAtOnce)) resolve();
    isRunning = waiting.length > 0;
    if (isRunning) setImmediate(run);
  };
  return () =>
    new Promise((resolve) => {
      waiting.push(resolve);
      if (!isRunning) setImmediate(run);
      isRunning = true;
    });
}
