// The daemon's side of the socket: lines in, lines out, in order, for many clients of which some are slow, broken or
// hostile. Which action does what, and who may ask for it, is decided elsewhere.

import type { Log } from "../../log.ts";
import type { System } from "../../system.ts";
import type { Libc, PeerCredentials } from "../../platform/libc.ts";
import { answerTo, type Client, type Handler, type Incoming, type Peer } from "./answer.ts";
import { maxLineBytes, type Answer, type Notice } from "./messages.ts";
import { listenLocal, type Access, type LocalAddress } from "./transport.ts";

export type ServerOptions = {
  address: LocalAddress;
  access: Access;
  libc: Pick<Libc, "peerOf">;
  handle: Handler;
  system: Pick<System, "sleep">;
  log: Log;
  /** Half a line may take this long, and so may answers that wait to be read. */
  patienceSeconds?: number;
};

export type IpcServer = {
  /** Hangs up on everybody, after what is being answered is answered. */
  stop(): Promise<void>;
  clients(): number;
};

const maxClients = 500;
/** One member of the group leaves places for the others. */
const maxClientsOfUser = 100;
/** Places that are left for root when others have taken all of theirs. */
const placesForRoot = 20;
/** So many clients that have more to say get their turn before those who have just said something. */
const turnsAtOnce = 32;
/** What one client has not read yet; with more of it, its next request waits. */
const maxUnreadBytes = 256 * 1024;
/** A subscriber that leaves this much unread is cut off. */
const maxUnreadNotices = 1024 * 1024;
/** A refused client has this long to read why; when so many are reading, the next one is cut off without a word. */
const refusalSeconds = 5;
const maxRefusalsAtOnce = 50;
const refusalLogMs = 60_000;
/** At the end, answers that are on their way are waited for. */
const lastAnswersMs = 1000;

