// One client of the daemon's socket: lines in, lines out, in order.

import { answerTo, type Answering, type Client, type Incoming, type Peer } from "./answer-line.ts";
import { maxLineBytes, type Answer, type Notice } from "./messages.ts";

/** If more bytes than this are unread, the next request of the client waits. */
const maxUnreadBytes = 256 * 1024;
/** A subscriber with more unread bytes than this is disconnected. */
const maxUnreadNotices = 1024 * 1024;

export type Connection = {
  client: Client;
  /** Aborted when the client has disconnected. */
  gone: AbortController;
  /** Received bytes that are not split into lines yet. */
  inbox: Uint8Array;
  /** The next bytes belong to a line that was too long: they are skipped up to its end. */
  skipping: boolean;
  /** Requests are being answered. */
  working: boolean;
  /** The client sends nothing more, but may wait for answers: `printf … | socat`. */
  inputEnded: boolean;
  /** Notices will follow, so the connection stays open after the last answer. */
  staying: boolean;
  /** Bytes that the kernel has not accepted yet, and their number. */
  out: Uint8Array[];
  outBytes: number;
};

const lineFeed = 10;
export type Socket = Bun.Socket<Connection | undefined>;

export function connect(socket: Socket, peer: Peer): Connection {
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

export function receive(connection: Connection, bytes: Uint8Array): void {
  // Bun reuses its buffer, so copy.
  connection.inbox = Buffer.concat([connection.inbox, bytes]);
}

/** Whether the client has read enough of its answers to get the next one. */
export const isRead = ({ outBytes }: Connection): boolean => outBytes <= maxUnreadBytes;

/**
 * Takes the next line out of the inbox, or says once that it is too long; undefined while it is incomplete. Of a line that is too
 * long nothing is kept.
 */
function nextLine(connection: Connection): Incoming | undefined {
  for (;;) {
    const { inbox, skipping } = connection;
    const end = inbox.indexOf(lineFeed);
    const line = end < 0 ? inbox : inbox.subarray(0, end);
    const complete = end >= 0;
    const tooLong = line.length > maxLineBytes;
    if (complete || tooLong || skipping) connection.inbox = inbox.subarray(complete ? end + 1 : inbox.length);
    connection.skipping = !complete && (skipping || tooLong);
    if (tooLong && !skipping) return { tooLong: true };
    if (!complete) return undefined;
    if (!skipping && line.length > 0) return { line };
  }
}

/** `turn`: resolves when this client may continue. `patienceSeconds`: how long half a line, or an unread answer, may stay. */
type Turns = { turn: () => Promise<void>; patienceSeconds?: number };

/**
 * Answers one request after the other; stops while the client does not read. server.ts calls it for received bytes, and again when
 * the client has read.
 */
export async function answerLines(
  socket: Socket,
  connection: Connection,
  { turn, patienceSeconds = 30, ...answering }: Answering & Turns,
): Promise<void> {
  if (connection.working) return;
  connection.working = true;
  // A request may take longer than `patienceSeconds`.
  socket.timeout(0);
  while (isRead(connection) && !connection.gone.signal.aborted) {
    const incoming = nextLine(connection);
    if (incoming === undefined) break;
    const answer = await answerTo(incoming, connection.client, answering);
    if (answer !== undefined) send(socket, connection, encode(answer));
    // Let other clients continue before the next request of this one.
    if (connection.inbox.length > 0) await turn();
  }
  connection.working = false;
  if (connection.gone.signal.aborted) return;
  if (isRead(connection)) socket.resume();
  const { inputEnded, staying, inbox, outBytes } = connection;
  socket.timeout(inbox.length > 0 || outBytes > 0 ? patienceSeconds : 0);
  if (inputEnded && !staying && inbox.length === 0 && outBytes === 0) socket.end();
}

export function encode(value: Answer | Notice): Uint8Array {
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

/** Writes what the kernel accepts. */
export function flush(socket: Socket, connection: Connection): void {
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
