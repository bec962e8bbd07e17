// `sudo bun test/bench/names.ts [NAMES] [SECONDS]`: the service of names in a network of its own, with NAMES nodes (50,000)
// that have IPv4 and IPv6 addresses. Bars: p99 of a lookup under 1 ms, 20,000 queries for each second of processor time,
// under 40 MB more RssAnon than with one node, first answer under 200 ms after a start (with the names prepared).

import { encode, type RecordType } from "dns-packet";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { writeHosts } from "../../src/node/files/hosts.ts";
import { resolverAddress } from "../../src/platform/names-places.ts";
import { agent, buildAgent, cleanEnvironment } from "../support/agent.ts";
import { writeOrganization } from "../support/organization-engines.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const { host, port } = resolverAddress;
const v4 = (at: number) => `10.77.${(at + 256) >> 8}.${(at + 256) & 255}`;
const v6 = (at: number) => `fd77::1:${(at + 256).toString(16)}`;

/** Forward, IPv6 and reverse questions in turns, for names in an order that no cache likes. */
function questions(names: number): Buffer[] {
  return Array.from({ length: 6000 }, (_, each) => {
    const at = (each * 7919) % names;
    const reverse = `${v4(at).split(".").reverse().join(".")}.in-addr.arpa`;
    const kinds: [string, RecordType][] = [
      [`node-${at}.acme.internal`, "A"],
      [`node-${at}.acme.internal`, "AAAA"],
      [reverse, "PTR"],
    ];
    const [name, type] = kinds[each % 3] ?? ["", "A"];
    return encode({ type: "query", id: each, questions: [{ type, name }] });
  });
}

/** In the service's network: when the first answer came, latencies one after another, and answers with 64 in flight. */
async function client(names: number, seconds: number): Promise<void> {
  const all = questions(names);
  let onAnswer: () => void = () => undefined;
  let failed = 0;
  const socket = await Bun.udpSocket({
    connect: { hostname: host, port },
    socket: {
      data(_socket, packet) {
        if (packet.readUInt16BE(6) !== 1) failed++;
        onAnswer();
      },
      error: () => undefined,
    },
  });
  const next = (at: number) => all[at % all.length] ?? Buffer.alloc(0);
  const one = (at: number) =>
    new Promise<boolean>((resolve) => {
      const timer = setTimeout(() => resolve(false), 5);
      onAnswer = () => {
        clearTimeout(timer);
        resolve(true);
      };
      socket.send(next(at));
    });
  while (!(await one(0)));
  const firstAt = Date.now();
  failed = 0;
  const times: number[] = [];
  for (let at = 0; at < 20_000; at++) {
    const begin = performance.now();
    if (await one(at)) times.push(performance.now() - begin);
  }
  times.sort((a, b) => a - b);
  let answers = 0;
  onAnswer = () => {
    answers++;
    socket.send(next(answers));
  };
  const begin = performance.now();
  for (let at = 0; at < 64; at++) socket.send(next(at));
  await Bun.sleep(seconds * 1000);
  const rate = answers / ((performance.now() - begin) / 1000);
  const at = (part: number) => times[Math.floor(times.length * part)] ?? 0;
  process.stdout.write(JSON.stringify({ firstAt, p50: at(0.5), p99: at(0.99), rate, answers, failed }));
  process.exit(0);
}

type Measured = {
  startMs: number;
  rssMb: number;
  p50: number;
  p99: number;
  rate: number;
  perCore: number;
  failed: number;
};

async function measure(names: number, seconds: number): Promise<Measured> {
  using directory = temporaryDirectory();
  const root = join(directory.path, "root");
  mkdirSync(root);
  writeOrganization(root, "acme", { network6: "fd77::5/64" });
  const nodes = Array.from({ length: names }, (_, at) => ({
    id: at + 1,
    name: `node-${at}`,
    ip: v4(at),
    ip6: v6(at),
  }));
  writeHosts(join(root, "acme"), { schema: 1, version: 1, view: "all", nodes, aliases: [] });
  mkdirSync(join(directory.path, "cache"));
  const start = `RUNTIME_DIRECTORY=/run CACHE_DIRECTORY=${directory.path}/cache ${agent} names --run --config-root ${root} >/dev/null 2>&1 & agent=$!`;
  // The first start prepares the names, as after the first check-in. The second one is measured.
  const script = `ip link set lo up && mount -t tmpfs none /etc && echo 127.0.0.1 localhost >/etc/hosts && mount -t tmpfs none /run
    ${start}
    sleep 1; [ ${names} -lt 20000 ] || until [ -e ${directory.path}/cache/names.packed ]; do sleep 0.1; done; kill -9 $agent; ${process.execPath} ${import.meta.path} client ${names} ${seconds} & client=$!
    sleep 1.5; date +%s%3N; ${start}
    ticks() { cut -d' ' -f14,15 /proc/$agent/stat; }
    sleep 3; ticks
    wait $client; echo; ticks; grep RssAnon /proc/$agent/status; kill -9 $agent`;
  const child = Bun.spawn(["unshare", "--net", "--mount", "sh", "-c", script], {
    env: cleanEnvironment(),
    stdin: "ignore",
    stdout: "pipe",
    stderr: "inherit",
  });
  const lines = (await new Response(child.stdout).text()).trim().split("\n");
  const text = lines.join("\n");
  const answer = JSON.parse(/\{.*\}/.exec(text)?.[0] ?? "null") as {
    firstAt: number;
    p50: number;
    p99: number;
    rate: number;
    answers: number;
    failed: number;
  };
  const last = lines.findLast((line) => /^\d+ \d+$/.test(line)) ?? "0 0";
  const cpuSeconds = last.split(" ").reduce((sum, each) => sum + Number(each), 0) / 100;
  return {
    startMs: answer.firstAt - Number(lines[0]),
    rssMb: Number(/RssAnon:\s+(\d+)/.exec(text)?.[1]) / 1024,
    p50: answer.p50,
    p99: answer.p99,
    rate: answer.rate,
    perCore: (answer.answers + 20_000) / cpuSeconds,
    failed: answer.failed,
  };
}

if (import.meta.main) {
  if (process.argv[2] === "client") await client(Number(process.argv[3]), Number(process.argv[4]));
  const names = Number(process.argv[2] ?? 50_000);
  const seconds = Number(process.argv[3] ?? 5);
  buildAgent();
  const few = await measure(1, seconds);
  const many = await measure(names, seconds);
  const rounded = (each: Measured) =>
    Object.fromEntries(Object.entries(each).map(([key, value]) => [key, Math.round(value * 1000) / 1000]));
  process.stdout.write(`${JSON.stringify({ names, one: rounded(few), many: rounded(many) }, null, 2)}\n`);
}
