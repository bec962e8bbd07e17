// `sudo bun test/bench/name-changes.ts [NODES] [CHANGES]`: how soon after a rename, by the API, `getent` finds the new name on a
// real node that holds its check-in, among NODES simulated ones (1,000) that hold theirs (bar: p99 under 2 s). Beside it,
// the floor: how soon the answer of the same rename is there. The names are in a hosts file, the slower of both ways.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { NamesAnswer } from "../../src/protocol/names.ts";
import { paths } from "../support/paths.ts";
import { agent, buildAgent, cleanEnvironment, runAgent } from "../support/agent.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { median, print, startServer } from "./measure.ts";
import { seed, slug, tokenOf } from "./seed.ts";

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

/** Processor time of a process so far, of user and system, proc_pid_stat(5). */
function busyMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /, "")
    .split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

async function measure(nodes: number, changes: number): Promise<void> {
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
  const [times, floor, files]: number[][] = [[], [], []];
  const hostsFile = join(root, slug, "hosts.json");
  const fileAt = async (name: string) => {
    while (!readFileSync(hostsFile, "utf8").includes(`"${name}"`)) await Bun.sleep(5);
    return performance.now();
  };
  const busyBefore = busyMs(pid);
  for (let at = 1; at <= changes; at++) {
    await Bun.sleep(betweenMs);
    const from = performance.now();
    await change(paths.node(slug, at), { name: `changed-${at}` });
    floor?.push(performance.now() - from);
    const written = fileAt(`changed-${at}`);
    await found(`changed-${at}`);
    files?.push((await written) - from);
    times?.push(performance.now() - from);
  }
  const p99 = (all: readonly number[] = []) =>
    all.toSorted((a, b) => a - b)[Math.ceil(all.length * 0.99) - 1] ?? Number.NaN;
  print(
    `rename to getent, ${nodes} nodes, ${changes} changes: ${median(times ?? []).toFixed(0)} ms, p99 ${p99(times).toFixed(0)} ms, bar 2000 (the rename itself ${median(floor ?? []).toFixed(0)} ms, p99 ${p99(floor).toFixed(0)} ms)`,
  );
  print(
    `hosts.json ${median(files ?? []).toFixed(0)} ms, p99 ${p99(files).toFixed(0)} ms after the rename; control plane ${((busyMs(pid) - busyBefore) / changes).toFixed(0)} ms of processor for each change with its ${nodes} answers and check-ins`,
  );
  await machine.stdin.end();
  await machine.exited;
  if (p99(times) > 2000) process.exitCode = 1;
}

if (import.meta.main) {
  const [mode = "", url = "", count = ""] = process.argv.slice(2);
  if (mode === "hold") await holdCheckins(url, Number(count));
  else await measure(Number(mode || 1000), Number(url || 100));
}
