// `sudo bun test/bench/names.ts [NAMES] [SECONDS]`: the service of names in a network of its own, with NAMES nodes (50,000)
// that have IPv4 and IPv6 addresses. Bars: p99 of a lookup under 1 ms, 20,000 queries for each second of processor time,
// under 40 MB more RssAnon than with one node, first answer under 200 ms after a start (with the names prepared).
// `sudo bun test/bench/names.ts changes [NODES] [CHANGES]`: how soon after a rename, by the API, `getent` finds the new name on
// a real node that holds its check-in, among NODES simulated ones (1,000) that hold theirs (bar: p99 under 2 s). Beside it,
// the floor: how soon the answer of the same rename is there. The names are in a hosts file, the slower of both ways.

import { encode, type RecordType } from "dns-packet";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { writeHosts } from "../../src/node/files/hosts.ts";
import { resolverAddress } from "../../src/platform/names-places.ts";
import { agent, buildAgent, cleanEnvironment, runAgent } from "../support/agent.ts";
import { writeOrganization } from "../support/organization-engines.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { NamesAnswer } from "../../src/protocol/names.ts";
import { paths } from "../support/paths.ts";
import { choose, figure, processorSeconds, quantile, startServer } from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

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

async function service([count = "50000", lasting = "5"]: string[]): Promise<void> {
  const names = Number(count);
  const seconds = Number(lasting);
  buildAgent();
  const few = await measure(1, seconds);
  const many = await measure(names, seconds);
  for (const [what, each] of [
    ["one name", few],
    [`${names} names`, many],
  ] as const) {
    figure(`${what}: lookup, p50`, each.p50, { unit: "ms", digits: 3 });
    figure(`${what}: lookup, p99`, each.p99, { unit: "ms", digits: 3, most: 1 });
    figure(`${what}: answers a second`, each.rate, { digits: 0 });
    figure(`${what}: queries for a second of processor time`, each.perCore, { digits: 0, least: 20_000 });
    figure(`${what}: first answer after a start`, each.startMs, { unit: "ms", digits: 0, most: 200 });
    figure(`${what}: failed`, each.failed, { most: 0 });
  }
  figure(`RssAnon with ${names} names, more than with one`, many.rssMb - few.rssMb, { unit: "MB", most: 40 });
}

const betweenMs = 1500;
const Answer = v.object({ config_version: v.number(), names: v.optional(NamesAnswer) });

/** Nodes that hold their check-ins all the time and take names, as a process of its own: this one is busy measuring. */
async function holdCheckins(url: string, nodes: number): Promise<void> {
  const hold = async (id: number) => {
    let version = 1;
    let names = { version: 0, view: "" };
    for (;;) {
      const body = { version: "1.0.0", uptime: 1, config_version: version, overlay_version: "1.10.3", names };
      const answer = await fetch(url + paths.checkin(slug, id), {
        method: "POST",
        headers: {
          Authorization: `Bearer ${tokenOf(id)}`,
          "Content-Type": "application/json",
          Prefer: "wait=55",
        },
        body: JSON.stringify(body),
      });
      const { config_version, names: taken } = v.parse(Answer, await answer.json());
      version = config_version;
      if (taken !== undefined) names = { version: taken.version, view: taken.view };
    }
  };
  await Promise.all(Array.from({ length: nodes }, (_, at) => hold(at + 1)));
}

