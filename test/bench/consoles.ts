// `bun test/bench/consoles.ts [CONSOLES]`: what 500 open consoles cost the control plane: its memory, and the time of
// check-ins, in turns without and with them. Bars: under 60 MB, and no check-in more than 2 ms longer. The consoles are streams
// that another process reads, of one organization of 1000 nodes; each check-in is told to all of them.

import { buildAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { anonymousMb, median, print, startServer } from "./measure.ts";
import { seedWithOwner } from "./owner.ts";
import { password, slug, tokenOf } from "./seed.ts";

const nodes = 1000;
const turns = 3;
const perTurn = 400;
/** Between check-ins: 100 a second are those of 6000 nodes. */
const pauseMs = 10;

/** The other process: opens the streams, says when all are open, and reads until it is ended. */
async function read(url: string, cookie: string, count: number): Promise<void> {
  const one = async () => {
    const answer = await fetch(`${url}/api/org/${slug}/stream/`, {
      headers: { Cookie: cookie, "Sec-Fetch-Site": "same-origin", Origin: url },
    });
    if (!answer.ok || answer.body === null) throw new Error(`${answer.status} ${await answer.text()}`);
    void (async () => {
      for await (const chunk of answer.body ?? []) if (chunk.length === 0) break;
    })();
  };
  for (let at = 0; at < count; at++) await one();
  print("open");
  await Bun.sleep(3_600_000);
}

async function startConsoles(url: string, cookie: string, count: number): Promise<() => Promise<void>> {
  const child = Bun.spawn([process.execPath, import.meta.path, "read", url, cookie, String(count)], {
    env: { ...process.env, BUN_CONFIG_MAX_HTTP_REQUESTS: String(2 * count) },
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const { value } = await child.stdout.getReader().read();
  if (!new TextDecoder().decode(value).startsWith("open")) throw new Error("The consoles did not open");
  return async () => {
    child.kill();
    await child.exited;
  };
}

async function checkIns(url: string): Promise<number[]> {
  const took: number[] = [];
  for (let at = 0; at < perTurn; at++) {
    const id = (at % nodes) + 1;
    const from = performance.now();
    const answer = await fetch(`${url}/api/org/${slug}/nodes/${id}/checkin/`, {
      method: "POST",
      headers: { Authorization: `Bearer ${tokenOf(id)}`, "Content-Type": "application/json" },
      body: JSON.stringify({ version: "0.1.0", uptime: 1 }),
    });
    await answer.text();
    took.push(performance.now() - from);
    if (!answer.ok) throw new Error(`check-in: ${answer.status}`);
    await Bun.sleep(pauseMs);
  }
  return took;
}

async function signedIn(url: string, email: string): Promise<string> {
  const answer = await fetch(`${url}/api/session/`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "Sec-Fetch-Site": "same-origin", Origin: url },
    body: JSON.stringify({ email, password }),
  });
  const cookie = /__Host-session=[^;]+/.exec(answer.headers.getSetCookie().join("\n"))?.[0];
  if (cookie === undefined) throw new Error(`sign-in: ${answer.status} ${await answer.text()}`);
  return cookie;
}

async function measure(count: number): Promise<void> {
  buildAgent();
  using directory = temporaryDirectory();
  const data = directory.path;
  const { owner } = await seedWithOwner(data, nodes);
  await using server = await startServer(["--data-dir", data]);
  const cookie = await signedIn(server.url, owner);
  await checkIns(server.url);
  const alone: number[][] = [];
  const watched: number[][] = [];
  const grown: number[] = [];
  for (let turn = 0; turn < turns; turn++) {
    alone.push(await checkIns(server.url));
    const before = anonymousMb(server.pid);
    const end = await startConsoles(server.url, cookie, count);
    watched.push(await checkIns(server.url));
    grown.push(anonymousMb(server.pid) - before);
    await end();
    await Bun.sleep(1000);
  }
  const of = (all: readonly number[][], part: number) => {
    const sorted = all.flat().sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? 0;
  };
  const line = (name: string, all: readonly number[][]) =>
    print(
      `${name}: median ${of(all, 0.5).toFixed(2)} ms, p99 ${of(all, 0.99).toFixed(2)}, worst ${of(all, 1).toFixed(2)}`,
    );
  line("check-ins, no console      ", alone);
  line(`check-ins, ${count} consoles    `, watched);
  print(
    `longer: median ${(of(watched, 0.5) - of(alone, 0.5)).toFixed(2)} ms, p99 ${(of(watched, 0.99) - of(alone, 0.99)).toFixed(2)}, bar 2`,
  );
  print(
    `memory of the server: +${median(grown).toFixed(1)} MB (${grown.map((each) => each.toFixed(1)).join(", ")}), bar 60`,
  );
}

const [first = "500", url = "", cookie = "", count = ""] = process.argv.slice(2);
if (first === "read") await read(url, cookie, Number(count));
else await measure(Number(first));
