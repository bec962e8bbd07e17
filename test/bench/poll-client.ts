// Ten thousand waiting nodes as bare sockets: a client library would need more memory for them than the server. Each
// sends one request and counts the bytes and the time of its answer.

import * as v from "valibot";

export type Waiting = {
  /** Resolves when every socket has its whole answer; performance.now() of each. */
  answered: Promise<number[]>;
  /** Bodies, once answered. */
  bodies: string[];
  close(): void;
};

type State = { at: number; text: string; length: number | undefined };

/** `requests` are whole HTTP/1.1 requests; resolves when all are sent. */
export async function sendAll(url: string, requests: readonly string[], concurrency = 500): Promise<Waiting> {
  const { hostname, port } = new URL(url);
  const times: number[] = [];
  const bodies: string[] = [];
  const sockets: Bun.Socket<State>[] = [];
  let finish: () => void = () => undefined;
  let fail: (error: Error) => void = () => undefined;
  const all = new Promise<void>((resolve, reject) => ([finish, fail] = [resolve, reject]));
  // It is awaited later; until then it is no unhandled rejection.
  all.catch(() => undefined);

  const open = (request: string) =>
    Bun.connect<State>({
      hostname,
      port: Number(port),
      data: { at: 0, text: "", length: undefined },
      socket: {
        open: (socket) => void socket.write(request),
        data(socket, chunk) {
          const { data } = socket;
          data.text += chunk.toString("latin1");
          const body = bodyOf(data.text);
          if (body === undefined) return;
          times.push(performance.now());
          bodies.push(body);
          if (times.length === requests.length) finish();
        },
        error: (_, error) => fail(error),
        close(socket) {
          if (bodyOf(socket.data.text) === undefined)
            fail(new Error("A connection closed without an answer"));
        },
      },
    });
  for (let first = 0; first < requests.length; first += concurrency) {
    sockets.push(...(await Promise.all(requests.slice(first, first + concurrency).map(open))));
  }
  return {
    answered: all.then(() => times),
    bodies,
    close: () => sockets.forEach((socket) => socket.terminate()),
  };
}

/** The body of a complete answer with status 200. */
function bodyOf(text: string): string | undefined {
  const end = text.indexOf("\r\n\r\n");
  if (end === -1) return undefined;
  if (!text.startsWith("HTTP/1.1 200")) throw new Error(`A poll was answered ${text.slice(0, 60)}`);
  const length = Number(/content-length: (\d+)/i.exec(text.slice(0, end))?.[1]);
  return text.length >= end + 4 + length ? text.slice(end + 4) : undefined;
}

export const ConfigVersion = v.object({ config_version: v.number() });
