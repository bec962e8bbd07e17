// `bun test/bench/tcp-fallback.ts [ROUNDS] [SECONDS]`: check-ins, one after the other, on a control plane whose listener has 400
// connections of TCP fallback, in turns: idle ones (a packet every ten seconds), and ones that send twice as much as may pass. Bars: the
// slowest of a hundred check-ins beside the full ones below 50 ms, and at most three times that beside idle ones. The engine is a UDP
// socket of this program. All run before other programs of the machine (chrt(1)): what sends takes a processor of its own.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatagramBatch, datagramsIn } from "../../src/base/datagrams/frames.ts";
import { buildAgent } from "../support/agent.ts";
import { paths } from "../support/paths.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";
import { runSync } from "../support/debian.ts";
import { figure, median, print, processorSeconds, quantile, spread, startServer } from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

const [rounds = 3, seconds = 5] = process.argv.slice(2).map(Number);
const connections = 400;
/** Each sends two packets: twice as much as may pass. */
const everyMs = { full: 44, idle: 10_000 };
type Load = keyof typeof everyMs;

const [, , role, url = "", forS, load] = process.argv;
if (role === "flood") await flood(url, Number(forS), load === "full" ? "full" : "idle");
else if (role === "engine") await beEngine();
else await measure();

/** Answers each datagram with itself. Processes of their own, because this one measures. */
async function beEngine(): Promise<void> {
  const engine = await Bun.udpSocket({
    hostname: "0.0.0.0",
    socket: {
      data(own, datagram, port, address) {
        own.send(datagram, port, address);
      },
    },
  });
  process.stdout.write(`${engine.port}\n`);
}

async function flood(url: string, forS: number, load: Load): Promise<void> {
  let [got, sent] = [0, 0];
  const datagram = new Uint8Array(1400).fill(0x11);
  const clients = await Promise.all(
    Array.from({ length: connections }, async () => {
      const client = new WebSocket(url, { tls: { rejectUnauthorized: false } });
      client.binaryType = "arraybuffer";
      const batch = new DatagramBatch((message) => {
        if (client.bufferedAmount < 65_536) client.send(message);
      });
      client.addEventListener("message", ({ data }) => {
        for (const each of datagramsIn(new Uint8Array(data as ArrayBuffer))) got += each.length;
      });
      await new Promise((resolve, reject) => {
        client.addEventListener("open", resolve);
        client.addEventListener("error", reject);
      });
      return { client, batch };
    }),
  );
  for (const end = performance.now() + forS * 1000; performance.now() < end;) {
    for (const { batch } of clients) {
      batch.add(datagram);
      batch.add(datagram);
      sent += 2 * datagram.length;
    }
    await Bun.sleep(Math.min(everyMs[load], end - performance.now()));
  }
  process.stdout.write(`${JSON.stringify({ sent, got })}\n`);
  process.exit(0);
}