type Connection = {
  client: Client;
  gone: AbortController;
  /** What came and was not cut into lines yet. */
  inbox: Uint8Array;
  /** The rest of a line that was too long is passed over. */
  skipping: boolean;
  working: boolean;
  /** The client will send nothing more, but may wait for answers: `printf … | socat`. */
  saidAll: boolean;
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
  const listener = await listenLocal<Connection | undefined>(options.address, options.access, {
    open(socket) {
      const { address, libc } = options;
      const credentials = address.kind === "pipe" ? administrator : libc.peerOf(descriptor(socket));
      const peer = admit(credentials, connections, options.access);
      if ("code" in peer) {
        logRefusal(peer.code, credentials);
        return refuse(socket, refused, peer);
      }
      const connection = connect(socket, peer);
      socket.data = connection;
      connections.add(connection);
    },
    data(socket, bytes) {
      const connection = socket.data;
      if (connection === undefined) return;
      // Bun's buffer is used again: this is a copy.
      connection.inbox = Buffer.concat([connection.inbox, bytes]);
      // More stays in the kernel's buffer until this is answered, and the answers are read.
      if (connection.working || connection.outBytes > maxUnreadBytes) socket.pause();
      void work(socket, connection, options, turn);
    },
    end(socket) {
      const connection = socket.data;
      if (connection === undefined) return;
      connection.saidAll = true;
      // A last line may do without its line break.
      connection.inbox = Buffer.concat([connection.inbox, new Uint8Array([lineFeed])]);
      void work(socket, connection, options, turn);
    },
    drain(socket) {
      const connection = socket.data;
      if (connection === undefined) return;
      flush(socket, connection);
      void work(socket, connection, options, turn);
    },
    timeout: (socket) => socket.terminate(),
    close(socket) {
      refused.delete(socket);
      if (socket.data === undefined) return;
      connections.delete(socket.data);
      socket.data.gone.abort(new Error("The client has gone"));
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

type Refusal = { code: "permission_denied" | "busy"; message: string };

/** The caller must be known to the kernel, and be root or in the group. */
function admit(
  credentials: PeerCredentials | undefined,
  connections: ReadonlySet<Connection>,
  access: Access,
): Peer | Refusal {
  const peer = identify(credentials, access);
  if (peer === undefined) return { code: "permission_denied", message: "You may not use this socket" };
  if (connections.size >= maxClients + (peer.right === "root" ? placesForRoot : 0))
    return { code: "busy", message: "Too many clients" };
  if (peer.right === "member") {
    const own = [...connections].filter(({ client }) => client.peer.uid === peer.uid).length;
    if (own >= maxClientsOfUser) return { code: "busy", message: "Too many clients of this user" };
  }
  return peer;
}

function refuse(socket: Socket, refused: Set<Socket>, { code, message }: Refusal): void {
  if (refused.size >= maxRefusalsAtOnce) return socket.terminate();
  refused.add(socket);
  socket.timeout(refusalSeconds);
  socket.end(encode({ ok: false, code, message }));
}

/** Logs the first refusal of a user at once, and one number for those of the minute after it. */
function makeRefusalLog({ log, system }: Pick<ServerOptions, "log" | "system">, ended: AbortSignal) {
  const further = new Map<string, number>();
  return (code: string, credentials: PeerCredentials | undefined): void => {
    const { uid, pid } = credentials ?? {};
    const kind = `${code} ${uid}`;
    const count = further.get(kind);
    if (count !== undefined) return void further.set(kind, count + 1);
    log.warn("A client is refused", { code, uid, pid });
    further.set(kind, 0);
    const minute = system.sleep(refusalLogMs, ended).catch(() => undefined);
    void minute.then(() => {
      const refusals = further.get(kind) ?? 0;
      further.delete(kind);
      if (refusals > 0) log.warn("More clients were refused", { code, uid, refusals });
    });
  };
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
    saidAll: false,
    staying: false,
    out: [],
    outBytes: 0,
  };
  return connection;
}

/** A pipe's access list decides who comes in; who it was is not told, so whoever it lets in counts as an administrator. */
const administrator: PeerCredentials = { pid: 0, uid: 0, gid: 0, groups: [] };

function identify(credentials: PeerCredentials | undefined, access: Access): Peer | undefined {
  if (credentials === undefined) return undefined;
  const { pid, uid, gid, groups } = credentials;
  if (uid === 0 || uid === process.getuid?.()) return { pid, uid, gid, right: "root" };
  const { groupId } = access;
  const member = groupId !== undefined && (gid === groupId || groups.includes(groupId));
  return member ? { pid, uid, gid, right: "member" } : undefined;
}

/** Bun's sockets have the descriptor; its types do not say so. */
function descriptor(socket: object): number {
  return "fd" in socket && typeof socket.fd === "number" ? socket.fd : -1;
}

/** The next line, or that it is too long; undefined if its end has not come. */
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

/** Each who waits gets its turn in order, a few in each round of the event loop. */
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

/** One request after the other, none while the client leaves its answers unread. */
async function work(
  socket: Socket,
  connection: Connection,
  { handle, log, patienceSeconds = 30 }: ServerOptions,
  turn: () => Promise<void>,
): Promise<void> {
  if (connection.working) return;
  connection.working = true;
  // A start may take longer than the patience with a client.
  socket.timeout(0);
  while (connection.outBytes <= maxUnreadBytes && !connection.gone.signal.aborted) {
    const next = nextLine(connection);
    if (next === undefined) break;
    const answer = await answerTo(next, connection.client, handle, log);
    if (answer !== undefined) send(socket, connection, encode(answer));
    // Whoever has more to say lets the others have their turn.
    if (connection.inbox.length > 0) await turn();
  }
  connection.working = false;
  if (connection.gone.signal.aborted) return;
  if (connection.outBytes <= maxUnreadBytes) socket.resume();
  const { saidAll, staying, inbox, outBytes } = connection;
  socket.timeout(inbox.length > 0 || outBytes > 0 ? patienceSeconds : 0);
  if (saidAll && !staying && inbox.length === 0 && outBytes === 0) socket.end();
}

function encode(value: Answer | Notice): Uint8Array {
  return Buffer.from(`${JSON.stringify(value)}\n`);
}

function sendNotice(socket: Socket, connection: Connection, notice: Notice): void {
  if (connection.gone.signal.aborted) return;
  if (connection.outBytes > maxUnreadNotices) socket.terminate();
  else send(socket, connection, encode(notice));
}

/** The kernel may take a part: the rest waits for `drain`. */
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
