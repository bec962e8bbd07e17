// `bun test/support/ipc-flood.ts SOCKET SEED LINES CLIENTS`: concurrent faulty and hostile clients of the daemon's socket.
// Prints one JSON object: the numbers of sent lines, of answers, and of answers that are not refusals.

import { makeRandom } from "./random.ts";

const [path = "", seed = "1", lines = "1000", clients = "100"] = process.argv.slice(2);
const random = makeRandom(Number(seed));
const counts: Counts = { sent: 0, answers: 0, accepted: 0 };

export type Counts = { sent: number; answers: number; accepted: number };

const whole = (below: number) => Math.floor(random() * below);
const pick = <T>(from: readonly T[], otherwise: T): T => from[whole(from.length)] ?? otherwise;
const bytes = (length: number) => Buffer.from(Array.from({ length }, () => whole(256)));

const teams = [
  "../../etc",
  "/etc/passwd",
  "acme/../..",
  "ACME",
  "a\u0000b",
  "",
  ".",
  "x".repeat(41),
  7,
  null,
  {},
];
const named = ["start", "stop", "restart", "switch", "delete", "sync", "logs"];
const broken = ['{"action":', "[", '{"action":"status"', "nul", '"', "{]", "{'action':'status'}"];
const shapes: (() => unknown)[] = [
  () => ({ action: pick(named, "logs"), team: pick<unknown>(teams, "") }),
  () => ({
    action: pick(["__proto__", "constructor", "toString", "", "STATUS", "exec"], "exec"),
    id: whole(9),
  }),
  () => ({ action: "status", id: pick<unknown>([[], {}, true, "i".repeat(200)], []) }),
  () => ({ action: "logs", team: "acme", lines: pick<unknown>([-1, 1e9, 0.5, "all"], -1) }),
  () => ({ action: pick<unknown>([1, null, [], {}, "a".repeat(65)], 1), __proto__: { action: "stop" } }),
  () => ({ action: "logs", team: "acme", path: "/etc/shadow", file: "../x", follow: "yes" }),
  () => pick<unknown>([null, 1, "status", [], [{ action: "status" }], {}], null),
];

/** A line that the daemon must refuse; sometimes far too long. */
function malformed(): Buffer {
  const kind = random();
  if (kind < 0.25) return visible(bytes(1 + whole(200)));
  if (kind < 0.45) return Buffer.from(pick(broken, "{"));
  if (kind < 0.4995) return Buffer.from("[".repeat(1 + whole(2000)));
  if (kind < 0.5) return Buffer.alloc(65 * 1024 + whole(200_000), "x");
  return Buffer.from(JSON.stringify(pick(shapes, () => null)()));
}

/** Without line breaks, and not blank: the daemon does not answer blank lines. */
function visible(from: Buffer): Buffer {
  return Buffer.concat([
    Buffer.from("\u0001"),
    from.map((byte) => (byte === 10 || byte === 13 ? 0xff : byte)),
  ]);
}

/** Sends its part of the lines and reads all answers. */
async function talk(share: number): Promise<void> {
  let [waiting, rest] = [share, ""];
  let out = Buffer.alloc(0);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const socket = await Bun.connect({
    unix: path,
    socket: {
      data(_, chunk) {
        const parts = (rest + chunk.toString()).split("\n");
        rest = parts.pop() ?? "";
        for (const part of parts) if (!part.startsWith('{"ok":false')) counts.accepted++;
        counts.answers += parts.length;
        waiting -= parts.length;
        if (waiting === 0) resolve();
      },
      drain: (own) => void (out = out.subarray(Math.max(0, own.write(out)))),
      close: () => reject(new Error(`The daemon hung up on an honest client, ${waiting} answers owed`)),
      error: (_, error) => reject(error),
    },
  });
  for (let left = share; left > 0;) {
    const batch = Math.min(left, 1 + whole(40));
    const text = Array.from({ length: batch }, () => [malformed(), Buffer.from("\n")]).flat();
    out = Buffer.concat([out, ...text]);
    out = out.subarray(Math.max(0, socket.write(out)));
    counts.sent += batch;
    left -= batch;
    while (out.length > 256 * 1024) await Bun.sleep(1);
    await Bun.sleep(0);
  }
  await promise;
  socket.terminate();
}

/** Requests much and reads nothing, or sends half a line, or half-closes the connection and stays. */
async function sulk(kind: number): Promise<{ terminate(): void }> {
  const socket = await Bun.connect({
    unix: path,
    allowHalfOpen: true,
    socket: { data() {}, drain() {}, error() {} },
  });
  if (kind === 0) socket.pause();
  if (kind === 0) socket.write('{"action":"status"}\n'.repeat(1500));
  if (kind === 1) socket.write('{"action":"sta');
  if (kind === 2) socket.shutdown();
  return socket;
}

const many = Number(clients);
const sulking = await Promise.all(Array.from({ length: Math.floor(many / 5) }, (_, at) => sulk(at % 3)));
const talking = many - sulking.length;
const share = Math.floor(Number(lines) / talking);
await Promise.all(Array.from({ length: talking }, () => talk(share)));
for (const socket of sulking) socket.terminate();
process.stdout.write(`${JSON.stringify(counts)}\n`);