async function measure(): Promise<void> {
  buildAgent();
  using directory = temporaryDirectory();
  const data = join(directory.path, "data");
  await seed({ dataDirectory: data }, 1000);
  const engine = Bun.spawn([process.execPath, import.meta.path, "engine"], { stdout: "pipe" });
  const { value } = await engine.stdout.getReader().read();
  const enginePort = Number(new TextDecoder().decode(value));
  const root = await machineRoot(directory.path, data, enginePort);
  await using server = await startServer(["--data-dir", data, "--config-root", root]);
  const url = `${server.url.replace(/^http/, "ws")}/tcp/${enginePort}`;
  await until(async () => (await fetch(url.replace(/^ws/, "http"))).status === 426, { ms: 30_000 });
  for (const pid of [server.pid, process.pid, engine.pid])
    runSync(["chrt", "--all-tasks", "--rr", "--pid", "5", String(pid)]);
  const times = { idle: [] as number[], full: [] as number[] };
  const ratios: number[] = [];
  let [passed, cpu] = [0, 0];
  for (let round = 0; round < rounds; round++) {
    for (const load of ["idle", "full"] as const) {
      const words = ["flood", url, String(seconds + 3), load];
      const child = Bun.spawn(["chrt", "--rr", "1", process.execPath, import.meta.path, ...words], {
        stdout: "pipe",
        stderr: "inherit",
      });
      await Bun.sleep(2000);
      const before = processorSeconds(server.pid);
      const taken = await checkinsFor(server.url, seconds);
      times[load].push(...taken);
      const { got } = JSON.parse(await new Response(child.stdout).text()) as { got: number };
      if (load === "idle") ratios.push(quantile(taken, 0.99));
      else {
        cpu += processorSeconds(server.pid) - before;
        passed += (2 * got) / (seconds + 3);
        ratios.push(quantile(taken, 0.99) / (ratios.pop() ?? 1));
      }
    }
  }
  engine.kill();
  const of = (times: number[]) =>
    `median ${quantile(times, 0.5).toFixed(2)} ms, 99 % ${quantile(times, 0.99).toFixed(1)} ms, slowest ${Math.max(...times).toFixed(0)} ms of ${times.length}`;
  for (const load of ["idle", "full"] as const)
    print(`beside ${connections} ${load} connections: ${of(times[load])}`);
  print(
    `passed on: ${((8 * passed) / rounds / 1e6).toFixed(0)} Mbit/s; processor ${((100 * cpu) / (rounds * seconds)).toFixed(0)} %`,
  );
  figure("slowest of a hundred check-ins beside a full fallback", quantile(times.full, 0.99), {
    unit: "ms",
    most: 50,
  });
  print(`full to idle: ${spread(ratios, 1)}`);
  figure("full to idle, times", median(ratios), { digits: 1, most: 3 });
}

/** One after the other, as a waiting node would see it. */
async function checkinsFor(url: string, forS: number): Promise<number[]> {
  const times: number[] = [];
  for (const end = performance.now() + forS * 1000; performance.now() < end;) {
    const id = (times.length % 1000) + 1;
    const began = performance.now();
    const answer = await fetch(`${url}${paths.checkin(slug, id)}`, {
      method: "POST",
      headers: { Authorization: `Bearer ${tokenOf(id)}`, "Content-Type": "application/json" },
      body: JSON.stringify({ version: "0.1.0", uptime: 7, config_version: 1, overlay_version: "1.10.3" }),
    });
    await answer.text();
    if (answer.status !== 200) throw new Error(`${answer.status}`);
    times.push(performance.now() - began);
    await Bun.sleep(2);
  }
  return times;
}

/** Node 1 becomes a lighthouse of this machine. */
async function machineRoot(directory: string, data: string, port: number): Promise<string> {
  const { Database } = await import("bun:sqlite");
  using database = new Database(join(data, "control.db"));
  database.run(
    "UPDATE nodes SET is_lighthouse = 1, public_ip = '192.0.2.1', external_port = ?, listen_port = ? WHERE id = 1",
    [port, port],
  );
  const row = database
    .query<{ name: string; ip: string; key: string; network: string }, []>(
      "SELECT n.name, n.ip, o.order_public AS key, o.network FROM nodes n JOIN organizations o ON o.id = n.org_id WHERE n.id = 1",
    )
    .get();
  const root = join(directory, "etc");
  mkdirSync(join(root, slug), { recursive: true });
  const config = {
    schema: 1,
    node_id: 1,
    name: row?.name,
    org_slug: slug,
    ip_address: row?.ip,
    network: row?.network,
    mode: "server",
    is_lighthouse: true,
    is_relay: false,
    config_version: 1,
    order_key: JSON.parse(row?.key ?? "{}"),
    registered_at: "2026-11-01T00:00:00Z",
  };
  writeFileSync(join(root, slug, "node-config.json"), JSON.stringify(config));
  return root;
}