async function measureChanges(nodes: number, changes: number): Promise<void> {
  buildAgent();
  await using stack = new AsyncDisposableStack();
  const { path } = stack.use(temporaryDirectory());
  const data = join(path, "data");
  const seeded = await seed({ dataDirectory: data }, nodes);
  const must = async (words: string[]) => {
    const { status, stderr } = await runAgent(words);
    if (status !== 0) throw new Error(stderr);
  };
  await must(["admin", "org", "update", slug, "--names", "all", "--data-dir", data]);
  const { url, pid } = stack.use(await startServer(["--data-dir", data]));
  const start = (argv: string[], env: Record<string, string> = {}) => {
    const child = Bun.spawn(argv, {
      env: { ...cleanEnvironment(), ...env },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    stack.defer(async () => {
      child.kill("SIGKILL");
      await child.exited;
    });
    return child;
  };
  const root = join(path, "root");
  const token = join(path, "token");
  writeFileSync(token, seeded.registration);
  const api = ["--api-base", url, "--allow-plain-http", "--org-slug", slug, "--node-name", "real"];
  const where = ["--mode", "server", "--no-start", "--config-root", root];
  await must(["register", ...api, ...where, "--registration-token-file", token]);
  const change = async (place: string, body: object) => {
    const headers = { Authorization: `Bearer ${seeded.admin}`, "Content-Type": "application/json" };
    const answer = await fetch(url + place, { method: "PATCH", headers, body: JSON.stringify(body) });
    if (answer.status !== 200) throw new Error(`${place}: ${answer.status} ${await answer.text()}`);
  };
  start([process.execPath, import.meta.path, "hold", url, String(nodes)], {
    BUN_CONFIG_MAX_HTTP_REQUESTS: String(nodes + 100),
  });
  start([
    "sh",
    "-c",
    `while :; do ${agent} check-auth --all --wait 58 --config-root ${root} >/dev/null 2>&1; done`,
  ]);
  mkdirSync(join(path, "etc"));
  const machine = start([
    "unshare",
    "--mount",
    "sh",
    "-ec",
    `mount --bind ${path}/etc /etc && mount -t tmpfs none /run
    echo 127.0.0.1 localhost >/etc/hosts; echo hosts: files >/etc/nsswitch.conf
    RUNTIME_DIRECTORY=/run ${agent} names --run --config-root ${root} >/dev/null 2>&1 &
    while read name; do until getent hosts $name.${slug}.internal >/dev/null; do sleep 0.01; done; echo $name; done
    kill $!`,
  ]);
  const lines = machine.stdout.pipeThrough(new TextDecoderStream()).getReader();
  const found = async (name: string) => {
    void machine.stdin.write(`${name}\n`);
    await machine.stdin.flush();
    const { value } = await lines.read();
    if (value?.trim() !== name) throw new Error(`Found ${value ?? "nothing"} instead of ${name}`);
  };
  await change(paths.node(slug, 1), { name: "first" });
  await found("first");
  // All simulated nodes hold a check-in by now.
  await Bun.sleep(10_000);
  const [times, floor, files]: [number[], number[], number[]] = [[], [], []];
  const hostsFile = join(root, slug, "hosts.json");
  const fileAt = async (name: string) => {
    while (!readFileSync(hostsFile, "utf8").includes(`"${name}"`)) await Bun.sleep(5);
    return performance.now();
  };
  const busyBefore = processorSeconds(pid);
  for (let at = 1; at <= changes; at++) {
    await Bun.sleep(betweenMs);
    const from = performance.now();
    await change(paths.node(slug, at), { name: `changed-${at}` });
    floor.push(performance.now() - from);
    const written = fileAt(`changed-${at}`);
    await found(`changed-${at}`);
    files.push((await written) - from);
    times.push(performance.now() - from);
  }
  const p99 = (all: readonly number[]) => quantile(all, 0.99);
  const options = { unit: "ms", digits: 0 };
  figure(`rename to getent, ${nodes} nodes, ${changes} changes`, times, { ...options, floor });
  figure("the same, p99", p99(times), { ...options, floor: p99(floor), most: 2000 });
  figure("hosts.json after the rename", files, options);
  const busyMs = ((processorSeconds(pid) - busyBefore) * 1000) / changes;
  figure(`processor of the control plane for a change with its ${nodes} answers`, busyMs, options);
  await machine.stdin.end();
  await machine.exited;
}

if (import.meta.main) {
  await choose({
    service,
    changes: ([nodes = "1000", changes = "100"]) => measureChanges(Number(nodes), Number(changes)),
    // Processes that this bench starts.
    client: ([names, seconds]) => client(Number(names), Number(seconds)),
    hold: ([url = "", nodes]) => holdCheckins(url, Number(nodes)),
  });
}
