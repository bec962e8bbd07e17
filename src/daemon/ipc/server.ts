// The server of the daemon's socket: lines in, lines out, in order, for many clients. Some of them are slow, broken or
// hostile. Actions and their rights belong to actions.ts.

import type { AppError } from "../../base/errors.ts";
import type { Log } from "../../base/log.ts";
import type { System } from "../../base/system.ts";
import type { Libc } from "../../platform/libc.ts";
import { answerTo, type Answering, type Client, type Handler, type Incoming, type Peer } from "./answer.ts";
import {
  administrator,
  admit,
  clientRefused,
  lineRefused,
  makeRefusalLog,
  type Refusal,
} from "./admission.ts";
import { maxLineBytes, type Answer, type Notice } from "./messages.ts";
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

export type IpcServer = {
  /** Disconnects every client after the requests in progress are answered. */
  stop(): Promise<void>;
  clients(): number;
};

/** How many waiting clients continue in each round of the event loop. */
const turnsAtOnce = 32;
/** With more unread bytes than this, the next request of the client waits. */
const maxUnreadBytes = 256 * 1024;
/** A subscriber with more unread bytes than this is disconnected. */
const maxUnreadNotices = 1024 * 1024;
/** A refused client has this long to read the reason. Above the maximum, clients are disconnected without one. */
const refusalSeconds = 5;
const maxRefusalsAtOnce = 50;
/** How long `stop` waits for answers in progress. */
const lastAnswersMs = 1000;

type Connection = {
  client: Client;
  gone: AbortController;
  /** Received bytes that are not split into lines yet. */
  inbox: Uint8Array;
  /** Skips the rest of a line that was too long. */
  skipping: boolean;
  working: boolean;
  /** The client sends nothing more, but may wait for answers: `printf … | socat`. */
  inputEnded: boolean;
  staying: boolean;
  out: Uint8Array[];
  outBytes: number;
};

const lineFeed = 10;
type Socket = Bun.Socket<Connection | undefined>;

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
      // Bun reuses its buffer, so copy.
      connection.inbox = Buffer.concat([connection.inbox, bytes]);
      // Further bytes stay in the kernel's buffer until these are answered and the answers are read.
      if (connection.working || connection.outBytes > maxUnreadBytes) socket.pause();
      work(socket, connection);
    },
    end(socket) {
      const connection = socket.data;
      if (connection === undefined) return;
      connection.inputEnded = true;
      // The last line may lack its line break.
      connection.inbox = Buffer.concat([connection.inbox, new Uint8Array([lineFeed])]);
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

function connect(socket: Socket, peer: Peer): Connection {
  const gone = new AbortController();
  const connection: Connection = {
    client: {
      peer,
      gone: gone.signal,
      notify: (notice) => sendNotice(socket, connection, notice),
      stay: () => void (connection.staying = true),
      unread: () => connection.outBytes,
    },
    gone,
    inbox: new Uint8Array(),
    skipping: false,
    working: false,
    inputEnded: false,
    staying: false,
    out: [],
    outBytes: 0,
  };
  return connection;
}

/** Bun's sockets have a descriptor that its types do not declare. */
function descriptor(socket: object): number {
  return "fd" in socket && typeof socket.fd === "number" ? socket.fd : -1;
}

/** The next line, or that it is too long; undefined while it is incomplete. */
function nextLine(connection: Connection): Incoming | undefined {
  for (;;) {
    const { inbox, skipping } = connection;
    const end = inbox.indexOf(lineFeed);
    const line = end < 0 ? inbox : inbox.subarray(0, end);
    const complete = end >= 0;
    const tooLong = line.length > maxLineBytes;
    if (complete || tooLong || skipping) connection.inbox = inbox.subarray(complete ? end + 1 : inbox.length);
    connection.skipping = !complete && (skipping || tooLong);
    if (tooLong && !skipping) return { tooLong };
    if (!complete) return undefined;
    if (!skipping && line.length > 0) return { line };
  }
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

type Turns = { turn: () => Promise<void>; patienceSeconds?: number };

/** Answers one request after the other; pauses while the client does not read. */
async function answerLines(
  socket: Socket,
  connection: Connection,
  { turn, patienceSeconds = 30, ...answering }: Answering & Turns,
): Promise<void> {
  if (connection.working) return;
  connection.working = true;
  // A request may take longer than `patienceSeconds`.
  socket.timeout(0);
  while (connection.outBytes <= maxUnreadBytes && !connection.gone.signal.aborted) {
    const next = nextLine(connection);
    if (next === undefined) break;
    const answer = await answerTo(next, connection.client, answering);
    if (answer !== undefined) send(socket, connection, encode(answer));
    // Let other clients continue before the next request of this one.
    if (connection.inbox.length > 0) await turn();
  }
  connection.working = false;
  if (connection.gone.signal.aborted) return;
  if (connection.outBytes <= maxUnreadBytes) socket.resume();
  const { inputEnded, staying, inbox, outBytes } = connection;
  socket.timeout(inbox.length > 0 || outBytes > 0 ? patienceSeconds : 0);
  if (inputEnded && !staying && inbox.length === 0 && outBytes === 0) socket.end();
}

function encode(value: Answer | Notice): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`);
}

function sendNotice(socket: Socket, connection: Connection, notice: Notice): void {
  if (connection.gone.signal.aborted) return;
  if (connection.outBytes > maxUnreadNotices) socket.terminate();
  else send(socket, connection, encode(notice));
}

/** The kernel may accept only a part: the rest waits for `drain`. */
function send(socket: Socket, connection: Connection, bytes: Uint8Array): void {
  connection.out.push(bytes);
  connection.outBytes += bytes.length;
  if (connection.out.length === 1) flush(socket, connection);
}

function flush(socket: Socket, connection: Connection): void {
  for (let first = connection.out[0]; first !== undefined; first = connection.out[0]) {
    const written = Math.max(0, socket.write(first));
    connection.outBytes -= written;
    if (written < first.length) {
      connection.out[0] = first.subarray(written);
      return;
    }
    connection.out.shift();
  }
}
